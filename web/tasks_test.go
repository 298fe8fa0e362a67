package web

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A task as it is made, shown, listed, changed and deleted.
func TestTask(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	made := n.newTask(t, "verify", five, `,"title":"Verify","query_timeout":"90s","fresh_for":"24h","rerun_after":"120s"`).
		wantHeader("Location", "/api/v1/tasks/verify").wantHeader("ETag", `"1"`)
	want := map[string]any{"name": "verify", "title": "Verify", "description": "", "query": five, "query_timeout": "90s",
		"fresh_for": "24h", "stale_for": "0s", "recheck": nil, "max_candidates": 1000.0, "max_request": 5.0, "max_open": nil, "lease": nil, "slots": 1.0,
		"max_attempts": nil, "backoff": "30s", "rerun_after": "2m", "conflicts_with": []any{}, "groups": []any{}, "position": nil, "display": nil, "paused": false,
		"version": 1.0, "waiting": 0.0, "held": 0.0, "shelf": 0.0,
		"running_since": nil, "usual_seconds": nil, "failures": 0.0}
	if diff := cmp.Diff(want, read[map[string]any](made)); diff != "" {
		t.Errorf("durations are in the largest exact unit:\n%s", diff)
	}
	shown := n.call(t, "GET", "/api/v1/tasks/verify", as("olga", "X-Getwork-Role", "observer"), "").want(200).wantHeader("ETag", `"1"`)
	if diff := cmp.Diff(want, read[map[string]any](shown)); diff != "" {
		t.Error(diff)
	}
	n.newTask(t, "answer", five, "")
	if listed := read[map[string][]assign.Task](n.call(t, "GET", "/api/v1/tasks", as("oliver"), "").want(200))["tasks"]; len(listed) != 2 || listed[0].Name != "answer" {
		t.Errorf("listed %v", listed)
	}

	n.call(t, "PATCH", "/api/v1/tasks/verify", manager(), `{"title":"Verify"}`).refused(428, "stale-version")
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager(), `{"paused":true,"title":"Verify"}`).refused(428, "stale-version")
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager(), `{"paused":null}`).refused(428, "stale-version")
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

// Pausing alone needs no If-Match, makes no version and changes no ETag, so whoever edits the task is not in its way. The log
// lists it, between the versions.
func TestPausingIsNoVersion(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	pause := func(h headers, body string) assign.Task {
		t.Helper()
		return read[assign.Task](n.call(t, "PATCH", "/api/v1/tasks/verify", h, body).want(200).wantHeader("ETag", `"1"`))
	}
	for _, paused := range []bool{true, true, false} { // again: nothing changes
		if got := pause(manager(), fmt.Sprintf(`{"paused":%t}`, paused)); got.Paused != paused || got.Version != 1 {
			t.Errorf("paused %t: %+v", paused, got)
		}
	}
	pause(manager("If-Match", `"1"`), `{"paused":true}`)
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"7"`), `{"paused":false}`).refused(412, "stale-version")
	n.call(t, "PATCH", "/api/v1/tasks/nothing", manager(), `{"paused":true}`).refused(404, "not-found")
	n.call(t, "PATCH", "/api/v1/tasks/verify", as("oliver"), `{"paused":false}`).refused(403, "forbidden")

	changed := n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"1"`), `{"title":"Verify"}`).want(200).wantHeader("ETag", `"2"`)
	if !read[assign.Task](changed).Paused {
		t.Error("a change of the title has resumed the task")
	}
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", "*"), `{"paused":false}`).want(200)
	var log []string
	for cursor := ""; ; {
		page := read[struct {
			Log  []assign.TaskChange `json:"log"`
			Next string              `json:"next_cursor"`
		}](n.call(t, "GET", "/api/v1/tasks/verify/log?limit=2"+cursor, as("olga", "X-Getwork-Role", "observer"), "").want(200))
		for _, c := range page.Log {
			log = append(log, fmt.Sprintf("%s by %s, version %d", c.Act, c.By, c.Version))
		}
		if page.Next == "" {
			break
		}
		cursor = "&cursor=" + page.Next
	}
	want := []string{"resumed by maria, version 2", "changed by maria, version 2", "paused by maria, version 1", "resumed by maria, version 1",
		"paused by maria, version 1", "created by maria, version 1"}
	if diff := cmp.Diff(want, log); diff != "" {
		t.Error(diff)
	}
	n.call(t, "GET", "/api/v1/tasks/verify/log", as("oliver"), "").refused(403, "forbidden")
	n.call(t, "GET", "/api/v1/tasks/nothing/log", manager(), "").refused(404, "not-found")
	for _, query := range []string{"limit=0", "cursor=x"} {
		name, _, _ := strings.Cut(query, "=")
		n.call(t, "GET", "/api/v1/tasks/verify/log?"+query, manager(), "").refused(400, "invalid", name)
	}
}

