package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
)

// A task as it is made, shown, listed, changed and deleted.
func TestTask(t *testing.T) {
	n := start(t, stationOptions{})
	made := n.newTask(t, "verify", five, `,"title":"Verify","query_timeout":"90s","fresh_for":"24h","rerun_after":"120s"`).
		wantHeader("Location", "/api/v1/tasks/verify").wantHeader("ETag", `"1"`)
	want := map[string]any{"name": "verify", "title": "Verify", "description": "", "query": five, "query_timeout": "90s",
		"fresh_for": "24h", "max_candidates": 1000.0, "max_request": 5.0, "rerun_after": "2m", "paused": false,
		"version": 1.0, "waiting": 0.0, "held": 0.0, "shelf": 0.0}
	if diff := cmp.Diff(want, read[map[string]any](made)); diff != "" {
		t.Errorf("durations are in the largest exact unit:\n%s", diff)
	}
	shown := n.call(t, "GET", "/api/v1/tasks/verify", as("oliver"), "").want(200).wantHeader("ETag", `"1"`)
	if diff := cmp.Diff(want, read[map[string]any](shown)); diff != "" {
		t.Error(diff)
	}
	n.newTask(t, "answer", five, "")
	if listed := read[map[string][]assign.Task](n.call(t, "GET", "/api/v1/tasks", as("oliver"), "").want(200))["tasks"]; len(listed) != 2 || listed[0].Name != "answer" {
		t.Errorf("listed %v", listed)
	}

	n.call(t, "PATCH", "/api/v1/tasks/verify", manager(), `{"paused":true}`).refused(428, "stale-version")
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"7"`), `{"paused":true}`).refused(412, "stale-version")
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `W/"1"`), `{"paused":true}`).refused(412, "stale-version")
	changed := n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"9", "1"`), `{"paused":true,"name":"checked"}`).
		want(200).wantHeader("ETag", `"2"`)
	if got := read[assign.Task](changed); !got.Paused || got.Name != "checked" || got.Title != "Verify" {
		t.Errorf("changed to %+v", got)
	}
	n.call(t, "GET", "/api/v1/tasks/verify", as("oliver"), "").refused(404, "not-found")
	n.call(t, "PATCH", "/api/v1/tasks/checked", manager("If-Match", "*"), `{"name":"answer"}`).refused(409, "exists")
	n.call(t, "PATCH", "/api/v1/tasks/nothing", manager("If-Match", "*"), `{}`).refused(404, "not-found")

	if r := n.call(t, "DELETE", "/api/v1/tasks/checked", manager(), "").want(204); r.body != "" {
		t.Errorf("a body: %s", r.body)
	}
	n.call(t, "DELETE", "/api/v1/tasks/checked", manager(), "").refused(404, "not-found")
	n.newTask(t, "checked", five, "")
}

func TestTaskRefused(t *testing.T) {
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	r := n.pendingRequest(t, "verify", "oliver")
	n.call(t, "DELETE", "/api/v1/tasks/verify", manager(), "").refused(409, "in-use")
	n.call(t, "DELETE", fmt.Sprintf("/api/v1/requests/%d", r.ID), as("oliver"), "").want(200)
	n.call(t, "DELETE", "/api/v1/tasks/verify", manager(), "").want(204)

	post := func(body string) reply { return n.call(t, "POST", "/api/v1/tasks", manager(), body) }
	n.newTask(t, "taken", five, "")
	post(`{"name":"taken","query":"select 1 as item"}`).refused(409, "exists")
	post(`{"name":"No Slug","query":" ; ","max_request":0}`).refused(400, "invalid", "name", "query", "max_request")
	post(`{"name":"late","query":"select 1 as item","rerun_after":"1ms"}`).refused(400, "invalid", "rerun_after")
	post(`{"name":"odd","query":"select 1 as item","query_timeout":"soon"}`).want(400)
	post(`{"name":"null","query":"select 1 as item\u0000"}`).refused(400, "invalid")
	post(`{"name":"fine","title":"a backslash and u0000: \\u0000","query":"select 1 as item"}`).want(201)

	wrong := post(`{"name":"wrong","query":"select  nothing as item"}`)
	wrong.refused(422, "query-refused", "query")
	if detail := read[assign.Problem](wrong).Detail; !strings.Contains(detail, `column "nothing" does not exist`) || !strings.Contains(detail, "position 9") {
		t.Errorf("PostgreSQL's message and position are missing: %s", detail)
	}
	n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", `"1"`), `{"query":"select 1 as no_item"}`).refused(422, "query-refused", "query")
}

// Runs are paged by key, newest first.
func TestRuns(t *testing.T) {
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	if r := n.call(t, "GET", "/api/v1/tasks/verify/runs", as("otto", "X-Getwork-Role", "observer"), "").want(200); r.body != "{\"runs\":[]}\n" {
		t.Errorf("no runs are %s", r.body)
	}
	for range 3 {
		n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60"), `{"count":1}`).want(201)
	}
	type page struct {
		Runs []map[string]any `json:"runs"`
		Next string           `json:"next_cursor"`
	}
	first := read[page](n.call(t, "GET", "/api/v1/tasks/verify/runs?limit=2", manager(), "").want(200))
	second := read[page](n.call(t, "GET", "/api/v1/tasks/verify/runs?limit=2&cursor="+first.Next, manager(), "").want(200))
	var ids []any
	for _, run := range append(first.Runs, second.Runs...) {
		ids = append(ids, run["id"])
		if run["state"] != "finished" || run["given"] != 5.0 {
			t.Errorf("run %v", run)
		}
	}
	if diff := cmp.Diff([]any{"3", "2", "1"}, ids); diff != "" || second.Next != "" {
		t.Errorf("pages end with %q; ids: %s", second.Next, diff)
	}
	for _, query := range []string{"limit=0", "limit=1001", "cursor=x", "cursor=-1"} {
		name, _, _ := strings.Cut(query, "=")
		n.call(t, "GET", "/api/v1/tasks/verify/runs?"+query, manager(), "").refused(400, "invalid", name)
	}
	n.call(t, "GET", "/api/v1/tasks/nothing/runs", manager(), "").refused(404, "not-found")
}

// What later versions answer is not there, whoever asks.
func TestNotBuilt(t *testing.T) {
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	for _, call := range []string{"POST /work/1/extend", "POST /work/1/reassign", "POST /work/release", "POST /tasks/verify/items",
		"POST /tasks/verify/items/1/claim", "GET /tasks/verify/items/1", "POST /tasks/verify/redrive", "GET /tasks/verify/versions",
		"POST /tasks/verify/versions/1/restore", "POST /tasks/verify/preview", "GET /work"} {
		method, path, _ := strings.Cut(call, " ")
		n.call(t, method, "/api/v1"+path, manager(), "").refused(404, "not-found")
	}
}

// Numbers in an item's details stay as they are, whatever their size.
func TestDetailsAreKept(t *testing.T) {
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select 'a/b' as item, 12345678901234567890::numeric as amount, null as gone", "")
	r := n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60"), `{"count":1}`).want(201)
	if !strings.Contains(r.body, `"amount":12345678901234567890`) || !strings.Contains(r.body, `"gone":null`) {
		t.Errorf("details of %s", r.body)
	}
}
