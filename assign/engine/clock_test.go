package engine

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// clockNode is a node whose rescuer looks often, on a database whose clock can be set ahead.
func clockNode(t *testing.T) (n *node, db *pgxpool.Pool, set func(time.Duration)) {
	t.Helper()
	server, clock := schematest.ClockServer(t)
	url := server.URL("getwork")
	return startNode(t, url, nodeOptions{look: 200 * time.Millisecond}), pool(t, url), clock.Set
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
		"the next look at who lingers": func(t *testing.T, task string) {
			newTask(t, n, task, ranked, patient)
			r := n.linger(t, task, "ann", 1)
			await(t, "a round has left ann lingering", func() bool {
				return query[bool](t, db, `select look_after is not null from getwork.work_requested where id = $1`, r.ID)
			})
			add(t, "a", 1)
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
		"what was returned at once, failed, or was redriven": func(t *testing.T, task string) {
			newInbox(t, n, task, func(s *assign.Settings) { s.MaxOpen = nil })
			n.push(t, task, "returned", "failed", "redriven", "put off")
			for _, w := range n.click(t, task, "ann", 4).Work {
				switch w.Item {
				case "returned":
					n.let(t, w, giveBack(0))
				case "failed":
					n.let(t, w, assign.Disposition{Outcome: "fail"})
				case "redriven":
					n.let(t, w, assign.Disposition{Outcome: "never"})
				case "put off":
					n.let(t, w, giveBack(time.Minute))
				}
			}
			if redriven, err := n.Redrive(t.Context(), task, []string{"redriven"}, "boss"); err != nil || redriven != 1 {
				t.Fatal(redriven, err)
			}
			before := n.Looks.Load()
			await(t, "the node has seen that it is tomorrow", func() bool { return n.Looks.Load() > before+1 })
			set(0)
			if r := n.linger(t, task, "bob", 2); n.endedRequest(t, r.ID).Assigned == 0 {
				t.Error("bob got nothing of what is there again")
			}
			await(t, "all but what was put off is there again, or will be in a minute", func() bool {
				return query[int](t, db, `select count(*) from getwork.work w join getwork.task_state s using (task_id)
where s.name = $1 and w.available_at > clock_timestamp() + interval '1 minute'`, task) == 1
			})
			if due := query[bool](t, db, `select bool_and(i.due_at < clock_timestamp() + interval '1 minute')
from getwork.item i join getwork.task_state s using (task_id) where s.name = $1 and i.item = 'failed'`, task); !due {
				t.Error("what failed is there again in the tables of work, and not in the inbox")
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
	if _, err := n.write(t.Context(), removeCandidates); err != nil {
		t.Fatal(err)
	}
	set(0)
	if r := n.endedRequest(t, n.click(t, "task", "bob", 1).ID); r.State != assign.Assigned {
		t.Errorf("bob is %s: %v", r.State, why(r))
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

// No run is reported to have taken less than no time, or a day, and nobody is told to wait that long.
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

// A clock that is set forward past a query's time-out makes PostgreSQL end the query. That is not the query's fault: it runs
// again, and the waiting request is served. The same holds for a run's recheck, and for a query database's clock.
func TestClockLeapsOverATimeOut(t *testing.T) {
	t.Parallel()
	// Whoever sleeps looks at the clock now and then, so a leap beyond the sleep's end might end it before the time-out does.
	const nap = 24 * 60 * 60
	const slow, quick = `select i::text as item from nap, generate_series(1, 9) i, pg_sleep(seconds)`, `select i::text as item from generate_series(1, 9) i`
	for name, c := range map[string]struct {
		query, recheck string
		elsewhere      bool
	}{
		"query":           {query: slow},
		"recheck":         {query: quick, recheck: `select x as item from nap, unnest($1::text[]) x, pg_sleep(seconds)`},
		"query elsewhere": {query: slow, elsewhere: true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if name != "query" {
				schematest.Thorough(t)
			}
			server, clock := schematest.ClockServer(t)
			url := server.URL("getwork")
			db := pool(t, url) // where the query runs
			execute(t, db, `create table nap as select $1::integer as seconds`, nap)
			o := nodeOptions{look: 200 * time.Millisecond}
			if c.elsewhere {
				// A node does not ask another database to look for its client, and without any timer the query would sleep on.
				o.queries = reader(t, url, "nap")
				o.queries += separator(o.queries) + "client_connection_check_interval=500ms"
				url = schematest.URL(t)
			}
			n := startNode(t, url, o)
			newTask(t, n, "task", c.query, func(s *assign.Settings) { s.Recheck = assign.Query(c.recheck) })
			asleep := func() bool {
				return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) > 0
			}
			r := n.click(t, "task", "ann", 1)
			await(t, "the query runs", asleep)
			execute(t, db, `update nap set seconds = 0`) // for the next run
			clock.Set(2 * time.Hour)
			if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
				t.Errorf("ann is %s: %s", r.State, why(r))
			}
			runs, err := n.Runs(t.Context(), "task", 0, 10)
			if err != nil || len(runs) != 2 || runs[1].State != "failed" {
				t.Fatalf("the runs were %+v (%v); want one that was ended, and one more", runs, err)
			}

			if name != "query" {
				return // a claim asks the query alone, and elsewhere in the same way
			}
			execute(t, db, `update nap set seconds = $1`, nap)
			claimed := make(chan error, 1)
			go func() {
				_, _, err := n.Claim(context.Background(), "task", "2", who("bob"))
				claimed <- err
			}()
			await(t, "a claim asks the query", asleep)
			clock.Set(4 * time.Hour)
			if err := <-claimed; !assign.IsRefusal(err, assign.Unavailable) {
				t.Errorf("bob's claim: %v", err)
			}
		})
	}
}

// A run that an operator cancelled is not taken for one whose time-out the clock passed: it fails as usual.
func TestCancelledQueryIsNoLeap(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, db, set := clockNode(t)
	set(time.Hour)
	newTask(t, n, "task", `select 1 as item from pg_sleep(60)`, nil)
	r := n.click(t, "task", "ann", 1)
	await(t, "the query runs, and is cancelled", func() bool {
		return query[int](t, db, `select count(pg_cancel_backend(pid)) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) > 0
	})
	if r = n.endedRequest(t, r.ID); r.State != assign.Failed {
		t.Errorf("ann is %s", r.State)
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

// However the clock is set, no two users hold the same item, and an item that was put off stays away until the clock shows
// its time.
func TestOwnersUnderAClockThatIsSet(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, db, set := clockNode(t)
	newInbox(t, n, "jobs", func(s *assign.Settings) { lease := assign.Duration(time.Minute); s.Lease = &lease })
	n.push(t, "jobs", "a", "b")
	ann := n.take(t, "jobs", "ann")
	set(-aDay)
	if r := n.click(t, "jobs", "bob", 2); len(r.Work) != 1 || r.Work[0].Item == ann.Item {
		t.Fatalf("bob has %v, ann %s", items(r), ann.Item)
	}
	if w, err := n.Extend(t.Context(), ann.ID, ann.Holder()); err != nil || !w.LeaseExpiresAt.Before(*ann.LeaseExpiresAt) {
		t.Fatalf("ann extends: %+v (%v)", w, err)
	}
	set(0) // the lease that she has had since yesterday is over
	await(t, "the leases are over", func() bool { return query[int](t, db, `select count(*) from getwork.work where state = 'held'`) == 0 })
	_, err := n.Dispose(t.Context(), ann.ID, assign.Disposition{Outcome: "complete"}, ann.Holder(), false)
	wantKind(t, err, assign.LeaseLost)
	again := n.take(t, "jobs", "cem")
	if again.Item != ann.Item || again.Attempt != 2 {
		t.Fatalf("cem has %s, attempt %d", again.Item, again.Attempt)
	}
	n.let(t, again, giveBack(2*time.Hour))
	set(-aDay)
	if r := n.click(t, "jobs", "dan", 2); len(r.Work) != 1 || r.Work[0].Item == again.Item {
		t.Errorf("dan has %v, of which %s was put off", items(r), again.Item)
	}
	set(3 * time.Hour)
	if r := n.linger(t, "jobs", "eve", 1); n.endedRequest(t, r.ID).State != assign.Assigned {
		t.Error("eve did not get what is due again")
	}
}
