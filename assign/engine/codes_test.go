package engine

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// calls are the outcomes of a task of the tests.
var calls = []assign.Outcome{
	{Code: "ok", Label: "Done", Do: "complete"},
	{Code: "busy", Label: "Busy", Do: "return", After: lasting(2 * time.Hour), To: "others", Note: "none"},
	{Code: "call", Label: "Call again", Do: "return"},
	{Code: "wrong", Label: "Wrong number", Do: "never", Note: "must"},
}

// wantFields fails the test unless err refuses just these fields.
func wantFields(t testing.TB, err error, fields ...string) {
	t.Helper()
	var r *assign.Refusal
	var got []string
	if errors.As(err, &r) {
		for _, f := range r.Fields {
			got = append(got, f.Field)
		}
	}
	if !assign.IsRefusal(err, assign.Mismatch) || r.Problem().Status != 422 || strings.Join(got, " ") != strings.Join(fields, " ") {
		t.Errorf("%v names %q, want %q", err, got, fields)
	}
}

// A disposition against the codes or the fields of its task is refused, names what is wrong, and changes nothing; one that fits is kept,
// and the same again is the same.
func TestCodes(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	newInbox(t, n, "inbox", func(s *assign.Settings) {
		s.Outcomes, s.RequireCode, s.MaxRequest = calls, true, 10
		s.Result = []assign.ResultField{{Name: "score", Type: "number", Min: 1, Max: 5, Required: true}, {Name: "kind", Type: "string", Enum: []any{"a", "b"}},
			{Name: "sure", Type: "boolean"}, {Name: "on", Type: "date", Min: "2026-01-01"}}
	})
	n.push(t, "inbox", "a", "b", "c", "d", "e")
	works := n.serve(t, "inbox", "ann", 5).Work
	w := works[0]
	result := func(pairs ...any) map[string]any {
		m := map[string]any{"score": 3.0}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i].(string)] = pairs[i+1]
		}
		return m
	}
	note := new("x")
	for _, tt := range []struct {
		d      assign.Disposition
		fields string
	}{
		{assign.Disposition{Outcome: "complete"}, "code"},
		{giveBack(0), "code"},
		{assign.Disposition{Code: new("none")}, "code"},
		{assign.Disposition{Code: new("_expired")}, "code"},
		{assign.Disposition{Code: new(strings.Repeat("x", 5000))}, "code"},
		{assign.Disposition{Code: new("ok"), Outcome: "return", After: lasting(0)}, "outcome"},
		{assign.Disposition{Code: new("ok"), After: lasting(0)}, "after"},
		{assign.Disposition{Code: new("ok"), To: new("all")}, "to"},
		{assign.Disposition{Code: new("call")}, "after"},
		{assign.Disposition{Code: new("busy"), Note: note}, "note"},
		{assign.Disposition{Code: new("wrong")}, "note"},
		{assign.Disposition{Code: new("wrong"), Note: new(" ")}, "note"},
		{assign.Disposition{Code: new("ok")}, "result.score"},
		{assign.Disposition{Code: new("ok"), Result: result("score", nil)}, "result.score"},
		{assign.Disposition{Code: new("ok"), Result: result("score", "3")}, "result.score"},
		{assign.Disposition{Code: new("ok"), Result: result("score", 0.5)}, "result.score"},
		{assign.Disposition{Code: new("ok"), Result: result("score", 6.0, "kind", "c", "sure", "yes", "on", "2026-02-30", "more", 1.0)},
			"result.score result.kind result.sure result.on result.more"},
		{assign.Disposition{Code: new("ok"), Result: result("on", "2025-12-31", "kind", []any{"a"})}, "result.kind result.on"},
		{assign.Disposition{Code: new("ok"), Result: result("more", strings.Repeat("x", assign.MaxResult))}, "result"},
		{assign.Disposition{Code: new("call"), After: lasting(0), Result: map[string]any{"sure": 1.0}}, "result.sure"},
	} {
		_, err := n.Dispose(t.Context(), w.ID, tt.d, w.Holder(), false)
		wantFields(t, err, strings.Fields(tt.fields)...)
	}
	for _, d := range []assign.Disposition{{}, {Outcome: "fail", Code: new("ok")}, {Outcome: "fail", Result: result()}, {Outcome: "done", Code: new("ok")}} {
		_, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false)
		wantKind(t, err, assign.Invalid)
	}
	said := assign.Disposition{Code: new("ok"), Note: note, Result: result("sure", true, "kind", "b", "on", nil)}
	if got := n.let(t, w, said); got.State != "completed" || *got.Code != "ok" || string(got.Result) != `{"kind":"b","score":3,"sure":true}` {
		t.Errorf("%+v", got)
	}
	if _, err := n.change(t, "inbox", func(s *assign.Settings) { s.Outcomes = calls[1:] }); err != nil {
		t.Fatal(err)
	}
	if _, err := n.Dispose(t.Context(), w.ID, said, w.Holder(), false); err != nil { // again, though there is no such code any more
		t.Error(err)
	}
	for _, d := range []assign.Disposition{{Outcome: "complete"}, {Code: new("call"), After: lasting(0)}, {Code: new("ok"), Result: result()}, {Code: new("ok"), Outcome: "return"}} {
		_, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false)
		wantKind(t, err, assign.AlreadyClosed)
	}
	busy := n.let(t, works[1], assign.Disposition{Code: new("busy")})
	if !busy.ToOthers || busy.AvailableAt.Sub(*busy.ClosedAt).Round(time.Minute) != 2*time.Hour {
		t.Errorf("%+v", busy)
	}
	if again := n.let(t, works[1], assign.Disposition{Code: new("busy"), Outcome: "return", After: lasting(2 * time.Hour), To: new("others")}); again.State != "returned" {
		t.Errorf("%+v", again)
	}
	if got := n.let(t, works[2], assign.Disposition{Outcome: "fail"}); *got.Code != "_failed" {
		t.Errorf("%+v", got)
	}
	// What is taken back needs a code that returns work.
	release := assign.Release{Task: "inbox", DryRun: true}
	dry, err := n.Release(t.Context(), release, "boss")
	if err != nil || dry.Count != 2 {
		t.Fatal(dry, err)
	}
	release.DryRun, release.Token = false, dry.Token
	for _, code := range []string{"", "ok", "wrong"} {
		release.Code = code
		_, err := n.Release(t.Context(), release, "boss")
		wantFields(t, err, "code")
	}
	release.Code = "call"
	if done, err := n.Release(t.Context(), release, "boss"); err != nil || done.Count != 2 {
		t.Fatal(done, err)
	}
	if got := query[string](t, pool(t, url), `select string_agg(item || ' ' || code, ', ' order by item) from getwork.work`); got != "a ok, b busy, c _failed, d call, e call" {
		t.Error(got)
	}
}

