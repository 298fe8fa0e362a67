package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

// single makes a new connection for each call, so that a node's death is noticed at once and no connection stays open.
var single = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// Client is a user who asks a node, once per call. Methods that return an Answer return an error only if no answer
// came. A refusal is an Answer with a Problem, and comes with an empty value.
type Client struct {
	URL      string // the node's address
	User     string
	Role     string // empty: worker
	Instance string // empty: none
}

func (c Client) api() *client.Client {
	return &client.Client{URL: c.URL, User: c.User, Role: c.Role, Instance: c.Instance, HTTP: single, Retry: client.Retry{Tries: 1}}
}

// Answer is a node's answer.
type Answer struct {
	Status  int
	Header  http.Header
	Body    []byte
	Took    time.Duration
	Problem assign.Problem // set for statuses from 400 on
}

// Decode reads the body into v. It returns an error if the answer is a refusal.
func (a Answer) Decode(v any) error {
	if a.Status >= 400 {
		return fmt.Errorf("%d %s: %s", a.Status, a.Problem.Type, a.Problem.Detail)
	}
	if a.Status == http.StatusNotModified || len(a.Body) == 0 {
		return nil
	}
	if err := json.Unmarshal(a.Body, v); err != nil {
		return fmt.Errorf("%d, and a body that can't be read: %w: %s", a.Status, err, a.Body)
	}
	return nil
}

// asked makes one call. header has names and values in turn.
func asked[T any](header []string, call func(options ...client.Option) (T, error)) (v T, a Answer, err error) {
	var raw client.Answer
	options := []client.Option{client.Within(0), client.Key(""), client.Into(&raw)}
	for i := 0; i+1 < len(header); i += 2 {
		options = append(options, client.Header(header[i], header[i+1]))
	}
	v, err = call(options...)
	a = Answer{Status: raw.Status, Header: raw.Header, Body: raw.Body, Took: raw.Took}
	var p *client.Problem
	switch {
	case errors.As(err, &p):
		a.Problem, err = p.Problem, nil
	case errors.Is(err, client.ErrNotModified):
		err = nil
	}
	return v, a, err
}

// Do calls a path such as /api/v1/tasks. body is sent as JSON unless it is nil; header has names and values in turn.
func (c Client) Do(ctx context.Context, method, path string, body any, header ...string) (Answer, error) {
	_, a, err := asked(header, func(o ...client.Option) (struct{}, error) {
		return struct{}{}, c.api().Do(ctx, method, path, body, nil, o...)
	})
	return a, err
}

// GetWork clicks, and returns the answer and the request in it. header has names and values in turn, such as "Prefer",
// "wait=30".
func (c Client) GetWork(ctx context.Context, task string, count int, header ...string) (assign.Request, Answer, error) {
	return c.click(ctx, task, map[string]any{"count": count}, header)
}

// Linger clicks, with a request that waits for up to linger, such as "10m", if nothing can be handed out. The node does
// not hold its answer unless a header says so, such as "Prefer", "wait=30".
func (c Client) Linger(ctx context.Context, task string, count int, linger string, header ...string) (assign.Request, Answer, error) {
	return c.click(ctx, task, map[string]any{"count": count, "linger": linger}, header)
}

// click sends exactly what a test says, even if it is wrong.
func (c Client) click(ctx context.Context, task string, body any, header []string) (assign.Request, Answer, error) {
	return asked(header, func(o ...client.Option) (r assign.Request, err error) {
		err = c.api().Do(ctx, http.MethodPost, "/api/v1/tasks/"+task+"/requests", body, &r, o...)
		return r, err
	})
}

// Request reads a request. A refusal, or a 304, comes with an empty request.
func (c Client) Request(ctx context.Context, id int64, header ...string) (assign.Request, Answer, error) {
	return asked(header, func(o ...client.Option) (assign.Request, error) { return c.api().ShowRequest(ctx, id, o...) })
}

// Cancel cancels a pending request.
func (c Client) Cancel(ctx context.Context, id int64) (assign.Request, Answer, error) {
	return asked(nil, func(o ...client.Option) (assign.Request, error) { return c.api().CancelRequest(ctx, id, o...) })
}

// Await waits until a request is no longer pending, or ctx ends. The node holds its answers, so Await returns as soon
// as the request ends. If the node is away for a while, or answers 503, Await asks again.
func (c Client) Await(ctx context.Context, id int64) (assign.Request, error) {
	again := time.NewTicker(100 * time.Millisecond)
	defer again.Stop()
	for {
		r, a, err := c.Request(ctx, id, "Prefer", "wait=5")
		if err == nil && a.Status < 300 && r.State != assign.Pending {
			return r, nil
		}
		if err == nil && a.Status >= 400 && a.Status != http.StatusServiceUnavailable {
			return r, a.Decode(&r)
		}
		select {
		case <-ctx.Done():
			return r, fmt.Errorf("request %d of %s is still %q (last answer %d, error %w): %w", id, c.User, r.State, a.Status, err, ctx.Err())
		case <-again.C:
		}
	}
}

// Pipeline reads what the client's user holds and waits for.
func (c Client) Pipeline(ctx context.Context) (assign.Pipeline, error) { return c.api().Pipeline(ctx) }
