package engine

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// told returns the short form of an explanation.
func told(x assign.Explanation) string {
	rank := "-"
	if x.Rank != nil {
		rank = fmt.Sprint(*x.Rank)
	}
	var held, barred []string
	for _, w := range x.Held {
		held = append(held, w.User)
	}
	for _, b := range x.Barred {
		barred = append(barred, b.User+" "+b.Because)
	}
	slices.Sort(barred)
	return fmt.Sprintf("%s %s rank %s of %d, held %v, barred [%s]", x.Source, x.Why, rank, x.Slots, held, strings.Join(barred, "; "))
}

func explained(t *testing.T, n *node, task, item string) assign.Explanation {
	t.Helper()
	x, err := n.Explain(t.Context(), task, item)
	if err != nil {
		t.Fatalf("explain %s of %s: %v", item, task, err)
	}
	if x.Text == "" || x.Available != (x.Why == assign.WhyAvailable) || x.Matches != (x.Why != assign.WhyNoMatch) || x.Held == nil || x.Barred == nil || x.History == nil {
		t.Errorf("%s of %s: %+v", item, task, x)
	}
	return x
}

func wantTold(t *testing.T, n *node, task, item, want string) assign.Explanation {
	t.Helper()
	x := explained(t, n, task, item)
	if got := told(x); got != want {
		t.Errorf("%s of %s:\ngot  %s\nwant %s", item, task, got, want)
	}
	return x
}

// These statements insert work in each state; $1 is the task. How it came to that is not shown here.
const (
	heldRow     = `insert into getwork.work (task_id, item, user_name, slot, exclusive, lease, lease_expires_at) values ($1, $2, $3, $4, $5, '1 hour', clock_timestamp() + '1 hour')`
	closedRow   = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) values ($1, $2, $3, $4, clock_timestamp(), pg_current_xact_id())`
	putOffRow   = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at) values ($1, $2, $3, 'returned', clock_timestamp(), pg_current_xact_id(), '1 hour', clock_timestamp() + $4::bigint * interval '1 second')`
	failedRow   = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, available_at) values ($1, $2, $3, 'failed', clock_timestamp(), pg_current_xact_id(), clock_timestamp() + interval '1 minute')`
	toOthersRow = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at, to_others) values ($1, $2, $3, 'returned', clock_timestamp(), pg_current_xact_id(), '0', clock_timestamp(), true)`
)