// A new version drops the code, or asks for one, between the judgement of a disposition and its end: it is judged again by that version.
func TestCodeDroppedMeanwhile(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	change := func(context.Context) {}
	n := still(t, url)
	n.Steps = func(ctx context.Context, step Step) {
		if step == StepJudged {
			now := change
			change = func(context.Context) {}
			now(ctx)
		}
	}
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Outcomes = calls })
	n.push(t, "inbox", "a", "b")
	works := n.serve(t, "inbox", "ann", 2).Work
	other := still(t, url)
	set := func(f func(*assign.Settings)) func(context.Context) {
		return func(context.Context) {
			if _, err := other.change(t, "inbox", f); err != nil {
				t.Error(err)
			}
		}
	}
	change = set(func(s *assign.Settings) { s.Outcomes = calls[1:] })
	_, err := n.Dispose(t.Context(), works[0].ID, assign.Disposition{Code: new("ok")}, works[0].Holder(), false)
	wantFields(t, err, "code")
	change = set(func(s *assign.Settings) { s.RequireCode = true })
	_, err = n.Dispose(t.Context(), works[0].ID, assign.Disposition{Outcome: "complete"}, works[0].Holder(), false)
	wantFields(t, err, "code")
	change = set(func(s *assign.Settings) { s.Outcomes = calls })
	if w := n.let(t, works[0], assign.Disposition{Code: new("busy")}); w.State != "returned" {
		t.Errorf("%+v", w)
	}
}

