package cluster

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"getwork/assign"
)

// onWork makes a call about one piece of work. A refusal comes with empty work.
func (c Client) onWork(ctx context.Context, path string, body any) (w assign.Work, a Answer, err error) {
	a, err = c.Do(ctx, http.MethodPost, path, body)
	if err == nil && a.Status < 300 {
		err = a.Decode(&w)
	}
	return w, a, err
}

func workPath(id int64, call string) string {
	return "/api/v1/work/" + strconv.FormatInt(id, 10) + "/" + call
}

// Claim takes one named item: 201, or 200 when it is the client's already.
func (c Client) Claim(ctx context.Context, task, item string) (assign.Work, Answer, error) {
	return c.onWork(ctx, itemPath(task, item)+"/claim", nil)
}

// Dispose lets go of work: "complete", "return" with after, such as "1h", or "never". after is empty for others.
func (c Client) Dispose(ctx context.Context, work int64, outcome, after string) (assign.Work, Answer, error) {
	body := map[string]any{"outcome": outcome}
	if after != "" {
		body["after"] = after
	}
	return c.onWork(ctx, workPath(work, "disposition"), body)
}

// Fail lets go of work because the attempt failed; why may be empty.
func (c Client) Fail(ctx context.Context, work int64, why string) (assign.Work, Answer, error) {
	body := map[string]any{"outcome": "fail"}
	if why != "" {
		body["error"] = why
	}
	return c.onWork(ctx, workPath(work, "disposition"), body)
}

// Extend begins the lease of work anew.
func (c Client) Extend(ctx context.Context, work int64) (assign.Work, Answer, error) {
	return c.onWork(ctx, workPath(work, "extend"), nil)
}

// Reassign gives somebody's work to another, and returns what that one holds now. It asks as a manager.
func (c Client) Reassign(ctx context.Context, work int64, user string) (assign.Work, Answer, error) {
	c.Role = manager
	return c.onWork(ctx, workPath(work, "reassign"), map[string]any{"user": user})
}

// Release counts what it would release, and gives a token (DryRun), or releases exactly what a token stands for. It
// asks as a manager.
func (c Client) Release(ctx context.Context, what assign.Release) (done assign.Released, a Answer, err error) {
	c.Role = manager
	body := map[string]any{}
	for field, value := range map[string]string{"user": what.User, "task": what.Task, "token": what.Token} {
		if value != "" {
			body[field] = value
		}
	}
	if what.DryRun {
		body["dry_run"] = true
	}
	a, err = c.Do(ctx, http.MethodPost, "/api/v1/work/release", body)
	if err == nil && a.Status < 300 {
		err = a.Decode(&done)
	}
	return done, a, err
}

// WorkPage reads one page of the history of work, newest first; query has task, user, item, state, limit and cursor.
// next is the cursor of the page behind it, empty when there is none. It asks as an observer.
func (c Client) WorkPage(ctx context.Context, query url.Values) (page []assign.Work, next string, err error) {
	c.Role = observer
	var body struct {
		Work []assign.Work `json:"work"`
		Next string        `json:"next_cursor"`
	}
	a, err := c.Do(ctx, http.MethodGet, "/api/v1/work?"+query.Encode(), nil)
	if err == nil {
		err = a.Decode(&body)
	}
	return body.Work, body.Next, err
}
