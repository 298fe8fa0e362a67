package web

import (
	"errors"
	"net/http"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/logs"
)

// Every route that takes a body refuses these.
func TestBodies(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	click := func(body string) reply { return n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), body) }
	click("").refused(400, "invalid")
	click(`{"count":1`).refused(400, "invalid")
	click(`{"count":1} x`).refused(400, "invalid")
	click("{\"count\":1,\"\xff\":1}").refused(400, "invalid")
	click(`{"count":1}{"count":1}`).refused(400, "invalid")
	click(`{"count":1,"colour":"red"}`).refused(400, "invalid", "colour")
	click(`{"count":"1"}`).refused(400, "invalid", "count")
	click(`{"count":1.5}`).refused(400, "invalid", "count")
	click(`{"count":1,"linger":"soon"}`).refused(400, "invalid", "linger")
	click(`{"count":1,"linger":5}`).refused(400, "invalid", "linger")
	click(`{"count":"1","linger":"soon"}`).refused(400, "invalid", "linger")
	click(`{"linger":"","colour":"red"}`).refused(400, "invalid", "linger")
	for _, body := range []string{`[{"count":1}]`, `"count"`, `7`, ` null `} {
		r := click(body)
		r.refused(400, "invalid")
		if !strings.Contains(r.body, "object") {
			t.Errorf("%s: it is not said that an object is wanted: %s", body, r.body)
		}
	}
	click(strings.Repeat(" ", maxBody)+`{"count":1}`).refused(413, "too-large")
	click(`{"count":1}`+strings.Repeat(" ", maxBody)).refused(413, "too-large")
	click(`{"count":1}` + strings.Repeat(" ", maxBody-len(`{"count":1}`))).want(201)
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"1"`), `{"version":3}`).refused(400, "invalid", "version")
	n.call(t, "POST", "/api/v1/tasks", manager(), strings.Repeat("x", maxBody+1)).refused(413, "too-large")
}

// Paths are taken as they were sent: nothing is cleaned, nothing redirected, and a segment may hold anything.
func TestPaths(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	for _, path := range []string{"/nothing", "/api/v1", "/api/v1/", "/api/v2/tasks", "//api/v1/tasks", "/api//v1/tasks", "/api/v1//tasks",
		"/api/v1/tasks/", "/api/v1/tasks//", "/api/v1/tasks/../tasks", "/api/v1/tasks/x/../verify", "/api/v1/tasks/./verify", "/static/../login",
		"/api/v1/tasks/verify%2Fruns", "/api/v1/tasks/..", "/api/v1/tasks/%2e%2e", "/api/v1/tasks/verify%00", "/api/v1/tasks/%ff",
		"/api/v1/tasks/verify%20", "/api/v1/tasks/VERIFY", "/api%2Fv1/tasks", "/docs/x", "/problems/", "/problems/nothing", "/static/", "/static/%2e%2e/page.go"} {
		n.call(t, "GET", path, manager(), "").refused(404, "not-found")
	}
	n.call(t, "GET", "/api/v1/tasks/verif%79", manager(), "").want(200)
}

// A 405 names the methods that work.
func TestMethods(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	for call, allow := range map[string]string{
		"PUT /api/v1/tasks":                 "GET, HEAD, POST",
		"POST /api/v1/tasks/verify":         "GET, HEAD, PATCH, DELETE",
		"GET /api/v1/tasks/verify/requests": "POST",
		"HEAD /api/v1/events":               "GET",
		"POST /api/v1/work":                 "GET, HEAD",
		"GET /api/v1/work/1/extend":         "POST",
		"PUT /api/v1/tasks/verify/items":    "POST",
		"POST /api/v1/tasks/verify/items/a": "GET, HEAD",
		"GET /api/v1/tasks/verify/preview":  "POST",
		"GET /api/v1/tasks/verify/compare":  "POST",
		"GET /api/v1/preview":               "POST",
		"POST /api/v1/tasks/verify/runs":    "GET, HEAD",
		"OPTIONS /api/v1/requests/1":        "GET, HEAD, DELETE",
		"DELETE /":                          "GET, HEAD",
		"GET /login":                        "POST",
		"POST /livez":                       "GET, HEAD",
		"POST /docs":                        "GET, HEAD",
	} {
		method, path, _ := strings.Cut(call, " ")
		r := n.call(t, method, path, manager(), "").want(405).wantHeader("Allow", allow)
		if method != "HEAD" {
			r.refused(405, "method-not-allowed")
		}
	}
	for _, path := range []string{"/", "/livez", "/readyz", "/openapi.json", "/docs", "/api/v1/tasks", "/api/v1/tasks/verify", "/api/v1/me", "/api/v1/pipeline",
		"/api/v1/work", "/api/v1/tasks/verify/versions", "/api/v1/tasks/verify/items/loan%2F1"} {
		got, head := n.call(t, "GET", path, manager(), "").want(200), n.call(t, "HEAD", path, manager(), "").want(200)
		if head.body != "" || head.header.Get("ETag") != got.header.Get("ETag") || head.header.Get("Content-Type") != got.header.Get("Content-Type") {
			t.Errorf("HEAD %s: %q, %v; GET: %v", path, head.body, head.header, got.header)
		}
	}
	n.call(t, "HEAD", "/api/v1/requests/1", as("oliver"), "").want(404)
}

// No cache on the way stores a user's data.
func TestCaches(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	for _, path := range []string{"/api/v1/me", "/api/v1/tasks", "/api/v1/work", "/api/v1/pipeline", "/api/v1/tasks/nothing", "/readyz"} {
		n.call(t, "GET", path, as("oliver"), "").wantHeader("Cache-Control", "no-store")
	}
}

func TestReadiness(t *testing.T) {
	t.Parallel()
	fine := start(t, stationOptions{checks: []Check{{Name: "database"}, {Name: "listener", Err: errors.New("not listening"), Note: true}}})
	if r := fine.call(t, "GET", "/readyz", nil, "").want(200); r.body != "ready\n" {
		t.Errorf("%q", r.body)
	}
	if r := fine.call(t, "GET", "/readyz?verbose", manager(), "").want(200); r.body != "database: ok\nlistener: not listening\nready\n" {
		t.Errorf("%q", r.body)
	}
	for _, who := range []headers{nil, as("oliver")} { // an error may name the database's host and login
		if r := fine.call(t, "GET", "/readyz?verbose", who, "").want(200); strings.Contains(r.body, "not listening") || !strings.Contains(r.body, "listener: ") {
			t.Errorf("%v reads %q", who, r.body)
		}
	}
	fine.call(t, "GET", "/livez", nil, "").want(200)
	bad := start(t, stationOptions{checks: []Check{{Name: "serving", Err: errors.New("shutting down")}}})
	if r := bad.call(t, "GET", "/readyz?verbose", manager(), "").want(503).wantHeader("Retry-After", "2"); r.body != "serving: shutting down\nnot ready\n" {
		t.Errorf("%q", r.body)
	}
	bad.call(t, "GET", "/livez", nil, "").want(200)
}

// A panic is answered as a problem without details, and logged once.
func TestPanic(t *testing.T) {
	t.Parallel()
	var log logs.Buffer
	n := start(t, stationOptions{log: &log})
	r := n.call(t, "GET", "/api/v1/tasks", as("oliver", panics, "yes"), "")
	r.refused(500, "internal")
	if strings.Contains(r.body, "secret") || strings.Contains(r.body, "goroutine") {
		t.Errorf("the answer tells of the inside: %s", r.body)
	}
	if got := log.Count("panic: secret"); got != 1 {
		t.Errorf("logged %d times", got)
	}
}

// While the database is away, calls are answered 503 with Retry-After; when it is back, so is everything.
func TestDatabaseAway(t *testing.T) {
	t.Parallel()
	var log logs.Buffer
	server := schematest.OwnServer(t, map[string]string{"synchronous_commit": "on"})
	n := startOn(t, server.URL("getwork"), stationOptions{log: &log})
	n.newTask(t, "verify", five, `,"paused":true`)
	n.pendingRequest(t, "verify", "oliver")
	server.Crash()
	for _, call := range []string{"GET /tasks", "GET /tasks/verify", "GET /pipeline", "GET /requests/1", "DELETE /requests/1", "GET /events",
		"POST /tasks/verify/requests", "POST /work/1/disposition", "DELETE /tasks/verify", "GET /tasks/verify/runs", "GET /work", "GET /holders",
		"POST /work/1/extend", "POST /work/1/reassign", "POST /work/release", "POST /work/dispositions", "POST /work/extend", "POST /tasks/verify/items", "GET /tasks/verify/items/1",
		"POST /tasks/verify/items/1/claim", "POST /tasks/verify/redrive", "GET /tasks/verify/versions",
		"POST /tasks/verify/versions/1/restore", "POST /tasks/verify/preview", "POST /preview", "GET /absences", "POST /absences", "DELETE /absences/1",
		"PUT /people/tracy/absences?source=hr", "GET /people/tracy/skills", "PUT /people/tracy/skills"} {
		method, path, _ := strings.Cut(call, " ")
		body := map[string]string{"POST /tasks/verify/requests": `{"count":1}`, "POST /work/1/disposition": `{"outcome":"complete"}`,
			"POST /work/1/reassign": `{"user":"tracy"}`, "POST /work/release": `{"user":"tracy","dry_run":true}`, "POST /tasks/verify/items": `[]`,
			"POST /work/dispositions": `{"dispositions":[{"id":"1","outcome":"complete"}]}`, "POST /work/extend": `{"ids":["1"]}`,
			"POST /preview": `{"query":"select 1 as item"}`, "PUT /people/tracy/absences?source=hr": `[]`, "PUT /people/tracy/skills": `[]`}[call]
		r := n.call(t, method, "/api/v1"+path, manager("Prefer", "wait=100"), body)
		r.wantHeader("Retry-After", "2").refused(503, "unavailable")
		if p := read[assign.Problem](r); strings.Contains(p.Detail, "database=") || strings.Contains(p.Detail, "127.0.0.1") || strings.Contains(p.Detail, "dial") {
			t.Errorf("%s tells of the inside: %s", call, p.Detail)
		}
	}
	n.call(t, "GET", "/livez", nil, "").want(200)
	n.call(t, "GET", "/api/v1/me", as("oliver"), "").want(200)
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	await(t, "it serves again", func() bool {
		return n.call(t, "GET", "/api/v1/requests/1", as("oliver"), "").status == http.StatusOK
	})
}
