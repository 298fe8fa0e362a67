package cli

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"getwork/assign"
	api "getwork/ws/client"
)

// refused is an answer with another status than 2xx. Its text is made for the command line.
type refused struct {
	api.Problem
	url     string // that was asked
	byToken bool   // the call showed a token
}

// inCommands replaces what the server says about its API by the commands that do the same.
var inCommands = strings.NewReplacer(
	"GET /api/v1/tasks lists", "`getwork task list` lists",
	"GET /api/v1/pipeline lists", "`getwork pipeline` lists",
	"`GET /api/v1/work?item=` shows", "`getwork work list --item ITEM` shows",
	"is the URL right?", "is --url right?",
	"is that the right URL?", "is that the right --url?",
	"GET /api/v1/tokens lists", "`getwork token list` lists",
	"GET /api/v1/sessions lists", "`getwork session list` lists",
	"GET /api/v1/users lists", "`getwork user list` lists",
	"GET /api/v1/users shows", "`getwork user list` shows",
	"a manager can redrive it", "a manager can put it back with `getwork items redrive`",
)

// logIn says how somebody comes in who is not believed.
const logIn = "Log in with `getwork login`; programs show a token, with --token-file or the variable GETWORK_TOKEN."

// Error returns the problem's detail, the fields that the detail does not mention, and what the user can do.
func (r *refused) Error() string {
	text := r.Detail
	if text == "" {
		text = r.Title
	}
	if slices.ContainsFunc(r.Errors, func(f assign.Field) bool { return f.Field == "X-Getwork-User" }) {
		return r.url + " believes no names, because it does not run with --auth dev\n" + logIn
	}
	lines := []string{inCommands.Replace(text)}
	for _, f := range r.Errors {
		if !strings.Contains(text, f.Detail) {
			lines = append(lines, fmt.Sprintf("  %s: %s", f.Field, f.Detail))
		}
	}
	switch {
	case r.Type == "/problems/unauthenticated" && strings.Contains(r.LogIn, "again="):
		lines = append(lines, "Prove who you are with `getwork login --again`, and repeat the command.")
	case r.Type == "/problems/unauthenticated" && !r.byToken:
		lines = append(lines, "Under --auth dev say who you are with --user. "+logIn)
	case r.Type == "/problems/forbidden" && !r.byToken:
		lines = append(lines, "Under --auth dev set your role with --role, such as --role manager.")
	case r.RetryAfter > 0 && (r.Type == "/problems/busy" || r.Type == "/problems/unavailable" || r.Type == "/problems/rate-limited"):
		lines = append(lines, fmt.Sprintf("Try again in %s.", assign.Duration(r.RetryAfter)))
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
