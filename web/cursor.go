package web

import (
	"net/http"
	"net/url"
	"strconv"

	"getwork/assign"
)

const (
	pageSize    = 100
	maxPageSize = 1000
)

// readCursor reads ?cursor= and ?limit= of a list: only rows after that key in the list's order (0 for all), and at most so
// many.
func readCursor(r *http.Request) (after int64, limit int, err error) {
	if after, err = queryNumber(r, "cursor", 0, 1<<63-1); err != nil {
		return 0, 0, err
	}
	n, err := queryNumber(r, "limit", pageSize, maxPageSize)
	return after, int(n), err
}

// readPage reads a page of at most limit rows. It reads one row more: without it, a full page doesn't show whether it is the last.
func readPage[T any](limit int, read func(limit int) ([]T, error)) (rows []T, more bool, err error) {
	rows, err = read(limit + 1)
	if len(rows) > limit {
		return rows[:limit], true, err
	}
	return rows, false, err
}

// answerPage writes {"<plural>":[…],"next_cursor"?}; next_cursor is absent if there are no more rows.
func answerPage[T any](w http.ResponseWriter, plural string, rows []T, more bool, key func(T) int64) error {
	body := map[string]any{plural: append([]T{}, rows...)}
	if more {
		body["next_cursor"] = strconv.FormatInt(key(rows[len(rows)-1]), 10)
	}
	return answer(w, http.StatusOK, body)
}

// parameters returns the query parameters. It refuses one that can't be read: if it were left out, its filter would be, too.
func parameters(r *http.Request) (url.Values, error) {
	v, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, assign.Refuse(assign.Invalid, "what follows the question mark can't be read: %v", err)
	}
	return v, nil
}

func queryNumber(r *http.Request, name string, absent, most int64) (int64, error) {
	v, err := parameters(r)
	if err != nil {
		return 0, err
	}
	text := v.Get(name)
	if text == "" {
		return absent, nil
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 1 || n > most {
		return 0, refuseField(name, "%s is a number from 1 to %d, not %q", name, most, text)
	}
	return n, nil
}
