package explain_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/assign/explain"
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

func explained(t *testing.T, n *enginetest.Node, task, item string) assign.Explanation {
	t.Helper()
	x, err := n.Explain(t.Context(), task, item)
	if err != nil {
		t.Fatalf("explain %s of %s: %v", item, task, err)
	}
	if x.Text == "" || x.Available != (x.Why == assign.WhyAvailable) || x.Matches != (x.Why != assign.WhyNoMatch) || x.Held == nil || x.Barred == nil || x.History == nil {
		t.Errorf("%s of %s: %+v", item, task, x)
	}
	for _, b := range x.Barred {
		who := assign.Who{Holder: assign.Holder{User: b.User, Instance: b.Instance}, Anything: true}
		if w, claimed, err := n.Claim(t.Context(), task, item, who); claimed || (err == nil) != (b.Because == "holds it") {
			t.Errorf("%s of %s: a claim of %s, who %s: %+v, %v", item, task, b.User, b.Because, w, err)
		}
	}
	return x
}

func wantTold(t *testing.T, n *enginetest.Node, task, item, want string) assign.Explanation {
	t.Helper()
	x := explained(t, n, task, item)
	if got := told(x); got != want {
		t.Errorf("%s of %s:\ngot  %s\nwant %s", item, task, got, want)
	}
	return x
}

