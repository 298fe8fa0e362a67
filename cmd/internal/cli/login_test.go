package cli

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/logins"
)

const pretended = "abcdefghijkl.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

// Where no browser logs in, nobody is sent to a page that is not there.
func TestLoginWithoutABrowser(t *testing.T) {
	t.Parallel()
	for path, want := range map[string]string{"": "--token-file", "/": "--user", "/auth/login": "is not a code"} {
		asked := make(chan string, 1)
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "application/problem+json")
			w.WriteHeader(http.StatusUnauthorized)
			_ = json.NewEncoder(w).Encode(map[string]any{"type": "/problems/unauthenticated", "status": 401, "title": "Who?", "log_in": path})
			select {
			case asked <- r.URL.Path:
			default:
			}
		}))
		defer server.Close()
		var errs bytes.Buffer
		err := (LoginCmd{URL: server.URL, Paste: true, in: strings.NewReader("x\n")}).Run(t.Context(), &command.Streams{Out: io.Discard, Errs: &errs})
		if err == nil || !strings.Contains(err.Error()+errs.String(), want) || (path != "/auth/login") == strings.Contains(errs.String(), "Open this address") {
			t.Errorf("log_in %q: %v; %s", path, err, &errs)
		}
		if first := <-asked; first != "/api/v1/me" {
			t.Errorf("it asked for %s first", first)
		}
	}
}

// A log-in, a call and a log-out, with a browser that approves. The environment is this process's, so the test does not run
// beside others.
func TestLogin(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("XDG_CONFIG_HOME", dir)
	var challenge, shown, ended string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch shown = r.Header.Get("Authorization"); r.Method + " " + r.URL.Path {
		case "POST /auth/cli/token":
			var body struct{ Code, Verifier string }
			_ = json.NewDecoder(r.Body).Decode(&body)
			if body.Code != pretended || rights.Challenge(body.Verifier) != challenge {
				w.Header().Set("Content-Type", "application/problem+json")
				w.WriteHeader(http.StatusBadRequest)
				_, _ = io.WriteString(w, `{"type":"/problems/log-in-failed","status":400,"detail":"this code can't be used"}`)
				return
			}
			_ = json.NewEncoder(w).Encode(rights.Terminal{Token: "gw_abcdefghijkl_secret", ID: "abcdefghijkl", User: "mia", EndsAt: time.Now().Add(time.Hour)})
		case "DELETE /api/v1/tokens/abcdefghijkl":
			ended = shown
			w.WriteHeader(http.StatusNoContent)
		default:
			_, _ = io.WriteString(w, `{"work":[],"requests":[]}`)
		}
	}))
	defer server.Close()
	browser := func(address string) error {
		u, err := url.Parse(address)
		if err != nil || u.Path != "/auth/cli" || u.Query().Get("label") == "" {
			t.Errorf("opened %s", address)
		}
		challenge = u.Query().Get("challenge")
		go func() {
			loopback := "127.0.0.1:" + u.Query().Get("port")
			client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
			for _, c := range []struct {
				host, code string
				status     int
			}{{loopback, "", 404}, {loopback, "x", 404}, {loopback, strings.Replace(pretended, "a", "b", 1), 400}, {"evil.example", pretended, 404}, {loopback, pretended, 200}} {
				r, _ := http.NewRequest("GET", "http://"+loopback+"/?code="+c.code, nil)
				r.Host = c.host
				response, err := client.Do(r)
				if err != nil || response.StatusCode != c.status {
					t.Errorf("the code %q for %s: %v %v", c.code, c.host, response, err)
				}
				if err == nil {
					response.Body.Close()
				}
			}
		}()
		return nil
	}
	var out, errs bytes.Buffer
	streams := &command.Streams{Out: &out, Errs: &errs}
	if err := (LoginCmd{URL: server.URL, open: browser}).Run(t.Context(), streams); err != nil || !strings.Contains(errs.String(), "You are mia at "+server.URL) || strings.Contains(errs.String(), "gw_") {
		t.Fatalf("%v %s", err, &errs)
	}
	file := filepath.Join(dir, "getwork", "tokens.json")
	for name, want := range map[string]os.FileMode{file: 0o600, filepath.Dir(file): 0o700} {
		if is, err := os.Stat(name); err != nil || is.Mode().Perm() != want {
			t.Errorf("%s: %v %v", name, is.Mode(), err)
		}
	}
	pipeline := func(address string) error {
		return PipelineCmd{holding: holding{Remote: Remote{URL: address}}}.Run(t.Context(), streams)
	}
	if err := pipeline(server.URL); err != nil || shown != "Bearer gw_abcdefghijkl_secret" {
		t.Errorf("showed %q, %v", shown, err)
	}
	other := httptest.NewServer(server.Config.Handler) // another port is another origin
	defer other.Close()
	if err := pipeline(other.URL); err != nil || shown != "" {
		t.Errorf("another origin saw %q, %v", shown, err)
	}
	for _, name := range []string{file, filepath.Dir(file)} {
		is, _ := os.Stat(name)
		if err := os.Chmod(name, is.Mode().Perm()|0o050); err != nil {
			t.Fatal(err)
		}
		shown = "none"
		if err := pipeline(server.URL); err == nil || !strings.Contains(err.Error(), "chmod") || shown != "none" {
			t.Errorf("%s may be read by others: %v", name, err)
		}
		if err := os.Chmod(name, is.Mode().Perm()); err != nil {
			t.Fatal(err)
		}
	}
	if err := (LogoutCmd{URL: server.URL}).Run(t.Context(), streams); err != nil || ended != "Bearer gw_abcdefghijkl_secret" {
		t.Errorf("log-out: %v, showed %q", err, ended)
	}
	if _, known, err := logins.Of(server.URL); known || err != nil {
		t.Errorf("the token is still there: %v", err)
	}

	// By hand, with a code that another terminal asked for.
	errs.Reset()
	err := LoginCmd{URL: server.URL, Paste: true, in: strings.NewReader(pretended + "\n")}.Run(t.Context(), streams)
	if err == nil || !strings.Contains(err.Error(), "this code can't be used") || !strings.Contains(errs.String(), "Give the code to nobody") || strings.Contains(errs.String(), "port=") {
		t.Errorf("%v %s", err, &errs)
	}
	var usage command.UsageError
	for _, address := range []string{"http://getwork.bank.example", "https://getwork.bank.example/path"} {
		if err := (LoginCmd{URL: address}).Run(t.Context(), streams); !errors.As(err, &usage) {
			t.Errorf("%s: %v", address, err)
		}
	}
}

func TestOrigin(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{"https://A.example:443/": "https://a.example", "http://127.0.0.1:8080": "http://127.0.0.1:8080", "http://localhost:80": "http://localhost", "https://a.example:8443/x": "https://a.example:8443"} {
		u, err := url.Parse(address)
		if err != nil || logins.Origin(u) != want {
			t.Errorf("%s is of %s, %v", address, logins.Origin(u), err)
		}
	}
}
