package web

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"

	"getwork/assign"
)

// handler is a route's function. What it returns is rendered here and nowhere else.
type handler func(w http.ResponseWriter, r *http.Request) error

// problem answers with an error, as application/problem+json. The cause of what is the server's own fault is
// logged, once, and not shown.
func problem(w http.ResponseWriter, r *http.Request, log *slog.Logger, err error) {
	if r.Context().Err() != nil && errors.Is(err, r.Context().Err()) {
		return // nobody is there to read it
	}
	p, logged := assign.ProblemOf(err)
	if logged {
		log.Error("request failed", "method", r.Method, "path", r.URL.Path, "error", err)
	}
	if p.Status == http.StatusServiceUnavailable || p.Status == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "2")
	}
	if p.Status == http.StatusUnauthorized {
		w.Header().Set("WWW-Authenticate", "Bearer")
	}
	w.Header().Set("Content-Type", "application/problem+json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(p.Status)
	_ = json.NewEncoder(w).Encode(p)
}

// refuseField refuses one field, parameter or header of what was sent.
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

// answerJSON writes what is encoded already.
func answerJSON(w http.ResponseWriter, status int, b []byte) {
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
}
