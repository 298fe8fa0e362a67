package web

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// All items of a call are pushed, or none, and an item that is there already is a duplicate.
func TestPush(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newInbox(t, "photos", "")
	n.newTask(t, "verify", five, "")
	push := func(body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/photos/items", asAgent("robot"), body)
	}
	ready := func() int64 {
		t.Helper()
		return read[assign.Task](n.call(t, "GET", "/api/v1/tasks/photos", manager(), "").want(200)).Shelf
	}
	for body, field := range map[string]string{
		`[{"item":"1"},{"item":"2"},{}]`:                                "[2].item",
		`[{"item":"1"},{"item":""}]`:                                    "[1].item",
		`[{"item":"` + strings.Repeat("i", 201) + `"}]`:                 "[0].item",
		`[{"item":7}]`:                                                  "[0].item",
		`[{"item":"1","colour":"red"}]`:                                 "[0].colour",
		`[{"item":"1"},{"item":"2","priority":"high"}]`:                 "[1].priority",
		`[{"item":"1","priority":2147483648}]`:                          "[0].priority",
		`[{"item":"1","not_before":"soon"}]`:                            "[0].not_before",
		`[{"item":"1","not_before":7}]`:                                 "[0].not_before",
		`[{"item":"1","not_before":"9999-12-31T23:59:59-05:00"}]`:       "[0].not_before",
		`[{"item":"1","deadline":"soon"}]`:                              "[0].deadline",
		`[{"item":"1","deadline":7}]`:                                   "[0].deadline",
		`[{"item":"1","deadline":"2030-01-31"}]`:                        "[0].deadline",
		`[{"item":"1","deadline":"9999-12-31T23:59:59-05:00"}]`:         "[0].deadline",
		`[{"item":"1","deadline":"0000-01-01T00:00:00Z"}]`:              "[0].deadline",
		`[{"item":"1","slots":0}]`:                                      "[0].slots",
		`[{"item":"1","slots":10001}]`:                                  "[0].slots",
		`[{"item":"1","slots":2,"exclusive":"g"}]`:                      "[0].exclusive",
		`[{"item":"1","exclusive":"` + strings.Repeat("g", 201) + `"}]`: "[0].exclusive",
		`[{"item":"1","details":[]}]`:                                   "[0].details",
		`[{"item":"1"},{"item":"2","details":"text"}]`:                  "[1].details",
		`[{"item":"1"},null]`:                                           "[1]",
		`[{"item":"1"},"2"]`:                                            "[1]",
		`[["1"]]`:                                                       "[0]",
		`[{"item":"1"},{"item":"a\u0000b"}]`:                            "[1]",
		`[{"item":"1"},{"item":"2","details":{"\u0000":1}}]`:            "[1]",
		`[{"item":"1"},{"item":"\ud800"}]`:                              "[1]",
		"[{\"item\":\"1\"},{\"item\":\"a\xff\"}]":                       "[1]",
		"[{\"item\":\"1\",\"details\":{\"a\":\"\xff\"}}]":               "[0]",
		`[{"item":"1"},{"item":"2","item":"3"}]`:                        "[1].item",
		`[{"item":"1"},{"item":"2","Slots":1}]`:                         "[1].Slots",
		`[{"item":"1"},{"item":"2","details":{"a":1,"a":2}}]`:           "[1].a",
	} {
		push(body).refused(400, "invalid", field)
	}
	push(`[{"item":""},{"item":"1","slots":0}]`).refused(400, "invalid", "[0].item", "[1].slots")
	for _, body := range []string{"", `{"item":"1"}`, `"1"`, `null`, `[{"item":"1"}`, `[{"item":"1"}] x`, "[\xff]"} {
		push(body).refused(400, "invalid")
	}
	if r := push(`{"item":"1"}`); !strings.Contains(r.body, "array") {
		t.Errorf("it is not said that an array is wanted: %s", r.body)
	}
	push(`[{"item":"1"},{"item":"`+strings.Repeat("i", maxBody)+`"}]`).refused(413, "too-large")
	push(`[{"item":"1"},`+strings.Repeat(`{"item":"2"},`, assign.MaxPush)+`{"item":"3"}]`).refused(413, "too-large")
	n.call(t, "POST", "/api/v1/tasks/nothing/items", asAgent("robot"), `[{"item":"1"}]`).refused(404, "not-found")
	n.call(t, "POST", "/api/v1/tasks/verify/items", asAgent("robot"), `[{"item":"1"}]`).refused(400, "invalid")
	if got := ready(); got != 0 {
		t.Fatalf("%d items came of refused calls", got)
	}

	for body, want := range map[string]string{`[]`: `{"accepted":0,"duplicates":0}`} {
		if r := push(body).want(200); r.body != want+"\n" {
			t.Errorf("%s: %s", body, r.body)
		}
	}
	for i, want := range []assign.Pushed{{Accepted: 3, Duplicates: 1}, {Accepted: 0, Duplicates: 4}} {
		body := `[{"item":"2026/117","priority":7,"not_before":null,"deadline":"2026-03-01T12:00:00+01:00","slots":null,"exclusive":null,"details":{"size":12345678901234567890}},
			{"item":"a b"},{"item":"später","not_before":"9999-12-31T23:59:59+02:00"},{"item":"a b","details":null}]`
		if got := read[assign.Pushed](push(body).want(200)); got != want {
			t.Errorf("time %d: %+v", i, got)
		}
	}
	if got := ready(); got != 2 {
		t.Errorf("%d are ready, want 2", got)
	}
	w := n.take(t, "photos", "oliver", 1)[0]
	if w.Item != "2026/117" || string(w.Details) != `{"size":12345678901234567890}` || w.Deadline == nil || w.Deadline.Format(time.RFC3339) != "2026-03-01T11:00:00Z" {
		t.Errorf("work %+v", w)
	}
}

