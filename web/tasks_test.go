package web

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/assign/manage"
	"getwork/schema/schematest"
)

// A task as it is made, shown, listed, changed and deleted.
func TestTask(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	made := n.newTask(t, "verify", five, `,"title":"Verify","query_timeout":"90s","fresh_for":"24h","rerun_after":"120s"`).
		wantHeader("Location", "/api/v1/tasks/verify").wantHeader("ETag", `"1"`)
	want := newTask(t)
	maps.Copy(want, map[string]any{"name": "verify", "title": "Verify", "query": five, "query_timeout": "90s", "fresh_for": "24h", "rerun_after": "2m",
		"version": 1.0, "waiting": 0.0, "held": 0.0, "shelf": 0.0, "backlog": nil, "late": 0.0, "next_deadline": nil, "done_today": 0.0, "pace": nil, "through_at": nil, "running_since": nil, "usual_seconds": nil, "failures": 0.0})
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
	for _, of := range assign.AllSettings {
		if neverNull(of) {
			post(`{"name":"odd","query":"select 1 as item","`+of.Name+`":null}`).refused(400, "invalid", of.Name)
		}
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

// Every change of a task is a version, and each can be restored.
func TestVersions(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"title":"First"`)
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"1"`), `{"title":"Second","slots":2,"groups":["desk"]}`).want(200)
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"2"`), `{"query":"select 1 as item"}`).want(200)
	type page struct {
		Versions []assign.Version `json:"versions"`
		Next     string           `json:"next_cursor"`
	}
	first := read[page](n.call(t, "GET", "/api/v1/tasks/verify/versions?limit=2", manager(), "").want(200))
	second := read[page](n.call(t, "GET", "/api/v1/tasks/verify/versions?limit=2&cursor="+first.Next, manager(), "").want(200))
	if len(first.Versions) != 2 || first.Versions[0].Version != 3 || first.Versions[1].Slots != 2 || first.Versions[0].CreatedBy != "maria" {
		t.Errorf("first %+v", first)
	}
	if len(second.Versions) != 1 || second.Versions[0].Title != "First" || second.Next != "" {
		t.Errorf("second %+v", second)
	}

	restore := func(version string, h headers, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/verify/versions/"+version+"/restore", h, body)
	}
	restore("1", manager("If-Match", `"2"`), "").refused(412, "stale-version")
	restore("1", manager("If-Match", "1"), "").refused(412, "stale-version")
	for _, version := range []string{"0", "4", "-1", "x", "2147483648", "99999999999999999999"} {
		restore(version, manager(), "").refused(404, "not-found")
	}
	restore("1", manager(), `{"title":"x"}`).refused(400, "invalid", "title")
	n.call(t, "POST", "/api/v1/tasks/nothing/versions/1/restore", manager(), "").refused(404, "not-found")
	if now := read[assign.Task](n.call(t, "GET", "/api/v1/tasks/verify", manager(), "").want(200)); now.Version != 3 {
		t.Fatalf("refused calls made version %d", now.Version)
	}
	got := read[assign.Task](restore("1", manager("If-Match", `"9", "3"`), "").want(200).wantHeader("ETag", `"4"`))
	if got.Title != "First" || got.Slots != 1 || len(got.Groups) != 0 || got.Query != five {
		t.Errorf("restored %+v", got)
	}
	restore("3", manager("If-Match", "*"), "{}").want(200).wantHeader("ETag", `"5"`)
	restore("1", manager(), "").want(200).wantHeader("ETag", `"6"`)

	for _, query := range []string{"limit=0", "cursor=x"} {
		name, _, _ := strings.Cut(query, "=")
		n.call(t, "GET", "/api/v1/tasks/verify/versions?"+query, manager(), "").refused(400, "invalid", name)
	}
	n.call(t, "GET", "/api/v1/tasks/nothing/versions", manager(), "").refused(404, "not-found")
}

// A preview shows what a query would return and cost, and changes nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select 'loan/' || g as item, g as amount from generate_series(1, 50) g order by g", "")
	n.newInbox(t, "photos", "")
	n.take(t, "verify", "oliver", 2)
	preview := func(task, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/"+task+"/preview", manager(), body)
	}
	for _, body := range []string{"", "{}", `{"query":null}`} {
		p := read[assign.Preview](preview("verify", body).want(200))
		if len(p.Rows) != 10 || p.Rows[0].Item != "loan/3" || p.Given != 50 || p.Blocked != 2 || p.Cost <= 0 || !strings.HasPrefix(string(p.Plan), "[") {
			t.Errorf("%q: %+v", body, p)
		}
	}
	p := read[assign.Preview](preview("photos", `{"query":"select 'x' as item, 2 as slots, 1 as n","limit":1}`).want(200))
	if len(p.Rows) != 1 || p.Rows[0].Slots != 2 || string(p.Rows[0].Details) != `{"n":1}` {
		t.Errorf("another query: %+v", p)
	}
	for body, field := range map[string]string{`{"limit":0}`: "limit", `{"limit":101}`: "limit", `{"limit":-1}`: "limit", `{"limit":"all"}`: "limit",
		`{"query":7}`: "query", `{"query":" "}`: "query", `{"query":""}`: "query", `{"rows":1}`: "rows"} {
		preview("verify", body).refused(400, "invalid", field)
	}
	preview("photos", "").refused(400, "invalid", "query")
	preview("nothing", "").refused(404, "not-found")
	for _, query := range []string{"select nothing as item", "select 1 as item; select 2", "delete from getwork.work", "select 1 as no_item", "select 1/0 as item"} {
		preview("verify", `{"query":"`+query+`"}`).refused(422, "query-refused", "query")
	}
	if r := n.call(t, "GET", "/api/v1/tasks/verify/runs", manager(), "").want(200); strings.Count(r.body, `"id"`) != 1 {
		t.Errorf("previews are no runs: %s", r.body)
	}
}

// A comparison says what another query brings in, leaves out and moves, and changes nothing.
func TestCompare(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	const ranking = "select 'loan/' || g as item, g as amount from generate_series(%d, %d) g order by %s"
	n.newTask(t, "verify", fmt.Sprintf(ranking, 1, 50, "g"), "")
	n.newInbox(t, "photos", "")
	n.take(t, "verify", "oliver", 2)
	compare := func(task, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/"+task+"/compare", manager(), body)
	}
	with := func(query string, also string) string { return fmt.Sprintf(`{"query":%q%s}`, query, also) }
	listed := func(shifts []assign.Shift) (all []string) {
		text := func(rank *int) string {
			if rank == nil {
				return "-"
			}
			return strconv.Itoa(*rank)
		}
		for _, s := range shifts {
			one := s.Item + " " + text(s.Rank) + " " + text(s.From) + " " + text(s.To)
			if s.Held {
				one += " held"
			}
			all = append(all, one)
		}
		return all
	}
	check := func(c assign.Comparison, in, out, moved []string, same, both int, overlap string) {
		t.Helper()
		if fmt.Sprintln(listed(c.In), listed(c.Out), listed(c.Moved), c.Same, c.Both, c.Overlap) != fmt.Sprintln(in, out, moved, same, both, overlap) {
			t.Errorf("in %q, out %q, moved %q, same %d, both %d, overlap %v", listed(c.In), listed(c.Out), listed(c.Moved), c.Same, c.Both, c.Overlap)
		}
	}
	c := read[assign.Comparison](compare("verify", `{"version":1}`).want(200))
	check(c, nil, nil, nil, 50, 50, "[{10 10 10} {100 50 50} {1000 50 50}]")
	if c.Version != 1 || c.Old.Given != 50 || c.New.Items != 50 || c.New.Cost <= 0 || !strings.HasPrefix(string(c.Old.Plan), "[") {
		t.Errorf("%+v", c)
	}
	c = read[assign.Comparison](compare("verify", with(fmt.Sprintf(ranking, 2, 51, "g <> 51, g <> 4, g"), `,"limit":4`)).want(200))
	check(c, []string{"loan/51 1 - -"}, []string{"loan/1 1 - - held"}, []string{"loan/4 - 4 2", "loan/2 - 2 3 held", "loan/3 - 3 4"}, 0, 49, "[{10 10 9} {100 50 49} {1000 50 49}]")
	c = read[assign.Comparison](compare("verify", with("select 'loan/3' as item union all select 'loan/3' union all select ''", `,"limit":1,"seed":0.5`)).want(200))
	check(c, []string{"loan/3 1 3 -"}, []string{"loan/1 1 - - held"}, nil, 0, 1, "[{10 10 1} {100 50 1} {1000 50 1}]")
	if c.New.Given != 3 || c.New.PassedOver != 2 || c.New.Items != 1 {
		t.Errorf("%+v", c.New)
	}
	for body, field := range map[string]string{`{}`: "query", `{"version":2}`: "version", `{"version":1,"query":"select 1 as item"}`: "query", `{"query":""}`: "query",
		`{"version":1,"limit":0}`: "limit", `{"version":1,"limit":1001}`: "limit", `{"version":1,"seed":2}`: "seed", `{"rows":1}`: "rows"} {
		compare("verify", body).refused(400, "invalid", field)
	}
	compare("photos", `{"query":"select 1 as item"}`).refused(400, "invalid", "task")
	compare("nothing", `{"version":1}`).refused(404, "not-found")
	for _, query := range []string{"select nothing as item", "select 1 as item; select 2", "delete from getwork.work", "select 1 as no_item", "select 1/0 as item"} {
		compare("verify", with(query, "")).refused(422, "query-refused", "query")
	}
	if r := n.call(t, "GET", "/api/v1/tasks/verify/runs", manager(), "").want(200); strings.Count(r.body, `"id"`) != 1 {
		t.Errorf("comparisons are no runs: %s", r.body)
	}
	n.exec(t, `create table statement as select 7 as loan`)
	n.newTask(t, "fails", "select loan as item from statement", "")
	n.exec(t, `drop table statement`)
	c = read[assign.Comparison](compare("fails", with("select 7 as item", "")).want(200))
	if !strings.Contains(c.Old.Error, "statement") || c.New.Items != 1 || c.In != nil {
		t.Errorf("the old query fails: %+v", c)
	}
}

// Both queries see one snapshot, also of what is committed between them.
func TestCompareOnOneSnapshot(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	const ranking = "select loan as item from statement cross join lateral (select pg_advisory_xact_lock_shared(7)) l order by loan"
	n.exec(t, `create table statement as select 1 as loan`)
	n.newTask(t, "verify", ranking, "")
	other, err := n.db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := other.Exec(t.Context(), `select pg_advisory_xact_lock(7)`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan reply, 1)
	go func() {
		answered <- n.call(t, "POST", "/api/v1/tasks/verify/compare", manager(), `{"version":1}`)
	}()
	await(t, "the first waits", func() (waits bool) {
		if err := n.db.QueryRow(t.Context(), `select exists (select from pg_locks where locktype = 'advisory' and objid = 7 and not granted)`).Scan(&waits); err != nil {
			t.Fatal(err)
		}
		return waits
	})
	if _, err := other.Exec(t.Context(), `insert into statement values (2)`); err != nil {
		t.Fatal(err)
	}
	if err := other.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if c := read[assign.Comparison]((<-answered).want(200)); c.Same != 1 || len(c.In) > 0 || c.New.Items != 1 {
		t.Errorf("%+v", c)
	}
}

// A query without a task is previewed as if a task had it: with the same rows, errors and limits, and without any effect.
func TestPreviewOfNoTask(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	const query = "select 'loan/' || g as item, case g when 3 then 4 end as slots, g as amount from generate_series(1, 50) g order by g"
	preview := func(body string) reply {
		return n.call(t, "POST", "/api/v1/preview", manager(), body)
	}
	p := read[assign.Preview](preview(`{"query":"` + query + `","query_timeout":"90s","slots":2,"limit":3}`).want(200))
	if p.Given != 50 || p.Blocked != 0 || p.PassedOver != 0 || p.Cost <= 0 || p.DurationMS <= 0 || !strings.HasPrefix(string(p.Plan), "[") {
		t.Errorf("%+v", p)
	}
	n.newTask(t, "verify", query, `,"slots":2`)
	of := read[assign.Preview](n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), `{"limit":3}`).want(200))
	if diff := cmp.Diff(of.Rows, p.Rows); diff != "" || p.Rows[0].Slots != 2 || p.Rows[2].Slots != 4 {
		t.Errorf("of the task (-), and before there was one (+):\n%s", diff)
	}
	n.take(t, "verify", "oliver", 2) // which is none of its business
	p = read[assign.Preview](preview(`{"query":"` + query + `"}`).want(200))
	if len(p.Rows) != 10 || p.Rows[0].Item != "loan/1" || p.Rows[0].Slots != 1 || p.Blocked != 0 {
		t.Errorf("with defaults: %+v", p)
	}
	for body, field := range map[string]string{`{}`: "query", `{"query":null}`: "query", `{"query":" "}`: "query", `{"query":7}`: "query",
		`{"query":"select 1 as item","limit":0}`: "limit", `{"query":"select 1 as item","query_timeout":"soon"}`: "query_timeout",
		`{"query":"select 1 as item","query_timeout":"25h"}`: "query_timeout", `{"query":"select 1 as item","slots":0}`: "slots",
		`{"query":"select 1 as item","name":"verify"}`: "name"} {
		preview(body).refused(400, "invalid", field)
	}
	preview("").refused(400, "invalid")
	r := preview(`{"query":"select 1 as item,\n nothing"}`)
	r.refused(422, "query-refused", "query")
	if !strings.Contains(r.body, "at position 20 of the query") {
		t.Errorf("it does not say where: %s", r.body)
	}
	for _, query := range []string{"select 1 as item; select 2", "delete from getwork.work", "select 1 as no_item", "select 1/0 as item"} {
		preview(`{"query":"`+query+`"}`).refused(422, "query-refused", "query")
	}
	late := preview(`{"query":"select 1 as item, pg_sleep(60)","query_timeout":"200ms"}`)
	late.refused(422, "query-refused", "query")
	if !strings.Contains(late.body, "query_timeout of 200ms") {
		t.Errorf("of a query that takes too long: %s", late.body)
	}
	if r := n.call(t, "GET", "/api/v1/tasks", manager(), "").want(200); strings.Count(r.body, `"name"`) != 1 {
		t.Errorf("previews are no tasks: %s", r.body)
	}
}

// Calls that run a query have a bound of their own beside all others, and no time limit but the query's.
func TestLooksAtQuery(t *testing.T) {
	t.Parallel()
	for path, looks := range map[string]bool{
		"preview": true, "tasks/verify/preview": true, "tasks/verify/items/1": true, "tasks/verify/items/1/claim": true,
		"tasks/preview": false, "tasks/verify/items": false, "tasks/verify/requests": false, "requests/preview": false,
	} {
		if looksAtQuery(path) != looks {
			t.Errorf("%s: not %t", path, looks)
		}
	}
}

// The query of a client that goes away ends, and a client can't make it wait longer than the server allows.
func TestPreviewOfNoTaskIsCancelled(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{writeTimeout: 300 * time.Millisecond})
	n.call(t, "POST", "/api/v1/preview", manager(), `{"query":"select 1 as item from pg_sleep(0.6)"}`).want(200)
	running := func() (yes bool) {
		const sql = `select exists (select from pg_stat_activity where datname = current_database() and query like '%pg_sleep(60)%' and state = 'active' and pid <> pg_backend_pid())`
		if err := n.db.QueryRow(t.Context(), sql).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		r, err := n.Client().Do(n.request(t, "POST", "/api/v1/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`).WithContext(ctx))
		if err == nil {
			r.Body.Close()
		}
		left <- err
	}()
	await(t, "the query runs", running)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who went got %v", err)
	}
	await(t, "the query is cancelled", func() bool { return !running() })

	answered := make(chan reply, 1)
	go func() {
		answered <- n.call(t, "POST", "/api/v1/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`)
	}()
	await(t, "another runs", running)
	n.drain()
	(<-answered).wantHeader("Retry-After", "2").refused(503, "unavailable")
}

// A query that takes longer than the server allows an answer is answered all the same; one that is under way when the
// node shuts down is given up, and another node can be asked.
func TestPreviewIsPatient(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{writeTimeout: 300 * time.Millisecond})
	s := assign.DefaultSettings() // past the server, which has so little time for it
	s.Name, s.Query = "verify", "select g as item from generate_series(1, 5) g, pg_sleep(0.6)"
	if _, err := manage.CreateTask(t.Context(), n.engine, s, "maria"); err != nil {
		t.Fatal(err)
	}
	n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), "").want(200)
	n.call(t, "GET", "/api/v1/tasks/verify/items/1", manager(), "").want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/items/1/claim", as("oliver"), "").want(201)

	answered := make(chan reply, 1)
	go func() {
		answered <- n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`)
	}()
	await(t, "the query runs", func() bool {
		var running bool
		err := n.db.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(60)%' and pid <> pg_backend_pid())`).Scan(&running)
		return err == nil && running
	})
	n.drain()
	r := <-answered
	r.wantHeader("Retry-After", "2").refused(503, "unavailable")
	if r.took > 30*time.Second {
		t.Errorf("it took %v", r.took)
	}
}
