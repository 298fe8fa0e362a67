package client

import (
	"context"
	"encoding/json"
	"net/http"

	"getwork/assign"
)

// Pipeline reads what the caller holds and waits for.
func (c *Client) Pipeline(ctx context.Context, options ...Option) (assign.Pipeline, error) {
	return c.UserPipeline(ctx, "", options...)
}

// UserPipeline reads what a user holds and waits for, all instances together. For managers; empty: the caller's own.
func (c *Client) UserPipeline(ctx context.Context, user string, options ...Option) (p assign.Pipeline, err error) {
	err = c.get(ctx, path("pipeline"), query("user", user), &p, options)
	return p, err
}

// Dispose lets go of work. The same again changes nothing; something else is refused with [assign.AlreadyClosed], and work
// whose lease ran out with [assign.LeaseLost].
func (c *Client) Dispose(ctx context.Context, work int64, d assign.Disposition, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("work", text(work), "disposition"), d, &w, options)
	return w, err
}

// Extend begins the lease of held work anew; work without a lease is left as it is. Work that is not the caller's any more
// is refused with [assign.LeaseLost]: do no more with its item.
func (c *Client) Extend(ctx context.Context, work int64, options ...Option) (w assign.Work, err error) {
	err = c.sendSafe(ctx, http.MethodPost, path("work", text(work), "extend"), nil, &w, options)
	return w, err
}

// Reassign gives held work to another user, and returns what that one holds now. For managers.
func (c *Client) Reassign(ctx context.Context, work int64, user string, options ...Option) (w assign.Work, err error) {
	err = c.send(ctx, http.MethodPost, path("work", text(work), "reassign"), map[string]string{"user": user}, &w, options)
	return w, err
}

// Release takes work back from a user, of a task, or of both: first as a DryRun, which tells how much it is and gives a Token,
// and then with that token. What has changed since is refused with [assign.StaleVersion]. For managers.
func (c *Client) Release(ctx context.Context, what assign.Release, options ...Option) (done assign.Released, err error) {
	err = c.send(ctx, http.MethodPost, path("work", "release"), what, &done, options)
	return done, err
}

// WorkFilter selects work; empty fields do not filter.
type WorkFilter struct {
	Task, User, Item, State string
	Part
}

// ListWork reads work in whatever state, newest first. For observers and managers.
func (c *Client) ListWork(ctx context.Context, f WorkFilter, options ...Option) (Page[assign.Work], error) {
	q := f.query("task", f.Task, "user", f.User, "item", f.Item, "state", f.State)
	return list[assign.Work](ctx, c, path("work"), "work", q, options)
}

// HolderFilter selects who holds work; empty fields do not filter.
type HolderFilter struct {
	Task string // or several, separated by commas
	User string
	Part
}

// Holders is a page of who holds how much of which task.
type Holders struct {
	Page[assign.Held]
	Total *assign.HeldTotal // of all pages; with the first one only
}

// ListHolders reads who holds how much of which task, longest held first. For observers and managers.
func (c *Client) ListHolders(ctx context.Context, f HolderFilter, options ...Option) (h Holders, err error) {
	var a Answer
	options = append([]Option{Into(&a)}, options...)
	if h.Page, err = list[assign.Held](ctx, c, path("holders"), "holders", f.query("task", f.Task, "user", f.User), options); err != nil {
		return h, err
	}
	return h, json.Unmarshal(a.Body, &struct {
		Total **assign.HeldTotal `json:"total"`
	}{&h.Total})
}
