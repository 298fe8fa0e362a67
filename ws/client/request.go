package client

import (
	"cmp"
	"context"
	"crypto/rand"
	"net/http"
	"time"

	"getwork/assign"
)

// Click is the body of [Client.GetWork].
type Click struct {
	Count  int             `json:"count"`            // how many items, at most the task's max_request
	Linger assign.Duration `json:"linger,omitempty"` // how long to wait if there is nothing, up to 24 h
	Lease  assign.Duration `json:"lease,omitempty"`  // for agents: how long to hold the work if the task has no lease, 1 s to 24 h
}

// GetWork asks for work of a task. The request may be pending: [Wait] makes the node hold its answer for a while, and
// [Client.AwaitRequest] waits for as long as it takes. Each call makes a new request, unless the holder has a pending one,
// which is returned instead. A [Key] makes repeated calls the same request.
func (c *Client) GetWork(ctx context.Context, task string, click Click, options ...Option) (r assign.Request, err error) {
	options = append([]Option{Key(rand.Text())}, options...)
	err = c.send(ctx, http.MethodPost, path("tasks", task, "requests"), click, &r, options)
	return r, err
}

// Next is the body of [Client.GetNext].
type Next struct {
	Tasks []string `json:"tasks"` // their names, or "*" for all
	Click
}

// GetNext is [Client.GetWork] over several tasks: the first of them that can, by priority and in turns, answers.
func (c *Client) GetNext(ctx context.Context, next Next, options ...Option) (r assign.Request, err error) {
	options = append([]Option{Key(rand.Text())}, options...)
	err = c.send(ctx, http.MethodPost, path("requests"), next, &r, options)
	return r, err
}

// ShowRequest reads a request.
func (c *Client) ShowRequest(ctx context.Context, id int64, options ...Option) (r assign.Request, err error) {
	err = c.get(ctx, path("requests", text(id)), nil, &r, options)
	return r, err
}

// CancelRequest ends a pending request with nothing. One that has ended already is refused with [assign.NotPending].
func (c *Client) CancelRequest(ctx context.Context, id int64, options ...Option) (r assign.Request, err error) {
	err = c.sendSafe(ctx, http.MethodDelete, path("requests", text(id)), nil, &r, options)
	return r, err
}

// holdFor is how long AwaitRequest asks nodes to hold their answers.
const holdFor = 60 * time.Second

// AwaitRequest waits until a request has ended, or ctx does. Nodes hold their answers, so it returns as soon as the request ends.
// It also waits through restarts of the server, unless [Retry] sets Tries.
func (c *Client) AwaitRequest(ctx context.Context, id int64) (assign.Request, error) {
	patient := *c
	patient.Retry.Tries = cmp.Or(c.Retry.Tries, -1)
	for {
		var a Answer
		r, err := patient.ShowRequest(ctx, id, Wait(holdFor), Into(&a))
		if err != nil || r.State != assign.Pending {
			return r, err
		}
		if a.Took > holdFor*9/10 {
			continue
		}
		t := time.NewTimer(max(a.RetryAfter(), time.Second)) // the node did not hold its answer: too many wait there, or it shuts down
		select {
		case <-t.C:
		case <-ctx.Done():
			t.Stop()
			return r, context.Cause(ctx)
		}
	}
}

// RequestFilter selects waiting requests; empty fields do not filter.
type RequestFilter struct {
	Task string
	Part
}

// ListRequests reads waiting requests, oldest first. For observers and managers.
func (c *Client) ListRequests(ctx context.Context, f RequestFilter, options ...Option) (Page[assign.Request], error) {
	return list[assign.Request](ctx, c, path("requests"), "requests", f.query("task", f.Task), options)
}