func TestTaskRefused(t *testing.T) {
	t.Parallel()
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
	post(`{"name":"old","query":"select 1 as item","stale_for":"-1s"}`).refused(400, "invalid", "stale_for")
	post(`{"name":"old","query":"select 1 as item","stale_for":"25h"}`).refused(400, "invalid", "stale_for")
	post(`{"name":"odd","query":"select 1 as item","query_timeout":"soon"}`).refused(400, "invalid", "query_timeout")
	post(`{"name":"odd","query":7}`).refused(400, "invalid", "query")
	for _, field := range neverNull {
		post(`{"name":"odd","query":"select 1 as item","`+field+`":null}`).refused(400, "invalid", field)
	}
	post(`{"name":"odd","query":""}`).refused(400, "invalid", "query")
	for body, field := range map[string]string{`"max_open":0`: "max_open", `"max_open":-1`: "max_open", `"lease":"999ms"`: "lease", `"lease":"169h"`: "lease",
		`"lease":30`: "lease", `"slots":0`: "slots", `"slots":10001`: "slots", `"max_attempts":0`: "max_attempts", `"backoff":"0s"`: "backoff",
		`"backoff":"25h"`: "backoff", `"conflicts_with":["nothing"]`: "conflicts_with", `"conflicts_with":["odd"]`: "conflicts_with",
		`"groups":["a,b"]`: "groups", `"groups":[""]`: "groups", `"slots":"many"`: "slots", `"recheck":""`: "recheck", `"recheck":7`: "recheck", `"no_such_field":1`: "no_such_field",
		`"position":1000001`: "position", `"position":"first"`: "position", `"display":{"url":"http://x/"}`: "display", `"display":7`: "display",
		`"display":{"fields":[{"column":7}]}`: "display.fields.column", `"display":{"titel":"x"}`: "titel"} {
		post(`{"name":"odd","query":"select 1 as item",`+body+`}`).refused(400, "invalid", field)
	}
	n.call(t, "GET", "/api/v1/tasks/odd", manager(), "").refused(404, "not-found")
	post(`{"name":"null","query":"select 1 as item\u0000"}`).refused(400, "invalid")
	post(`{"name":"fine","title":"a backslash and u0000: \\u0000","query":"select 1 as item"}`).want(201)

	shown := `{"title":"{name}, {city}","fields":[{"column":"amount","format":"money","currency":"CHF","stands_out":"amount"}]}`
	for _, step := range []struct{ body, want string }{ // a display is replaced as a whole, and stays where it is not named
		{`"position":-2,"display":` + shown, `"position":-2,"display":` + shown},
		{`"title":"T"`, `"position":-2,"display":` + shown},
		{`"display":{"one":"loan","many":"loans"}`, `"display":{"one":"loan","many":"loans"}`},
		{`"position":null,"display":null`, `"position":null,"display":null`},
	} {
		changed := n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", "*"), "{"+step.body+"}").want(200)
		if !strings.Contains(changed.body, step.want) {
			t.Errorf("%s: %s", step.body, changed.body)
		}
	}
	for body, want := range map[string]string{`"groups":null,"conflicts_with":null`: `"conflicts_with":[],"groups":[]`, `"groups":["a"],"max_open":null,"lease":null`: `"groups":["a"]`} {
		changed := n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", "*"), "{"+body+"}").want(200)
		if !strings.Contains(changed.body, want) {
			t.Errorf("%s: %s", body, changed.body)
		}
	}
	n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", "*"), `{"query":null}`).refused(400, "invalid", "query")
	n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", "*"), `{"conflicts_with":["taken"]}`).refused(400, "invalid", "conflicts_with")
	n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", "*"), `{"name":"renamed","conflicts_with":["taken"]}`).refused(400, "invalid", "conflicts_with")

	wrong := post(`{"name":"wrong","query":"select  nothing as item"}`)
	wrong.refused(422, "query-refused", "query")
	if detail := read[assign.Problem](wrong).Detail; !strings.Contains(detail, `column "nothing" does not exist`) || !strings.Contains(detail, "position 9") {
		t.Errorf("PostgreSQL's message and position are missing: %s", detail)
	}
	n.call(t, "PATCH", "/api/v1/tasks/taken", manager("If-Match", "*"), `{"query":"select 1 as no_item"}`).refused(422, "query-refused", "query")
}

