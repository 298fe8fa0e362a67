package client

import (
	"context"
	"net/http"

	"getwork/assign"
)

// Pipeline reads the caller's work and waiting requests.
func (c *Client) Pipeline(ctx context.Context, options ...Option) (assign.Pipeline, error) {
	return c.UserPipeline(ctx, "", options...)
}

// UserPipeline reads the work and waiting requests of a user, all instances together. For managers; an empty name means the
// caller.
func (c *Client) UserPipeline(ctx context.Context, user string, options ...Option) (p assign.Pipeline, err error) {
	err = c.get(ctx, path("pipeline"), query("user", user), &p, options)
	return p, err
}

// ShowWork reads work in any state, the caller's own; of anybody, for observers and managers.
func (c *Client) ShowWork(ctx context.Context, work int64, options ...Option) (w assign.Work, err error) {
	err = c.get(ctx, path("work", text(work)), nil, &w, options)
	return w, err
}

// Dispose closes work. The same disposition again changes nothing. Another one is refused with [assign.AlreadyClosed], and any
// is refused with [assign.LeaseLost] if the lease ran out.
func (c *Client) Dispose(ctx context.Context, work int64, d assign.Disposition, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("work", text(work), "disposition"), d, &w, options)
	return w, err
}

// Extend renews the lease of held work; work without a lease stays as it is. It is refused with [assign.LeaseLost] if the work
// is no longer the caller's; then stop working on the item.
func (c *Client) Extend(ctx context.Context, work int64, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("work", text(work), "extend"), nil, &w, options)
	return w, err
}

// Reassign gives held work to another user, and returns that user's work. For managers.
func (c *Client) Reassign(ctx context.Context, work int64, user string, options ...Option) (w assign.Work, err error) {
	err = c.send(ctx, http.MethodPost, path("work", text(work), "reassign"), map[string]string{"user": user}, &w, options)
	return w, err
}

// Release takes back all work of a user, of a task, or of a user in a task. A DryRun comes first: it returns the number and a
// Token for the real call. That is refused with [assign.StaleVersion] if the work has changed since. For managers.
func (c *Client) Release(ctx context.Context, what assign.Release, options ...Option) (done assign.Released, err error) {
	err = c.send(ctx, http.MethodPost, path("work", "release"), what, &done, options)
	return done, err
}

// WorkFilter selects work; empty fields do not filter. If Value is set, the last page may be empty.
type WorkFilter struct {
	Task, User, Item, State string
	Value                   string // in one of its details, whatever the case; needs Task, and finds work of the last 31 days
	Part
}

// ListWork reads work in any state, newest first. For observers and managers.
func (c *Client) ListWork(ctx context.Context, f WorkFilter, options ...Option) (Page[assign.Work], error) {
	q := f.query("task", f.Task, "user", f.User, "item", f.Item, "state", f.State, "value", f.Value)
	return list[assign.Work](ctx, c, path("work"), "work", q, options)
}

// HolderFilter selects holders; empty fields do not filter.
type HolderFilter struct {
	Task string // or several, separated by commas
	User string
	Part
}

// Holders is a page of who holds how much of which task.
type Holders struct {
	Page[assign.Held]
	Total *assign.HeldTotal // of all pages; only with the first page
}

// ListHolders reads who holds how much of which task, longest held first. For observers and managers.
func (c *Client) ListHolders(ctx context.Context, f HolderFilter, options ...Option) (h Holders, err error) {
	h.Page, err = listWith[assign.Held](ctx, c, path("holders"), "holders", f.query("task", f.Task, "user", f.User), options, &h.Total)
	return h, err
}
