package web

import (
	"encoding/json"
	"log/slog"
	"net/http/httptest"
	"testing"
	"time"

	"getwork/assign"
)

// A 401 says where to log in, if there is a page for it, and whether the credential that was sent is no good. A limit says
// when to try again.
func TestProblemsOfIdentity(t *testing.T) {
	t.Parallel()
	stepUp := assign.Refuse(assign.Unauthenticated, "log in again")
	stepUp.LogIn = "/auth/login?again=1"
	limited := assign.Refuse(assign.RateLimited, "too many")
	limited.After = 1500 * time.Millisecond
	for _, tt := range []struct {
		err           error
		path, sent    string // where this server's log-in is, and the credential
		status        int
		logIn         string
		challenge     string
		again, detail string
	}{
		{assign.Refuse(assign.Unauthenticated, "no"), "", "", 401, "", `Bearer realm="getwork"`, "", "no"},
		{assign.Refuse(assign.Unauthenticated, "no"), "/auth/login", "", 401, "/auth/login", `Bearer realm="getwork"`, "", "no"},
		{assign.Refuse(assign.Unauthenticated, "no"), "/auth/login", "Bearer x", 401, "/auth/login", `Bearer realm="getwork", error="invalid_token"`, "", "no"},
		{stepUp, "/auth/login", "", 401, "/auth/login?again=1", `Bearer realm="getwork"`, "", "log in again"},
		{assign.Refuse(assign.NameTaken, "no"), "/auth/login", "", 403, "", "", "", "no"},
		{assign.Refuse(assign.LogInFailed, "no"), "/auth/login", "", 400, "", "", "", "no"},
		{limited, "/auth/login", "Bearer x", 429, "", "", "2", "too many"},
	} {
		s := &server{Config: Config{LogInPath: tt.path, Log: slog.New(slog.DiscardHandler)}}
		r, w := httptest.NewRequest("GET", "/api/v1/me", nil), httptest.NewRecorder()
		if tt.sent != "" {
			r.Header.Set("Authorization", tt.sent)
		}
		s.problem(w, r, tt.err)
		var p assign.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != tt.status || p.LogIn != tt.logIn || p.Detail != tt.detail || w.Header().Get("WWW-Authenticate") != tt.challenge || w.Header().Get("Retry-After") != tt.again {
			t.Errorf("%v at %q with %q: %d %v %s", tt.err, tt.path, tt.sent, w.Code, w.Header(), w.Body)
		}
	}
}
