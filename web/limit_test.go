package web

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// The description of every call of the API has the answers for an overloaded node and an absent database, with Retry-After;
// addresses outside the API lack the first.
func TestOverloadIsDescribed(t *testing.T) {
	t.Parallel()
	d := described(t)
	for path, item := range mapOf(at(map[string]any(d), "paths")) {
		for method, call := range mapOf(item) {
			for status, want := range map[string]bool{"429": strings.HasPrefix(path, "/api/v1/"), "503": strings.HasPrefix(path, "/api/v1/") || path == "/readyz"} {
				response := d.resolve(at(call, "responses", status))
				if got := response != nil; got != want {
					t.Errorf("%s %s: %s is described: %v, want %v", method, path, status, got, want)
				}
				if response != nil && d.resolve(at(response, "headers", "Retry-After")) == nil {
					t.Errorf("%s %s: %s without Retry-After", method, path, status)
				}
				if response != nil && path != "/readyz" && at(response, "content", "application/problem+json") == nil {
					t.Errorf("%s %s: %s is no problem", method, path, status)
				}
			}
		}
	}
}

// A full gate refuses the next call, each user has a share, and leaving twice counts once.
func TestGate(t *testing.T) {
	t.Parallel()
	g := newGate(320, 0) // 40 for each
	var leaves []func()
	enter := func(user string, want error) {
		t.Helper()
		leave, err := g.enter(t.Context(), user)
		if !errors.Is(err, want) || (leave == nil) != (want != nil) {
			t.Fatalf("%s: %v, want %v", user, err, want)
		}
		if leave != nil {
			leaves = append(leaves, leave)
		}
	}
	for i := range 8 {
		for range 40 {
			enter(fmt.Sprint("user ", i), nil)
		}
		enter(fmt.Sprint("user ", i), errTooMany)
	}
	enter("another", errFull)
	leaves[0]()
	leaves[0]()
	enter("another", nil)
	enter("another", errFull)
	for _, leave := range leaves {
		leave()
	}
	if len(g.places) != 0 || len(g.users) != 0 {
		t.Errorf("%d are left of %v", len(g.places), g.users)
	}
}

// A call without a place waits for one, first come, first served, but not for ever, nor behind too many.
func TestGateLine(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		g := newGate(1, time.Second)
		leave, err := g.enter(t.Context(), "first")
		if err != nil {
			t.Fatal(err)
		}
		var mu sync.Mutex // guards in and refused
		var in []string
		refused := map[string]time.Duration{}
		began := time.Now()
		for _, user := range strings.Split("abcdefghij", "") {
			go func() {
				leave, err := g.enter(t.Context(), user)
				mu.Lock()
				if err != nil {
					refused[user] = time.Since(began)
				} else {
					in = append(in, user)
				}
				mu.Unlock()
				if err != nil {
					return
				}
				time.Sleep(300 * time.Millisecond)
				leave()
			}()
			synctest.Wait()
		}
		if len(refused) != 2 || refused["i"] != 0 || refused["j"] != 0 {
			t.Errorf("eight stand in line, and %v are refused at once", refused)
		}
		time.Sleep(200 * time.Millisecond)
		leave()
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if got := strings.Join(in, ""); got != "abc" || refused["d"] != time.Second || refused["h"] != time.Second {
			t.Errorf("in came %s; refused were %v", got, refused)
		}
		if g.lines != 0 || len(g.users) != 0 {
			t.Errorf("%d are left, of %v", g.lines, g.users)
		}
	})
}

// A client that goes away just when it is let in releases its place, and counts as not answered.
func TestGoneClientKeepsNoPlace(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{limit: 1})
	gone, cancel := context.WithCancel(t.Context())
	cancel()
	r := httptest.NewRequest(http.MethodGet, "/api/v1/pipeline", nil).WithContext(gone)
	r.Host = "127.0.0.1"
	r.Header.Set("X-Getwork-User", "oliver")
	n.Config.Handler.ServeHTTP(httptest.NewRecorder(), r)
	n.call(t, "GET", "/api/v1/pipeline", as("peter"), "").want(200)
	if f := n.figures(t); f["getwork_http_requests_total GET /api/v1/pipeline 200"] != 1 {
		t.Errorf("%v were answered 200; want peter alone", f["getwork_http_requests_total GET /api/v1/pipeline 200"])
	}
}

// A node without a free place answers every call as overloaded, except probes and metrics. A held answer takes no place, and if
// no more may wait, it comes at once.
func TestOverloadedNode(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startPatient(t, stationOptions{limit: 1})
	n.newTask(t, "verify", five, `,"paused":true`)
	r := n.pendingRequest(t, "verify", "oliver")
	path := fmt.Sprintf("/api/v1/requests/%d", r.ID)
	held := make(chan reply, 1)
	go func() { held <- n.call(t, "GET", path, as("oliver", "Prefer", "wait=60"), "") }()
	await(t, "the one place for waiting calls is taken", func() bool {
		return n.open.Load() == 1 && n.call(t, "GET", path, as("oliver", "Prefer", "wait=0"), "").want(200).header.Get("Preference-Applied") == ""
	})
	n.call(t, "GET", path, as("oliver", "Prefer", "wait=60"), "").want(200).wantHeader("Preference-Applied", "")
	n.call(t, "GET", "/api/v1/events", as("oliver"), "").refused(429, "busy")
	n.call(t, "GET", "/api/v1/events", as("tracy"), "").refused(503, "unavailable")

	tx, err := n.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	slow := make(chan reply, 1)
	go func() { slow <- n.call(t, "GET", "/api/v1/pipeline", as("peter"), "") }()
	await(t, "it is under way", func() bool { return schematest.LockWaits(t, n.db) > 0 })
	calls := []string{"GET /api/v1/tasks", "POST /api/v1/tasks/verify/requests", "GET " + path, "DELETE " + path}
	refused := make(chan reply, len(calls))
	for i, call := range calls {
		method, path, _ := strings.Cut(call, " ")
		body := ""
		if method == "POST" {
			body = `{"count":1}`
		}
		go func() { refused <- n.call(t, method, path, as(fmt.Sprint("user ", i)), body) }()
	}
	for range calls {
		got := <-refused
		got.refused(429, "busy")
		if got.header.Get("Retry-After") == "" || got.took > 20*time.Second { // and not when there is room again
			t.Errorf("Retry-After %q after %v", got.header.Get("Retry-After"), got.took)
		}
	}
	for _, path := range []string{"/livez", "/readyz", "/openapi.json"} {
		n.call(t, "GET", path, nil, "").want(http.StatusOK)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	(<-slow).want(200)
	n.call(t, "DELETE", path, as("oliver"), "").want(200)
	if got := read[assign.Request](<-held); got.State != assign.Cancelled {
		t.Errorf("held until %+v", got)
	}
}
