package web

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strconv"
	"strings"

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
	h := w.Header()
	h.Set("Content-Type", "application/json")
	if h.Get("Cache-Control") == "" {
		h.Set("Cache-Control", "no-store")
	}
	w.WriteHeader(status)
	_, _ = w.Write(append(b, '\n'))
	return nil
}

const maxBody = 1 << 20

// decode reads a JSON body of at most 1 MiB into v; unknown fields and trailing data are refused.
func decode(w http.ResponseWriter, r *http.Request, v any) error {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		return badBody(err)
	}
	d := json.NewDecoder(bytes.NewReader(body))
	d.DisallowUnknownFields()
	err = d.Decode(v)
	if err == nil {
		if _, more := d.Token(); !errors.Is(more, io.EOF) {
			err = errors.New("there is something after the JSON value")
		}
	}
	if err == nil && string(bytes.TrimSpace(body)) == "null" { // which leaves v as it is
		err = &json.UnmarshalTypeError{Value: "null"}
	}
	if err == nil && hasNUL(body) {
		err = errors.New("text has no NUL character (\\u0000)")
	}
	return badBody(err)
}

// hasNUL reports whether a string in valid JSON has a NUL, which PostgreSQL's text can't.
func hasNUL(body []byte) bool {
	if !bytes.Contains(body, []byte(`\u0000`)) {
		return false
	}
	d := json.NewDecoder(bytes.NewReader(body))
	for {
		token, err := d.Token()
		if err != nil {
			return false
		}
		if text, ok := token.(string); ok && strings.ContainsRune(text, 0) {
			return true
		}
	}
}

func badBody(err error) error {
	var large *http.MaxBytesError
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &large):
		return assign.Refuse(assign.TooLarge, "a body has at most %d bytes", maxBody)
	case errors.Is(err, io.EOF):
		return assign.Refuse(assign.Invalid, "the body is empty; send JSON")
	case errors.As(err, &kind) && kind.Field == "":
		return assign.Refuse(assign.Invalid, "the body is a JSON object, not %s", kind.Value)
	case errors.As(err, &kind):
		return refuseField(kind.Field, "%s can't be %s", kind.Field, kind.Value)
	}
	text := strings.TrimPrefix(err.Error(), "json: ")
	r := assign.Refuse(assign.Invalid, "the body can't be read: %s", text)
	if name, ok := strings.CutPrefix(text, "unknown field "); ok {
		if field, err := strconv.Unquote(name); err == nil {
			r.Fields = []assign.Field{{Field: field, Detail: "there is no such field"}}
		}
	}
	return r
}
