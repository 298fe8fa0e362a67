package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

func fresh(d time.Duration) func(*assign.Settings) {
	return func(s *assign.Settings) { s.FreshFor = assign.Duration(d) }
}

func runs(t *testing.T, db *pgxpool.Pool) int {
	t.Helper()
	return query[int](t, db, `select count(*) from getwork.run`)
}

// A shelf ends sooner when fresh_for is shortened, as if it had had that time from the beginning.
func TestShorterFreshFor(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id from generate_series(11, 19) i`)
	const old = `update getwork.task_state set fresh_until = fresh_until - interval '5 minutes', expires_at = expires_at - interval '5 minutes',
  used_at = used_at - interval '3 hours' where task_id = $1` // not in use, so that nothing is refreshed ahead of need
	for i, c := range []struct {
		name     string
		from, to time.Duration
		staleFor time.Duration
		before   string // what has become of the shelf meanwhile, besides that it is five minutes old
		want     string // what bob and then cyd get, and whether the shelf had expired
		runs     [2]int // how many there are by then
	}{
		{"each round runs it", time.Hour, 0, time.Hour, "", "[1] false [12] false ", [2]int{2, 3}},
		{"over", time.Hour, time.Minute, 0, "", "[1] false [12] false ", [2]int{2, 2}},
		{"over, and its refresh has failed", time.Hour, time.Minute, time.Hour, `expires_at = null`, "[1] false [12] false ", [2]int{2, 2}},
		{"over, and it may serve on", time.Hour, time.Minute, time.Hour, "", "[12] true [1] false ", [2]int{2, 2}},
		{"ended early", time.Hour, time.Minute, time.Hour, `fresh_until = clock_timestamp()`, "[1] false [12] false ", [2]int{2, 2}},
		{"not over", 2 * time.Hour, time.Hour, 0, "", "[12] false [13] false ", [2]int{1, 1}},
		{"lengthened before", 2 * time.Hour, time.Hour, 0,
			`fresh_until = fresh_until - interval '1 hour', expires_at = expires_at - interval '1 hour'`, "[12] false [13] false ", [2]int{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprint("task-", i)
			execute(t, db, `delete from loan where id = 1`)
			task := newTask(t, n, name, `select id as item from loan order by id`, func(s *assign.Settings) {
				s.FreshFor, s.StaleFor = assign.Duration(c.from), assign.Duration(c.staleFor)
			})
			n.take(t, name, "ann")
			n.idle(t)
			execute(t, db, `insert into loan values (1)`)
			execute(t, db, old, task.ID)
			execute(t, db, `update getwork.run set started_at = started_at - interval '5 minutes', finished_at = finished_at - interval '5 minutes' where task_id = $1`, task.ID)
			if c.before != "" {
				execute(t, db, `update getwork.task_state set `+c.before+` where task_id = $1`, task.ID)
			}
			if _, err := n.change(t, name, func(s *assign.Settings) { s.FreshFor = assign.Duration(c.to) }); err != nil {
				t.Fatal(err)
			}
			got := ""
			for i, user := range []string{"bob", "cyd"} {
				r := n.endedRequest(t, n.click(t, name, user, 1).ID)
				got += fmt.Sprint(items(r), r.Stale, " ")
				var runs int
				await(t, "the runs that the click asks for", func() bool {
					runs = query[int](t, db, `select count(*) from getwork.run where task_id = $1`, task.ID)
					return runs >= c.runs[i]
				})
				n.idle(t)
				if runs = query[int](t, db, `select count(*) from getwork.run where task_id = $1`, task.ID); runs != c.runs[i] {
					t.Errorf("%d runs after %s's click, want %d", runs, user, c.runs[i])
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// An item that was closed after the run's snapshot is not handed out from its shelf, because the query ranked it by the state
// before. This also holds if the closing was stamped before the snapshot and committed after it.
func TestClosedAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	begins := newGate(StepRunBegins)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 4) i order by i`, fresh(time.Hour))
	execute(t, db, `insert into getwork.work (task_id, item, user_name) values ($1, '1', 'early'), ($1, '2', 'early')`, task.ID)
	// A closing that is stamped now, and commits after the run has its snapshot.
	closing, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = closing.Exec(t.Context(), `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id() where item = '1'`)
	if err != nil {
		t.Fatal(err)
	}
	close(begins.open)
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if err := closing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Ann completes her own: it is not on this shelf any more, either.
	if _, err := n.Dispose(t.Context(), ann.Work[0].ID, assign.Disposition{Outcome: "complete"}, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	bob := n.click(t, "task", "bob", 5)
	if got := fmt.Sprint(items(ann), items(bob)); got != "[3] [4]" {
		t.Errorf("ann and bob got %s, want [3] [4]", got)
	}
	// The next run sees the closings before it.
	execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp()`)
	cyd := n.endedRequest(t, n.click(t, "task", "cyd", 5).ID)
	if got := fmt.Sprint(items(cyd)); got != "[1 3]" {
		t.Errorf("cyd got %s, want [1 3]", got)
	}
}

// While a run is under way the old shelf is still handed out, and the run does not hand the same items out again.
func TestOldShelfServesDuringARun(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	var armed atomic.Bool // either node may come first
	steps := func(ctx context.Context, step Step) {
		if armed.Load() {
			queried.hold(ctx, step)
		}
	}
	n := startNode(t, url, nodeOptions{Steps: steps})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 9) i order by i`, fresh(time.Hour))
	n.endedRequest(t, n.click(t, "task", "ann", 2).ID)

	other := startNode(t, url, nodeOptions{Steps: steps})
	armed.Store(true)
	// A lingering request whose look_after has come makes a run due whatever the shelf holds.
	execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until, look_after)
		values ($1, 'patient', 1, 1, clock_timestamp() + interval '1 hour', clock_timestamp())`, task.ID)
	other.Wake(task.ID)
	<-queried.reached
	if got := fmt.Sprint(items(n.click(t, "task", "bob", 2))); got != "[4 5]" && got != "[3 4]" {
		t.Errorf("bob got %s from the old shelf", got)
	}
	close(queried.open)
	await(t, "everybody is served", func() bool {
		return query[int](t, db, `select count(*) from getwork.work_requested where state = 'pending'`) == 0
	})
	if got := query[string](t, db, `select string_agg(item, ' ' order by item) from getwork.work where state = 'held'`); got != "1 2 3 4 5" {
		t.Errorf("held are %s, want 1 2 3 4 5", got)
	}
}

// What was handed out while the query ran, and what of it was closed, is not put on the new shelf, however much it is and whatever
// stands before it: the first click that comes to it would look each of these up. An item with several places may have one left.
// What was closed before the query began stays on the shelf, since the query saw that.
func TestNewShelfLacksWhatIsGone(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for _, test := range []struct {
		slots, candidates int
		patient, cyd      string
	}{{1, 2401, "1700", "[3501 3502]"}, {2, 6000, "1", "[2 3]"}} {
		t.Run(fmt.Sprint(test.slots), func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			queried := newGate(StepQueried)
			n := startNode(t, url, nodeOptions{})
			task := newTask(t, n, "task", `select i as item from generate_series(1, 6000) i order by i`, func(s *assign.Settings) {
				s.FreshFor, s.Slots, s.MaxCandidates = assign.Duration(time.Hour), test.slots, 10_000
			})
			n.endedRequest(t, n.click(t, "task", "early", 1).ID)
			begins := newGate(StepRunBegins)
			other := startNode(t, url, nodeOptions{Steps: func(ctx context.Context, s Step) {
				begins.hold(ctx, s)
				queried.hold(ctx, s)
			}})
			n.stop()
			const insertDone = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid)
				select $1, i, 'bob', s.state, case when s.state <> 'held' then clock_timestamp() end, case when s.state <> 'held' then 'bob' end,
				  case when s.state <> 'held' then pg_current_xact_id() end
				from generate_series(2, 6000) i, lateral (select case when i % 2 = 0 then 'held' else 'completed' end as state) s
				where `
			execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until, look_after)
				values ($1, 'patient', 1, 1, clock_timestamp() + interval '1 hour', clock_timestamp())`, task.ID)
			other.Wake(task.ID)
			<-begins.reached
			execute(t, db, insertDone+`i in (3601, 3603)`, task.ID)
			close(begins.open)
			<-queried.reached
			execute(t, db, insertDone+`i <> 1700 and (i <= 3500 or i > 5900)`, task.ID)
			close(queried.open)
			await(t, "the patient one is served", func() bool {
				return query[int](t, db, `select count(*) from getwork.work where user_name = 'patient'`) == 1
			})
			if got := query[string](t, db, `select item from getwork.work where user_name = 'patient'`); got != test.patient {
				t.Errorf("the patient one got %s, want %s", got, test.patient)
			}
			if got := query[int](t, db, `select count(*) from getwork.candidate c join getwork.task_state s on s.shelf_run = c.run_id`); got != test.candidates {
				t.Errorf("the new shelf has %d candidates, want %d", got, test.candidates)
			}
			if got := fmt.Sprint(items(other.click(t, "task", "cyd", 2))); got != test.cyd {
				t.Errorf("cyd got %s, want %s", got, test.cyd)
			}
		})
	}
}

// A request that a fresh shelf leaves lingering is looked at again at its look_after, by the node that left it.
func TestLingeringOnAFreshShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select 1 as id`)
	newTask(t, n, "task", `select id as item from loan`, func(s *assign.Settings) {
		s.FreshFor, s.RerunAfter = assign.Duration(time.Hour), assign.Duration(time.Second)
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	ben, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ben"}, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil || ben.State != assign.Pending {
		t.Fatalf("ben is %s (%v)", ben.State, err)
	}
	execute(t, db, `insert into loan values (2)`)
	if r := n.endedRequest(t, ben.ID); r.State != assign.Assigned {
		t.Errorf("ben is %s", r.State)
	}
}

