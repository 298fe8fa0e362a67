package client

import (
	"context"
	"fmt"
	"net/http"
	"unicode/utf8"

	"getwork/assign"
)

// PushItems puts items into an inbox, all or none of them; an item whose key is there already counts as a duplicate. A call takes
// at most [assign.MaxPush] items and 1 MiB. A key that is not UTF-8 is an [assign.Refusal] that names the item, and nothing is
// sent. For agents and managers.
func (c *Client) PushItems(ctx context.Context, task string, items []assign.NewItem, options ...Option) (p assign.Pushed, err error) {
	for i := range items {
		if err := sendable(fmt.Sprintf("[%d].item", i), items[i].Item); err != nil {
			return p, err
		}
	}
	err = c.send(ctx, http.MethodPost, path("tasks", task, "items"), items, &p, options)
	return p, err
}

// Claim takes one named item, or returns the caller's work if the caller holds the item already. It may execute the task's
// query, so only ctx bounds its time. It is refused with [assign.NotFound] if the item does not match, with [assign.NoSlot]
// if its places are taken, and with [assign.NotAvailable] if it is put off or a rule keeps it from the caller.
func (c *Client) Claim(ctx context.Context, task, item string, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("tasks", task, "items", item, "claim"), nil, &w, append([]Option{Within(0)}, options...))
	return w, err
}

// Give claims an item in the name of another user, and returns that user's work, also if they hold the item already. It is refused as
// [Client.Claim] and [Client.Reassign] are. For managers.
func (c *Client) Give(ctx context.Context, task, item string, to assign.Reassignment, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("tasks", task, "items", item, "claim"), to, &w, append([]Option{Within(0)}, options...))
	return w, err
}

// Explain says whether an item can be handed out, and why not. It may execute the task's query, so only ctx bounds its time.
// For managers.
func (c *Client) Explain(ctx context.Context, task, item string, options ...Option) (x assign.Explanation, err error) {
	err = c.get(ctx, path("tasks", task, "items", item), nil, &x, append([]Option{Within(0)}, options...))
	return x, err
}

// Redrive puts back items that were never to return: the named ones, or all whose attempts were used up if items is nil. An empty
// list that is not nil is refused with [assign.Invalid]: it is what a program has that found none. A key that is not UTF-8 is an
// [assign.Refusal], and nothing is sent. Redrive returns how many items it put back. For managers.
func (c *Client) Redrive(ctx context.Context, task string, items []string, options ...Option) (count int, err error) {
	for i, item := range items {
		if err := sendable(fmt.Sprintf("items[%d]", i), item); err != nil {
			return 0, err
		}
	}
	body := struct {
		Items []string `json:"items,omitzero"` // leaves out nil, but not an empty list
	}{items}
	var done struct {
		Count int `json:"count"`
	}
	err = c.send(ctx, http.MethodPost, path("tasks", task, "redrive"), body, &done, options)
	return done.Count, err
}

// sendable refuses a key that JSON can't carry: it would arrive with U+FFFD where its bytes are not UTF-8, as another key, and
// two such keys could be the same. Everything else about keys is for the server to refuse.
func sendable(field, key string) error {
	if utf8.ValidString(key) {
		return nil
	}
	return assign.RefuseField(field, "%s: %s; nothing was sent; convert the key to UTF-8 first", field, assign.CheckItem(key))
}
