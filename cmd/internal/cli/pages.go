package cli

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"strconv"

	"getwork/cmd/internal/command"
)

// paged has the flags of commands that print a list that can be long.
type paged struct {
	Limit  int    `help:"How many to list." default:"20" placeholder:"N"`
	All    bool   `help:"List all, however many there are."`
	Cursor string `help:"Continue where an earlier list ended, at the cursor that it printed." placeholder:"CURSOR"`
}

// maxPage is the most rows that one call returns.
const maxPage = 1000

// list is a list as the API sent it, with the cursor to continue at; an empty cursor means that the list is complete.
type list struct {
	plural string
	rows   []json.RawMessage
	next   string
}

// list reads as many pages as are wanted. plural is the name of the rows in the API's answer. Its errors are those of
// [Client.Do], or a wrong use of the flags.
func (p paged) list(ctx context.Context, c *Client, path string, query url.Values, plural string) (list, error) {
	if p.Limit < 1 {
		return list{}, command.Usage("--limit must be 1 or more, not %d; --all lists all", p.Limit)
	}
	l := list{plural: plural, rows: []json.RawMessage{}, next: p.Cursor}
	if query == nil {
		query = url.Values{}
	}
	for {
		size := maxPage
		if !p.All {
			size = min(size, p.Limit-len(l.rows))
		}
		query.Set("limit", strconv.Itoa(size))
		if l.next != "" {
			query.Set("cursor", l.next)
		}
		var page map[string]json.RawMessage
		if _, err := c.Do(ctx, Call{Method: "GET", Path: path + "?" + query.Encode()}, &page); err != nil {
			return list{}, err
		}
		var rows []json.RawMessage
		if err := json.Unmarshal(page[plural], &rows); err != nil {
			return list{}, fmt.Errorf("%s did not answer with %s (%w); is --url right?", c.URL, plural, err)
		}
		l.rows, l.next = append(l.rows, rows...), ""
		if next, ok := page["next_cursor"]; ok {
			if err := json.Unmarshal(next, &l.next); err != nil {
				return list{}, fmt.Errorf("read the cursor: %w", err)
			}
		}
		if l.next == "" || len(rows) == 0 || !p.All && len(l.rows) >= p.Limit {
			return l, nil
		}
	}
}

// MarshalJSON writes a list as the API does.
func (l list) MarshalJSON() ([]byte, error) {
	v := map[string]any{l.plural: l.rows}
	if l.next != "" {
		v["next_cursor"] = l.next
	}
	return json.Marshal(v)
}

// rowsOf decodes the rows of a list.
func rowsOf[T any](l list) ([]T, error) {
	rows := make([]T, len(l.rows))
	for i, raw := range l.rows {
		if err := json.Unmarshal(raw, &rows[i]); err != nil {
			return nil, fmt.Errorf("read %s: %w", l.plural, err)
		}
	}
	return rows, nil
}

// more tells the user that the list may go on.
func (l list) more(s *command.Streams) {
	if l.next != "" {
		_, _ = fmt.Fprintf(s.Errs, "There may be more: --all lists everything, --cursor %s continues here.\n", l.next)
	}
}