// A recheck is null, or a query of its own, which is tried when it is saved.
func TestTaskRecheck(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	const recheck = `select x as item from unnest($1) x`
	made := read[map[string]any](n.newTask(t, "verify", five, `,"fresh_for":"1h","recheck":"`+recheck+`"`))
	if made["recheck"] != recheck {
		t.Errorf("made with %v", made["recheck"])
	}
	patch := func(task, body string) reply {
		return n.call(t, "PATCH", "/api/v1/tasks/"+task, manager("If-Match", "*"), body)
	}
	if got := read[map[string]any](patch("verify", `{"recheck":null}`).want(200)); got["recheck"] != nil {
		t.Errorf("set to null it is %v", got["recheck"])
	}
	wrong := patch("verify", `{"recheck":"select 1 as item where 'x' = any($1) or nothing"}`)
	wrong.refused(422, "query-refused", "recheck")
	if detail := read[assign.Problem](wrong).Detail; !strings.Contains(detail, `column "nothing" does not exist`) || !strings.Contains(detail, "position 41 of the recheck") {
		t.Errorf("PostgreSQL's message and position are missing: %s", detail)
	}
	patch("verify", `{"recheck":"select 1 as item"}`).refused(422, "query-refused", "recheck")
	n.call(t, "POST", "/api/v1/tasks", manager(), `{"name":"inbox","query":null,"recheck":null}`).want(201)
	patch("inbox", `{"recheck":"`+recheck+`"}`).refused(400, "invalid", "recheck")
	n.call(t, "POST", "/api/v1/tasks/verify/versions/1/restore", manager(), "").want(200)
	versions := read[map[string][]map[string]any](n.call(t, "GET", "/api/v1/tasks/verify/versions", manager(), "").want(200))["versions"]
	if len(versions) != 3 || versions[0]["recheck"] != recheck || versions[1]["recheck"] != nil {
		t.Errorf("versions %v", versions)
	}

	// What it does not return is not claimed from the shelf, and an explanation says so.
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60"), `{"count":1}`).want(201)
	patch("verify", `{"recheck":"select x as item from unnest($1) x where x <> 'loan/3'"}`).want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F3/claim", as("oliver"), "").refused(404, "not-found")
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F4/claim", as("oliver"), "").want(201)
	if x := read[map[string]any](n.call(t, "GET", "/api/v1/tasks/verify/items/loan%2F3", manager(), "").want(200)); x["why"] != "recheck" {
		t.Errorf("explained: %v", x)
	}
}

