package web

import (
	"encoding/csv"
	"fmt"
	"net/http"
	"strconv"
	"time"

	"getwork/assign"
	"getwork/web/sheet"
)

// csvName is the name of the file that a browser saves.
const csvName = "work.csv"

// answerCSV writes work as a table for a spreadsheet. If there is more, the answer's Link names it.
func answerCSV(w http.ResponseWriter, r *http.Request, works []assign.Work, more bool) error {
	h := w.Header()
	h.Set("Content-Type", "text/csv; charset=utf-8")
	h.Set("Content-Disposition", `attachment; filename="`+csvName+`"`)
	h.Set("Cache-Control", "no-store")
	if more {
		next := *r.URL
		q := next.Query()
		q.Set("cursor", strconv.FormatInt(works[len(works)-1].ID, 10))
		next.RawQuery = q.Encode()
		h.Set("Link", fmt.Sprintf(`<%s>; rel="next"`, next.RequestURI()))
	}
	w.WriteHeader(http.StatusOK)
	c := csv.NewWriter(w) // with CRLF, as RFC 4180 has it, this package would change line ends within notes and details
	_ = c.Write([]string{"id", "task", "item", "user", "instance", "state", "assigned_at", "closed_at", "available_at", "attempt", "error", "note", "details"})
	for _, work := range works {
		row := []string{strconv.FormatInt(work.ID, 10), work.Task, work.Item, work.User, work.Instance, string(work.State), csvTime(&work.AssignedAt),
			csvTime(work.ClosedAt), csvTime(work.AvailableAt), strconv.Itoa(work.Attempt), csvText(work.Error), csvText(work.Note), string(work.Details)}
		for i := range row {
			row[i] = sheet.Text(row[i])
		}
		_ = c.Write(row)
	}
	c.Flush()
	return nil // a client that is gone needs no answer
}

func csvTime(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.UTC().Format(time.RFC3339)
}

func csvText(t *string) string {
	if t == nil {
		return ""
	}
	return *t
}
