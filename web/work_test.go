package web

import (
	"encoding/csv"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// workPath is where something is done to work.
func workPath(w assign.Work, what string) string {
	return fmt.Sprintf("/api/v1/work/%d/%s", w.ID, what)
}

// Workers see their own work in any state, observers everybody's without the notes, managers everything.
func TestShowWork(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	w := n.take(t, "verify", "oliver", 1)[0]
	path := fmt.Sprintf("/api/v1/work/%d", w.ID)
	if shown := read[assign.Work](n.call(t, "GET", path, as("oliver"), "").want(200)); shown.Item != w.Item || shown.State != "held" || string(shown.Details) != string(w.Details) {
		t.Errorf("shown %+v, held %+v", shown, w)
	}
	n.call(t, "POST", workPath(w, "disposition"), as("oliver"), `{"outcome":"complete","note":"checked"}`).want(200)
	n.call(t, "GET", path, as("tracy"), "").refused(404, "not-found")
	n.call(t, "GET", path, as("bot", "X-Getwork-Role", "agent"), "").refused(404, "not-found")
	n.call(t, "GET", "/api/v1/work/999", manager(), "").refused(404, "not-found")
	n.call(t, "GET", "/api/v1/work/x", manager(), "").refused(404, "not-found")
	for role, note := range map[string]bool{"observer": false, "manager": true} {
		shown := read[assign.Work](n.call(t, "GET", path, as("olga", "X-Getwork-Role", role), "").want(200))
		if shown.State != "completed" || (shown.Note != nil) != note {
			t.Errorf("a %s is shown %+v", role, shown)
		}
	}
}

// results is the answer to a call for much work.
type results struct {
	Results []assign.Result `json:"results"`
}

// One call closes much work: each is judged alone, the answers have the order of the call, and a repeated call has the same answer.
func TestDisposeMany(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newInbox(t, "inbox", `,"max_request":10,"lease":"1h"`)
	n.call(t, "POST", "/api/v1/tasks/inbox/items", asAgent("robot"), `[{"item":"a","details":{"n":1}},{"item":"b"},{"item":"c"},{"item":"d"},{"item":"e"}]`).want(200)
	works := n.take(t, "inbox", "oliver", 5)
	tracy := n.call(t, "POST", "/api/v1/tasks/inbox/items", asAgent("robot"), `[{"item":"f"}]`)
	tracy.want(200)
	hers := n.take(t, "inbox", "tracy", 1)[0]
	n.exec(t, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, works[3].ID)
	body := fmt.Sprintf(`{"dispositions":[{"id":"%d","outcome":"return","after":"1h","to":"others","note":"später"},{"id":"%d","outcome":"complete"},
		{"id":"%d","outcome":"fail","error":"no page"},{"id":"%d","outcome":"complete"},{"id":"%d","outcome":"complete"},{"id":"99999","outcome":"never"},
		{"id":"%d","outcome":"return"}]}`, works[2].ID, works[0].ID, works[1].ID, works[3].ID, hers.ID, works[4].ID)
	const want = "200 returned, 200 completed, 200 failed, 409 /problems/lease-lost, 404 /problems/not-found, 404 /problems/not-found, 400 /problems/invalid"
	for i := range 2 {
		var got []string
		for _, r := range read[results](n.call(t, "POST", "/api/v1/work/dispositions", as("oliver"), body).want(200)).Results {
			if r.Work != nil {
				got = append(got, fmt.Sprint(r.Status, " ", r.Work.State))
				if r.Work.Item == "a" && string(r.Work.Details) != `{"n":1}` || r.Work.Item == "c" && (*r.Work.Note != "später" || !r.Work.ToOthers) {
					t.Errorf("%+v", r.Work)
				}
			} else {
				got = append(got, fmt.Sprint(r.Status, " ", r.Problem.Type))
				if r.Status == 400 && (len(r.Problem.Errors) != 1 || r.Problem.Errors[0].Field != "after") {
					t.Errorf("%+v", r.Problem)
				}
			}
		}
		if strings.Join(got, ", ") != want {
			t.Errorf("call %d: %s, want %s", i+1, strings.Join(got, ", "), want)
		}
	}
	if r := read[results](n.call(t, "POST", "/api/v1/work/dispositions", manager(), fmt.Sprintf(`{"dispositions":[{"id":"%d","outcome":"complete"}]}`, hers.ID)).want(200)); r.Results[0].Work.ClosedBy == nil || *r.Results[0].Work.ClosedBy != "maria" {
		t.Errorf("%+v", r)
	}
	n.call(t, "POST", "/api/v1/tasks/inbox/items", asAgent("robot"), `[{"item":"g"},{"item":"h"}]`).want(200)
	two := n.take(t, "inbox", "oliver", 2)
	body = fmt.Sprintf(`{"dispositions":[{"id":"%d","outcome":"complete"},{"id":"%d","outcome":"never"}]}`, two[0].ID, two[1].ID)
	brief := fmt.Sprintf(`{"results":[{"id":"%d","status":200},{"id":"%d","status":200}]}`, two[0].ID, two[1].ID)
	for range 2 {
		if r := n.call(t, "POST", "/api/v1/work/dispositions", as("oliver", "Prefer", "respond-async, return=minimal"), body).want(200); strings.TrimSpace(r.body) != brief {
			t.Errorf("%s, want %s", r.body, brief)
		}
	}
	if r := n.call(t, "POST", "/api/v1/work/dispositions", as("oliver"), `{"dispositions":[]}`).want(200); strings.TrimSpace(r.body) != `{"results":[]}` {
		t.Error(r.body)
	}
	var many, long []string
	for i := range assign.MaxMany + 1 {
		many = append(many, fmt.Sprintf(`{"id":"%d","outcome":"complete"}`, 1000+i))
		if i < 400 {
			long = append(long, fmt.Sprintf(`{"id":"%d","outcome":"complete","note":"%s"}`, 1000+i, strings.Repeat("x", 3000)))
		}
	}
	list := func(elements ...string) string { return `{"dispositions":[` + strings.Join(elements, ",") + `]}` }
	for _, refused := range []struct {
		body, kind string
		status     int
		field      string
	}{
		{list(`{"id":"7","outcome":"complete"}`, `{"id":"8","outcome":"complete"}`, `{"id":"7","outcome":"never"}`), "invalid", 400, "dispositions[2].id"},
		{list(`{"id":"7","outcome":"complete"}`, `{"id":"8","outcome":"complete","why":"x"}`), "invalid", 400, "dispositions[1].why"},
		{list(`{"id":"7","outcome":"complete"}`, `{"id":8,"outcome":"complete"}`), "invalid", 400, "dispositions[1].id"},
		{list(`{"id":"7","outcome":"return","after":"soon"}`), "invalid", 400, "dispositions[0].after"},
		{list(`{"outcome":"complete"}`), "invalid", 400, "dispositions[0].id"},
		{list(`{"id":"x","outcome":"complete"}`), "invalid", 400, "dispositions[0].id"},
		{list(`{"id":"0","outcome":"complete"}`), "invalid", 400, "dispositions[0].id"},
		{list(`7`), "invalid", 400, "dispositions[0]"},
		{list(many...), "too-large", 413, ""},
		{list(long...), "too-large", 413, ""},
		{`{}`, "invalid", 400, "dispositions"},
		{`{"dispositions":null}`, "invalid", 400, "dispositions"},
		{`{"dispositions":{}}`, "invalid", 400, "dispositions"},
		{`{"dispositions":[],"more":1}`, "invalid", 400, "more"},
		{`[]`, "invalid", 400, ""},
		{``, "invalid", 400, ""},
	} {
		r := n.call(t, "POST", "/api/v1/work/dispositions", as("oliver"), refused.body)
		if refused.field == "" {
			r.refused(refused.status, refused.kind)
		} else {
			r.refused(refused.status, refused.kind, refused.field)
		}
	}
	if r := read[results](n.call(t, "POST", "/api/v1/work/dispositions", as("oliver"), list(many[:assign.MaxMany]...)).want(200)); len(r.Results) != assign.MaxMany {
		t.Errorf("%d results", len(r.Results))
	}
}

// One call renews many leases.
func TestExtendMany(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"lease":"1h"`)
	works := n.take(t, "verify", "oliver", 2)
	hers := n.take(t, "verify", "tracy", 1)[0]
	n.exec(t, `update getwork.work set lease_expires_at = clock_timestamp() + interval '1 minute'`)
	n.exec(t, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, works[1].ID)
	extend := func(h headers, body string) reply { return n.call(t, "POST", "/api/v1/work/extend", h, body) }
	body := fmt.Sprintf(`{"ids":["%d","%d","%d"]}`, hers.ID, works[0].ID, works[1].ID)
	got := read[results](extend(as("oliver"), body).want(200)).Results
	if got[0].Status != 404 || got[1].Status != 200 || got[2].Status != 409 || time.Until(*got[1].Work.LeaseExpiresAt) < 50*time.Minute {
		t.Errorf("%+v", got)
	}
	for _, r := range read[results](extend(manager(), body).want(200)).Results {
		if r.Status != 404 {
			t.Errorf("a manager extends %+v", r)
		}
	}
	extend(as("oliver"), `{"ids":["1","2","1"]}`).refused(400, "invalid", "ids[2]")
	extend(as("oliver"), `{"ids":["x"]}`).refused(400, "invalid", "ids[0]")
	extend(as("oliver"), `{"ids":[1]}`).refused(400, "invalid", "ids")
	extend(as("oliver"), `{}`).refused(400, "invalid", "ids")
	extend(as("oliver"), `{"ids":[],"lease":"1h"}`).refused(400, "invalid", "lease")
	extend(as("oliver"), `{"ids":["1"`+strings.Repeat(`,"1"`, assign.MaxMany)+`]}`).refused(413, "too-large")
}

// Work is put aside and taken up again by its holder alone, for at most 72 hours; work whose lease ran out is refused.
func TestLater(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"lease":"1h"`)
	works := n.take(t, "verify", "oliver", 2)
	later := func(h headers, id int64, body string) reply {
		return n.call(t, "POST", fmt.Sprintf("/api/v1/work/%d/later", id), h, body)
	}
	until := time.Now().Add(10 * time.Hour).UTC().Truncate(time.Second)
	aside := fmt.Sprintf(`{"until":%q}`, until.Format(time.RFC3339))
	w := read[assign.Work](later(as("oliver"), works[0].ID, aside).want(200))
	if w.State != assign.WorkHeld || w.LaterUntil == nil || !w.LaterUntil.Equal(until) || w.LeaseExpiresAt.Before(until) {
		t.Errorf("%+v", w)
	}
	later(as("tracy"), works[0].ID, aside).refused(404, "not-found")
	later(as("oliver"), works[0].ID, fmt.Sprintf(`{"until":%q}`, time.Now().Add(80*time.Hour).Format(time.RFC3339))).refused(400, "invalid", "until")
	later(as("oliver"), works[0].ID, `{}`).refused(400, "invalid", "until")
	if w := read[assign.Work](later(as("oliver"), works[0].ID, `{"until":null}`).want(200)); w.LaterUntil != nil {
		t.Errorf("%+v", w)
	}
	n.exec(t, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, works[1].ID)
	later(as("oliver"), works[1].ID, aside).refused(409, "lease-lost")
}

