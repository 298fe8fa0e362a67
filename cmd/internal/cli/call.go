package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"syscall"
	"time"

	api "getwork/ws/client"
)

// Call is one request of the REST API.
type Call struct {
	Method string
	Path   string // below /api/v1, escaped
	Body   any    // sent as JSON; nil: none
	header map[string]string
	hold   time.Duration // how long the server may hold the answer (Prefer: wait), in whole seconds; 0: not at all
	query  bool          // the server may have to run the task's query, which takes as long as the task allows
}

// reply is an answer with a 2xx status.
type reply struct {
	api.Answer
	body json.RawMessage
}

// Do makes a call and decodes the answer into v, unless v is nil. It returns a [refused] if the server answered with
// another status than 2xx, and an [unreached] if no answer came.
func (c *Client) Do(ctx context.Context, what Call, v any) (reply, error) {
	within := answerWithin
	if what.query {
		within += queryWithin
	}
	var got reply
	options := []api.Option{api.Within(within), api.Wait(what.hold), api.Into(&got.Answer)}
	for name, value := range what.header {
		options = append(options, api.Header(name, value))
	}
	if err := c.Client.Do(ctx, what.Method, "/api/v1"+what.Path, what.Body, v, options...); err != nil {
		return reply{}, c.inWords(ctx, err)
	}
	got.body = got.Body
	return got, nil
}

// inWords turns the error of a call into words for the person who typed the command. If ctx, the caller's context, has
// ended, nothing is wrong with the server.
func (c *Client) inWords(ctx context.Context, err error) error {
	var foreign *api.Foreign
	var problem *api.Problem
	var none *api.NoAnswer
	switch {
	case ctx.Err() != nil:
		return ErrInterrupted
	case errors.As(err, &problem):
		return &refused{Problem: *problem, url: c.URL, byToken: c.Token != ""}
	case errors.As(err, &foreign):
		return fmt.Errorf("%s did not answer as getwork does (%w); is --url right?", c.URL, foreign.Err)
	case errors.As(err, &none):
		return c.unreached(none)
	}
	return err
}

// unreached is the error of a call that got no answer.
type unreached struct {
	unsent bool // no connection was made, so the server has not seen the call
	text   string
}

func (u *unreached) Error() string { return u.text }

// unreached explains why no answer came.
func (c *Client) unreached(none *api.NoAnswer) error {
	err, u := none.Err, &unreached{unsent: none.Unsent}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		u.text = fmt.Sprintf("no server at %s: connection refused\nStart one with `getwork serve` or `getwork demo`, or name another with --url.", c.URL)
	case errors.Is(err, context.DeadlineExceeded):
		u.text = fmt.Sprintf("%s does not answer\nTry again, or name another node with --url.", c.URL)
	case u.unsent:
		u.text = fmt.Sprintf("can't reach %s: %v\nName another node with --url.", c.URL, err)
	default:
		u.text = fmt.Sprintf("the connection to %s was lost: %v\nTry again, or name another node with --url.", c.URL, err)
	}
	return u
}

// ErrInterrupted is the error of a command that was ended by Ctrl-C or SIGTERM.
var ErrInterrupted = errors.New("interrupted")
