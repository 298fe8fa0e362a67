package web

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"net/http"
	"path"
	"slices"
	"strconv"
	"strings"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/rights"
	"getwork/web/card"
)

// handler is a route's function. Only this file renders its error, so once it has begun to answer it must return nil.
type handler func(w http.ResponseWriter, r *http.Request) error

// problem answers with an error, as application/problem+json. If it is the server's own fault, the cause is logged, and
// not shown.
func (s *server) problem(w http.ResponseWriter, r *http.Request, err error) {
	if client := clientOf(r); client.Err() != nil && errors.Is(err, client.Err()) {
		return // the client has gone
	}
	p, logged := pg.ProblemOf(err)
	if logged {
		if facts := s.complaints.About(err); facts != nil {
			s.Log.Error("request failed", slices.Concat(facts, []any{"method", r.Method}, routeOf(r))...)
		}
	}
	if c := CallerOf(r); assign.IsRefusal(err, assign.QueryRefused) && (c == nil || !c.Who().MayReadQueries()) {
		p.Detail, p.Errors = assign.QueryFailed, nil // a claim executes the task's query
	}
	switch {
	case p.After > 0:
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(p.After.Seconds()))))
	case p.Status == http.StatusServiceUnavailable:
		w.Header().Set("Retry-After", "2")
	case p.Status == http.StatusTooManyRequests:
		w.Header().Set("Retry-After", strconv.Itoa(1+rand.IntN(4))) // random, so that clients do not all come back at once
	}
	if p.Status == http.StatusUnauthorized || p.Status == http.StatusForbidden && rights.RejectionOf(err) != nil { // or as somebody else
		p.LogIn = cmp.Or(p.LogIn, s.LogInPath)
	}
	if p.Status == http.StatusUnauthorized {
		challenge := `Bearer realm="getwork"`
		if r.Header.Get("Authorization") != "" {
			challenge += `, error="invalid_token"`
		}
		w.Header().Set("WWW-Authenticate", challenge)
	}
	if wantsPage(r) {
		_ = tell(w, r, p.Status, p.Title, p.Detail)
		return
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// refuseField refuses one field, parameter or header of a call.
func refuseField(field, format string, args ...any) error {
	r := assign.Refuse(assign.Invalid, format, args...)
	r.Fields = []assign.Field{{Field: field, Detail: r.Detail}}
	return r
}

// answer writes JSON.
func answer(w http.ResponseWriter, status int, body any) error {
	b, err := json.Marshal(body)
	if err != nil {
		return fmt.Errorf("encode answer: %w", err)
	}
	answerJSON(w, status, b)
	return nil
}

// answerJSON writes encoded JSON.
func answerJSON(w http.ResponseWriter, status int, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}

// Refuser returns a function that answers with errors as the API does, for handlers outside this package.
func Refuser(log *slog.Logger) func(http.ResponseWriter, *http.Request, error) {
	return (&server{Config: Config{Log: log}}).problem
}

// icon is for browsers that show a document without an icon of its own, such as JSON.
var icon = []byte(`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 16 16"><rect width="16" height="16" rx="4" fill="#2f5fd0"/>` +
	`<path d="M4 8.5l2.6 2.6L12 5.4" fill="none" stroke="white" stroke-width="1.8" stroke-linecap="round" stroke-linejoin="round"/></svg>` + "\n")

// meanings say what a problem of each kind means, and what to do about it, on the page at the address of its type.
var meanings = map[assign.Kind]string{
	assign.Invalid:          "Something in the call is wrong: a field, a parameter, a header or the address. detail and errors say which, and what is allowed. The same call will be refused again.",
	assign.Unauthenticated:  "The server does not know who you are, or what you came in with has ended. Send an API token, or log in on the page; log_in says where. With --auth dev, send the header X-Getwork-User.",
	assign.Forbidden:        "You may not make this call: it is for other roles, beyond the scopes or tasks of your token, or sent by another site's page. detail says which.",
	assign.NameTaken:        "Your account has a name that another account came with first. Names are never passed on, because work is held under them. Somebody who manages people here can give you the name, or your account gets another one.",
	assign.LogInFailed:      "The log-in could not be finished: it took too long, was begun in another browser, or was answered twice. Begin again.",
	assign.NotFound:         "There is nothing at this address, or you may not see it: other people's requests and work are not found either.",
	assign.MethodNotAllowed: "The address is right, the method is not. The header Allow says which methods work.",
	assign.NotPending:       "The request has ended, so it can't be cancelled. Read it to see how it ended.",
	assign.AlreadyClosed:    "The work was closed in another way before. Repeating the same disposition is fine; another one changes nothing.",
	assign.LeaseLost:        "The lease ran out, or the work was taken away, before this call came. Somebody else may have the item by now: stop working on it, and ask for other work.",
	assign.NotAvailable:     "The item is put off, or never to be handed out again, or a rule of the task keeps it from you; detail says which.",
	assign.NoSlot:           "All places of the item are held. Try again when one becomes free, or take another item.",
	assign.Exists:           "The name is in use. Choose another name, or change the existing one.",
	assign.InUse:            "Something is still in use, or a limit is reached; detail says what, and what to do first. To delete a task, pause it and release its work.",
	assign.RunUnderWay:      "The task's query runs now. Try again when it has ended.",
	assign.StaleVersion:     "It was changed since you read it, or you did not say in If-Match which version you read. Read it again, and repeat your change.",
	assign.QueryRefused:     "PostgreSQL refuses the query, or it names a function that a query must not call. detail says why and what to do, and the position in the query. Workers and agents are not told why: ask a manager.",
	assign.KeyReused:        "The Idempotency-Key was used for a call with another body within 24 hours. Use a new key for each new request, and the same key only to repeat one.",
	assign.TooLarge:         "The body is larger than 1 MiB, or has too many items; detail has the limit. Send it in several calls.",
	assign.Busy:             "The server is busy, or you have too many calls under way. Try again after as many seconds as Retry-After says.",
	assign.RateLimited:      "Too many attempts to log in came from your network address, or too many credentials that are no good. Try again after as many seconds as Retry-After says. Good credentials work meanwhile. Or you have made ten tokens within an hour, which is as many as a user may: the detail says when you can make the next one.",
	assign.Unavailable:      "The database or the log-in service can't be reached now, the node is shutting down, or your rights have just changed. Nothing is lost; try again after as many seconds as Retry-After says.",
	assign.Internal:         "The server made a mistake; the cause is in its log. Trying again may help.",
}

// meaning serves the page at the address of a problem's type.
func (s *server) meaning(w http.ResponseWriter, r *http.Request) error {
	kind := assign.Kind(path.Base(r.URL.Path))
	text, known := meanings[kind]
	if !known {
		return assign.Refuse(assign.NotFound, "there is no problem of the type %s", r.URL.Path)
	}
	return tell(w, r, http.StatusOK, assign.TitleOf(kind), text)
}

// wantsPage reports whether a person's browser opened an address outside the API.
func wantsPage(r *http.Request) bool {
	return (r.Method == http.MethodGet || r.Method == http.MethodHead) && !strings.HasPrefix(r.URL.Path, "/api/") &&
		strings.Contains(strings.Join(r.Header.Values("Accept"), ","), "text/html")
}

var told = card.Page(`<h1>{{.Title}}</h1>
      <p>{{.Text}}</p>
      <p><a href="/">To your desk</a>, or to the <a href="/docs">description of the API</a>.</p>`, "")

// tell answers with a page that has a title and a text.
func tell(w http.ResponseWriter, r *http.Request, status int, title, text string) error {
	h := w.Header()
	h.Set("Content-Type", kinds[".html"])
	h.Set("Cache-Control", "no-store")
	h.Add("Vary", "Accept")
	w.WriteHeader(status)
	if r.Method == http.MethodHead {
		return nil
	}
	_ = told.Execute(w, struct{ Title, Text string }{title, text}) // the client may have gone
	return nil
}