// For a task with a query, the explanation has the item's real rank and the one thing that keeps it back.
func TestExplainAQuerysItem(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	id := newTask(t, n, "task", `select format('loan %s', i) as item, case i when 8 then 2 when 9 then 0 else 1 end as slots,
		case when i >= 6 then 'ann''s' end as exclusive, i * 10 as amount from generate_series(9, 1, -1) i order by i desc`, nil).ID
	execute(t, db, heldRow, id, "loan 1", "ann", 1, nil)
	execute(t, db, putOffRow, id, "loan 2", "ann", 7200)
	execute(t, db, putOffRow, id, "loan 3", "ann", -1)
	execute(t, db, closedRow, id, "loan 3", "bob", "completed")
	execute(t, db, closedRow, id, "loan 4", "bob", "never")
	execute(t, db, failedRow, id, "loan 5", "cyd")
	execute(t, db, heldRow, id, "loan 6", "dan", 1, "ann's")
	execute(t, db, heldRow, id, "gone", "eve", 1, nil)

	x := wantTold(t, n, "task", "loan 1", "query held rank 9 of 1, held [ann], barred [ann holds it]")
	if x.Until == nil || time.Until(*x.Until) < 50*time.Minute || x.Held[0].LeaseExpiresAt == nil || !strings.Contains(x.Text, "ann holds it") {
		t.Errorf("until %v: %s", x.Until, x.Text)
	}
	if compact(assign.Work{Details: x.Details}) != `{"amount":10}` {
		t.Errorf("details %s", x.Details)
	}
	x = wantTold(t, n, "task", "loan 2", "query put_off rank 8 of 1, held [], barred []")
	if x.Until == nil || time.Until(*x.Until) < 110*time.Minute || len(x.History) != 1 {
		t.Errorf("until %v, history %v", x.Until, x.History)
	}
	x = wantTold(t, n, "task", "loan 3", "query available rank 7 of 1, held [], barred []")
	if len(x.History) != 2 || x.History[0].User != "bob" {
		t.Errorf("history %+v", x.History)
	}
	wantTold(t, n, "task", "loan 4", "query never rank 6 of 1, held [], barred []")
	x = wantTold(t, n, "task", "loan 5", "query put_off rank 5 of 1, held [], barred []")
	if !strings.Contains(x.Text, "cyd failed with it") {
		t.Error(x.Text)
	}
	x = wantTold(t, n, "task", "loan 7", "query group_held rank 3 of 1, held [], barred []")
	if !strings.Contains(x.Text, `dan holds "loan 6"`) || x.Until == nil || x.Exclusive == nil || *x.Exclusive != "ann's" {
		t.Errorf("%+v", x)
	}
	wantTold(t, n, "task", "loan 8", "query passed_over rank 2 of 2, held [], barred []")
	wantTold(t, n, "task", "loan 9", "query passed_over rank 1 of 0, held [], barred []")
	x = wantTold(t, n, "task", "gone", "query no_match rank - of 1, held [eve], barred [eve holds it]")
	if !strings.Contains(x.Text, "eve holds it") || x.Details != nil {
		t.Errorf("%+v", x)
	}
	wantTold(t, n, "task", "' or true --", "query no_match rank - of 1, held [], barred []")

	execute(t, db, `update getwork.work set redriven_by = 'boss', available_at = clock_timestamp() where state = 'never'`)
	wantTold(t, n, "task", "loan 4", "query available rank 6 of 1, held [], barred []")
	execute(t, db, `update getwork.task_state set paused = true`)
	wantTold(t, n, "task", "loan 3", "query paused rank 7 of 1, held [], barred []")
	wantTold(t, n, "task", "loan 1", "query held rank 9 of 1, held [ann], barred [ann holds it]")

	if b, err := json.Marshal(x); err != nil || !strings.Contains(string(b), `"details":null`) {
		t.Errorf("%s, %v", b, err)
	}
	if n := runs(t, db); n != 0 {
		t.Errorf("%d runs", n)
	}
	for item, kind := range map[string]assign.Kind{"": assign.Invalid, "a\x00b": assign.Invalid, "\xff": assign.Invalid, strings.Repeat("x", 201): assign.Invalid} {
		_, err := n.Explain(t.Context(), "task", item)
		wantKind(t, err, kind)
	}
	_, err := n.Explain(t.Context(), "none", "1")
	wantKind(t, err, assign.NotFound)
	execute(t, db, `update getwork.task_version set query = 'select 1/(i-1) as item from generate_series(1, 1) i'`)
	_, err = n.Explain(t.Context(), "task", "1")
	wantKind(t, err, assign.QueryRefused)
}

// While the shelf is fresh it decides: the rank is the shelf's, and an item that is not on it waits for a run.
func TestExplainWithAShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id from generate_series(1, 4) i`)
	newTask(t, n, "task", `select id as item from loan order by id`, fresh(time.Hour))
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `insert into loan values (0)`)
	wantTold(t, n, "task", "3", "shelf available rank 3 of 1, held [], barred []")
	x := wantTold(t, n, "task", "0", "query next_run rank 1 of 1, held [], barred []")
	if x.Until == nil || time.Until(*x.Until) < 50*time.Minute {
		t.Errorf("until %v", x.Until)
	}
	wantTold(t, n, "task", "1", "shelf held rank 1 of 1, held [ann], barred [ann holds it]")
	if _, err := n.Dispose(t.Context(), ann.Work[0].ID, assign.Disposition{Outcome: "complete"}, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	x = explained(t, n, "task", "1") // closed after the run's snapshot
	if x.Why != assign.WhyNextRun || !slices.Equal(items(n.click(t, "task", "bob", 1)), []string{"2"}) {
		t.Errorf("an item that was completed after the run is %s", told(x))
	}
	execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp()`)
	wantTold(t, n, "task", "1", "query available rank 2 of 1, held [], barred []")
}

