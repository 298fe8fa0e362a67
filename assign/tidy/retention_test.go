package tidy

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

const kept = 90 * 24 * time.Hour

// removed removes what is past its retention, as a node does that has just started: it looks at all closed work.
func removed(ctx context.Context, n *enginetest.Node, keep time.Duration) error {
	return remover(n, keep).Retain(ctx)
}

func remover(n *enginetest.Node, keep time.Duration) *Remover {
	return &Remover{DB: n.DB, SQL: n.SQL, Retention: keep, Log: n.Log}
}

// Old rows are removed when they are over, but nothing that still blocks an item, binds a user, or tells a conflicting task
// who has seen an item.
func TestRetention(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	plain := enginetest.NewInbox(t, n, "plain", nil)
	eyes := enginetest.NewInbox(t, n, "eyes", nil)
	enginetest.NewInbox(t, n, "second", func(s *assign.Settings) { s.ConflictsWith = []string{"eyes"} })
	ids := map[bool]int64{false: plain.ID, true: eyes.ID}
	const old, young = "clock_timestamp() - interval '91 days'", "clock_timestamp() - interval '89 days'"
	insert := func(task int64, item, state, closed, also string, values string) {
		t.Helper()
		enginetest.Execute(t, db, fmt.Sprintf(`insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid%s) values ($1, $2, 'ann', $3, %s, pg_current_xact_id()%s)`, also, closed, values), task, item, state)
	}
	for _, inConflict := range []bool{false, true} {
		task := ids[inConflict]
		insert(task, "completed", "completed", old, "", "")
		insert(task, "young", "completed", young, "", "")
		insert(task, "expired", "expired", old, "", "")
		insert(task, "reassigned", "reassigned", old, "", "")
		insert(task, "returned", "returned", old, ", after, available_at", ", '0', "+old)
		insert(task, "failed", "failed", old, ", available_at", ", "+old)
		insert(task, "still put off", "returned", old, ", after, available_at", ", '72h', clock_timestamp() + interval '1 hour'")
		insert(task, "still waits", "failed", old, ", available_at", ", clock_timestamp() + interval '1 hour'")
		insert(task, "never", "never", old, "", "")
		insert(task, "redriven", "never", old, ", available_at, redriven_by", ", "+old+", 'boss'")
		insert(task, "redriven lately", "never", old, ", available_at, redriven_by", ", "+young+", 'boss'")
		insert(task, "to others", "returned", old, ", after, available_at, to_others", ", '0', "+old+", true")
		enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, assigned_at) values ($1, 'held', 'ann', `+old+`)`, task)
		enginetest.Execute(t, db, `insert into getwork.item (task_id, item, pushed_by, pushed_at, done_at, due_at) select $1, v.*
			from (values ('done', 'x', `+old+`, `+old+`, null), ('done lately', 'x', `+old+`, `+young+`, null), ('open', 'x', `+old+`, null, null),
				('held', 'x', `+old+`, null, 'infinity'::timestamptz)) v`, task)
	}
	// A batch is a thousand; rows that stay are passed once.
	enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select $1, i, 'ann', case when i % 3 = 0 then 'never' else 'completed' end, `+old+`, pg_current_xact_id() from generate_series(1, 4000) i`, plain.ID)
	enginetest.Execute(t, db, `insert into getwork.item (task_id, item, pushed_by, done_at) select $1, i, 'x', `+old+` from generate_series(1, 2500) i`, plain.ID)

	if err := removed(t.Context(), n, kept); err != nil {
		t.Fatal(err)
	}
	const left = `select string_agg(item, ', ' order by item) from getwork.work where task_id = $1 and item !~ '^[0-9]'`
	if got := enginetest.Query[string](t, db, left, plain.ID); got != "held, never, redriven lately, still put off, still waits, to others, young" {
		t.Errorf("left: %s", got)
	}
	if got := enginetest.Query[string](t, db, left, eyes.ID); got != "completed, held, never, redriven lately, still put off, still waits, to others, young" {
		t.Errorf("left where there is a conflict: %s", got)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.work where item ~ '^[0-9]'`); got != 4000/3 {
		t.Errorf("%d left of the many, want %d", got, 4000/3)
	}
	for _, task := range ids {
		if got := enginetest.Query[string](t, db, `select string_agg(item, ', ' order by item) from getwork.item where task_id = $1`, task); got != "done lately, held, open" {
			t.Errorf("items left: %s", got)
		}
	}
	// No row that it must pass keeps it from ending, and no item whose work it removed is handed out again by mistake.
	if err := removed(t.Context(), n, kept); err != nil {
		t.Fatal(err)
	}
}

// After a redrive the next attempt is the first again, also when the redriven work is past its retention, and an older return to
// others, which is kept, was a later attempt.
func TestRetentionOfRedrivenWork(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	attempts := 2
	enginetest.NewInbox(t, n, "jobs", func(s *assign.Settings) { s.MaxAttempts, s.Backoff = &attempts, assign.Duration(2*time.Hour) })
	n.PushKeys(t, "jobs", "a", "b")
	pass := func(days int) {
		t.Helper()
		enginetest.Execute(t, db, `update getwork.work set closed_at = closed_at - $1 * interval '1 day', available_at = available_at - $1 * interval '1 day' where closed_at is not null`, days)
		enginetest.Execute(t, db, `update getwork.item set due_at = clock_timestamp() where due_at < 'infinity'`)
	}
	fail := func(user string, attempt int, items ...string) {
		t.Helper()
		for _, w := range n.Serve(t, "jobs", user, len(items)).Work {
			if w.Attempt != attempt {
				t.Fatalf("%s has attempt %d, want %d", user, w.Attempt, attempt)
			}
			n.Let(t, w, assign.Disposition{Outcome: "fail"})
		}
		pass(1)
	}
	fail("ann", 1, "a", "b")
	n.Let(t, n.Serve(t, "jobs", "ann", 1).Work[0], assign.Disposition{Outcome: "return", After: enginetest.Lasting(0), To: new("others")})
	fail("bob", 2, "a", "b")
	if back, err := n.Redrive(t.Context(), "jobs", nil, "boss"); err != nil || back != 2 {
		t.Fatal(back, err)
	}
	pass(91)
	if err := removed(t.Context(), n, kept); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Query[string](t, db, `select string_agg(item || ' ' || state, ', ' order by id) from getwork.work`); got != "a returned, a never" {
		t.Errorf("left: %s", got)
	}
	fail("cyd", 1, "a", "b")
}

// An inbox that was deleted longer ago than the retention loses its items, and what blocked them. One that was deleted lately keeps
// both.
func TestRetentionOfDeletedTasks(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	for name, days := range map[string]int{"long-ago": 91, "lately": 1, "alive": 0} {
		task := enginetest.NewInbox(t, n, name, nil)
		n.PushKeys(t, name, "done")
		n.Let(t, n.Serve(t, name, "ann", 1).Work[0], assign.Disposition{Outcome: "complete"})
		enginetest.Execute(t, db, `insert into getwork.item (task_id, item, pushed_by, details) select $1, i, 'x', '{"name": "Ann"}' from generate_series(1, 2000) i`, task.ID)
		enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at, to_others)
			select $1, v.item, 'ann', v.state, clock_timestamp() - interval '100 days', pg_current_xact_id(), v.after, v.available_at, v.after is not null
			from (values ('1', 'never', null::interval, null), ('2', 'returned', '0', clock_timestamp() - interval '100 days')) v (item, state, after, available_at)`, task.ID)
		if days == 0 {
			continue
		}
		if err := n.DeleteTask(t.Context(), name, 0); err != nil {
			t.Fatal(err)
		}
		enginetest.Execute(t, db, `update getwork.task_state set deleted_at = deleted_at - $2 * interval '1 day' where task_id = $1`, task.ID, days)
	}
	if err := removed(t.Context(), n, kept); err != nil {
		t.Fatal(err)
	}
	const left = `select string_agg(format('%s: %s items, %s work', s.name,
		(select count(*) from getwork.item i where i.task_id = s.task_id),
		(select count(*) from getwork.work w where w.task_id = s.task_id)), '; ' order by s.name) from getwork.task_state s`
	if got := enginetest.Query[string](t, db, left); got != "alive: 2001 items, 3 work; lately: 2001 items, 3 work; long-ago: 1 items, 1 work" {
		t.Errorf("left: %s", got)
	}
}

