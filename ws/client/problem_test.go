package client

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
)

// A refusal has everything that the server sent.
func TestProblem(t *testing.T) {
	t.Parallel()
	ann := as(t, "Ann", "worker")
	_, err := ann.ShowRequest(t.Context(), 1<<40)
	var p *Problem
	if !errors.As(err, &p) || p.Type != "/problems/not-found" || p.Kind() != assign.NotFound || p.Status != 404 || p.Title == "" || p.Detail == "" || p.Error() != p.Detail {
		t.Errorf("%+v", err)
	}
	_, err = as(t, "boss", "manager").CreateTask(t.Context(), map[string]any{"name": "No Name", "slots": 0})
	if !errors.As(err, &p) || p.Kind() != assign.Invalid || len(p.Errors) != 2 || p.Errors[0].Field != "name" || p.Errors[1].Field != "slots" {
		t.Errorf("%+v", err)
	}
	if _, err := ann.ListRuns(t.Context(), "x", Part{}); KindOf(err) != assign.Forbidden {
		t.Errorf("%+v", err)
	}
	nobody := &Client{URL: ann.URL}
	if _, err := nobody.Socket(t.Context()); KindOf(err) != assign.Unauthenticated || StatusOf(err) != 401 {
		t.Errorf("a socket for nobody: %+v", err)
	}
}

// Answers of other servers are distinguished from getwork's.
func TestForeign(t *testing.T) {
	t.Parallel()
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case strings.HasSuffix(r.URL.Path, "/me"):
			http.Redirect(w, r, "https://log-in.example/", http.StatusFound)
		case strings.HasSuffix(r.URL.Path, "/tasks"):
			_, _ = w.Write([]byte(`{"tasks":7}`))
		case strings.HasSuffix(r.URL.Path, "/pipeline"), r.Method == http.MethodDelete:
			_, _ = w.Write([]byte("<h1>It works!</h1>"))
		case r.Method == http.MethodPost:
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"status":"ok"}`))
		default:
			http.Error(w, "no", http.StatusTeapot)
		}
	}))
	defer other.Close()
	// Without connections that are kept: one that was opened and not yet used would be reset at the end, after something was sent.
	c := &Client{URL: other.URL + "/", User: "Ann", HTTP: &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}}
	var foreign *Foreign
	var p *Problem
	if _, err := c.Pipeline(t.Context()); !errors.As(err, &foreign) || !strings.Contains(err.Error(), other.URL+" did not answer as getwork does") {
		t.Errorf("%+v", err)
	}
	if _, err := c.ListTasks(t.Context()); !errors.As(err, &foreign) {
		t.Errorf("%+v", err)
	}
	for name, call := range map[string]func() error{
		"delete":  func() error { return c.DeleteTask(t.Context(), "a") },
		"end":     func() error { return c.EndToken(t.Context(), "a") },
		"dispose": func() error { _, err := c.Dispose(t.Context(), 1, assign.Disposition{Outcome: "complete"}); return err },
		"dispose of many": func() error {
			_, err := c.DisposeMany(t.Context(), []assign.Disposal{{ID: 1, Disposition: assign.Disposition{Outcome: "complete"}}})
			return err
		},
		"extend many": func() error { _, err := c.ExtendMany(t.Context(), []int64{1}); return err },
		"get":         func() error { _, err := c.GetWork(t.Context(), "a", Click{Count: 1}); return err },
	} {
		if err := call(); !errors.As(err, &foreign) {
			t.Errorf("%s: %+v", name, err)
		}
	}
	if err := c.Do(t.Context(), http.MethodGet, "/pipeline", nil, nil); err != nil {
		t.Errorf("any 2xx will do, and yet: %v", err)
	}
	if _, err := c.WhoAmI(t.Context()); !errors.As(err, &p) || p.Type != "" || !strings.Contains(err.Error(), "redirects to https://log-in.example/") {
		t.Errorf("%+v", err)
	}
	for _, call := range []func() error{
		func() error { _, err := c.ShowRequest(t.Context(), 1); return err },
		func() error { _, err := c.Socket(t.Context()); return err },
	} {
		if err := call(); !errors.As(err, &p) || p.Type != "" || p.Status != 418 || !strings.Contains(err.Error(), "not as getwork does") {
			t.Errorf("%+v", err)
		}
	}
	var none *NoAnswer
	c.URL, c.Retry.Tries = unheard(t), 1
	if _, err := c.Pipeline(t.Context()); !errors.As(err, &none) || !none.Unsent {
		t.Errorf("%+v", err)
	}
}

// A call that can't be sent fails at once, and is not taken for one that a node may answer later.
func TestUnsendable(t *testing.T) {
	t.Parallel()
	for names, c := range map[string]Client{
		"Token":         {URL: "http://node", Token: "gw_secret\n"},
		"User":          {URL: "http://node", User: "gw_secret\r\n"},
		"Groups":        {URL: "http://node", User: "Ann", Groups: []string{"desk", "gw_secret\x00"}},
		"Instance":      {URL: "http://node", User: "Ann", Instance: "gw_secret\x7f"},
		"URL is not":    {URL: "node:8080", User: "Ann"},
		"such as http:": {URL: "/node", User: "Ann"},
		"a node":        {URL: "http://", User: "Ann"},
	} {
		t.Run(names, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
				defer cancel()
				c.HTTP, c.Retry.Foreign = &http.Client{Transport: &http.Transport{}}, true
				for call, err := range map[string]error{
					"await": func() error { _, err := c.AwaitRequest(ctx, 1); return err }(),
					"click": func() error { _, err := c.GetWork(ctx, "t", Click{Count: 1}); return err }(),
					"live":  (&Live{Client: &c, Handle: func(Event) {}}).Run(ctx),
				} {
					var none *NoAnswer
					if err == nil || ctx.Err() != nil || errors.As(err, &none) || !strings.Contains(err.Error(), names) || strings.Contains(err.Error(), "gw_secret") {
						t.Errorf("%s: %v", call, err)
					}
				}
			})
		})
	}
	c := Client{URL: "http://node", User: "Ann"}
	if _, err := c.GetWork(t.Context(), "t", Click{Count: 1}, Key("7\n")); err == nil || !strings.Contains(err.Error(), "client's Key") {
		t.Errorf("a key with a line break: %v", err)
	}
}

// unheard returns a URL at which nobody listens, nor will: the port is taken. That of a server that was closed may be another test's
// by now.
func unheard(t *testing.T) string {
	t.Helper()
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = syscall.Close(fd) })
	if err := syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}); err != nil {
		t.Fatal(err)
	}
	bound, err := syscall.Getsockname(fd)
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("http://127.0.0.1:%d", bound.(*syscall.SockaddrInet4).Port)
}
