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

// Problem is an answer that was not a 2xx. getwork's have the form of RFC 9457: Type is an address under /problems/, Detail is
// for people, and Errors name fields. If something other than getwork answered, Type is empty, and Title says so.
type Problem struct {
	assign.Problem
	RetryAfter time.Duration // at most 24 h; 0 if the server does not say
}

// Error returns the problem's detail.
func (p *Problem) Error() string {
	if p.Detail != "" {
		return p.Detail
	}
	return p.Title
}

// Kind returns the last part of the problem's type, such as [assign.LeaseLost].
func (p *Problem) Kind() assign.Kind {
	return assign.Kind(strings.TrimPrefix(p.Type, problems))
}

const problems = "/problems/"

// KindOf returns the kind of the [Problem] in err, or "" if err has none, or none of getwork's.
func KindOf(err error) assign.Kind {
	var p *Problem
	if !errors.As(err, &p) {
		return ""
	}
	return p.Kind()
}

// StatusOf returns the HTTP status of the [Problem] in err, or 0 if err has none.
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

// NoAnswer is the error of a call whose answer did not come, or not completely.
type NoAnswer struct {
	URL    string
	Unsent bool  // no connection was made, so the server has not seen the call
	Err    error // why
}

// Error returns the address and the cause.
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

// Foreign is the error of a 2xx answer that is not getwork's: another server answers at that address.
type Foreign struct {
	URL string
	Err error // why it can't be getwork's
}

// Error asks whether the URL is right.
func (f *Foreign) Error() string {
	return fmt.Sprintf("%s did not answer as getwork does (%v); is the URL right?", f.URL, f.Err)
}

// Unwrap is the cause.
func (f *Foreign) Unwrap() error { return f.Err }

// ErrNotModified is the error of a read if nothing has changed, see [IfNoneMatch].
var ErrNotModified = errors.New("nothing has changed since")

// refusal reads a problem, or says that something other than getwork answered.
func (c *Client) refusal(r *http.Response, body []byte) error {
	p := &Problem{RetryAfter: retryAfter(r.Header)}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "application/problem+json" {
		_ = json.Unmarshal(body, &p.Problem)
	}
	if !strings.HasPrefix(p.Type, problems) { // a gateway's: that it has the form is no sign of getwork
		p.Problem = assign.Problem{}
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
