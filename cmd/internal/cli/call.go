package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"syscall"
	"time"
)

// Call is one request of the REST API.
type Call struct {
	Method string
	Path   string // below /api/v1, escaped
	Body   any    // sent as JSON; nil: none
	header map[string]string
	hold   time.Duration // asked for with Prefer: wait, in whole seconds; 0: don't
	query  bool          // the server may have to run the task's query for it, which takes as long as the task allows
}

// reply is what came back with a 2xx.
type reply struct {
	status int
	header http.Header
	body   json.RawMessage
}

// maxReply bounds what a wrong --url can make the command read.
const maxReply = 256 << 20

// Do makes a call and decodes the answer into v, unless that is nil. Its errors are a [refused] when the server
// answered with something else than a 2xx, and an [unreached] when no answer came.
func (c *Client) Do(ctx context.Context, what Call, v any) (reply, error) {
	within := answerWithin + what.hold
	if what.query {
		within += queryWithin
	}
	timed, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	req, err := c.request(timed, what)
	if err != nil {
		return reply{}, err
	}
	resp, err := c.Http.Do(req)
	if err != nil {
		return reply{}, c.unreached(ctx, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxReply))
	if err != nil {
		return reply{}, c.unreached(ctx, err)
	}
	if resp.StatusCode/100 != 2 {
		return reply{}, c.refusal(resp, body)
	}
	if v != nil {
		if err := json.Unmarshal(body, v); err != nil {
			return reply{}, fmt.Errorf("%s did not answer as getwork does (%w); is --url right?", c.base, err)
		}
	}
	return reply{resp.StatusCode, resp.Header, body}, nil
}

func (c *Client) request(ctx context.Context, what Call) (*http.Request, error) {
	var body io.Reader
	if what.Body != nil {
		b, err := json.Marshal(what.Body)
		if err != nil {
			return nil, fmt.Errorf("encode the call: %w", err)
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(ctx, what.Method, c.base+"/api/v1"+what.Path, body)
	if err != nil {
		return nil, fmt.Errorf("make the call: %w", err)
	}
	req.Header = c.header.Clone()
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	for name, value := range what.header {
		req.Header.Set(name, value)
	}
	if what.hold > 0 {
		req.Header.Set("Prefer", fmt.Sprintf("wait=%d", int(what.hold.Seconds())))
	}
	return req, nil
}

// unreached is a call that no answer came to.
type unreached struct {
	unsent bool // no connection was made: the server knows nothing of it
	text   string
}

func (u *unreached) Error() string { return u.text }

// unreached says why no answer came. ctx is the caller's: when that has ended, nothing is wrong with the server.
func (c *Client) unreached(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	var wrapped *url.Error // names the method and the address once more
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var dial *net.OpError
	u := &unreached{unsent: errors.As(err, &dial) && dial.Op == "dial"}
	switch {
	case errors.Is(err, syscall.ECONNREFUSED):
		u.text = fmt.Sprintf("no server at %s: connection refused\nStart one with `getwork serve` or `getwork demo`, or name another with --url.", c.base)
	case errors.Is(err, context.DeadlineExceeded):
		u.text = fmt.Sprintf("%s does not answer\nTry again, or name another node with --url.", c.base)
	case u.unsent:
		u.text = fmt.Sprintf("can't reach %s: %v\nName another node with --url.", c.base, err)
	default:
		u.text = fmt.Sprintf("the connection to %s was lost: %v\nTry again, or name another node with --url.", c.base, err)
	}
	return u
}

var ErrInterrupted = errors.New("interrupted")
