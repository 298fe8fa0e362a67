package cli

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"getwork/assign"
	api "getwork/ws/client"
)

// refused is an answer with another status than 2xx. Its text is made for the command line.
type refused struct{ api.Problem }

// inCommands replaces what the server says about its API by the commands that do the same.
var inCommands = strings.NewReplacer(
	"GET /api/v1/tasks lists", "`getwork task list` lists",
	"GET /api/v1/pipeline lists", "`getwork pipeline` lists",
	"`GET /api/v1/work?item=` shows", "`getwork work list --item ITEM` shows",
	"is the URL right?", "is --url right?",
	"is that the right URL?", "is that the right --url?",
	"a manager can redrive it", "a manager can put it back with `getwork items redrive`",
)

// Error returns the problem's detail, the fields that the detail does not mention, and what the user can do.
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
		lines = append(lines, "Say who you are: with --user if the node runs with --auth dev, and with --token otherwise.")
	case "/problems/forbidden":
		lines = append(lines, "Under --auth dev set your role with --role, such as --role manager.")
	case "/problems/busy", "/problems/unavailable":
		if r.RetryAfter > 0 {
			lines = append(lines, fmt.Sprintf("Try again in %s.", assign.Duration(r.RetryAfter)))
		}
	}
	return strings.Join(lines, "\n")
}

// IsRefused reports whether err is an answer with that status.
func IsRefused(err error, status int) bool {
	var r *refused
	return errors.As(err, &r) && r.Status == status
}

// retryIn returns after how long a call is worth repeating, because the server is overloaded or away, or the connection
// was lost. known means that the server has answered before: if it can't be reached now, it may come back.
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
		return max(r.RetryAfter, time.Second), true
	}
	return 0, false
}