// Tables that were dumped and restored carry transaction ids of another server. They keep nothing back: with a cut result the
// query would otherwise run again and again.
func TestTransactionsOfAFormerServer(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.MaxCandidates = 1 })
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if _, err := n.Dispose(t.Context(), ann.Work[0].ID, assign.Disposition{Outcome: "return", After: after(0)}, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `update getwork.work set closed_xid = (pg_current_xact_id()::text::bigint + 1000000)::text::xid8`)
	if r := n.endedRequest(t, n.click(t, "task", "ben", 1).ID); fmt.Sprint(items(r)) != "[1]" {
		t.Errorf("ben got %v", items(r))
	}
	if n := runs(t, db); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

// A node that freezes in a round, with the assign lock, loses both after a few seconds. Its write is refused when it wakes,
// and nobody gets what it had planned for another.
func TestFrozenRoundLetsGo(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, a, "task", numbers, fresh(time.Hour))
	a.endedRequest(t, a.click(t, "task", "first", 1).ID)

	read := newGate(StepRead)
	frozen := startNode(t, url, nodeOptions{Steps: read.hold})
	refused := make(chan error, 1)
	go func() {
		_, err := frozen.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "frozen"}, Count: 2})
		refused <- err
	}()
	<-read.reached
	ben := a.click(t, "task", "ben", 2)
	if got := fmt.Sprint(items(ben)); got != "[2 3]" {
		t.Errorf("ben got %s (%s), want [2 3]", got, ben.State)
	}
	close(read.open)
	if err := <-refused; err == nil {
		t.Error("the frozen node's round was committed after it had lost its lock")
	} else if p, _ := pg.ProblemOf(err); p.Status != 503 {
		t.Errorf("it answers %d: %v; want 503, so that the click is repeated", p.Status, err)
	}
	if n := query[int](t, db, `select count(*) from getwork.work where user_name = 'frozen'`); n != 0 {
		t.Errorf("%d items went to a user who was not answered", n)
	}
}

