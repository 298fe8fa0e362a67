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

// refused is an answer that is not a 2xx, as it is told on a command line.
type refused struct{ api.Problem }

// inCommands writes what the server says about its API as what one types here.
var inCommands = strings.NewReplacer(
	"GET /api/v1/tasks lists", "`getwork task list` lists",
	"GET /api/v1/pipeline lists", "`getwork pipeline` lists",
	"`GET /api/v1/work?item=` shows", "`getwork work list --item ITEM` shows",
	"is the URL right?", "is --url right?",
	"is that the right URL?", "is that the right --url?",
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
		if r.RetryAfter > 0 {
			lines = append(lines, fmt.Sprintf("Try again in %s.", assign.Duration(r.RetryAfter)))
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
		return max(r.RetryAfter, time.Second), true
	}
	return 0, false
}