// A lease begins with the work, and is renewed by an extension; a former holder is refused by every call.
func TestExtend(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"lease":"1h"`)
	works := n.take(t, "verify", "oliver", 2)
	n.exec(t, `update getwork.work set lease_expires_at = clock_timestamp() + interval '1 minute' where user_name = 'oliver'`)
	for _, body := range []string{"", "{}", " \n"} {
		w := read[assign.Work](n.call(t, "POST", workPath(works[0], "extend"), as("oliver"), body).want(200))
		if left := time.Until(*w.LeaseExpiresAt); left < 50*time.Minute || w.State != "held" || w.Expiring {
			t.Errorf("%v are left: %+v", left, w)
		}
	}
	extend := func(h headers, body string) reply { return n.call(t, "POST", workPath(works[1], "extend"), h, body) }
	extend(as("tracy"), "").refused(404, "not-found")
	extend(as("oliver", "X-Getwork-Instance", "i1"), "").refused(404, "not-found")
	extend(manager(), "").refused(404, "not-found")
	extend(as("oliver"), `{"lease":"2h"}`).refused(400, "invalid", "lease")
	extend(as("oliver"), `[]`).refused(400, "invalid")
	extend(as("oliver"), `null`).refused(400, "invalid")
	for _, id := range []string{"0", "-1", "x", "99999999999999999999", "release"} {
		n.call(t, "POST", "/api/v1/work/"+id+"/extend", as("oliver"), "").refused(404, "not-found")
	}
	n.exec(t, `update getwork.work set lease_expires_at = clock_timestamp() - interval '1 second' where id = $1`, works[1].ID)
	extend(as("oliver"), "").refused(409, "lease-lost")
	n.call(t, "POST", workPath(works[1], "disposition"), as("oliver"), `{"outcome":"complete"}`).refused(409, "lease-lost")

	n.newTask(t, "answer", five, "")
	w := n.take(t, "answer", "oliver", 1)[0]
	if got := read[assign.Work](n.call(t, "POST", workPath(w, "extend"), as("oliver"), "").want(200)); got.LeaseExpiresAt != nil {
		t.Errorf("without a lease: %+v", got)
	}
	n.call(t, "POST", workPath(w, "disposition"), as("oliver"), `{"outcome":"complete"}`).want(200)
	n.call(t, "POST", workPath(w, "extend"), as("oliver"), "").refused(409, "lease-lost")
}

// An agent may ask for a lease; people may not, and the task's own lease takes precedence.
func TestLeaseOfARequest(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newTask(t, "answer", five, `,"lease":"1h"`)
	click := func(task string, h headers, lease string) reply {
		return n.call(t, "POST", "/api/v1/tasks/"+task+"/requests", append(h, "Prefer", "wait=60"), `{"count":1,"lease":`+lease+`}`)
	}
	for _, lease := range []string{`"999ms"`, `"25h"`, `"-1s"`, `"0s"`, `"soon"`, `30`} {
		click("verify", asAgent("robot"), lease).refused(400, "invalid", "lease")
	}
	click("verify", as("oliver"), `"30s"`).refused(400, "invalid", "lease")
	click("verify", as("oliver"), `null`).want(201)
	if r := read[assign.Request](click("verify", asAgent("robot"), `"1000s"`).want(201)); r.Lease.String() != "1000s" || time.Until(*r.Work[0].LeaseExpiresAt) < 900*time.Second {
		t.Errorf("%+v", r)
	}
	if r := read[assign.Request](click("answer", asAgent("robot"), `"30s"`).want(201)); time.Until(*r.Work[0].LeaseExpiresAt) < 50*time.Minute {
		t.Errorf("%+v", r)
	}
}

// A lease that is about to run out is shown, and does not change the request.
func TestExpiringIsNoChange(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"lease":"1h"`)
	n.take(t, "verify", "oliver", 1)
	n.exec(t, `update getwork.work set lease = '1000 s', lease_expires_at = clock_timestamp() + interval '207 s'`)
	before := n.call(t, "GET", "/api/v1/requests/1", as("oliver"), "").want(200)
	after := before
	for deadline := time.Now().Add(timeout.Scale(30 * time.Second)); !read[assign.Request](after).Work[0].Expiring && time.Now().Before(deadline); {
		after = n.call(t, "GET", "/api/v1/requests/1", as("oliver"), "").want(200)
	}
	if read[assign.Request](before).Work[0].Expiring || !read[assign.Request](after).Work[0].Expiring {
		t.Fatalf("before %s\nafter  %s", before.body, after.body)
	}
	after.wantHeader("ETag", before.header.Get("ETag"))
}

