package web

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"os"
	"time"

	"getwork/assign"
)

// bodyPatience is how long a call's body may take to come.
const bodyPatience = 5 * time.Second

// receive reads a call's body before the call takes its place. A slow body would otherwise occupy the place, and keep
// other calls out.
func receive(w http.ResponseWriter, r *http.Request) error {
	if r.Body == nil || r.Body == http.NoBody {
		return nil
	}
	c := http.NewResponseController(w)
	_ = c.SetReadDeadline(time.Now().Add(bodyPatience)) // fails only for a test's recorder, which is not slow
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err == nil { // after an error it stays: net/http reads on before it answers or closes, and would wait for ever
		_ = c.SetReadDeadline(time.Time{})
	}
	var large *http.MaxBytesError
	switch {
	case err == nil:
		r.Body = io.NopCloser(bytes.NewReader(body))
		return nil
	case errors.As(err, &large):
		return badBody(err, nil)
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.Header().Set("Connection", "close") // the rest of the body may still come
		return assign.Refuse(assign.TooSlow, "the body did not come within %s; send it at once", bodyPatience)
	}
	return assign.Refuse(assign.Invalid, "the body broke off: %v; send it again", err)
}