// A node that looks for items of deleted tasks reads none of other tasks, however many these have.
func TestRetentionReadsNoItemsInVain(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	alive := enginetest.NewInbox(t, n, "alive", nil)
	enginetest.Execute(t, db, `insert into getwork.item (task_id, item, pushed_by) select $1, i, 'x' from generate_series(1, 20000) i`, alive.ID)
	for range 5 {
		enginetest.NewInbox(t, n, "inbox", nil)
		if err := n.DeleteTask(t.Context(), "inbox", 0); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.Execute(t, db, `update getwork.task_state set deleted_at = deleted_at - interval '91 days' where deleted_at is not null`)
	statement := map[string]enginetest.Looked{"look": {SQL: n.SQL(selectAbandoned), Args: []any{kept.Microseconds()}}}
	for _, when := range []string{"without statistics", "with statistics"} {
		if pages := enginetest.BuffersOf(t, n.Pools.API, statement)["look"]; pages > 40 {
			t.Errorf("%s: %d pages are read, want some for each of 5 deleted tasks", when, pages)
		}
		enginetest.Execute(t, db, `vacuum analyze getwork.item, getwork.task_state`)
	}
}

// Old requests are removed; their work stays if it must, and a waiting request stays.
func TestRetentionOfRequests(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", nil)
	n.PushKeys(t, "inbox", "a", "b")
	held := n.Take(t, "inbox", "ann")
	bob, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1, Key: "key"})
	if err != nil {
		t.Fatal(err)
	}
	n.Let(t, bob.Work[0], assign.Disposition{Outcome: "never"})
	if _, err := n.Change(t, "inbox", func(s *assign.Settings) { s.Paused = true }); err != nil {
		t.Fatal(err)
	}
	waits := n.Linger(t, "inbox", "cyd", 1)
	enginetest.Execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, state, reason, created_at, completed_at)
		select task_id, 'dan', 1, 0, 'none', 'no_match', clock_timestamp(), clock_timestamp() from getwork.task_state, generate_series(1, 1500)`)
	enginetest.Execute(t, db, `update getwork.work_requested set created_at = created_at - interval '1 year', completed_at = completed_at - interval '1 year'`)
	young := n.Click(t, "inbox", "eve", 1)
	if err := removed(t.Context(), n, kept); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Query[string](t, db, `select string_agg(id::text, ' ' order by id) from getwork.work_requested`); got != fmt.Sprint(waits.ID, " ", young.ID) {
		t.Errorf("requests left: %s, want %d and %d", got, waits.ID, young.ID)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.work where request_id is null and state in ('held', 'never')`); got != 2 {
		t.Errorf("%d works of removed requests are left, want 2", got)
	}
	p, err := n.Pipeline(t.Context(), held.Holder())
	if err != nil || len(p.Work) != 1 {
		t.Errorf("ann's pipeline: %+v, %v", p, err)
	}
	n.Let(t, held, assign.Disposition{Outcome: "complete"})
	if _, err := n.Request(t.Context(), bob.ID, bob.Holder(), false); !assign.IsRefusal(err, assign.NotFound) {
		t.Errorf("bob's request: %v", err)
	}
}

