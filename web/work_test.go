package web

import (
	"fmt"
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
	w := read[assign.Work](reassign(0, `{"user":"tracy"}`).want(200))
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
	if r := release(`{"user":"oliver","task":"verify","token":"` + token + `"}`).want(200); r.body != "{\"count\":3}\n" {
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