// A shelf whose last items were claimed is empty, although no round has counted them.
func TestClaimedFromTheShelfIsNotLeft(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "task", `select i as item from generate_series(1, 5) i order by i`, fresh(time.Hour))
	n.take(t, "task", "ann")
	if _, _, err := n.Claim(t.Context(), "task", "4", who("ann")); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, n.click(t, "task", "bob", 3).ID); fmt.Sprint(items(r)) != "[2 3 5]" {
		t.Fatalf("bob got %v", items(r))
	}
	task, err := n.Records.Task(t.Context(), "task")
	if err != nil || task.Shelf != 0 {
		t.Errorf("%d are on the shelf (%v), want none", task.Shelf, err)
	}
}

// Faults that a review of the shelf found, each with the right behaviour.

// The query database is away: a click on a fresh shelf of a task with a recheck was refused with an internal error instead of
// being recorded (or served).
func TestClicksAreRecordedThoughTheRecheckIsAway(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, a, db, 6, nil)
	a.endedRequest(t, a.click(t, "task", "ann", 1).ID)
	b := startNode(t, url, nodeOptions{Queries: "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"})
	r, err := b.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1})
	if err != nil {
		t.Fatalf("the primary is up, but the click fails: %v (requests recorded of bob: %d)", err,
			query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'bob'`))
	}
	if r.State != assign.Pending {
		t.Errorf("bob's request is %s", r.State)
	}
}

// A recheck takes long: clicks are recorded, and served when it is over.
func TestClicksDoNotWaitForASlowRecheck(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, func(s *assign.Settings) {
		s.Recheck = `select id as item from loan, (select pg_advisory_xact_lock_shared(7) offset 0) w where open and id = any($1::integer[])`
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	slow, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer slow.Release()
	if _, err := slow.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1})
	if err != nil || r.State != assign.Pending {
		t.Fatalf("beside a recheck that goes on: %s, %v", r.State, err)
	}
	if _, err := slow.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
		t.Fatal(err)
	}
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("bob got %s", r.State)
	}
}

// An item comes back to a fresh shelf while no slot is free for the recheck: lingering requests were not served when a slot
// became free.
func TestWokenWhileAllSlotsAreTaken(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Look: 100 * time.Millisecond})
	db := pool(t, url)
	recheckedTask(t, n, db, 1, func(s *assign.Settings) { s.Slots = 2; s.RerunAfter = assign.Duration(time.Hour) })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	bob := n.click(t, "task", "bob", 1)
	bob = n.endedRequest(t, bob.ID)
	cyd, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "cyd"}, Count: 1, Linger: assign.Duration(2 * time.Hour)})
	if err != nil || cyd.State != assign.Pending {
		t.Fatal(err, cyd.State)
	}
	n.idle(t)
	for range n.MaxRuns {
		n.slots.takeFreeSlot(t.Context())
	}
	zero := assign.Duration(0)
	if _, err := n.Dispose(t.Context(), bob.Work[0].ID, assign.Disposition{Outcome: "return", After: &zero}, assign.Holder{User: "bob"}, false); err != nil {
		t.Fatal(err)
	}
	await(t, "the look has found no place", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return n.slots.parked[cyd.TaskID] && n.loops[cyd.TaskID] == nil
	})
	for range n.MaxRuns {
		n.slots.giveSlot()
	}
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	r, err := n.Feed.Await(ctx, cyd.ID, assign.Holder{}, true, func(r *assign.Request) bool { return r.State != assign.Pending })
	if err != nil || r.State == assign.Pending {
		t.Fatalf("cyd still lingers (%s) though a place of the item and slots for rechecks are free; look_after in %s", r.State,
			query[time.Duration](t, db, `select look_after - clock_timestamp() from getwork.work_requested where id = $1`, cyd.ID))
	}
}

// A round ignored a recheck that was changed before it took its lock.
func TestRecheckChangedBeforeTheLock(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, nil)
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `select from getwork.task_state for no key update`); err != nil {
		t.Fatal(err)
	}
	got := make(chan assign.Request, 1)
	go func() { got <- n.click(t, "task", "bob", 1) }()
	await(t, "the round waits for the lock", func() bool {
		return query[bool](t, db, `select exists (select from pg_locks join pg_stat_activity using (pid) where datname = current_database() and not granted)`)
	})
	// as UpdateTask does: only item 5 matches from now on
	for _, s := range []string{
		`create temp table v as select * from getwork.task_version`,
		`update v set version = 2, recheck = 'select 5 as item where ''5'' = any($1)'`,
		`insert into getwork.task_version select * from v`,
		`update getwork.task_state set version = 2`,
	} {
		if _, err := tx.Exec(t.Context(), s); err != nil {
			t.Fatal(s, err)
		}
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := <-got; fmt.Sprint(items(r)) != "[5]" {
		t.Errorf("by the recheck in force only 5 matches; bob got %s %v", r.State, items(r))
	}
}

// The task had no recheck when it was read, but has one when the lock is taken.
func TestRecheckAddedBeforeTheLock(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, func(s *assign.Settings) { s.Recheck = "" })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	execute(t, db, `update loan set open = false where id < 5`)
	task, err := n.Task(t.Context(), "task")
	if err != nil {
		t.Fatal(err)
	}
	old := task.Settings
	if _, err := n.UpdateTask(t.Context(), "task", task.Version, "a manager", func(s *assign.Settings) error {
		s.Recheck = `select id as item from loan where open and id = any($1::integer[])`
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	n.idle(t)
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) select task_id, 'bob', 1, 1 from getwork.task_state returning id`)
	if err := n.serveNow(t.Context(), task.ID, old); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, id); fmt.Sprint(items(r)) != "[5]" {
		t.Errorf("bob got %s %v, want [5]", r.State, items(r))
	}
}