// The fields of a disposition about others and failures, and the refused ones.
func TestDispositionToOthersAndFailure(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"max_attempts":1`)
	works := n.take(t, "verify", "oliver", 3)
	dispose := func(i int, body string) reply {
		return n.call(t, "POST", workPath(works[i], "disposition"), as("oliver"), body)
	}
	for body, field := range map[string]string{`{"outcome":"return","after":"0s","to":"them"}`: "to", `{"outcome":"complete","to":"all"}`: "to",
		`{"outcome":"complete","error":"x"}`: "error", `{"outcome":"fail","after":"1s"}`: "after", `{"outcome":"fail","to":"others"}`: "to",
		`{"outcome":"fail","error":"` + strings.Repeat("e", 4097) + `"}`: "error", `{"outcome":"return","after":"1 hour"}`: "after",
		`{"outcome":"return","after":5}`: "after", `{"outcome":"fail","reason":"x"}`: "reason", `{"outcome":7}`: "outcome"} {
		dispose(0, body).refused(400, "invalid", field)
	}
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200)); len(p.Work) != 3 {
		t.Fatalf("refused calls did something: %+v", p)
	}
	for range 2 {
		if w := read[assign.Work](dispose(0, `{"outcome":"return","after":"0s","to":"others"}`).want(200)); w.State != "returned" || !w.ToOthers {
			t.Errorf("to others: %+v", w)
		}
	}
	dispose(0, `{"outcome":"return","after":"0s"}`).refused(409, "already-closed")
	for range 2 {
		if w := read[assign.Work](dispose(1, `{"outcome":"fail","error":"no such photo"}`).want(200)); w.State != "never" || !w.Exhausted || *w.Error != "no such photo" {
			t.Errorf("failed for the last time: %+v", w)
		}
	}
	dispose(1, `{"outcome":"complete"}`).refused(409, "already-closed")
}

func TestReassign(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	works := n.take(t, "verify", "oliver", 2)
	reassign := func(i int, body string) reply {
		return n.call(t, "POST", workPath(works[i], "reassign"), manager(), body)
	}
	for body, field := range map[string]string{`{}`: "user", `{"user":""}`: "user", `{"user":"a\tb"}`: "user", `{"user":"` + strings.Repeat("u", 129) + `"}`: "user",
		`{"user":7}`: "user", `{"to":"tracy"}`: "to", `{"user":"Zoe\u0308"}`: "user"} {
		reassign(0, body).refused(400, "invalid", field)
	}
	reassign(0, "").refused(400, "invalid")
	reassign(0, `{"user":"tracy"}`).refused(409, "not-available", "force")
	w := read[assign.Work](reassign(0, `{"user":"tracy","force":true}`).want(200))
	if w.User != "tracy" || w.Item != works[0].Item || w.State != "held" || w.ID == works[0].ID {
		t.Errorf("reassigned: %+v", w)
	}
	reassign(0, `{"user":"uma"}`).refused(409, "already-closed")
	n.call(t, "POST", workPath(works[0], "disposition"), as("oliver"), `{"outcome":"complete"}`).refused(409, "already-closed")
	n.call(t, "POST", workPath(works[1], "disposition"), as("oliver"), `{"outcome":"complete"}`).want(200)
	reassign(1, `{"user":"tracy"}`).refused(409, "already-closed")
	n.call(t, "POST", "/api/v1/work/999/reassign", manager(), `{"user":"tracy"}`).refused(404, "not-found")
}

// A release is for exactly what was counted.
func TestRelease(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newTask(t, "answer", five, "")
	n.take(t, "verify", "oliver", 2)
	n.take(t, "verify", "tracy", 1)
	n.take(t, "answer", "oliver", 1)
	release := func(body string) reply { return n.call(t, "POST", "/api/v1/work/release", manager(), body) }
	for body, field := range map[string]string{`{}`: "user", `{"dry_run":true}`: "user", `{"user":null,"dry_run":true}`: "user",
		`{"user":"","dry_run":true}`: "user", `{"user":"","task":"verify","dry_run":true}`: "user", `{"user":"oliver","task":"","dry_run":true}`: "task",
		`{"user":"a\tb","dry_run":true}`: "user", `{"user":"oliver"}`: "token", `{"user":"oliver","dry_run":true,"token":"x"}`: "token",
		`{"user":"oliver","dry_run":"yes"}`: "dry_run", `{"users":["oliver"]}`: "users"} {
		release(body).refused(400, "invalid", field)
	}
	release(`{"task":"nothing","dry_run":true}`).refused(404, "not-found")
	release(`{"user":"oliver","token":"0123456789abcdef"}`).refused(409, "stale-version")
	count := func(body string, want int) string {
		t.Helper()
		got := read[assign.Released](release(body).want(200))
		if got.Count != want || got.Token == "" {
			t.Errorf("%s counts %+v, want %d", body, got, want)
		}
		return got.Token
	}
	count(`{"task":"verify","dry_run":true}`, 3)
	count(`{"user":"nobody","dry_run":true}`, 0)
	token := count(`{"user":"oliver","task":"verify","dry_run":true}`, 2)
	release(`{"user":"oliver","token":"`+token+`"}`).refused(409, "stale-version") // that is one more
	n.take(t, "verify", "oliver", 1)
	release(`{"user":"oliver","task":"verify","token":"`+token+`"}`).refused(409, "stale-version")
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200)); len(p.Work) != 4 {
		t.Fatalf("oliver holds %d, want all of his 4", len(p.Work))
	}
	token = count(`{"user":"oliver","task":"verify","dry_run":true}`, 3)
	if r := release(`{"user":"oliver","task":"verify","token":"` + token + `"}`).want(200); r.body != "{\"count\":3,\"requests\":0}\n" {
		t.Errorf("released: %s", r.body)
	}
	for user, want := range map[string]int{"oliver": 1, "tracy": 1} {
		if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline", as(user), "").want(200)); len(p.Work) != want {
			t.Errorf("%s holds %d, want %d", user, len(p.Work), want)
		}
	}
}

// All work ever, filtered and paged; only the writer and managers see notes.
func TestWorkHistory(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.newTask(t, "answer", five, "")
	works := n.take(t, "verify", "oliver", 3)
	n.take(t, "answer", "otto", 1)
	n.call(t, "POST", workPath(works[0], "disposition"), as("oliver"), `{"outcome":"complete","note":"private"}`).want(200)
	n.call(t, "POST", "/api/v1/work/4/disposition", as("otto"), `{"outcome":"complete","note":"his own"}`).want(200)
	observer := as("otto", "X-Getwork-Role", "observer")
	type page struct {
		Work []assign.Work `json:"work"`
		Next string        `json:"next_cursor"`
	}
	list := func(h headers, query string) page {
		t.Helper()
		return read[page](n.call(t, "GET", "/api/v1/work"+query, h, "").want(200))
	}
	ids := func(p page) string {
		var all []string
		for _, w := range p.Work {
			all = append(all, fmt.Sprint(w.ID))
		}
		return strings.Join(all, " ")
	}
	for query, want := range map[string]string{"": "4 3 2 1", "?task=verify": "3 2 1", "?user=otto": "4", "?item=loan%2F1": "4 1", "?state=held": "3 2",
		"?task=verify&user=oliver&item=loan%2F1&state=completed": "1", "?user=nobody": "", "?state=": "4 3 2 1"} {
		if got := ids(list(manager(), query)); got != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
	first := list(observer, "?limit=3")
	second := list(observer, "?limit=3&cursor="+first.Next)
	if diff := cmp.Diff([]string{"4 3 2", "1", ""}, []string{ids(first), ids(second), second.Next}); diff != "" {
		t.Error(diff)
	}
	if note := first.Work[0].Note; note == nil || *note != "his own" {
		t.Errorf("otto's own note is %v", note)
	}
	if note := second.Work[0].Note; note != nil {
		t.Errorf("an observer is shown %q", *note)
	}
	if note := list(manager(), "?user=oliver&state=completed").Work[0].Note; note == nil || *note != "private" {
		t.Errorf("a manager is shown %v", note)
	}
	if r := n.call(t, "GET", "/api/v1/work?user=nobody", observer, "").want(200); r.body != "{\"work\":[]}\n" {
		t.Errorf("none are %s", r.body)
	}
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "cursor=x": "cursor", "state=open": "state", "user=%00": "user",
		"user=%ff": "user", "item=%00": "item", "item=" + strings.Repeat("i", 201): "item"} {
		n.call(t, "GET", "/api/v1/work?"+query, observer, "").refused(400, "invalid", field)
	}
	n.call(t, "GET", "/api/v1/work?user=%zz", observer, "").refused(400, "invalid") // not as if it were left out
	for _, task := range []string{"nothing", "%00", "%ff", "VERIFY"} {
		n.call(t, "GET", "/api/v1/work?task="+task, observer, "").refused(404, "not-found")
	}
}

// Work is found by a value in its details, whatever the case and the detail's name: within one task, and of 31 days.
func TestWorkSearch(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", `select i as item, case i when 2 then 'Ada Lovell' else 'Bruno' end as applicant, i * 100 as amount, null as nothing from generate_series(1, 4) i`, "")
	n.newTask(t, "answer", `select i as item, 'ada' as by from generate_series(1, 4) i`, "")
	n.take(t, "verify", "oliver", 4)
	n.take(t, "answer", "oliver", 1)
	found := func(query string) string {
		t.Helper()
		var items []string
		for _, w := range read[struct{ Work []assign.Work }](n.call(t, "GET", "/api/v1/work?"+query, manager(), "").want(200)).Work {
			items = append(items, w.Item)
		}
		return strings.Join(items, " ")
	}
	for query, want := range map[string]string{
		"task=verify&value=ADA":                            "2",
		"task=verify&value=300":                            "3",
		"task=verify&value=bruno&limit=2":                  "4 3",
		"task=verify&value=bruno&state=held&user=oliver":   "4 3 1",
		"task=verify&value=bruno&item=1&user=oliver":       "1",
		"task=verify&value=bruno&state=completed":          "",
		"task=verify&value=applicant":                      "", // a name is no value
		"task=verify&value=" + url.QueryEscape(`%' or '1`): "",
	} {
		if got := found(query); got != want {
			t.Errorf("%s finds %q, want %q", query, got, want)
		}
	}
	n.exec(t, `update getwork.work set assigned_at = assigned_at - interval '32 days' where item = '2'`)
	if got := found("task=verify&value=ada"); got != "" {
		t.Errorf("of 32 days ago: %q", got)
	}
	n.call(t, "GET", "/api/v1/work?value=ada", manager(), "").refused(400, "invalid", "task")
	n.call(t, "GET", "/api/v1/work?task=verify&value="+strings.Repeat("x", 1001), manager(), "").refused(400, "invalid", "value")
	n.call(t, "GET", "/api/v1/work?task=verify&value=%00", manager(), "").refused(400, "invalid", "value")
	n.call(t, "GET", "/api/v1/work?task=verify&format=xls", manager(), "").refused(400, "invalid", "format")
}

// A file for a spreadsheet has no formulas that strangers wrote, nor others' notes for an observer.
func TestWorkAsCSV(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", `select item, 'a, "b"' as text, timestamptz '2026-03-01 12:00+00' as deadline from unnest(array['=1+1', '@x', '＝1', 'plain']) item`, "")
	for _, w := range n.take(t, "verify", "oliver", 4) {
		n.call(t, "POST", "/api/v1/work/"+strconv.FormatInt(w.ID, 10)+"/disposition", as("oliver"), `{"outcome":"complete","note":"-2 days\r1\n2\r\n3"}`).want(200)
	}
	rows := func(h headers, query string) (items, notes []string) {
		t.Helper()
		r := n.call(t, "GET", "/api/v1/work?format=csv&task=verify"+query, h, "").want(200).
			wantHeader("Content-Type", "text/csv; charset=utf-8").wantHeader("Content-Disposition", `attachment; filename="work.csv"`)
		lines, err := csv.NewReader(strings.NewReader(r.body)).ReadAll()
		if err != nil || strings.Join(lines[0], ",") != "id,task,item,user,instance,state,assigned_at,closed_at,available_at,attempt,error,note,details,deadline,code,result" {
			t.Fatalf("%v %q", err, lines)
		}
		for _, l := range lines[1:] {
			items, notes = append(items, l[2]), append(notes, l[11])
			if l[12] != `{"text":"a, \"b\""}` || l[5] != "completed" || l[13] != "2026-03-01T12:00:00Z" {
				t.Errorf("a row is %q", l)
			}
		}
		return items, notes
	}
	items, notes := rows(manager(), "")
	if diff := cmp.Diff([]string{"plain", "'＝1", "'@x", "'=1+1"}, items); diff != "" {
		t.Error(diff)
	}
	if notes[0] != "'-2 days\r1\n2\n3" { // Go's reader takes \r\n for \n
		t.Errorf("a note is %q", notes[0])
	}
	if _, notes := rows(as("olga", "X-Getwork-Role", "observer"), ""); strings.Join(notes, "") != "" {
		t.Errorf("an observer reads %q", notes)
	}
	r := n.call(t, "GET", "/api/v1/work?format=csv&task=verify&limit=2", manager(), "").want(200)
	next, _, found := strings.Cut(strings.TrimPrefix(r.header.Get("Link"), "<"), `>; rel="next"`)
	if !found {
		t.Fatalf("the rest: %q", r.header.Get("Link"))
	}
	if more := n.call(t, "GET", next, manager(), "").want(200); !strings.Contains(more.body, "'=1+1") || strings.Contains(more.body, "plain") {
		t.Errorf("the rest is %s", more.body)
	} else {
		more.wantHeader("Link", "") // full, and the last
	}
}

// A manager who writes a query sees what it may read: no getwork table, whatever the schema is called.
func TestSchema(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.exec(t, `create table loan (id bigint, "Due on" date); create schema books; create view books."Open" as select id from loan`)
	var got []string
	schema := read[assign.Schema](n.call(t, "GET", "/api/v1/schema", manager(), "").want(200))
	for _, table := range schema.Tables {
		for _, c := range table.Columns {
			got = append(got, table.Name+"."+c.Name+" "+c.Type)
		}
	}
	want := []string{`loan.id bigint`, `loan."Due on" date`, `books."Open".id bigint`}
	if diff := cmp.Diff(want, got); diff != "" || schema.Cut || schema.Reason != "" {
		t.Error(diff, schema.Reason)
	}
	n.exec(t, `create table getwork."Lost" (id bigint)`)
	schema = read[assign.Schema](n.call(t, "GET", "/api/v1/schema", manager(), "").want(200))
	if !strings.Contains(schema.Reason, `alter table getwork."Lost" set schema public`) || len(schema.Tables) != 2 {
		t.Errorf("a table beside getwork's: %+v", schema)
	}
	n.call(t, "GET", "/api/v1/schema", as("olga", "X-Getwork-Role", "observer"), "").refused(403, "forbidden")
}

// holdersPage is a page of holders as a program reads it.
type holdersPage struct {
	Holders []assign.Held     `json:"holders"`
	Total   *assign.HeldTotal `json:"total"`
	Next    string            `json:"next_cursor"`
}

func (n *station) holders(t *testing.T, query string) holdersPage {
	t.Helper()
	return read[holdersPage](n.call(t, "GET", "/api/v1/holders"+query, observer(), "").want(200))
}

// shown has a line for each holder, without times.
func (p holdersPage) shown() string {
	var all []string
	for _, h := range p.Holders {
		line := fmt.Sprintf("%s:%s:%d", h.User, h.Task, h.Held)
		if h.Instances > 0 {
			line += fmt.Sprintf("/%d", h.Instances)
		}
		all = append(all, line)
	}
	return strings.Join(all, " ")
}

// A row for each user and task, the user's instances together, with the oldest item's time and the first lease's end.
func TestHolders(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	for _, task := range []string{"verify", "answer", "idle"} {
		n.newTask(t, task, five, "")
	}
	if r := n.call(t, "GET", "/api/v1/holders", observer(), "").want(200); r.body != `{"holders":[],"total":{"users":0,"held":0}}`+"\n" {
		t.Errorf("nobody holds anything: %s", r.body)
	}
	first := n.take(t, "verify", "oliver", 2)
	n.take(t, "verify", "tracy", 1)
	n.take(t, "answer", "oliver", 2)
	bot := func(instance string) headers {
		return asAgent("bot", "X-Getwork-Instance", instance, "Prefer", "wait=60")
	}
	n.call(t, "POST", "/api/v1/tasks/answer/requests", bot("one"), `{"count":2,"lease":"1h"}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/answer/requests", bot("two"), `{"count":1,"lease":"10m"}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/verify/requests", bot("one"), `{"count":1}`).want(201)

	all := n.holders(t, "")
	if got := all.shown(); got != "oliver:verify:2 tracy:verify:1 oliver:answer:2 bot:answer:3/2 bot:verify:1/1" {
		t.Errorf("all: %s", got)
	}
	if diff := cmp.Diff(&assign.HeldTotal{Users: 3, Held: 9}, all.Total); diff != "" || all.Next != "" {
		t.Errorf("together they hold %s, next %q", diff, all.Next)
	}
	if at := all.Holders[0].OldestAt; !at.Equal(first[0].AssignedAt) || all.Holders[0].LeaseExpiresAt != nil {
		t.Errorf("%v, want since %v without a lease", all.Holders[0], first[0].AssignedAt)
	}
	if at := all.Holders[3].LeaseExpiresAt; at == nil || time.Until(*at) > 10*time.Minute || time.Until(*at) < 5*time.Minute {
		t.Errorf("the first lease is over at %v", at)
	}
	for query, want := range map[string]string{
		"?task=verify":          "oliver:verify:2 tracy:verify:1 bot:verify:1/1, 3 hold 4",
		"?task=verify,idle":     "oliver:verify:2 tracy:verify:1 bot:verify:1/1, 3 hold 4",
		"?task=answer,verify":   all.shown() + ", 3 hold 9",
		"?user=oliver":          "oliver:verify:2 oliver:answer:2, 1 hold 4",
		"?user=bot&task=answer": "bot:answer:3/2, 1 hold 3",
		"?user=nobody":          ", 0 hold 0",
		"?task=idle":            ", 0 hold 0",
	} {
		got := n.holders(t, query)
		if text := fmt.Sprintf("%s, %d hold %d", got.shown(), got.Total.Users, got.Total.Held); text != want {
			t.Errorf("%s: %s, want %s", query, text, want)
		}
	}
	n.call(t, "POST", workPath(first[0], "disposition"), as("oliver"), `{"outcome":"complete"}`).want(200)
	if h := n.holders(t, "?user=oliver&task=verify").Holders[0]; h.Held != 1 || !h.OldestAt.Equal(first[1].AssignedAt) {
		t.Errorf("of the other task: %+v", h)
	}
	n.call(t, "POST", workPath(first[1], "disposition"), as("oliver"), `{"outcome":"complete"}`).want(200)
	if got := n.holders(t, "?task=verify").shown(); got != "tracy:verify:1 bot:verify:1/1" {
		t.Errorf("without oliver: %s", got)
	}
}

