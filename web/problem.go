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
	"slices"
	"strconv"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/rights"
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
