package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"net/http"
	"strconv"
	"strings"
	"time"

	"getwork/assign"
)

// refused is an answer that is not a 2xx.
type refused struct {
	assign.Problem
	retryAfter time.Duration // 0: not said
}

// refusal reads a problem, or says that this is no getwork.
func (c *Client) refusal(resp *http.Response, body []byte) error {
	r := &refused{}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind == "application/problem+json" {
		_ = json.Unmarshal(body, &r.Problem)
	}
	r.Status = resp.StatusCode
	if r.Type == "" {
		r.Title = fmt.Sprintf("%s answered %q, and not as getwork does; is --url right?", c.base, resp.Status)
		if to := resp.Header.Get("Location"); resp.StatusCode/100 == 3 && to != "" {
			r.Title = fmt.Sprintf("%s redirects to %s; is that the right --url?", c.base, to)
		}
	}
	r.retryAfter = retryAfterOf(resp.Header)
	return r
}

// retryAfterOf reads when to ask again; 0: not said.
func retryAfterOf(h http.Header) time.Duration {
	if n, err := strconv.ParseUint(h.Get("Retry-After"), 10, 16); err == nil {
		return time.Duration(n) * time.Second
	}
	return 0
}

// inCommands writes what the server says about its API as what one types here.
var inCommands = strings.NewReplacer(
	"GET /api/v1/tasks lists", "`getwork task list` lists",
	"GET /api/v1/pipeline lists", "`getwork pipeline` lists",
	"`GET /api/v1/work?item=` shows", "`getwork work list --item ITEM` shows",
	"a manager can redrive it", "a manager can put it back with `getwork items redrive`",
)

// Error tells the problem's detail, then the fields that the detail does not tell, then what can be done.
func (r *refused) Error() string {
	text := r.Detail
	if text == "" {
		text = r.Title
	}
	lines := []string{inCommands.Replace(text)}
	for _, f := range r.Errors {
		if !strings.Contains(text, f.Detail) {
			lines = append(lines, fmt.Sprintf("  %s: %s", f.Field, f.Detail))
		}
	}
	switch r.Type {
	case "/problems/unauthenticated":
		lines = append(lines, "Say who you are: --user where the node runs with --auth dev, else --token.")
	case "/problems/forbidden":
		lines = append(lines, "Under --auth dev --role says what you are, such as --role manager.")
	case "/problems/busy", "/problems/unavailable":
		if r.retryAfter > 0 {
			lines = append(lines, fmt.Sprintf("Try again in %s.", assign.Duration(r.retryAfter)))
		}
	}
	return strings.Join(lines, "\n")
}

// IsRefused reports whether the server answered with that status.
func IsRefused(err error, status int) bool {
	var r *refused
	return errors.As(err, &r) && r.Status == status
}

// retryIn says after how long a call is worth repeating: the server is overloaded or away, or the connection to it
// was lost. known: the server has answered before, so that one which can't be reached may come back.
func retryIn(err error, known bool) (time.Duration, bool) {
	var lost *unreached
	if errors.As(err, &lost) {
		return time.Second, known || !lost.unsent
	}
	var r *refused
	if !errors.As(err, &r) {
		return 0, false
	}
	switch r.Status {
	case http.StatusTooManyRequests, http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return max(r.retryAfter, time.Second), true
	}
	return 0, false
}
