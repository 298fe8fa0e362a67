package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"getwork/assign"
)

// single connects anew for each call, so that a node that died is noticed at once, and nothing is left open.
var single = &http.Transport{DisableKeepAlives: true}

// Client is somebody who asks a node. Its methods return an error only when there was no answer; a refusal is an
// Answer with a Problem.
type Client struct {
	URL      string // of the node
	User     string
	Role     string // empty: worker
	Instance string // empty: none
}

// Answer is what a node answered.
type Answer struct {
	Status  int
	Header  http.Header
	Body    []byte
	Took    time.Duration
	Problem assign.Problem // of a status from 400 on
}

// Decode reads the body into v; an answer that is a refusal is an error.
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

// Do asks for a path such as /api/v1/tasks. body is sent as JSON unless it is nil; header has names and values in
// turn.
func (c Client) Do(ctx context.Context, method, path string, body any, header ...string) (Answer, error) {
	var payload io.Reader
	if body != nil {
		b, err := json.Marshal(body)
		if err != nil {
			return Answer{}, err
		}
		payload = bytes.NewReader(b)
	}
	r, err := http.NewRequestWithContext(ctx, method, c.URL+path, payload)
	if err != nil {
		return Answer{}, err
	}
	r.Header = c.header()
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
	}
	for i := 0; i+1 < len(header); i += 2 {
		r.Header.Set(header[i], header[i+1])
	}
	began := time.Now()
	response, err := single.RoundTrip(r)
	if err != nil {
		return Answer{}, fmt.Errorf("%s %s: %w", method, path, err)
	}
	defer response.Body.Close()
	a := Answer{Status: response.StatusCode, Header: response.Header}
	a.Body, err = io.ReadAll(response.Body)
	a.Took = time.Since(began)
	if err != nil {
		return a, fmt.Errorf("%s %s: %w", method, path, err)
	}
	if a.Status >= 400 {
		_ = json.Unmarshal(a.Body, &a.Problem)
	}
	return a, nil
}

func (c Client) header() http.Header {
	h := http.Header{}
	for name, value := range map[string]string{"X-Getwork-User": c.User, "X-Getwork-Role": c.Role, "X-Getwork-Instance": c.Instance} {
		if value != "" {
			h.Set(name, value)
		}
	}
	return h
}

// GetWork clicks, and returns the answer with the request in it. header has names and values in turn, such as
// "Prefer", "wait=30".
func (c Client) GetWork(ctx context.Context, task string, count int, header ...string) (assign.Request, Answer, error) {
	return c.request(ctx, http.MethodPost, "/api/v1/tasks/"+task+"/requests", map[string]any{"count": count}, header...)
}

// Linger clicks, and waits for as long as linger says, such as "10m", while nothing can be handed out. The answer is
// not held: that is for a header such as "Prefer", "wait=30".
func (c Client) Linger(ctx context.Context, task string, count int, linger string, header ...string) (assign.Request, Answer, error) {
	body := map[string]any{"count": count, "linger": linger}
	return c.request(ctx, http.MethodPost, "/api/v1/tasks/"+task+"/requests", body, header...)
}

// Request asks for a request's status. A refusal, and 304, come with an empty request.
func (c Client) Request(ctx context.Context, id int64, header ...string) (assign.Request, Answer, error) {
	return c.request(ctx, http.MethodGet, "/api/v1/requests/"+strconv.FormatInt(id, 10), nil, header...)
}

// Cancel ends a pending request with nothing. A refusal comes with an empty request.
func (c Client) Cancel(ctx context.Context, id int64) (assign.Request, Answer, error) {
	return c.request(ctx, http.MethodDelete, "/api/v1/requests/"+strconv.FormatInt(id, 10), nil)
}

func (c Client) request(ctx context.Context, method, path string, body any, header ...string) (r assign.Request, a Answer, err error) {
	a, err = c.Do(ctx, method, path, body, header...)
	if err == nil && a.Status < 300 {
		err = a.Decode(&r)
	}
	return r, a, err
}

// Await waits until a request is no longer pending, or ctx ends. Answers are held by the node, so it is told at
// once. A node that is away for a while, or says 503, is asked again.
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
func (c Client) Pipeline(ctx context.Context) (p assign.Pipeline, err error) {
	a, err := c.Do(ctx, http.MethodGet, "/api/v1/pipeline", nil)
	if err == nil {
		err = a.Decode(&p)
	}
	return p, err
}