// Absences that are over are removed; those in force and to come stay, however old.
func TestRetentionOfAbsences(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.Execute(t, db, `insert into getwork.absence (user_name, from_at, until_at, created_by, ended_at)
		select u, clock_timestamp() - interval '2 years', null, 'boss', ended from (values ('old', clock_timestamp() - interval '1 year'), ('young', clock_timestamp()), ('away', null)) a (u, ended)`)
	if err := removed(t.Context(), n, kept); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Query[string](t, db, `select string_agg(user_name, ' ' order by id) from getwork.absence`); got != "young away" {
		t.Errorf("left: %s", got)
	}
}

// A key is swept from the request that it made after 24 hours, and the request stays.
func TestOldKeysAreSwept(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewTask(t, n, "task", enginetest.Numbers, func(s *assign.Settings) { s.Paused = true })
	asks := func(user string) (r assign.Request) {
		t.Helper()
		r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: user}, Count: 1, Linger: assign.Duration(time.Hour), Key: "key"})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	old, young := asks("ann"), asks("bob")
	enginetest.Execute(t, db, `update getwork.work_requested set created_at = created_at - case id when $1 then interval '24 hours 1 second' else interval '23 hours' end`, old.ID)
	remover(n, kept).Leftovers(t.Context())
	const keys = `select coalesce(array_agg(id) filter (where key is not null), '{}') from getwork.work_requested`
	if got := enginetest.Query[[]int64](t, db, keys); fmt.Sprint(got) != fmt.Sprint([]int64{young.ID}) {
		t.Errorf("%v have keys, want %d alone", got, young.ID)
	}
	if r, err := n.Request(t.Context(), old.ID, old.Holder(), false); err != nil || r.State != assign.Pending {
		t.Errorf("the old request is %s, %v", r.State, err)
	}
}