// Hundreds of holders come page by page, each once, also if many began at the same time; new holders come last.
func TestHoldersPaged(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	n.newTask(t, "answer", five, `,"paused":true`)
	const hold = `insert into getwork.work (task_id, item, user_name, assigned_at)
		select s.task_id, u || '-' || i, 'user ' || u, timestamptz '2026-03-01 12:00+00' + (u / 50 + i * 100) * interval '0.000001 seconds'
		from getwork.task_state s, generate_series($1::integer, $2) u, generate_series(1, 3) i where s.name = 'verify' or u % 5 = 0
		order by u * 7919 % 1009` // not in the order of the times
	n.exec(t, hold, 0, 449)
	want := n.holders(t, "?limit=1000")
	if len(want.Holders) != 540 || want.Next != "" || *want.Total != (assign.HeldTotal{Users: 450, Held: 1620}) {
		t.Fatalf("%d holders, next %q, %+v", len(want.Holders), want.Next, want.Total)
	}
	if !slices.IsSortedFunc(want.Holders, func(a, b assign.Held) int { return a.OldestAt.Compare(b.OldestAt) }) {
		t.Error("not in the order of their oldest")
	}
	for _, limit := range []int{1, 7, 50, 100, 200, 540} {
		var got holdersPage
		query, pages := fmt.Sprintf("?limit=%d", limit), 0
		for next := ""; pages == 0 || next != ""; pages++ {
			page := n.holders(t, query+"&cursor="+url.QueryEscape(next))
			if (page.Total != nil) != (pages == 0) || len(page.Holders) > limit {
				t.Fatalf("page %d has %d holders and the total %+v", pages, len(page.Holders), page.Total)
			}
			got.Holders, next = append(got.Holders, page.Holders...), page.Next
			if limit == 1 && pages == 20 {
				break
			}
		}
		if wanted := want.Holders[:min(len(got.Holders), len(want.Holders))]; !cmp.Equal(got.Holders, wanted) || limit > 1 && len(got.Holders) != 540 {
			t.Errorf("by %d: %d holders, not as in one page: %s", limit, len(got.Holders), cmp.Diff(wanted, got.Holders))
		}
	}
	if page := n.holders(t, ""); len(page.Holders) != pageSize || page.Next == "" {
		t.Errorf("a page has %d", len(page.Holders))
	}

	page := n.holders(t, "?limit=400")
	n.exec(t, `update getwork.work set state = 'completed', closed_at = now(), closed_xid = pg_current_xact_id()
		where id in (select min(id) from getwork.work where user_name = 'user 0' or user_name = 'user 449' group by user_name)`)
	n.exec(t, `insert into getwork.work (task_id, item, user_name) select task_id, 'new', 'newcomer' from getwork.task_state where name = 'answer'`)
	rest := n.holders(t, "?limit=400&cursor="+page.Next)
	users := map[string]bool{}
	for _, h := range append(page.Holders, rest.Holders...) {
		users[h.User] = true
	}
	if last := rest.Holders[len(rest.Holders)-1]; len(users) != 451 || last.User != "newcomer" {
		t.Errorf("%d users, the last of whom is %s", len(users), last.User)
	}
}

func TestHoldersRefused(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	for query, field := range map[string]string{"limit=0": "limit", "limit=1001": "limit", "cursor=x": "cursor", "cursor=1": "cursor", "cursor=-1-1": "cursor",
		"cursor=1-x": "cursor", "cursor=1-1-1": "cursor", "cursor=99999999999999999-1": "cursor", "user=%00": "user"} {
		n.call(t, "GET", "/api/v1/holders?"+query, observer(), "").refused(400, "invalid", field)
	}
	n.call(t, "GET", "/api/v1/holders?task=%zz", observer(), "").refused(400, "invalid")
	for _, task := range []string{"nothing", "verify,nothing", "verify,", "%00", "%ff", "VERIFY"} {
		n.call(t, "GET", "/api/v1/holders?task="+task, observer(), "").refused(404, "not-found")
	}
	for _, role := range []string{"worker", "agent"} {
		n.call(t, "GET", "/api/v1/holders", as("oliver", "X-Getwork-Role", role), "").refused(403, "forbidden")
	}
	n.holders(t, "?cursor=72000000000000000-9223372036854775807") // far in the future: nobody
}