// For a task with a query, the explanation has the item's real rank and the one thing that keeps it back.
func TestExplainAQuerysItem(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	id := enginetest.NewTask(t, n, "task", `select format('loan %s', i) as item, case i when 8 then 2 when 9 then 0 else 1 end as slots,
		case when i >= 6 then 'ann''s' end as exclusive, i * 10 as amount from generate_series(9, 1, -1) i order by i desc`, nil).ID
	enginetest.Execute(t, db, enginetest.HeldRow, id, "loan 1", "ann", 1, nil)
	enginetest.Execute(t, db, enginetest.PutOffRow, id, "loan 2", "ann", 7200)
	enginetest.Execute(t, db, enginetest.PutOffRow, id, "loan 3", "ann", -1)
	enginetest.Execute(t, db, enginetest.ClosedRow, id, "loan 3", "bob", "completed")
	enginetest.Execute(t, db, enginetest.ClosedRow, id, "loan 4", "bob", "never")
	enginetest.Execute(t, db, enginetest.FailedRow, id, "loan 5", "cyd")
	enginetest.Execute(t, db, enginetest.HeldRow, id, "loan 6", "dan", 1, "ann's")
	enginetest.Execute(t, db, enginetest.HeldRow, id, "gone", "eve", 1, nil)

	x := wantTold(t, n, "task", "loan 1", "query held rank 9 of 1, held [ann], barred [ann holds it]")
	if x.Until == nil || time.Until(*x.Until) < 50*time.Minute || x.Held[0].LeaseExpiresAt == nil || !strings.Contains(x.Text, "ann holds it") {
		t.Errorf("until %v: %s", x.Until, x.Text)
	}
	if enginetest.Compact(assign.Work{Details: x.Details}) != `{"amount":10}` {
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

	enginetest.Execute(t, db, `update getwork.work set redriven_by = 'boss', available_at = clock_timestamp() where state = 'never'`)
	wantTold(t, n, "task", "loan 4", "query available rank 6 of 1, held [], barred []")
	enginetest.Execute(t, db, `update getwork.task_state set paused = true`)
	wantTold(t, n, "task", "loan 3", "query paused rank 7 of 1, held [], barred []")
	wantTold(t, n, "task", "loan 1", "query held rank 9 of 1, held [ann], barred [ann holds it]")

	if b, err := json.Marshal(x); err != nil || !strings.Contains(string(b), `"details":null`) {
		t.Errorf("%s, %v", b, err)
	}
	if n := enginetest.Query[int](t, db, `select count(*) from getwork.run`); n != 0 {
		t.Errorf("%d runs", n)
	}
	for item, kind := range map[string]assign.Kind{"": assign.Invalid, "a\x00b": assign.Invalid, "\xff": assign.Invalid, strings.Repeat("x", 201): assign.Invalid} {
		_, err := n.Explain(t.Context(), "task", item)
		enginetest.WantKind(t, err, kind)
	}
	_, err := n.Explain(t.Context(), "none", "1")
	enginetest.WantKind(t, err, assign.NotFound)
	enginetest.Execute(t, db, `update getwork.task_version set query = 'select 1/(i-1) as item from generate_series(1, 1) i'`)
	_, err = n.Explain(t.Context(), "task", "1")
	enginetest.WantKind(t, err, assign.QueryRefused)
}

// While the shelf is fresh it decides: the rank is the shelf's, and an item that is not on it waits for a run.
func TestExplainWithAShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.Execute(t, db, `create table loan as select i as id from generate_series(1, 4) i`)
	enginetest.NewTask(t, n, "task", `select id as item from loan order by id`, enginetest.Fresh(time.Hour))
	ann := n.EndedRequest(t, n.Click(t, "task", "ann", 1).ID)
	enginetest.Execute(t, db, `insert into loan values (0)`)
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
	if x.Why != assign.WhyNextRun || !slices.Equal(enginetest.Items(n.Click(t, "task", "bob", 1)), []string{"2"}) {
		t.Errorf("an item that was completed after the run is %s", told(x))
	}
	enginetest.Execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp()`)
	wantTold(t, n, "task", "1", "query available rank 2 of 1, held [], barred []")
}

// With several places, held rows use places up, and work that was put off or is never to return binds its own user.
func TestExplainPlaces(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{Pooled: true})
	db := enginetest.Pool(t, url)
	id := enginetest.NewTask(t, n, "task", `select 'job' as item`, func(s *assign.Settings) { s.Slots = 3 }).ID
	enginetest.Execute(t, db, enginetest.HeldRow, id, "job", "ann", 1, nil)
	enginetest.Execute(t, db, enginetest.PutOffRow, id, "job", "bob", 60)
	enginetest.Execute(t, db, enginetest.PutOffRow, id, "job", "bob", 90)
	enginetest.Execute(t, db, enginetest.ClosedRow, id, "job", "cyd", "never")
	enginetest.Execute(t, db, enginetest.ToOthersRow, id, "job", "dan")
	enginetest.Execute(t, db, enginetest.HeldRow, id, "job", "eve", 2, nil)
	x := wantTold(t, n, "task", "job", "query available rank 1 of 3, held [ann eve], barred [ann holds it; bob put it off; cyd is never to have it again; dan returned it to others; eve holds it]")
	if !strings.Contains(x.Text, "1 of its 3 places") {
		t.Error(x.Text)
	}
	for _, b := range x.Barred {
		if b.User == "bob" && (b.Until == nil || time.Until(*b.Until) < 70*time.Second) {
			t.Errorf("bob is barred until %v", b.Until)
		}
	}
	enginetest.Execute(t, db, `update getwork.work set lease = null, lease_expires_at = null where user_name = 'eve'`)
	enginetest.Execute(t, db, enginetest.HeldRow, id, "job", "fay", 3, nil)
	x = explained(t, n, "task", "job")
	if x.Why != assign.WhyHeld || x.Until == nil || !strings.Contains(x.Text, "3 of its 3 places are taken: ann, eve, fay") {
		t.Errorf("%s until %v: %s", x.Why, x.Until, x.Text)
	}
	enginetest.Execute(t, db, `update getwork.task_version set slots = 1`) // no work is taken away; ended leases alone free no place
	if x = explained(t, n, "task", "job"); x.Why != assign.WhyHeld || x.Until != nil {
		t.Errorf("%s until %v: %s", x.Why, x.Until, x.Text)
	}
}

// Four eyes: a user who holds or completed the item under a conflicting task does not get it here.
func TestExplainFourEyes(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	first := enginetest.NewTask(t, n, "first", `select 1 as item`, nil).ID
	enginetest.NewTask(t, n, "second", `select 1 as item`, func(s *assign.Settings) { s.ConflictsWith = []string{"first"} })
	enginetest.Execute(t, db, enginetest.ClosedRow, first, "1", "ann", "completed")
	enginetest.Execute(t, db, enginetest.ClosedRow, first, "1", "ann", "completed")
	enginetest.Execute(t, db, enginetest.ClosedRow, first, "1", "bob", "expired")
	enginetest.Execute(t, db, enginetest.HeldRow, first, "1", "cyd", 1, nil)
	wantTold(t, n, "second", "1", "query available rank 1 of 1, held [], barred [ann holds or completed it under task first; cyd holds or completed it under task first]")
}

// For an inbox, the rank is the item's place among the ready items.
func TestExplainAnInboxItem(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{Pooled: true})
	db := enginetest.Pool(t, url)
	id := enginetest.NewTask(t, n, "inbox", "", nil).ID
	enginetest.Execute(t, db, `insert into getwork.item (task_id, item, priority, exclusive, due_at, done_at, pushed_by, details)
		select $1, v.item, v.priority, v.exclusive, v.due_at::timestamptz, v.done_at::timestamptz, 'pusher', '{"a":1}'
		from (values ('low', 1, null, null, null), ('old', 5, null, null, null), ('young', 5, 'g', null, null), ('held', 9, 'g', 'infinity', null),
		  ('later', 9, null, '2126-01-01', null), ('last', 9, null, '9999-12-31 23:59:59+00', null), ('done', 9, null, null, '2026-01-01'), ('never', 9, null, 'infinity', null)) v (item, priority, exclusive, due_at, done_at)`, id)
	enginetest.Execute(t, db, enginetest.HeldRow, id, "held", "ann", 1, "g")
	enginetest.Execute(t, db, enginetest.ClosedRow, id, "done", "ann", "completed")
	enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, exhausted) values ($1, 'never', 'bot', 'never', clock_timestamp(), pg_current_xact_id(), true)`, id)
	wantTold(t, n, "inbox", "old", "inbox available rank 1 of 1, held [], barred []")
	wantTold(t, n, "inbox", "young", "inbox group_held rank 2 of 1, held [], barred []")
	x := wantTold(t, n, "inbox", "low", "inbox available rank 3 of 1, held [], barred []")
	if enginetest.Compact(assign.Work{Details: x.Details}) != `{"a":1}` {
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

// shelved makes a task with four loans on its shelf, one of which no longer matches the recheck.
func shelved(t *testing.T, n *enginetest.Node, db *pgxpool.Pool) assign.Task {
	t.Helper()
	enginetest.Execute(t, db, `create table loan as select i as id, true as ok from generate_series(1, 4) i`)
	task := enginetest.NewTask(t, n, "task", `select id as item from loan order by id`, func(s *assign.Settings) {
		s.FreshFor, s.Recheck = assign.Duration(time.Hour), `select id as item from loan where id = any($1::bigint[]) and ok`
	})
	if w := n.Take(t, "task", "ann"); w.Item != "1" {
		t.Fatalf("ann has %s", w.Item)
	}
	enginetest.Execute(t, db, `update loan set ok = false where id = 3; insert into loan values (5, false)`)
	return task
}

// The explanation of an item on the shelf says that the recheck does not return it, who holds it all the same, and how the
// recheck fails.
func TestExplainRechecks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := enginetest.Pool(t, url)
	n := enginetest.Start(t, url, enginetest.Options{})
	shelved(t, n, db)
	wantTold(t, n, "task", "2", "shelf available rank 2 of 1, held [], barred []")
	x := wantTold(t, n, "task", "3", "shelf recheck rank 3 of 1, held [], barred []")
	if !strings.Contains(x.Text, "recheck does not return it") || x.Until != nil {
		t.Errorf("until %v: %s", x.Until, x.Text)
	}
	wantTold(t, n, "task", "5", "query next_run rank 5 of 1, held [], barred []")
	wantTold(t, n, "task", "1", "shelf held rank 1 of 1, held [ann], barred [ann holds it]")
	enginetest.Execute(t, db, `update loan set ok = false`)
	x = wantTold(t, n, "task", "1", "shelf recheck rank 1 of 1, held [ann], barred [ann holds it]")
	if !strings.Contains(x.Text, "ann holds it.") {
		t.Error(x.Text)
	}
	enginetest.Execute(t, db, `alter table loan drop column ok`)
	_, err := n.Explain(t.Context(), "task", "2")
	enginetest.WantKind(t, err, assign.QueryRefused)
	enginetest.Execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp()`)
	wantTold(t, n, "task", "3", "query available rank 3 of 1, held [], barred []")
}

// However much is on the shelf, an explanation finds its item without reading it; and a shelf that an older node has
// put up, which has no places, is read.
func TestItemOnTheShelfIsFound(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := enginetest.Pool(t, url)
	n := enginetest.Start(t, url, enginetest.Options{})
	task := enginetest.NewTask(t, n, "task", enginetest.Numbers, enginetest.Fresh(time.Hour))
	n.Take(t, "task", "ann")
	run := enginetest.Query[int64](t, db, `select shelf_run from getwork.task_state`)
	enginetest.Execute(t, db, `insert into getwork.candidate (run_id, rank, item, details) select $1, i, 'x' || i, '{}' from generate_series(1000001, 1020000) i`, run)
	enginetest.Execute(t, db, `insert into getwork.candidate_place (run_id, bucket, ranks)
		select c.run_id, getwork.candidate_bucket(c.item), array_agg(c.rank) from getwork.candidate c where c.run_id = $1 group by 1, 2`, run)
	statements := map[string]enginetest.Looked{}
	for name, statement := range map[string]string{"explain": explain.SelectPlaceOnShelf, "now": explain.SelectTaskNow} {
		statements[name] = enginetest.Looked{SQL: statement, Args: []any{task.ID, "x1010000"}}
	}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			enginetest.Execute(t, db, `analyze getwork.candidate, getwork.candidate_place`)
		}
		for name, pages := range enginetest.BuffersOf(t, n.Pools.API, statements) {
			if pages > 40 {
				t.Errorf("%s, analyzed %v: %d pages", name, analyzed, pages)
			}
		}
	}
	for range 2 {
		wantTold(t, n, "task", "x1010000", "shelf available rank 1010000 of 1, held [], barred []")
		wantTold(t, n, "task", "x2", "query no_match rank - of 1, held [], barred []")
		enginetest.Execute(t, db, `delete from getwork.candidate_place`)
	}
}

// No statement of an explanation reads all work, however much of it there is.
func TestStatementsByIndex(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewTask(t, n, "common", `select 1 as item`, nil).ID
	statements := map[string]enginetest.Looked{
		"selectStanding":  {SQL: explain.SelectStanding, Args: []any{task, []int64{}, "item 5", 1, nil, nil}},
		"selectBinding":   {SQL: explain.SelectBinding, Args: []any{task, "item 5"}},
		"selectMember":    {SQL: explain.SelectMember, Args: []any{task, "item 5", "group"}},
		"selectElsewhere": {SQL: explain.SelectElsewhere, Args: []any{task, "item 5", false}},
	}
	enginetest.MillionClosed(t, db, task, func(when string) { enginetest.ByIndex(t, db, when, statements) })
}

// However often an item was handed out and closed, its explanation reads as much as that of an item without history, before the tables
// have statistics and after.
func TestOneItemsHistoryIsNotRead(t *testing.T) {
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	eyes := enginetest.NewInbox(t, n, "eyes", nil)
	jobs := enginetest.NewTask(t, n, "jobs", "select * from (values ('first'), ('old'), ('other')) j (item)", func(s *assign.Settings) {
		s.FreshFor, s.ConflictsWith = assign.Duration(time.Hour), []string{"eyes"}
	})
	if w := n.Take(t, "jobs", "ann"); w.Item != "first" {
		t.Fatal(w.Item)
	}
	run := enginetest.Query[int64](t, db, `select shelf_run from getwork.task_state where task_id = $1`, jobs.ID)
	statements := map[string]enginetest.Looked{
		"how it stands":        {SQL: explain.SelectStanding, Args: []any{jobs.ID, []int64{eyes.ID}, "old", 1, nil, run}},
		"what binds":           {SQL: explain.SelectBinding, Args: []any{jobs.ID, "old"}},
		"who has it elsewhere": {SQL: explain.SelectElsewhere, Args: []any{jobs.ID, "old", false}},
	}
	enginetest.Execute(t, db, "vacuum getwork.work, getwork.item")
	enginetest.SameWithHistory(t, db, statements, jobs.ID, eyes.ID)
}
