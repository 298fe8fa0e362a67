package client

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"getwork/assign"
)

// Problem is an answer that was not a 2xx. What getwork answers so is described by RFC 9457: Type is one of the addresses
// under /problems/, Detail is for people, and Errors name fields. Type is empty when something else answered in getwork's
// place; Title says so then.
type Problem struct {
	assign.Problem
	RetryAfter time.Duration // 0: the server does not say
}

// Error is the problem's detail.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// Kind is the last part of the problem's type, such as [assign.LeaseLost].
func (p *Problem) Kind() assign.Kind {
	return assign.Kind(strings.TrimPrefix(p.Type, "/problems/"))
}

// KindOf is the kind of the [Problem] that err is; empty: it is none, or none of getwork's.
func KindOf(err error) assign.Kind {
	var p *Problem
	if !errors.As(err, &p) {
		return ""
	}
	return p.Kind()
}

// StatusOf is the HTTP status of the [Problem] that err is; 0: it is none.
func StatusOf(err error) int {
	var p *Problem
	if !errors.As(err, &p) {
		return 0
	}
	return p.Status
}

func retryAfterOf(err error) time.Duration {
	var p *Problem
	if !errors.As(err, &p) {
		return 0
	}
	return p.RetryAfter
}

// NoAnswer is a call to which nothing came back, or not all of it.
type NoAnswer struct {
	URL    string
	Unsent bool  // no connection was made: the server knows nothing of the call
	Err    error // why
}

// Error names the address.
func (n *NoAnswer) Error() string { return fmt.Sprintf("no answer from %s: %v", n.URL, n.Err) }

// Unwrap is the cause.
func (n *NoAnswer) Unwrap() error { return n.Err }

func noAnswer(address string, err error) error {
	var wrapped *url.Error // names the method and the address once more
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var dial *net.OpError
	return &NoAnswer{URL: address, Unsent: errors.As(err, &dial) && dial.Op == "dial", Err: err}
}

// Foreign is a 2xx that getwork does not give: something else answers at that address.
type Foreign struct {
	URL string
	Err error // what can't be read about it
}

// Error asks whether the URL is right.
func (f *Foreign) Error() string {
	return fmt.Sprintf("%s did not answer as getwork does (%v); is the URL right?", f.URL, f.Err)
}

// Unwrap is the cause.
func (f *Foreign) Unwrap() error { return f.Err }

// ErrNotModified is how a read fails when nothing has changed since, see [IfNoneMatch].
var ErrNotModified = errors.New("nothing has changed since")

// refusal reads a problem, or says that this is no getwork.
func (c *Client) refusal(r *http.Response, body []byte) error {
	p := &Problem{RetryAfter: retryAfter(r.Header)}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/problem+json" {
		_ = json.Unmarshal(body, &p.Problem)
	}
	p.Status = r.StatusCode
	if p.Type == "" {
		p.Title = fmt.Sprintf("%s answered %q, and not as getwork does; is the URL right?", c.base(), r.Status)
		if to := r.Header.Get("Location"); r.StatusCode/100 == 3 && to != "" {
			p.Title = fmt.Sprintf("%s redirects to %s; is that the right URL?", c.base(), to)
		}
	}
	return p
}
