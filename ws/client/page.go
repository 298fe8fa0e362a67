package client

import (
	"context"
	"encoding/json"
	"net/url"
	"strconv"
	"time"
)

// Part selects a part of a long list; its zero value, the first hundred rows.
type Part struct {
	Cursor string // Page.Next of the previous page; empty for the first
	Limit  int    // how many rows at most, 1 to 1000; 100 if 0
}

// Page is a part of a list.
type Page[T any] struct {
	Rows []T
	Next string // the Cursor of the next page; empty after the last
}

// query returns a filter's parameters, given as names and values in turn. Empty values are left out.
func (p Part) query(filters ...string) url.Values {
	q := query(append(filters, "cursor", p.Cursor)...)
	if p.Limit != 0 {
		q.Set("limit", strconv.Itoa(p.Limit))
	}
	return q
}

func query(filters ...string) url.Values {
	q := url.Values{}
	for i := 0; i+1 < len(filters); i += 2 {
		if filters[i+1] != "" {
			q.Set(filters[i], filters[i+1])
		}
	}
	return q
}

// list reads a page, whose rows are called plural in the answer.
func list[T any](ctx context.Context, c *Client, path, plural string, q url.Values, options []Option) (Page[T], error) {
	return listWith[T](ctx, c, path, plural, q, options, nil)
}

// listWith reads a page, and the field total into that variable unless the answer has none.
func listWith[T any](ctx context.Context, c *Client, path, plural string, q url.Values, options []Option, total any) (p Page[T], err error) {
	var body map[string]json.RawMessage
	if err := c.get(ctx, path, q, &body, options); err != nil {
		return p, err
	}
	err = json.Unmarshal(body[plural], &p.Rows)
	for name, into := range map[string]any{"next_cursor": &p.Next, "total": total} {
		if raw, ok := body[name]; ok && into != nil && err == nil {
			err = json.Unmarshal(raw, into)
		}
	}
	if err != nil {
		return Page[T]{}, &Foreign{URL: c.base(), Err: err}
	}
	return p, nil
}

// text returns an id as it is written in an address.
func text(id int64) string { return strconv.FormatInt(id, 10) }

// since returns a time as a parameter; "" for the zero time.
func since(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.UTC().Format(time.RFC3339Nano)
}
