package engine

import (
	"context"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// clockNode is a node whose rescuer checks often, on a database whose clock can be set ahead.
func clockNode(t *testing.T) (n *node, db *pgxpool.Pool, set func(time.Duration)) {
	t.Helper()
	server, clock := schematest.ClockServer(t)
	url := server.URL("getwork")
	return startNode(t, url, nodeOptions{Look: 200 * time.Millisecond}), pool(t, url), clock.Set
}

// aDay is how far the clock is ahead for a while: whatever waits for a time that was set by it would wait for a day.
const aDay = 24 * time.Hour

// Times that only remind getwork itself delay nobody for long after a clock that was ahead is set right.
func TestClockSetBack(t *testing.T) {
	t.Parallel()
	n, db, set := clockNode(t)
	execute(t, db, `create table loan (item text, place integer, divisor integer default 1)`)
	add := func(t *testing.T, item string, divisor int) {
		t.Helper()
		execute(t, db, `insert into loan select $1, - count(*), $2 from loan`, item, divisor)
	}
	const ranked = `select item, 1 / divisor as one from loan order by place`
	for name, f := range map[string]func(t *testing.T, task string){
		"a back-off": func(t *testing.T, task string) {
			newTask(t, n, task, ranked, nil)
			add(t, "a", 0)
			if r := n.endedRequest(t, n.click(t, task, "ann", 1).ID); r.State != assign.Failed {
				t.Fatalf("ann is %s", r.State)
			}
			set(0)
			execute(t, db, `update loan set divisor = 1`)
			await(t, "a click is answered with work", func() bool {
				return n.endedRequest(t, n.click(t, task, "ann", 1).ID).State == assign.Assigned
			})
		},
		"a retry delay": func(t *testing.T, task string) {
			add(t, "a", 1)
			made := newTask(t, n, task, ranked, nil)
			execute(t, db, `update getwork.task_state set retries = 1, retry_since = clock_timestamp(), retry_at = clock_timestamp() + interval '30 s' where task_id = $1`, made.ID)
			r := n.click(t, task, "ann", 1)
			set(0)
			if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
				t.Errorf("ann is %s", r.State)
			}
		},
		"the end of a shelf": func(t *testing.T, task string) {
			newTask(t, n, task, ranked, func(s *assign.Settings) { s.FreshFor = assign.Duration(time.Hour) })
			add(t, "a", 1)
			add(t, "b", 1)
			if r := n.endedRequest(t, n.click(t, task, "ann", 1).ID); items(r)[0] != "b" {
				t.Fatalf("ann has %v", items(r))
			}
			former := query[int64](t, db, `select shelf_run from getwork.task_state where name = $1`, task)
			add(t, "c", 1)
			set(0)
			await(t, "the shelf has ended, and perhaps there is another one by now", func() bool {
				return !query[bool](t, db, `select shelf_run = $2 and fresh_until > clock_timestamp() from getwork.task_state where name = $1`, task, former)
			})
			if r := n.endedRequest(t, n.click(t, task, "bob", 1).ID); items(r)[0] != "c" {
				t.Errorf("bob has %v, which is not the best", items(r))
			}
		},
		"somebody whose node died": func(t *testing.T, task string) {
			made := newTask(t, n, task, ranked, nil)
			add(t, "a", 1)
			n.orphan(t, db, made, set)
		},
		"somebody whose node died, after a run": func(t *testing.T, task string) {
			made := newTask(t, n, task, ranked, nil)
			execute(t, db, `insert into getwork.run (task_id, version, node, state, finished_at) values ($1, 1, 'dead', 'cancelled', clock_timestamp())`, made.ID)
			add(t, "a", 1)
			n.orphan(t, db, made, set)
		},
		"a run that died with its node, for nobody": func(t *testing.T, task string) {
			made := newTask(t, n, task, ranked, nil)
			id := query[int64](t, db, insertRunning, made.ID, 1<<30)
			set(0)
			await(t, "it is given up", func() bool {
				return query[string](t, db, `select state from getwork.run where id = $1`, id) == "lost"
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			execute(t, db, `truncate loan`)
			set(aDay)
			f(t, "task-"+string(rune('a'+query[int](t, db, `select count(*) from getwork.task`))))
		})
	}
}

// orphan inserts a request that no node knows of before the clock is set right, and expects it to be served.
func (n *node) orphan(t *testing.T, db *pgxpool.Pool, task assign.Task, set func(time.Duration)) {
	t.Helper()
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) values ($1, 'ann', 1, 1) returning id`, task.ID)
	set(0)
	if r := n.endedRequest(t, id); r.State != assign.Assigned {
		t.Errorf("ann is %s", r.State)
	}
}

// A shelf that seemed to be over while the clock was ahead is handed out after it is set right: nothing on it is gone.
func TestShelfSurvivesAClockThatWasAhead(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, _, set := clockNode(t)
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.FreshFor = assign.Duration(time.Hour) })
	if r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID); r.State != assign.Assigned {
		t.Fatalf("ann is %s", r.State)
	}
	set(2 * time.Hour)
	if err := Above.Leftovers(t.Context(), n.Engine, 0); err != nil {
		t.Fatal(err)
	}
	set(0)
	if r := n.endedRequest(t, n.click(t, "task", "bob", 1).ID); r.State != assign.Assigned {
		t.Errorf("bob is %s: %v", r.State, why(r))
	}
}

// What was completed after the clock was set back is not handed out from a shelf of before, neither while that shelf is of a later
// time, nor when the clock has reached it again. No rescuer is there, so the shelf is judged where it is read.
func TestClockSetBackBehindAShelf(t *testing.T) {
	t.Parallel()
	for name, elsewhere := range map[string]bool{"here": false, "elsewhere": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server, clock := schematest.ClockServer(t)
			url := server.URL("getwork")
			o := nodeOptions{MaxRuns: 1} // or the node would renew the shelf as soon as it reads that it is over
			db := pool(t, url)
			execute(t, db, `create table loan as select i::text as item from generate_series(1, 9) i`)
			if elsewhere {
				o.Queries = reader(t, url, "loan")
			}
			n := startNode(t, url, o)
			newTask(t, n, "task", `select item from loan order by item`, func(s *assign.Settings) { s.FreshFor = assign.Duration(time.Hour) })
			runs := func() int { return query[int](t, db, `select count(*) from getwork.run`) }
			complete := func(w assign.Work) { n.let(t, w, assign.Disposition{Outcome: "complete"}) }

			clock.Set(10 * time.Minute)
			n.take(t, "task", "ann") // 1
			held, _, err := n.Claim(t.Context(), "task", "3", who("bob"))
			if err != nil {
				t.Fatal(err)
			}
			clock.Set(0)
			complete(held)
			clock.Set(11 * time.Minute)
			if r := n.endedRequest(t, n.click(t, "task", "cyd", 2).ID); fmt.Sprint(items(r)) != "[2 4]" || runs() != 1 {
				t.Errorf("when the clock had reached the shelf again, cyd got %v, after %d runs", items(r), runs())
			}

			if held, _, err = n.Claim(t.Context(), "task", "6", who("bob")); err != nil {
				t.Fatal(err)
			}
			clock.Set(0)
			complete(held)
			execute(t, db, `insert into loan values ('0')`)
			execute(t, db, `delete from loan where item in ('3', '6')`)
			if r := n.endedRequest(t, n.click(t, "task", "dan", 3).ID); fmt.Sprint(items(r)) != "[0 5 7]" || runs() != 2 {
				t.Errorf("while the shelf was of a later time, dan got %v, after %d runs", items(r), runs())
			}
		})
	}
}

// Nobody takes a shelf of a later time for a fresh one, and a task that is in use gets another.
func TestShelfOfALaterTimeIsNotFresh(t *testing.T) {
	t.Parallel()
	server, clock := schematest.ClockServer(t)
	url := server.URL("getwork")
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	execute(t, db, `create table loan as select i::text as item from generate_series(1, 9) i`)
	task := newTask(t, n, "task", `select item from loan order by item`, func(s *assign.Settings) {
		s.FreshFor, s.StaleFor = assign.Duration(time.Hour), assign.Duration(time.Hour)
	})
	clock.Set(10 * time.Minute)
	n.take(t, "task", "ann")
	shelf := func() (items int64, source string) {
		t.Helper()
		shown, err := n.Task(t.Context(), "task")
		if err != nil {
			t.Fatal(err)
		}
		e, err := n.Explain(t.Context(), "task", "5")
		if err != nil {
			t.Fatal(err)
		}
		return shown.Shelf, e.Source
	}
	if items, source := shelf(); items != 8 || source != "shelf" {
		t.Fatalf("the task shows %d items on its shelf; an item is explained by the %s", items, source)
	}
	clock.Set(0)
	if items, source := shelf(); items != 0 || source != "query" {
		t.Errorf("the task shows %d items on its shelf; an item is explained by the %s", items, source)
	}
	execute(t, db, `delete from loan where item = '5'`)
	_, _, err := n.Claim(t.Context(), "task", "5", who("bob"))
	wantKind(t, err, assign.NotFound)
	// While runs are held back, a click waits for a shelf that serves, and fails without one.
	const backOff = `update getwork.task_state set failures = $1, failed_until = case when $1 > 0 then clock_timestamp() + interval '1 minute' end, last_error = 'x'`
	execute(t, db, backOff, 1)
	if r := n.click(t, "task", "bob", 1); r.State != assign.Failed {
		t.Errorf("during a back-off bob is %s", r.State)
	}
	if waiting := query[int](t, db, `select count(*) from (`+selectCandidates+`) c`, task.ID, 1); waiting != 0 {
		t.Errorf("%d candidates would be rechecked", waiting)
	}
	execute(t, db, backOff, 0)
	view, err := n.readTaskView(t.Context(), n.DB, task.ID)
	if err != nil || view.view.Serves || view.view.Stale || !view.view.Refresh {
		t.Errorf("a node sees %+v (%v)", view.view, err)
	}
	n.refreshAll(t.Context())
	await(t, "there is another shelf", func() bool {
		return query[bool](t, db, `select u.finished_at <= clock_timestamp() from getwork.task_state s join getwork.run u on u.id = s.shelf_run`)
	})
	if items, source := shelf(); items != 7 || source != "query" { // 5 is not on it
		t.Errorf("then the task shows %d items on its shelf; an item is explained by the %s", items, source)
	}
}

// barrier is part of a query that must not end before the test allows it.
const barrier = `pg_advisory_xact_lock_shared(4711)`

// atBarrier closes the barrier until open is called; runs waits until a query has reached it.
func atBarrier(t *testing.T, db *pgxpool.Pool) (runs, open func()) {
	t.Helper()
	lock, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = lock.Rollback(context.Background()) })
	if _, err := lock.Exec(t.Context(), `select pg_advisory_xact_lock(4711)`); err != nil {
		t.Fatal(err)
	}
	return func() {
			t.Helper()
			await(t, "the query runs", func() bool {
				return query[int](t, db, `select count(*) from pg_locks where database = (select oid from pg_database where datname = current_database()) and locktype = 'advisory' and not granted`) > 0
			})
		}, func() {
			t.Helper()
			if err := lock.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
}

// No run is reported to have taken less than no time, or a day, and nobody is asked to wait that long.
func TestNoTimesOfAClockThatWasSet(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, db, set := clockNode(t)
	newTask(t, n, "task", `select i as item from generate_series(1, 100) i, `+barrier+` order by i`, nil)
	// Forward by less than the time-out, which would otherwise be over.
	for _, ahead := range []time.Duration{-aDay, -aDay + time.Minute, -aDay - time.Hour, -2 * aDay} {
		runs, open := atBarrier(t, db)
		r := n.click(t, "task", "ann", 1)
		runs()
		set(ahead)
		r, err := n.Request(t.Context(), r.ID, r.Holder(), false)
		if err != nil || r.EtaSeconds != nil && (*r.EtaSeconds < 0 || *r.EtaSeconds > 90) {
			t.Errorf("with the clock %v ahead ann is to wait for %s s (%v)", ahead, shown(r.EtaSeconds), err)
		}
		open()
		if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
			t.Errorf("with the clock %v ahead ann is %s", ahead, r.State)
		}
	}
	runs, err := n.Runs(t.Context(), "task", 0, 10)
	if err != nil || len(runs) != 4 {
		t.Fatal(runs, err)
	}
	for _, r := range runs {
		if r.DurationMS == nil || *r.DurationMS < 0 {
			t.Errorf("run %d took %s ms", r.ID, shown(r.DurationMS))
		}
	}
	task, err := n.Task(t.Context(), "task")
	if err != nil || task.UsualSeconds == nil || *task.UsualSeconds < 0 || *task.UsualSeconds > 90 {
		t.Errorf("a run usually takes %s s (%v)", shown(task.UsualSeconds), err)
	}
}

// A run counts as stuck by the node's own clock: not because the database's was set forward, and even if it was set back.
func TestStuckWhateverTheClockSays(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	server, clock := schematest.ClockServer(t)
	url, set := server.URL("getwork"), clock.Set
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	lock, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	var backend int32
	if err := lock.QueryRow(t.Context(), runLock, task.ID).Scan(&backend); err != nil {
		t.Fatal(err)
	}
	run := query[int64](t, db, insertRunning, task.ID, backend)
	alive := func() bool {
		return query[bool](t, db, `select exists (select from pg_stat_activity where pid = $1)`, backend)
	}
	r := newRescuer(n.Engine)
	set(aDay)
	r.endStuck(t.Context())
	if r.running[run].IsZero() || !alive() {
		t.Fatalf("a run that was seen first a moment ago was ended: %v", r.running)
	}
	set(-aDay)
	r.running[run] = time.Now().Add(-time.Duration(task.QueryTimeout) - stuckAfter + time.Minute/2)
	if r.endStuck(t.Context()); !alive() {
		t.Fatal("it was ended before its time")
	}
	r.running[run] = r.running[run].Add(-time.Minute)
	r.endStuck(t.Context())
	await(t, "it is ended", func() bool { return !alive() })
}

// A run whose lock was released, and whose node is about to record why, is not lost, however long ago the clock says that it
// began.
func TestARunThatIsGivenUpIsNotLost(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	run := query[int64](t, db, insertRunning, task.ID, 1<<30)
	execute(t, db, `update getwork.run set started_at = started_at - interval '2 hours'`)
	state := func() string { return query[string](t, db, `select state from getwork.run`) }
	r := newRescuer(n.Engine)
	r.rescueOnce(t.Context())
	r.rescueOnce(t.Context())
	if s := state(); s != "running" || r.gone[run].IsZero() {
		t.Fatalf("it is %s already; known to be gone: %v", s, r.gone)
	}
	r.gone[run] = r.gone[run].Add(-n.LookEvery)
	if r.rescueOnce(t.Context()); state() != "lost" {
		t.Error("it is never given up")
	}
}

// The rescuer, which looks every two seconds, does nothing for the tasks that were ever deleted.
func TestGlancePassesOverDeletedTasks(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newTask(t, n, "task", numbers, nil)
	execute(t, db, `insert into getwork.task select from generate_series(1, 3000)`)
	execute(t, db, `insert into getwork.task_version (task_id, version, name, query, created_by) select id, 1, 'old', 'select 1', 'x' from getwork.task where id > 1`)
	execute(t, db, `insert into getwork.task_state (task_id, name, version, deleted_at) select id, 'old', 1, clock_timestamp() from getwork.task where id > 1`)
	execute(t, db, `analyze getwork.task_state, getwork.task_version`)
	rows, err := n.DB.Query(t.Context(), `explain (analyze, timing off) `+selectAnythingToRescue)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(plan, "\n")
	all := regexp.MustCompile(`loops=(\d+)`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("nothing is known of how often anything is done:\n%s", text)
	}
	for _, m := range all {
		if loops, _ := strconv.Atoi(m[1]); loops > 100 {
			t.Fatalf("something is done %d times:\n%s", loops, text)
		}
	}
}

// A lingering request gets an item that falls due when the clock is set past that time, although the node's own timer is set
// for later.
func TestClockLeapsOverWhatFallsDue(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, _, set := clockNode(t)
	newInbox(t, n, "jobs", patient)
	due := time.Now().Add(30 * time.Minute)
	n.pushItems(t, "jobs", assign.NewItem{Item: "a", NotBefore: &due})
	r := n.linger(t, "jobs", "ann", 1)
	await(t, "the node has a timer", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.timers) == 1 && len(n.loops) == 0
	})
	before := n.Looks.Load()
	await(t, "the node has looked", func() bool { return n.Looks.Load() > before+1 })
	set(40 * time.Minute)
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("ann is %s", r.State)
	}
}

// The server's clock may be a little faster than the node's: a query that used up its time by the server's clock has taken
// too long, and is not repeated.
func TestTimeOutByAFasterClock(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, db, set := clockNode(t)
	newTask(t, n, "task", `select 1 as item from pg_sleep(60)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(5 * time.Second) })
	r := n.click(t, "task", "ann", 1)
	await(t, "the query runs", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) > 0
	})
	set(40 * time.Millisecond)
	if r = n.endedRequest(t, r.ID); r.State != assign.Failed || !strings.Contains(faultIn(r), "longer than its query_timeout") {
		t.Errorf("ann is %s: %s", r.State, faultIn(r))
	}
	if runs := query[int](t, db, `select count(*) from getwork.run`); runs != 1 {
		t.Errorf("the query ran %d times", runs)
	}
}