// A recheck refuses a run's whole result: nothing was held, but the reason was all_held.
func TestARunOfWhichNothingMatchesAnyMore(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 3, func(s *assign.Settings) { s.Recheck = `select x as item from unnest($1) x where false` })
	if r := n.endedRequest(t, n.click(t, "task", "bob", 1).ID); why(r) != assign.NoMatch {
		t.Errorf("bob got %s %s, want no_match: nothing is held", r.State, why(r))
	}
}

// fresh_for is shorter than the query: after each run another began for nobody.
func TestNoRunForNobodyAfterALongOne(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from (select pg_sleep(4)) w, generate_series(1, 9) i order by i`, fresh(200*time.Millisecond))
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	if s := query[string](t, db, `select string_agg(state, ' ' order by id) from getwork.run`); s != "finished" {
		t.Errorf("one click, runs: %s", s)
	}
}

// During the back-off after a failed recheck, each click executed the recheck again (twice).
func TestFailedRecheckIsLeftAloneForAWhile(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table zero as select 1 as z`)
	recheckedTask(t, n, db, 6, func(s *assign.Settings) {
		s.Recheck = `select id as item from loan, zero where 1/z = 1 and open and id = any($1::integer[])`
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update zero set z = 0`)
	n.endedRequest(t, n.click(t, "task", "bob", 1).ID)
	n.idle(t)
	execute(t, db, `update getwork.task_state set failed_until = clock_timestamp() + interval '1 minute'`) // so that it is not over before the last click
	for range 5 {
		n.endedRequest(t, n.click(t, "task", "bob", 1).ID)
	}
	if f := query[int](t, db, `select failures from getwork.task_state`); f > 2 {
		t.Errorf("six quick clicks: %d failures, back-off until in %s; after the first, clicks should end at once", f,
			query[time.Duration](t, db, `select failed_until - clock_timestamp() from getwork.task_state`))
	}
}

// The query database is away and the shelf fresh: no retry delay was kept, so nothing ever ended the request.
func TestRecheckThatIsAwayIsRetried(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, a, db, 6, nil)
	a.endedRequest(t, a.click(t, "task", "ann", 1).ID)
	a.stop()
	startNode(t, url, nodeOptions{Look: 100 * time.Millisecond, Queries: "postgres://nobody@127.0.0.1:1/none?connect_timeout=1"})
	execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) select task_id, 'bob', 1, 1 from getwork.task_state`)
	await(t, "the next try is put off", func() bool { return query[int](t, db, `select retries from getwork.task_state`) > 1 })
}

