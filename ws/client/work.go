package client

import (
	"context"
	"fmt"
	"net/http"
	"time"

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

// Later puts held work aside until a time, at most 72 hours from now, or takes it up again: nil. It stays the caller's, and its lease begins
// then. It is refused with [assign.LeaseLost] if the work is no longer the caller's. Not for programs.
func (c *Client) Later(ctx context.Context, work int64, until *time.Time, options ...Option) (w assign.Work, err error) {
	body := struct {
		Until *time.Time `json:"until"`
	}{until}
	err = c.sendSafe(ctx, http.MethodPost, path("work", text(work), "later"), body, &w, options)
	return w, err
}

// DisposeMany closes up to [assign.MaxMany] works in one call of at most 1 MiB, each judged as [Client.Dispose] would: the results have
// the order of the call, and [RefusalOf] makes an error of one. The call fails as a whole, with nothing done, if it names any work twice.
func (c *Client) DisposeMany(ctx context.Context, all []assign.Disposal, options ...Option) ([]assign.Result, error) {
	body := struct {
		Dispositions []assign.Disposal `json:"dispositions"`
	}{append([]assign.Disposal{}, all...)}
	answer := results{want: make([]int64, len(all))}
	for i := range all {
		answer.want[i] = all[i].ID
	}
	err := c.sendSafe(ctx, http.MethodPost, path("work", "dispositions"), body, &answer, options)
	return answer.Results, err
}

// ExtendMany renews the leases of up to [assign.MaxMany] works in one call, each judged as [Client.Extend] would: the results have the
// order of ids. The call fails as a whole, with nothing done, if it names any work twice.
func (c *Client) ExtendMany(ctx context.Context, ids []int64, options ...Option) ([]assign.Result, error) {
	body := struct {
		IDs []string `json:"ids"`
	}{make([]string, len(ids))}
	for i, id := range ids {
		body.IDs[i] = text(id)
	}
	answer := results{want: ids}
	err := c.sendSafe(ctx, http.MethodPost, path("work", "extend"), body, &answer, options)
	return answer.Results, err
}

// results is the answer to a call for much work.
type results struct {
	Results []assign.Result `json:"results"`
	want    []int64
}

// check refuses an answer that is not about the work of the call.
func (r *results) check() error {
	if len(r.Results) != len(r.want) {
		return fmt.Errorf("it has %d results for %d works", len(r.Results), len(r.want))
	}
	for i, one := range r.Results {
		if one.ID != r.want[i] || (one.Status/100 == 2) == (one.Problem != nil) {
			return fmt.Errorf("result %d is not about work %d", i, r.want[i])
		}
	}
	return nil
}

// RefusalOf returns the [Problem] of a result; nil if the work was not refused.
func RefusalOf(r assign.Result) error {
	if r.Problem == nil {
		return nil
	}
	return &Problem{Problem: *r.Problem}
}

// Reassign gives held work to another user, and returns that user's work. It is refused with [assign.NotAvailable] if a rule keeps the
// item from them; if the refusal has the field force, nobody of that name has been seen, and only Force gives it to them. For managers.
func (c *Client) Reassign(ctx context.Context, work int64, to assign.Reassignment, options ...Option) (w assign.Work, err error) {
	err = c.send(ctx, http.MethodPost, path("work", text(work), "reassign"), to, &w, options)
	return w, err
}

// Release takes back all work of a user, of a task, or of a user in a task, and cancels what that user waits for. A DryRun comes first: it
// returns the numbers and a Token for the real call. That is refused with [assign.StaleVersion] if the work has changed since. For managers.
func (c *Client) Release(ctx context.Context, what assign.Release, options ...Option) (done assign.Released, err error) {
	err = c.do(ctx, call{method: http.MethodPost, path: api + path("work", "release"), body: what, within: releaseWithin}, &done, options)
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