// Runs are paged by key, newest first.
func TestRuns(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
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

// Numbers in an item's details stay as they are, whatever their size.
func TestDetailsAreKept(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select 'a/b' as item, 12345678901234567890::numeric as amount, null as gone", "")
	r := n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60"), `{"count":1}`).want(201)
	if !strings.Contains(r.body, `"amount":12345678901234567890`) || !strings.Contains(r.body, `"gone":null`) {
		t.Errorf("details of %s", r.body)
	}
}

// A task of groups exists for their members, managers and observers, and for nobody else.
func TestGroups(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "open", five, "")
	n.newTask(t, "verify", five, `,"groups":["loans","desk"]`)
	n.newInbox(t, "photos", `,"groups":["loans"]`)
	calls := map[string]string{"GET /tasks/verify": "", "POST /tasks/verify/requests": `{"count":1}`, "POST /tasks/photos/requests": `{"count":1}`,
		"POST /tasks/verify/items/loan%2F1/claim": "", "GET /events?task=open,verify": ""}
	for name, outside := range map[string]headers{"worker": as("oliver"), "agent": asAgent("oliver", "X-Getwork-Groups", "loan,desks")} {
		for call, body := range calls {
			method, path, _ := strings.Cut(call, " ")
			n.call(t, method, "/api/v1"+path, outside, body).refused(404, "not-found")
		}
		if got := n.taskNames(t, outside); got != "open" {
			t.Errorf("a %s sees %s", name, got)
		}
		hidden := read[assign.Problem](n.call(t, "GET", "/api/v1/tasks/verify", outside, ""))
		absent := read[assign.Problem](n.call(t, "GET", "/api/v1/tasks/verifx", outside, ""))
		hidden.Detail = strings.ReplaceAll(hidden.Detail, "verify", "verifx")
		if diff := cmp.Diff(absent, hidden); diff != "" {
			t.Errorf("it differs from a task that does not exist:\n%s", diff)
		}
	}
	n.call(t, "POST", "/api/v1/tasks/photos/items", asAgent("oliver"), `[{"item":"1"}]`).refused(404, "not-found")
	if counts := read[assign.Task](n.call(t, "GET", "/api/v1/tasks/verify", manager(), "").want(200)); counts.Held+counts.Waiting != 0 {
		t.Errorf("something was done: %+v", counts)
	}

	inside := asAgent("oliver", "X-Getwork-Groups", "x,desk", "Prefer", "wait=60")
	if got := n.taskNames(t, inside); got != "open verify" {
		t.Errorf("a member sees %s", got)
	}
	n.call(t, "POST", "/api/v1/tasks/verify/requests", inside, `{"count":1}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F2/claim", inside, "").want(201)
	n.listen(t, "?task=open,verify", inside).next("task")
	n.call(t, "GET", "/api/v1/requests/1", as("oliver", "X-Getwork-Instance", ""), "").want(200) // held work stays
	for _, h := range []headers{manager(), as("otto", "X-Getwork-Role", "observer")} {
		if got := n.taskNames(t, h); got != "open photos verify" {
			t.Errorf("%v sees %s", h, got)
		}
		n.call(t, "GET", "/api/v1/tasks/verify/runs", h, "").want(200)
	}
}

func (n *station) taskNames(t *testing.T, h headers) string {
	t.Helper()
	var names []string
	for _, task := range read[map[string][]assign.Task](n.call(t, "GET", "/api/v1/tasks", h, "").want(200))["tasks"] {
		names = append(names, task.Name)
	}
	return strings.Join(names, " ")
}

// A run's duration is shown as measured, without a float's rounding errors.
func TestDurationOfRuns(t *testing.T) {
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.take(t, "verify", "oliver", 1)
	n.exec(t, `update getwork.run set finished_at = started_at + interval '1.69139 s'`)
	if r := n.call(t, "GET", "/api/v1/tasks/verify/runs", manager(), "").want(200); !strings.Contains(r.body, `"duration_ms":1691.39}`) {
		t.Error(r.body)
	}
}
