package web

import (
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
)

// listHolders answers with who holds how much of which task, longest held first. The first page has the total, too.
func (s *server) listHolders(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	limit, err := queryNumber(r, "limit", pageSize, maxPageSize)
	if err != nil {
		return err
	}
	filter := assign.HolderFilter{Tasks: taskNames(v), User: v.Get("user")}
	cursor := v.Get("cursor")
	if cursor != "" {
		if filter.After, filter.First, err = readHolderCursor(cursor); err != nil {
			return err
		}
	}
	var total assign.HeldTotal
	holders, more, err := readPage(int(limit), func(limit int) (holders []assign.Held, err error) {
		filter.Limit = limit
		holders, total, err = s.Report.Holders(r.Context(), filter)
		return holders, err
	})
	if err != nil {
		return err
	}
	body := map[string]any{"holders": append([]assign.Held{}, holders...)}
	if cursor == "" {
		body["total"] = total
	}
	if more {
		body["next_cursor"] = holderCursor(holders[len(holders)-1])
	}
	return answer(w, http.StatusOK, body)
}

// holderCursor encodes the end of a page: since when, in the database's microseconds, and the lowest id.
func holderCursor(h assign.Held) string {
	return fmt.Sprintf("%d-%d", h.OldestAt.UnixMicro(), h.First)
}

func readHolderCursor(cursor string) (after time.Time, first int64, err error) {
	since, id, _ := strings.Cut(cursor, "-")
	micros, err := strconv.ParseUint(since, 10, 56) // times until the year 4253, all valid in the database
	if err == nil {
		first, err = strconv.ParseInt(id, 10, 64)
	}
	if err != nil {
		return after, 0, refuseField("cursor", "cursor is the next_cursor of the page before, not %q", cursor)
	}
	return time.UnixMicro(int64(micros)), first, nil
}