// Work that is put aside stays held, and nobody else gets it; its lease begins when it is due, and extending does not shorten it.
func TestLater(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Lease, s.MaxRequest = lasting(time.Minute), 5 })
	newInbox(t, n, "unleased", nil)
	n.push(t, "inbox", "a", "b", "c", "d")
	n.push(t, "unleased", "e")
	works := n.serve(t, "inbox", "ann", 4).Work
	w := works[0]
	until := time.Now().Add(2 * time.Hour).UTC().Truncate(time.Microsecond)
	leaseFrom := func(w assign.Work, at time.Time) {
		t.Helper()
		if late := w.LeaseExpiresAt.Sub(at) - time.Minute; late < -time.Second || late > 10*time.Second {
			t.Errorf("its lease ends %v after %v", w.LeaseExpiresAt.Sub(at), at)
		}
	}
	put, err := n.Later(t.Context(), w.ID, &until, w.Holder())
	if err != nil || put.State != "held" || !put.LaterUntil.Equal(until) || put.Expiring {
		t.Fatal(put, err)
	}
	leaseFrom(put, until)
	if put, err = n.Extend(t.Context(), w.ID, w.Holder()); err != nil {
		t.Fatal(err)
	}
	leaseFrom(put, until)
	if _, err := n.ExtendMany(t.Context(), []int64{w.ID}, w.Holder()); err != nil {
		t.Fatal(err)
	}
	if put, err = n.Later(t.Context(), w.ID, nil, w.Holder()); err != nil || put.LaterUntil != nil {
		t.Fatal(put, err)
	}
	leaseFrom(put, time.Now())
	if put, err = n.Later(t.Context(), n.serve(t, "unleased", "ann", 1).Work[0].ID, &until, w.Holder()); err != nil || put.LeaseExpiresAt != nil || put.LaterUntil == nil {
		t.Error(put, err)
	}
	for _, at := range []time.Time{time.Now().Add(-time.Second), time.Now().Add(73 * time.Hour), {}} {
		_, err := n.Later(t.Context(), w.ID, &at, w.Holder())
		wantKind(t, err, assign.Invalid)
	}
	_, err = n.Later(t.Context(), w.ID, &until, assign.Holder{User: "bob"})
	wantKind(t, err, assign.NotFound)
	_, err = n.Later(t.Context(), 1<<40, &until, w.Holder())
	wantKind(t, err, assign.NotFound)
	_, err = n.Later(t.Context(), w.ID, &until, assign.Holder{User: "ann", Instance: "i"})
	wantKind(t, err, assign.Forbidden)
	n.let(t, works[1], assign.Disposition{Outcome: "complete"})
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, works[2].ID)
	for _, over := range works[1:3] {
		_, err = n.Later(t.Context(), over.ID, &until, over.Holder())
		wantKind(t, err, assign.LeaseLost)
	}
	if _, err := n.Later(t.Context(), works[3].ID, &until, w.Holder()); err != nil {
		t.Fatal(err)
	}
	if found, err := n.sweepOnce(t.Context(), expireWork); err != nil || len(found) != 1 || found[0].id != works[2].ID {
		t.Errorf("the sweep found %v: %v", found, err)
	}
	if r := n.serve(t, "inbox", "bob", 2); len(r.Work) != 1 || r.Work[0].Item != works[2].Item {
		t.Errorf("bob got %+v", r.Work)
	}
	if given, err := n.Reassign(t.Context(), works[3].ID, assign.Reassignment{User: "bob", Force: true}, "boss"); err != nil || given.LaterUntil != nil {
		t.Error(given, err)
	}
}
