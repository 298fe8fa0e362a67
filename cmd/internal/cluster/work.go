package cluster

import (
	"context"
	"net/http"
	"strconv"

	"getwork/assign"
	"getwork/ws/client"
)

// Claim takes one named item. The status is 201, or 200 if the client holds it already.
func (c Client) Claim(ctx context.Context, task, item string) (assign.Work, Answer, error) {
	return asked(nil, func(o ...client.Option) (assign.Work, error) { return c.api().Claim(ctx, task, item, o...) })
}

// Dispose lets go of work: "complete", "return" with after, such as "1h", or "never". after is empty except for
// "return".
func (c Client) Dispose(ctx context.Context, work int64, outcome, after string) (assign.Work, Answer, error) {
	return c.dispose(ctx, work, outcome, "after", after)
}

// Fail lets go of work because the attempt failed; why may be empty.
func (c Client) Fail(ctx context.Context, work int64, why string) (assign.Work, Answer, error) {
	return c.dispose(ctx, work, "fail", "error", why)
}

// dispose sends exactly what a test says, even if it is wrong.
func (c Client) dispose(ctx context.Context, work int64, outcome, field, value string) (assign.Work, Answer, error) {
	body := map[string]any{"outcome": outcome}
	if value != "" {
		body[field] = value
	}
	return asked(nil, func(o ...client.Option) (w assign.Work, err error) {
		err = c.api().Do(ctx, http.MethodPost, "/api/v1/work/"+strconv.FormatInt(work, 10)+"/disposition", body, &w, o...)
		return w, err
	})
}

// Extend starts the lease of work over.
func (c Client) Extend(ctx context.Context, work int64) (assign.Work, Answer, error) {
	return asked(nil, func(o ...client.Option) (assign.Work, error) { return c.api().Extend(ctx, work, o...) })
}
