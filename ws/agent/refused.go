package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"slices"
	"time"

	"getwork/assign"
)

// Refused is an answer that was not a 2xx; [Agent.Run] returns the one that ended it.
type Refused struct {
	assign.Problem
	RetryAfter time.Duration // 0: not said
}

// Error is the problem's detail.
func (r *Refused) Error() string { return or(r.Detail, r.Title) }

// refusedWith reports whether a node answered with one of these statuses.
func refusedWith(err error, statuses ...int) bool {
	var r *Refused
	return errors.As(err, &r) && slices.Contains(statuses, r.Status)
}

// temporary reports whether a call is worth repeating: no answer came, or one that says that it is the server's fault.
func temporary(err error) bool {
	var r *Refused
	if !errors.As(err, &r) {
		return err != nil && !errors.Is(err, errForeign)
	}
	return r.Status >= 500 || r.Status == http.StatusTooManyRequests || r.Status == http.StatusRequestTimeout
}

// errForeign is an answer that no node gives.
var errForeign = errors.New("this is not how getwork answers; is the URL right?")

// refusal reads a problem, or says that this is no node.
func refusal(resp *http.Response, body []byte, after time.Duration) error {
	r := &Refused{RetryAfter: after}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/problem+json" {
		_ = json.Unmarshal(body, &r.Problem)
	}
	r.Status = resp.StatusCode
	if r.Type == "" {
		r.Title = fmt.Sprintf("%s answered %q, and not as getwork does; is the URL right?", resp.Request.URL, resp.Status)
	}
	return r
}