// One item at the top of the shelf does not match any more, and the work that was handed out behind it still matches (it is
// held): each click took the assign lock and rechecked again and again.
func TestRecheckLeavesOutWhatIsHeld(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6000, func(s *assign.Settings) { s.MaxCandidates = 10_000; s.MaxRequest = 1000 })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update loan set open = false where id = 2`)
	for range 4 {
		n.endedRequest(t, n.click(t, "task", "ann", 1000).ID)
	}
	n.idle(t)
	for range 3 {
		before := query[int](t, db, `select last_value::int from getwork.round`)
		n.click(t, "task", "bob", 1)
		if rounds := query[int](t, db, `select last_value::int from getwork.round`) - before; rounds > 1 {
			t.Errorf("one click for one item took the assign lock %d times", rounds)
		}
	}
}

// A request came between the recheck of a run's result and its round: it ended partial though there was more, and a second
// run started though the shelf was full.
func TestWhoComesAfterTheRecheckWaitsForTheShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	q := newGate(StepQueried)
	n := startNode(t, url, nodeOptions{Steps: q.hold})
	db := pool(t, url)
	recheckedTask(t, n, db, 1500, func(s *assign.Settings) { s.MaxCandidates = 2000; s.MaxRequest = 1000 })
	a := n.click(t, "task", "ann", 1)
	<-q.reached
	b := n.click(t, "task", "bob", 700)
	c := n.click(t, "task", "cyd", 1)
	close(q.open)
	n.endedRequest(t, a.ID)
	if r := n.endedRequest(t, b.ID); r.State != assign.Assigned {
		t.Errorf("bob wanted 700 of 1499: %s %d", r.State, r.Assigned)
	}
	n.endedRequest(t, c.ID)
	n.idle(t)
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, though the first left 1000 that match on a shelf fresh for an hour", got)
	}
}

// A manager corrects the recheck, or pauses the task, while the recheck is executed for a waiting request. When it failed, it failed
// the request, and a back-off began that the manager had ended. What waits when a task is paused stays.
func TestNobodyFailsByAnOldRecheck(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, changes := range map[string]func(*testing.T, *node, *pgxpool.Pool, int64) (failed func()){
		"corrected": func(t *testing.T, n *node, _ *pgxpool.Pool, _ int64) func() {
			if _, err := n.change(t, "task", func(s *assign.Settings) {
				s.Recheck = `select id as item from loan where open and id = any($1::integer[])`
			}); err != nil {
				t.Fatal(err)
			}
			return func() {}
		},
		"paused": func(t *testing.T, n *node, db *pgxpool.Pool, bob int64) func() {
			pause := func(paused bool) {
				if _, err := n.SetPaused(t.Context(), "task", paused, 0, "a manager"); err != nil {
					t.Fatal(err)
				}
			}
			pause(true)
			return func() {
				n.idle(t)
				if s := query[string](t, db, `select state from getwork.work_requested where id = $1`, bob); s != "pending" {
					t.Errorf("while the task is paused bob is %s", s)
				}
				execute(t, db, `update zero set z = 1`)
				pause(false)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			execute(t, db, `create table zero as select 1 as z`)
			recheckedTask(t, n, db, 6, func(s *assign.Settings) {
				s.Recheck = `select id as item from loan, zero, (select pg_advisory_xact_lock_shared(7) offset 0) l where 1/z = 1 and open and id = any($1::integer[])`
			})
			n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
			n.idle(t)
			holding, err := db.Acquire(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer holding.Release()
			if _, err := holding.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
				t.Fatal(err)
			}
			execute(t, db, `update zero set z = 0`)
			id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) select task_id, 'bob', 1, 1 from getwork.task_state returning id`)
			n.Wake(query[int64](t, db, `select task_id from getwork.task_state`))
			await(t, "the recheck waits", func() bool {
				return query[bool](t, db, `select exists (select from pg_locks where database = (select oid from pg_database where datname = current_database()) and locktype = 'advisory' and not granted)`)
			})
			failed := changes(t, n, db, id)
			if _, err := holding.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
				t.Fatal(err)
			}
			failed()
			if r := n.endedRequest(t, id); r.State != assign.Assigned {
				t.Errorf("bob is %s by a recheck that is not the task's any more; back-off %v", r.State,
					query[*time.Duration](t, db, `select failed_until - clock_timestamp() from getwork.task_state`))
			}
		})
	}
}