// An item that was completed while its query ran elsewhere, and the clock was set back, is not handed out from that run.
func TestClockSetBackWhileAQueryRunsElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	server, clock := schematest.ClockServer(t)
	url := server.URL("getwork")
	n, db := startNode(t, url, nodeOptions{Queries: url, Look: 200 * time.Millisecond}), pool(t, url)
	execute(t, db, `create table loan as values ('a'), ('b')`)
	task := newTask(t, n, "task", `select column1 as item from loan, `+barrier+` order by column1`, func(s *assign.Settings) { s.FreshFor = assign.Duration(time.Hour) })
	clock.Set(time.Hour)
	ann := query[int64](t, db, `insert into getwork.work (task_id, item, user_name) values ($1, 'a', 'ann') returning id`, task.ID)
	runs, open := atBarrier(t, db)
	r := n.click(t, "task", "bob", 1)
	runs()
	clock.Set(0)
	execute(t, db, `delete from loan where column1 = 'a'`)
	if _, err := n.Dispose(t.Context(), ann, assign.Disposition{Outcome: "complete"}, assign.Holder{User: "ann"}, false); err != nil {
		t.Fatal(err)
	}
	open()
	if r = n.endedRequest(t, r.ID); len(r.Work) != 1 || r.Work[0].Item != "b" {
		t.Errorf("bob is %s with %v: %s", r.State, items(r), faultIn(r))
	}
	if query[bool](t, db, `select `+ShelfFresh+` from getwork.task_state s join getwork.run u on u.id = s.shelf_run`) {
		t.Error("what it left is fresh, though what it has seen ends later than the clock shows")
	}
}

// A request that came before the clock was set back has waited for a growing time, whatever the clock says.
func TestOldestRequestOfALaterTime(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{Look: 50 * time.Millisecond}), pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	run, err := db.Begin(t.Context()) // another session runs its query
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Rollback(context.Background()) }()
	var backend int32
	if err := run.QueryRow(t.Context(), runLock, task.ID).Scan(&backend); err != nil {
		t.Fatal(err)
	}
	query[int64](t, db, insertRunning, task.ID, backend)
	execute(t, db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at)
values ($1, 'ann', 1, 1, clock_timestamp() + interval '1 hour')`, task.ID)
	await(t, "it is known", func() bool { return n.Oldest.Load() > 0 })
	since := n.Oldest.since.Load()
	before := n.Looks.Load()
	await(t, "the node has looked", func() bool { return n.Looks.Load() > before+20 })
	if n.Oldest.since.Load() != since {
		t.Error("it began to wait anew")
	}
}

// faultIn returns a request's error, or "".
func faultIn(r assign.Request) string {
	if r.Error == nil {
		return ""
	}
	return *r.Error
}