// However short the retention is, an item that was completed after the shelf's run does not come off that shelf again, and an
// Idempotency-Key keeps its 24 hours.
func TestShortRetention(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewTask(t, n, "task", enginetest.Numbers, enginetest.Fresh(time.Hour))
	n.Let(t, n.Take(t, "task", "ann"), assign.Disposition{Outcome: "complete"})
	keyed := assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1, Key: "key"}
	bob, err := n.GetWork(t.Context(), "task", keyed)
	if err != nil {
		t.Fatal(err)
	}
	n.Let(t, bob.Work[0], assign.Disposition{Outcome: "complete"})
	if err := removed(t.Context(), n, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if w := n.Take(t, "task", "cyd"); w.Item != "3" {
		t.Errorf("cyd has %s, want 3", w.Item)
	}
	if again, err := n.GetWork(t.Context(), "task", keyed); err != nil || again.ID != bob.ID {
		t.Errorf("bob again: request %d (%v), want %d", again.ID, err, bob.ID)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'ann'`); got != 0 {
		t.Errorf("%d requests of ann's are left", got)
	}
	enginetest.Execute(t, db, `update getwork.task_state set shelf_run = null, fresh_until = null`)
	if err := removed(t.Context(), n, time.Millisecond); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.work`); got != 1 {
		t.Errorf("%d work rows left, want the one that is held", got)
	}
}

// However many runs a task has had, what is removed is compared with two of them at most.
func TestRetentionReadsFewRuns(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewTask(t, n, "task", enginetest.Numbers, enginetest.Fresh(time.Hour))
	const addRuns = `insert into getwork.run (task_id, version, node, state, started_at, finished_at, snapshot, given, blocked, passed_over, candidates, cut)
		select $1, 1, 'n', 'finished', clock_timestamp() - i * interval '1 minute', clock_timestamp() - i * interval '1 minute', '1:1:', 0, 0, 0, 0, false
		from generate_series(1, $2::integer) i`
	enginetest.Execute(t, db, addRuns, task.ID, 10)
	enginetest.Execute(t, db, `update getwork.task_state set shelf_run = (select min(id) from getwork.run), fresh_until = clock_timestamp() + interval '1 hour'`)
	enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select $1, i, 'ann', 'completed', clock_timestamp() - interval '91 days', pg_current_xact_id() from generate_series(1, 2500) i`, task.ID) // buffersOf removes a thousand twice
	statement := map[string]enginetest.Looked{"remove": {SQL: n.SQL(removeWork), Args: []any{kept.Microseconds(), time.Time{}, 0}}}
	pages := func() int {
		enginetest.Execute(t, db, `vacuum analyze getwork.run, getwork.work, getwork.task_state`)
		return enginetest.BuffersOf(t, n.Pools.API, statement)["remove"]
	}
	few := pages()
	enginetest.Execute(t, db, addRuns, task.ID, 3000)
	if many := pages(); many > 2*few {
		t.Errorf("%d pages are read after 3,010 runs, %d after 10", many, few)
	}
}

// A batch of old requests reads as much beside thousands of other old ones as beside some.
func TestRetentionOfManyRequests(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewInbox(t, n, "inbox", nil)
	statements := map[string]enginetest.Looked{"first batch": {SQL: n.SQL(removeRequests), Args: []any{kept.Microseconds(), int64(1 << 40)}}}
	pages := func(more int) int {
		enginetest.Execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, state, reason, created_at, completed_at)
			select $1, 'dan', 1, 0, 'none', 'no_match', clock_timestamp() - interval '91 days', clock_timestamp() - interval '91 days' from generate_series(1, $2::integer)`, task.ID, more)
		enginetest.Execute(t, db, `vacuum analyze getwork.work_requested`)
		return enginetest.BuffersOf(t, n.Pools.API, statements)["first batch"]
	}
	pages(20_000) // a second time its first rows cost more: they were locked
	few := pages(1)
	if many := pages(40_000); many > few+100 {
		t.Errorf("%d pages are read beside 60,000 old requests, %d beside 20,000", many, few)
	}
}

