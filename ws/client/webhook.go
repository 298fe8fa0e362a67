package client

import (
	"context"
	"net/http"
	"time"

	"getwork/assign"
)

// Web hooks of a task are for managers, those of all tasks for administrators. docs/webhooks.md says what their receiver does.

// MadeWebhook is a web hook that was just made.
type MadeWebhook struct {
	Secret string `json:"secret"` // what the receiver verifies signatures with; nobody can read it again
	assign.Webhook
}

// CreateWebhook makes a web hook. It is not repeated if the answer is lost: ListWebhooks shows whether there is one to delete.
func (c *Client) CreateWebhook(ctx context.Context, n assign.NewWebhook, options ...Option) (made MadeWebhook, err error) {
	err = c.send(ctx, http.MethodPost, path("webhooks"), n, &made, options)
	return made, err
}

// ListWebhooks reads the web hooks of a task, or with an empty name all that the caller may see.
func (c *Client) ListWebhooks(ctx context.Context, task string, options ...Option) ([]assign.Webhook, error) {
	p, err := list[assign.Webhook](ctx, c, path("webhooks"), "webhooks", query("task", task), options)
	return p.Rows, err
}

// TestWebhook has a test event sent, and returns its delivery's id.
func (c *Client) TestWebhook(ctx context.Context, id int64, options ...Option) (delivery int64, err error) {
	var begun struct {
		Delivery int64 `json:"delivery,string"`
	}
	err = c.send(ctx, http.MethodPost, path("webhooks", text(id), "test"), nil, &begun, options)
	return begun.Delivery, err
}

// RotatedSecret is a web hook's new secret.
type RotatedSecret struct {
	Secret      string     `json:"secret"`       // nobody can read it again
	FormerUntil *time.Time `json:"former_until"` // until then the former secret signs, too; nil: it does not
}

// RotateWebhook gives a web hook another secret. The former one signs, too, for as long as keep, at most seven days.
func (c *Client) RotateWebhook(ctx context.Context, id int64, keep time.Duration, options ...Option) (r RotatedSecret, err error) {
	err = c.send(ctx, http.MethodPost, path("webhooks", text(id), "rotate"), map[string]assign.Duration{"keep": assign.Duration(keep)}, &r, options)
	return r, err
}

// ListDeliveries reads a web hook's events, newest first. state is waiting, delivered, dead, or empty for all.
func (c *Client) ListDeliveries(ctx context.Context, id int64, state string, p Part, options ...Option) (Page[assign.Delivery], error) {
	return list[assign.Delivery](ctx, c, path("webhooks", text(id), "deliveries"), "deliveries", p.query("state", state), options)
}

// RedriveWebhook has dead events sent again, the named ones, or all if deliveries is nil, and returns how many there are. Very
// many take several calls of the API; if one fails, those before it have done their part.
func (c *Client) RedriveWebhook(ctx context.Context, id int64, deliveries []int64, options ...Option) (count int, err error) {
	body := map[string][]string{}
	if deliveries != nil { // an empty list names none, so it must not be left out, which means all
		body["deliveries"] = []string{}
	}
	for _, d := range deliveries {
		body["deliveries"] = append(body["deliveries"], text(d))
	}
	for {
		var done struct {
			Count int `json:"count"`
		}
		err = c.sendSafe(ctx, http.MethodPost, path("webhooks", text(id), "redrive"), body, &done, options)
		count += done.Count
		if err != nil || done.Count < assign.RedriveBatch {
			return count, err
		}
	}
}

// DeleteWebhook deletes a web hook, and the events that wait for it.
func (c *Client) DeleteWebhook(ctx context.Context, id int64, options ...Option) error {
	return c.send(ctx, http.MethodDelete, path("webhooks", text(id)), nil, nil, options)
}
