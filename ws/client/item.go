package client

import (
	"context"
	"net/http"

	"getwork/assign"
)

// PushItems puts items into an inbox, all or none of them; one whose key is there already counts as a duplicate. A call
// takes [assign.MaxPush] items and 1 MiB. For agents and managers.
func (c *Client) PushItems(ctx context.Context, task string, items []assign.NewItem, options ...Option) (p assign.Pushed, err error) {
	err = c.send(ctx, http.MethodPost, path("tasks", task, "items"), items, &p, options)
	return p, err
}

// Claim takes one named item, or returns the work by which the caller holds it already. It may execute the task's query, and
// takes until ctx ends. An item that does not match is refused with [assign.NotFound], one whose places are taken with
// [assign.NoSlot], and one that is put off or that a rule keeps from the caller with [assign.NotAvailable].
func (c *Client) Claim(ctx context.Context, task, item string, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("tasks", task, "items", item, "claim"), nil, &w, append([]Option{Within(0)}, options...))
	return w, err
}

// Explain tells whether an item can be handed out, and why not. It may execute the task's query, and takes until ctx ends.
// For managers.
func (c *Client) Explain(ctx context.Context, task, item string, options ...Option) (x assign.Explanation, err error) {
	err = c.get(ctx, path("tasks", task, "items", item), nil, &x, append([]Option{Within(0)}, options...))
	return x, err
}

// Redrive puts back what is never to return: the named items, or, without names, all whose attempts were used up. It returns
// how many those are. For managers.
func (c *Client) Redrive(ctx context.Context, task string, items []string, options ...Option) (count int, err error) {
	body := struct {
		Items []string `json:"items,omitempty"`
	}{items}
	var done struct {
		Count int `json:"count"`
	}
	err = c.send(ctx, http.MethodPost, path("tasks", task, "redrive"), body, &done, options)
	return done.Count, err
}