// With several places, held rows use places up, and work that was put off or is never to return binds its own user.
func TestExplainPlaces(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{pooled: true})
	db := pool(t, url)
	id := newTask(t, n, "task", `select 'job' as item`, func(s *assign.Settings) { s.Slots = 3 }).ID
	execute(t, db, heldRow, id, "job", "ann", 1, nil)
	execute(t, db, putOffRow, id, "job", "bob", 60)
	execute(t, db, putOffRow, id, "job", "bob", 90)
	execute(t, db, closedRow, id, "job", "cyd", "never")
	execute(t, db, toOthersRow, id, "job", "dan")
	execute(t, db, heldRow, id, "job", "eve", 2, nil)
	x := wantTold(t, n, "task", "job", "query available rank 1 of 3, held [ann eve], barred [ann holds it; bob put it off; cyd is never to have it again; dan returned it to others; eve holds it]")
	if !strings.Contains(x.Text, "1 of its 3 places") {
		t.Error(x.Text)
	}
	for _, b := range x.Barred {
		if b.User == "bob" && (b.Until == nil || time.Until(*b.Until) < 70*time.Second) {
			t.Errorf("bob is barred until %v", b.Until)
		}
	}
	execute(t, db, `update getwork.work set lease = null, lease_expires_at = null where user_name = 'eve'`)
	execute(t, db, heldRow, id, "job", "fay", 3, nil)
	x = explained(t, n, "task", "job")
	if x.Why != assign.WhyHeld || x.Until == nil || !strings.Contains(x.Text, "3 of its 3 places are taken: ann, eve, fay") {
		t.Errorf("%s until %v: %s", x.Why, x.Until, x.Text)
	}
	execute(t, db, `update getwork.task_version set slots = 1`) // no work is taken away; ended leases alone free no place
	if x = explained(t, n, "task", "job"); x.Why != assign.WhyHeld || x.Until != nil {
		t.Errorf("%s until %v: %s", x.Why, x.Until, x.Text)
	}
}

// Four eyes: a user who holds or completed the item under a conflicting task does not get it here.
func TestExplainFourEyes(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	first := newTask(t, n, "first", `select 1 as item`, nil).ID
	newTask(t, n, "second", `select 1 as item`, func(s *assign.Settings) { s.ConflictsWith = []string{"first"} })
	execute(t, db, closedRow, first, "1", "ann", "completed")
	execute(t, db, closedRow, first, "1", "ann", "completed")
	execute(t, db, closedRow, first, "1", "bob", "expired")
	execute(t, db, heldRow, first, "1", "cyd", 1, nil)
	wantTold(t, n, "second", "1", "query available rank 1 of 1, held [], barred [ann holds or completed it under task first; cyd holds or completed it under task first]")
}

// For an inbox, the rank is the item's place among the ready items.
func TestExplainAnInboxItem(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{pooled: true})
	db := pool(t, url)
	id := newTask(t, n, "inbox", "", nil).ID
	execute(t, db, `insert into getwork.item (task_id, item, priority, exclusive, due_at, done_at, pushed_by, details)
		select $1, v.item, v.priority, v.exclusive, v.due_at::timestamptz, v.done_at::timestamptz, 'pusher', '{"a":1}'
		from (values ('low', 1, null, null, null), ('old', 5, null, null, null), ('young', 5, 'g', null, null), ('held', 9, 'g', 'infinity', null),
		  ('later', 9, null, '2126-01-01', null), ('last', 9, null, '9999-12-31 23:59:59-05', null), ('done', 9, null, null, '2026-01-01'), ('never', 9, null, 'infinity', null)) v (item, priority, exclusive, due_at, done_at)`, id)
	execute(t, db, heldRow, id, "held", "ann", 1, "g")
	execute(t, db, closedRow, id, "done", "ann", "completed")
	execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, exhausted) values ($1, 'never', 'bot', 'never', clock_timestamp(), pg_current_xact_id(), true)`, id)
	wantTold(t, n, "inbox", "old", "inbox available rank 1 of 1, held [], barred []")
	wantTold(t, n, "inbox", "young", "inbox group_held rank 2 of 1, held [], barred []")
	x := wantTold(t, n, "inbox", "low", "inbox available rank 3 of 1, held [], barred []")
	if compact(assign.Work{Details: x.Details}) != `{"a":1}` {
		t.Errorf("details %s", x.Details)
	}
	wantTold(t, n, "inbox", "held", "inbox held rank - of 1, held [ann], barred [ann holds it]")
	x = wantTold(t, n, "inbox", "later", "inbox not_due rank - of 1, held [], barred []")
	if x.Until == nil || x.Until.UTC().Format(time.DateOnly) != "2126-01-01" {
		t.Errorf("until %v", x.Until)
	}
	x = wantTold(t, n, "inbox", "last", "inbox not_due rank - of 1, held [], barred []") // it was pushed when such times were not refused
	if b, err := json.Marshal(x); err != nil || !strings.Contains(string(b), `"until":"9999-12-31T23:59:59Z"`) {
		t.Errorf("%s, %v", b, err)
	}
	x = wantTold(t, n, "inbox", "never", "inbox never rank - of 1, held [], barred []")
	if !strings.Contains(x.Text, "attempts are used up") {
		t.Error(x.Text)
	}
	if x = wantTold(t, n, "inbox", "done", "inbox no_match rank - of 1, held [], barred []"); len(x.History) != 1 {
		t.Errorf("history %v", x.History)
	}
}