// The retention is what the node was told.
func TestRetentionIsConfigured(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", nil)
	n.PushKeys(t, "inbox", "a", "b")
	for _, w := range n.Serve(t, "inbox", "ann", 2).Work {
		n.Let(t, w, assign.Disposition{Outcome: "complete"})
	}
	enginetest.Execute(t, db, `update getwork.work set closed_at = closed_at - interval '61 minutes' where item = 'a'`)
	enginetest.Execute(t, db, `update getwork.item set done_at = done_at - interval '61 minutes' where item = 'a'`)
	if err := removed(t.Context(), n, time.Hour); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Query[string](t, db, `select (select string_agg(item, '') from getwork.work) || (select string_agg(item, '') from getwork.item)`); got != "bb" {
		t.Errorf("left: %s", got)
	}
}

// A node looks at closed work once, and a day later at all that had to stay. If a walk fails, it goes on where it was.
func TestRetentionGoesOn(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewInbox(t, n, "inbox", nil)
	insert := func(first, last int, state string) {
		t.Helper()
		enginetest.Execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
			select $1, i, 'ann', $4, clock_timestamp() - interval '91 days' + i * interval '1 second', pg_current_xact_id() from generate_series($2::integer, $3::integer) i`,
			task.ID, first, last, state)
	}
	walk := remover(n, kept)
	retain := func(want string) {
		t.Helper()
		if err := walk.Retain(t.Context()); err != nil {
			t.Fatal(err)
		}
		const left = `select coalesce(min(item::integer) || ' to ' || max(item::integer) || ', ' || count(*), 'none') from getwork.work`
		if got := enginetest.Query[string](t, db, left); got != want {
			t.Errorf("left: %s, want %s", got, want)
		}
	}
	insert(1, 1500, "never")
	retain("1 to 1500, 1500")
	enginetest.Execute(t, db, `update getwork.work set state = 'completed'`) // a rule that kept it is gone
	insert(1501, 1501, "completed")
	retain("1 to 1500, 1500")
	walk.walk.began = time.Now().Add(-rewalkEvery)
	retain("none")

	insert(2001, 4000, "completed")
	enginetest.Execute(t, db, `create function refuse() returns trigger language plpgsql as $$ begin raise 'not now'; end $$`)
	enginetest.Execute(t, db, `create trigger refuse before delete on getwork.work for each row when (old.item = '3500') execute function refuse()`)
	if err := walk.Retain(t.Context()); err == nil {
		t.Fatal("a batch that can't be removed is no error")
	}
	enginetest.Execute(t, db, `drop trigger refuse on getwork.work`)
	insert(2001, 2001, "completed") // before where the walk is
	retain("2001 to 2001, 1")
	walk.walk.began = time.Now().Add(-rewalkEvery)
	retain("none")
}

// A back-off that is longer than the retention does not make a failed attempt forgotten: when it is over the attempts go on,
// to the last.
func TestShortRetentionForgetsNoAttempt(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	attempts := 3
	enginetest.NewInbox(t, n, "jobs", func(s *assign.Settings) { s.MaxAttempts, s.Backoff = &attempts, assign.Duration(2*time.Hour) })
	n.PushKeys(t, "jobs", "a")
	for i := range attempts {
		r := n.Serve(t, "jobs", "ann", 1)
		if len(r.Work) != 1 || r.Work[0].Attempt != i+1 {
			t.Fatalf("ann got %+v, want attempt %d", r.Work, i+1)
		}
		w := n.Let(t, r.Work[0], assign.Disposition{Outcome: "fail"})
		if last := i == attempts-1; w.Exhausted != last {
			t.Errorf("attempt %d leaves it %s", i+1, w.State)
		}
		// The back-off is over, and its beginning is past the retention.
		enginetest.Execute(t, db, `update getwork.work set closed_at = clock_timestamp() - interval '2 hours'`)
		enginetest.Execute(t, db, `update getwork.work set available_at = clock_timestamp() where available_at is not null`)
		enginetest.Execute(t, db, `update getwork.item set due_at = clock_timestamp() where due_at < 'infinity'`)
		if err := removed(t.Context(), n, time.Hour); err != nil {
			t.Fatal(err)
		}
	}
	if r := n.Serve(t, "jobs", "bob", 1); enginetest.Why(r) != assign.AllHeld {
		t.Errorf("afterwards: %s %v", r.State, enginetest.Why(r))
	}
}

// Removing old candidates does not walk through a shelf that stays, however large it is, and removes those of runs that are
// over.
func TestTidyWalksThroughNoShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const size = 20_000
	url := schematest.URL(t)
	n, db := enginetest.Start(t, url, enginetest.Options{}), enginetest.Pool(t, url)
	ids := []int64{}
	for _, name := range []string{"a", "b", "c"} {
		task := enginetest.NewTask(t, n, name, enginetest.Numbers, nil).ID
		run := enginetest.Query[int64](t, db, `
insert into getwork.run (task_id, version, node, state, finished_at, error) values ($1, 1, 'n', 'failed', clock_timestamp() - interval '1 hour', 'oh') returning id`, task)
		enginetest.Execute(t, db, `insert into getwork.candidate (run_id, rank, item, details) select $1, i, i, '{}' from generate_series(1, $2::integer) i`, run, size)
		enginetest.Execute(t, db, `insert into getwork.candidate_place (run_id, bucket, ranks)
			select c.run_id, getwork.candidate_bucket(c.item), array_agg(c.rank) from getwork.candidate c where c.run_id = $1 group by 1, 2`, run)
		enginetest.Execute(t, db, `update getwork.task_state set shelf_run = $2, fresh_until = clock_timestamp() - interval '30 minutes' where task_id = $1`, task, run)
		ids = append(ids, run)
	}
	tidy := func() (plan string, looked int) {
		t.Helper()
		err := pgx.BeginTxFunc(t.Context(), db, pg.ReadCommitted, func(tx pgx.Tx) error {
			rows, err := tx.Query(t.Context(), `explain (analyze, timing off) `+removeCandidates)
			if err != nil {
				return err
			}
			lines, err := pgx.CollectRows(rows, pgx.RowTo[string])
			plan = strings.Join(lines, "\n")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(plan, " on candidate ") || strings.Contains(plan, "Seq Scan on candidate") {
			t.Errorf("not by an index:\n%s", plan)
		}
		for _, m := range regexp.MustCompile(`Scan using \w+ on candidate .*actual rows=(\d+)|Rows Removed by Filter: (\d+)`).FindAllStringSubmatch(plan, -1) {
			rows, _ := strconv.Atoi(m[1] + m[2])
			looked += rows
		}
		return plan, looked
	}
	if plan, looked := tidy(); looked > 100 {
		t.Errorf("%d candidates were read:\n%s", looked, plan)
	}
	enginetest.Execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp() - interval '49 hours' where name = 'b'`)
	enginetest.Await(t, "what is over is removed", func() bool {
		tidy()
		return enginetest.Query[int](t, db, `select count(*) from getwork.candidate where run_id = $1`, ids[1]) == 0
	})
	if left := enginetest.Query[int](t, db, `select count(*) from getwork.candidate`); left != 2*size {
		t.Errorf("%d candidates are left", left)
	}
	enginetest.Await(t, "their places are removed, too", func() bool {
		enginetest.Execute(t, db, removePlaces)
		return enginetest.Query[int](t, db, `select count(*) from getwork.candidate_place where run_id = $1`, ids[1]) == 0
	})
	if got := enginetest.Query[int](t, db, `select sum(cardinality(ranks)) from getwork.candidate_place`); got != 2*size {
		t.Errorf("%d places are left", got)
	}
}

// No batch reads all work, however much of it there is.
func TestBatchesByIndex(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	task := enginetest.NewTask(t, n, "common", `select 1 as item`, nil).ID
	statements := map[string]enginetest.Looked{
		"removeWork":     {SQL: removeWork, Args: []any{int64(time.Hour), time.Time{}, 0}},
		"removeRequests": {SQL: removeRequests, Args: []any{int64(time.Hour), int64(1000)}},
	}
	enginetest.MillionClosed(t, db, task, func(when string) { enginetest.ByIndex(t, db, when, statements) })
}