// A claim names one item, whatever its key, and gets it, has it already, or is refused with the reason.
func TestClaim(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newInbox(t, "photos", "")
	odd := []string{"2026/117", "a b", "später/田", "%2F", "..", "a?b#c", "+", `"\`}
	var items []string
	for _, key := range odd {
		items = append(items, fmt.Sprintf(`{"item":%q}`, key))
	}
	n.call(t, "POST", "/api/v1/tasks/photos/items", asAgent("robot"), "["+strings.Join(items, ",")+"]").want(200)
	claim := func(task, item string, h headers, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/"+task+"/items/"+item+"/claim", h, body)
	}
	for _, key := range odd {
		escaped := strings.ReplaceAll(url.PathEscape(key), ".", "%2e")
		first := read[assign.Work](claim("photos", escaped, as("oliver"), "").want(201))
		again := read[assign.Work](claim("photos", escaped, as("oliver"), "{}").want(200))
		if first.Item != key || first.ID != again.ID || first.State != "held" || first.User != "oliver" {
			t.Errorf("%q: %+v, then %+v", key, first, again)
		}
		claim("photos", escaped, as("tracy"), "").refused(409, "no-slot")
	}
	w := read[assign.Work](claim("verify", "loan%2F4", as("oliver"), "").want(201))
	claim("verify", "loan%2F4", as("oliver", "X-Getwork-Instance", "i1"), "").refused(409, "no-slot")
	n.call(t, "POST", workPath(w, "disposition"), as("oliver"), `{"outcome":"return","after":"1h"}`).want(200)
	claim("verify", "loan%2F4", as("tracy"), "").refused(409, "not-available")
	for _, item := range []string{"loan%2F6", "LOAN%2F1", strings.Repeat("i", 200), strings.Repeat("i", 201), "%00", "%ff", "loan%2F4%20"} {
		claim("verify", item, as("oliver"), "").refused(404, "not-found")
		claim("photos", item, as("oliver"), "").refused(404, "not-found")
	}
	claim("nothing", "loan%2F1", as("oliver"), "").refused(404, "not-found")
	claim("verify", "", as("oliver"), "").refused(404, "not-found")
	claim("verify", "loan/1", as("oliver"), "").refused(404, "not-found")
	claim("verify", "loan%2F1", as("oliver"), `{"count":1}`).refused(400, "invalid", "count")
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", "*"), `{"paused":true}`).want(200)
	claim("verify", "loan%2F1", as("oliver"), "").refused(409, "not-available")
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200)); len(p.Work) != len(odd) {
		t.Errorf("oliver holds %d, want %d", len(p.Work), len(odd))
	}
}

// A manager claims an item in the name of somebody else, who has been seen; others may name themselves alone.
func TestGive(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	give := func(item string, h headers, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F"+item+"/claim", h, body)
	}
	for body, field := range map[string]string{`{"user":""}`: "user", `{"user":"a\tb"}`: "user", `{"user":7}`: "user", `{"user":"Zoe\u0308"}`: "user", `{"force":true}`: "force", `{"to":"tracy"}`: "to"} {
		give("1", manager(), body).refused(400, "invalid", field)
	}
	give("1", manager(), `{"user":"tracy"}`).refused(409, "not-available", "force")
	w := read[assign.Work](give("1", manager(), `{"user":"tracy","force":true}`).want(201))
	if w.User != "tracy" || w.State != "held" || w.Item != "loan/1" {
		t.Errorf("given: %+v", w)
	}
	if again := read[assign.Work](give("1", manager(), `{"user":"tracy"}`).want(200)); again.ID != w.ID {
		t.Errorf("given again: %+v", again)
	}
	give("1", manager(), `{"user":"uma","force":true}`).refused(409, "no-slot")
	give("9", manager(), `{"user":"tracy"}`).refused(404, "not-found")
	give("2", as("oliver"), `{"user":"oliver"}`).want(201)
	give("3", as("robot", "X-Getwork-Role", "agent", "X-Getwork-Instance", "i1"), `{"user":"robot"}`).want(201)
	if got := read[assign.Work](give("4", manager(), `{"user":"maria"}`).want(201)); got.User != "maria" {
		t.Errorf("a manager claims for herself: %+v", got)
	}
	for _, h := range []headers{as("oliver"), asAgent("robot"), as("oliver", "X-Getwork-Role", "observer")} {
		if r := give("5", h, `{"user":"tracy"}`); r.status != 403 {
			t.Errorf("%v gives: %d %s", h, r.status, r.body)
		}
	}
	r := give("5", as("oliver"), `{"user":"tracy"}`)
	if r.refused(403, "forbidden"); !strings.Contains(r.body, "leave user out to claim it yourself") {
		t.Error(r.body)
	}
}

// If a query fails while it looks for one item, the refusal has PostgreSQL's message, for managers.
func TestClaimOfABrokenQuery(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select 1 / (g - g) as item from generate_series(1, 5) g", "")
	n.call(t, "POST", "/api/v1/tasks/verify/items/1/claim", manager(), "").refused(422, "query-refused", "query")
	n.call(t, "POST", "/api/v1/tasks/verify/items/1/claim", as("oliver"), "").refused(422, "query-refused")
	n.call(t, "GET", "/api/v1/tasks/verify/items/1", manager(), "").refused(422, "query-refused", "query")
}

func TestExplain(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newInbox(t, "photos", "")
	n.call(t, "POST", "/api/v1/tasks/photos/items", asAgent("robot"), `[{"item":"2026/117"}]`).want(200)
	explain := func(task, item string) assign.Explanation {
		t.Helper()
		return read[assign.Explanation](n.call(t, "GET", "/api/v1/tasks/"+task+"/items/"+item, manager(), "").want(200))
	}
	if x := explain("verify", "loan%2F2"); !x.Matches || x.Item != "loan/2" || *x.Rank != 2 || !x.Available {
		t.Errorf("%+v", x)
	}
	n.take(t, "verify", "oliver", 2)
	if x := explain("verify", "loan%2F3"); len(x.Could) != 1 || x.Could[0] != (assign.Recipient{User: "oliver", May: true}) {
		t.Errorf("could: %+v", x.Could)
	}
	if x := explain("verify", "loan%2F2"); x.Why != "held" || len(x.Could) != 1 || x.Could[0] != (assign.Recipient{User: "oliver", Because: `oliver holds item "loan/2" already`}) || len(x.Held) != 1 || x.Held[0].User != "oliver" || x.Available {
		t.Errorf("%+v", x)
	}
	if x := explain("verify", "loan%2F9"); x.Matches || x.Why != "no_match" {
		t.Errorf("%+v", x)
	}
	if x := explain("photos", "2026%2F117"); !x.Matches || !x.Available {
		t.Errorf("%+v", x)
	}
	for _, path := range []string{"nothing/items/1", "verify/items/" + strings.Repeat("i", 201), "verify/items/%00", "verify/items/%ff", "verify/items/"} {
		n.call(t, "GET", "/api/v1/tasks/"+path, manager(), "").refused(404, "not-found")
	}
	n.call(t, "DELETE", "/api/v1/tasks/verify/items/1", manager(), "").want(405).wantHeader("Allow", "GET, HEAD")
}

func TestRedrive(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"max_attempts":1`)
	redrive := func(body string) reply { return n.call(t, "POST", "/api/v1/tasks/verify/redrive", manager(), body) }
	for i, w := range n.take(t, "verify", "oliver", 3) {
		body := `{"outcome":"fail"}`
		if i == 2 {
			body = `{"outcome":"never"}`
		}
		n.call(t, "POST", workPath(w, "disposition"), as("oliver"), body).want(200)
	}
	for body, field := range map[string]string{`{"items":[]}`: "items", `{"items":["a",""]}`: "items[1]", `{"items":["` + strings.Repeat("i", 201) + `"]}`: "items[0]",
		`{"items":"loan/1"}`: "items", `{"items":[1]}`: "items", `{"item":"loan/1"}`: "item"} {
		redrive(body).refused(400, "invalid", field)
	}
	redrive(`[]`).refused(400, "invalid")
	n.call(t, "POST", "/api/v1/tasks/nothing/redrive", manager(), "").refused(404, "not-found")
	for _, step := range []struct{ body, want string }{
		{`{"items":["loan/5","nothing"]}`, `{"count":0}`},
		{`{"items":["loan/1","loan/1"]}`, `{"count":1}`},
		{``, `{"count":1}`},
		{`{}`, `{"count":0}`},
		{`{"items":null}`, `{"count":0}`},
		{`{"items":["loan/3"]}`, `{"count":1}`},
	} {
		if r := redrive(step.body).want(200); r.body != step.want+"\n" {
			t.Errorf("%q: %s, want %s", step.body, r.body, step.want)
		}
	}
}
