package engine

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
)

// failsWith makes a click run a query that fails, and returns its request.
func failsWith(t *testing.T, n *node, task, want string) assign.Request {
	t.Helper()
	r := n.endedRequest(t, n.click(t, task, "ann", 1).ID)
	if r.State != assign.Failed || r.Error == nil || !strings.Contains(*r.Error, want) {
		t.Errorf("the request is %s with error %v, want failed with %q", r.State, r.Error, want)
	}
	return r
}

func TestQueryPastItsTimeout(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "slow", `select 1 as item from pg_sleep(60)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(200 * time.Millisecond) })
	failsWith(t, n, "slow", "longer than its query_timeout of 200ms")
}

func TestQueryOnADroppedTable(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan (id int)`)
	task := newTask(t, n, "loans", `select id as item from loan`, nil)
	execute(t, db, `drop table loan`)
	failsWith(t, n, "loans", `relation "loan" does not exist`)
	if s := query[string](t, db, `select state from getwork.run where task_id = $1`, task.ID); s != "failed" {
		t.Errorf("the run is %s", s)
	}

	// The back-off is made longer than the rest of the test takes on any machine.
	execute(t, db, `update getwork.task_state set failed_until = clock_timestamp() + interval '1 minute'`)

	// New clicks fail at once with the same error during the back-off; lingering requests wait for its end.
	if r := n.click(t, "loans", "bob", 1); r.State != assign.Failed || !strings.Contains(*r.Error, "loan") {
		t.Errorf("a click during the back-off is %s", r.State)
	}
	lingering, err := n.GetWork(t.Context(), "loans", assign.Click{Holder: assign.Holder{User: "cyd"}, Count: 1, Linger: assign.Duration(time.Minute)})
	if err != nil || lingering.State != assign.Pending {
		t.Fatalf("one that lingers is %s (%v)", lingering.State, err)
	}
	execute(t, db, `create table loan as select 17 as id`)
	execute(t, db, `update getwork.task_state set failed_until = clock_timestamp() + interval '500 ms'`)
	n.Wake(task.ID)
	if r := n.endedRequest(t, lingering.ID); r.State != assign.Assigned {
		t.Errorf("after the back-off the one that lingers is %s", r.State)
	}
	if failures := query[int](t, db, `select failures from getwork.task_state`); failures != 0 {
		t.Errorf("%d failures counted after a success", failures)
	}
}

// A query that writes, through a function or after switching the protection off, is refused. The lock survives, and the
// requests get the error.
func TestQueryMayNotWrite(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table victim (i int)`)
	execute(t, db, `create function writes() returns int language plpgsql as $$ begin insert into victim values (1); return 1; end $$`)
	execute(t, db, `create function unlocks() returns int language plpgsql as $$ begin
		perform set_config('transaction_read_only', 'off', true); insert into victim values (1); return 1; end $$`)
	for name, sql := range map[string]string{"writes": `select writes() as item`, "unlocks": `select unlocks() as item`} {
		newTask(t, n, name, sql, nil)
		failsWith(t, n, name, "read-")
	}
	if rows := query[int](t, db, `select count(*) from victim`); rows != 0 {
		t.Errorf("%d rows written by a ranking query", rows)
	}
}

// With a query role, a ranking query has that role's rights and no more, and may read what is blocked.
func TestQueryRole(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	role := "ranker_" + query[string](t, db, `select substr(md5(current_database()), 1, 12)`)
	execute(t, db, `create role `+role)
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), `drop owned by `+role+`; drop role `+role) })
	execute(t, db, `grant usage on schema getwork to `+role+`; grant select on getwork.blocked to `+role)
	execute(t, db, `create table open_to_all as select i from generate_series(1, 3) i; grant select on open_to_all to `+role+`; create table secret (i int)`)
	n := startNode(t, url, nodeOptions{Role: role})
	newTask(t, n, "allowed", `select i as item from open_to_all order by i`, nil)
	if r := n.endedRequest(t, n.click(t, "allowed", "ann", 2).ID); r.Assigned != 2 {
		t.Errorf("ann got %d: %v", r.Assigned, r.Error)
	}
	s := assign.DefaultSettings()
	s.Name, s.Query = "refused", `select i as item from secret`
	_, err := n.CreateTask(t.Context(), s, "a manager")
	wantKind(t, err, assign.QueryRefused)
	s.Query = `select item from getwork.work`
	_, err = n.CreateTask(t.Context(), s, "a manager")
	wantKind(t, err, assign.QueryRefused)
}

// The ranking's order survives the check for blocked items, whatever plan is chosen for it: here 40,000 items are put off,
// which PostgreSQL looks up in a hash, not in order. One execution returns the counts, too.
func TestRankingKeepsItsOrder(t *testing.T) {
	schematest.Long(t)
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `do $$ begin execute format('alter database %I set work_mem = ''64MB''', current_database()); end $$`)
	db.Reset()
	n := startNode(t, url, nodeOptions{})
	task := newTask(t, n, "task", `select i as item from generate_series(1, 40500) i order by i desc`, func(s *assign.Settings) { s.MaxRequest = 1000 })
	execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at)
		select $1, i, 'ann', 'returned', clock_timestamp(), pg_current_xact_id(), '1 hour', clock_timestamp() + interval '1 hour'
		from generate_series(1, 40000) i`, task.ID)
	execute(t, db, `analyze getwork.work`)
	plan := query[string](t, db, `explain (verbose, format json) `+n.Ranker.Wrapped(task.Query, task.ID, 1))
	if !strings.Contains(plan, "hashed SubPlan") {
		t.Error("the plan does not look the blocked items up in a hash; this test shows nothing")
	}
	r := n.endedRequest(t, n.click(t, "task", "bob", 500).ID)
	for i, w := range r.Work {
		if want := fmt.Sprint(40500 - i); w.Item != want {
			t.Fatalf("the item at place %d is %s, want %s", i, w.Item, want)
		}
	}
	if len(r.Work) != 500 {
		t.Errorf("%d items, want 500", len(r.Work))
	}
	if got := query[string](t, db, `select format('%s given, %s blocked, %s passed over', given, blocked, passed_over) from getwork.run`); got != "40500 given, 40000 blocked, 0 passed over" {
		t.Error(got)
	}
}

// Rows that can't be items are passed over and counted, before the limit: null, empty, too long, repeated.
func TestPassedOver(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "task", `select v as item, n as "rank", 'x' as q from (values (1, null), (2, ''), (3, 'b'), (4, repeat('ü', 101)), (5, 'b'), (6, repeat('ü', 100)), (7, 'a')) as t (n, v) order by n -- best first`, nil)
	r := n.endedRequest(t, n.click(t, "task", "ann", 5).ID)
	if got := fmt.Sprint(items(r)); got != "[b "+strings.Repeat("ü", 100)+" a]" {
		t.Errorf("ann got %s", got)
	}
	if got := compact(r.Work[0]); got != `{"rank":3,"q":"x"}` {
		t.Errorf("details %s", got)
	}
	db := pool(t, url)
	if got := query[string](t, db, `select format('%s given, %s passed over', given, passed_over) from getwork.run`); got != "7 given, 4 passed over" {
		t.Error(got)
	}
}

// A lease, and a shelf's freshness, begin at the end of a long query: the database's now() has stood still since the lock,
// and a short lease counted from it would be over before the work is handed out.
func TestTimesCountFromTheEndOfTheQuery(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	lease := assign.Duration(1500 * time.Millisecond)
	newTask(t, n, "task", `select i as item from generate_series(1, 9) i, pg_sleep(2) order by i`, func(s *assign.Settings) {
		s.Lease, s.FreshFor = &lease, assign.Duration(1500*time.Millisecond)
	})
	r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if r.Assigned != 1 {
		t.Fatalf("ann got %d", r.Assigned)
	}
	w := r.Work[0]
	if got := w.LeaseExpiresAt.Sub(w.AssignedAt); got < time.Duration(lease)-100*time.Millisecond || got > time.Duration(lease)+100*time.Millisecond {
		t.Errorf("the lease runs for %s from the assignment, want %s", got, lease)
	}
	if got := query[float64](t, db, `select extract(epoch from s.fresh_until - u.started_at)::float8 from getwork.task_state s join getwork.run u on u.id = s.shelf_run`); got < 3.4 {
		t.Errorf("the shelf is fresh until %.1f s after the run began, want 3.5", got)
	}
}

// A run that no request waits for any more is cancelled, and so is one whose task is paused.
func TestRunIsGivenUp(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, stop := range map[string]func(t *testing.T, n *node, r assign.Request){
		"nobody waits": func(t *testing.T, n *node, r assign.Request) {
			if _, err := n.Cancel(t.Context(), r.ID, r.Holder(), false); err != nil {
				t.Error(err)
			}
		},
		"paused": func(t *testing.T, n *node, _ assign.Request) {
			if _, err := n.UpdateTask(t.Context(), "task", 1, "boss", func(s *assign.Settings) error { s.Paused = true; return nil }); err != nil {
				t.Error(err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			begins := newGate(StepRunBegins)
			close(begins.open)
			n := startNode(t, url, nodeOptions{Steps: begins.hold})
			db := pool(t, url)
			newTask(t, n, "task", `select 1 as item from pg_sleep(600)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(time.Hour) })
			r := n.click(t, "task", "ann", 1)
			<-begins.reached
			await(t, "the query runs", func() bool {
				return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(600)%' and pid <> pg_backend_pid()`) == 1
			})
			stop(t, n, r)
			await(t, "the run is cancelled", func() bool { return query[string](t, db, `select state from getwork.run`) == "cancelled" })
			await(t, "its query is over", func() bool {
				return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(600)%' and pid <> pg_backend_pid()`) == 0
			})
		})
	}
}

// The row of a run that is cancelled says so before its run lock is free, so that the next run does not call it lost, as it would one whose
// node has died: web hooks would report that it failed. If it is given up for another reason, its own node knows better afterwards.
func TestGivenUpRunIsNotLost(t *testing.T) {
	t.Parallel()
	for want, c := range map[string]struct {
		giveUp, meanwhile string
		failures          int
	}{
		"cancelled: nobody waits any more": {`update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = clock_timestamp()`, "cancelled", 0},
		"failed: run the query: FATAL":     {`select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`, "lost", 1},
	} {
		t.Run(want, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			o := nodeOptions{Queries: url}
			n, other := startNode(t, url, o), startNode(t, url, o)
			db := pool(t, url)
			execute(t, db, `create table nap (seconds float8)`)
			execute(t, db, `insert into nap values (600)`)
			execute(t, db, `insert into getwork.hook (url, events, secret, created_by) values ('https://receiver.example', '{run.failed}', 'x', 'boss')`)
			task := newTask(t, n, "task", `select i as item from pg_sleep((select seconds from nap)), generate_series(1, 2) i`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(time.Hour) })
			n.click(t, "task", "ann", 1)
			await(t, "the query sleeps", func() bool {
				return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) == 1
			})
			first := query[int64](t, db, `select id from getwork.run`)
			if query[string](t, db, `select node from getwork.run`) == other.Node { // either may run it
				other = n
			}
			execute(t, db, `update nap set seconds = 0`)
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = tx.Rollback(context.Background()) }()
			if _, err := tx.Exec(t.Context(), `select from getwork.task_state where task_id = $1 for update`, task.ID); err != nil { // the assign lock
				t.Fatal(err)
			}
			execute(t, db, c.giveUp)
			await(t, "the first run's node waits for the assign lock to record that it gave it up", func() bool { return schematest.LockWaits(t, db) == 1 })
			bob := other.click(t, "task", "bob", 1)
			await(t, "the next run begins", func() bool { return query[int](t, db, `select count(*) from getwork.run`) == 2 })
			if got := query[string](t, db, `select state from getwork.run where id = $1`, first); got != c.meanwhile {
				t.Errorf("meanwhile the first run is %s, want %s", got, c.meanwhile)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
			if bob = other.endedRequest(t, bob.ID); len(bob.Work) != 1 {
				t.Errorf("bob got %v", items(bob))
			}
			await(t, "the first run is "+want, func() bool {
				return strings.HasPrefix(query[string](t, db, `select concat(state, ': ', error) from getwork.run where id = $1`, first), want)
			})
			if query[bool](t, db, `select bool_or(a.finished_at > b.started_at) from getwork.run a, getwork.run b where a.id < b.id`) {
				t.Error("the two runs seem to have been under way at once")
			}
			if got := query[int](t, db, `select count(*) from getwork.hook_event`); got != c.failures {
				t.Errorf("a web hook is told of %d runs that failed, want %d", got, c.failures)
			}
		})
	}
}

// A node that was frozen finds its run called lost and nobody waiting, because another node has served. The run stays lost.
func TestLostRunStaysLost(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Queries: url})
	db := pool(t, url)
	task := newTask(t, n, "task", `select 1 as item from pg_sleep(600)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(time.Hour) })
	n.click(t, "task", "ann", 1)
	const asleep = `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`
	await(t, "the query sleeps", func() bool { return query[int](t, db, asleep) == 1 })
	execute(t, db, `
		update getwork.run set state = 'lost', finished_at = clock_timestamp();
		update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = clock_timestamp();
		select pg_terminate_backend(backend) from getwork.run`)
	n.Wake(task.ID)
	await(t, "the query is over", func() bool { return query[int](t, db, asleep) == 0 })
	n.idle(t)
	if got := query[string](t, db, `select concat(state, error) from getwork.run`); got != "lost" {
		t.Errorf("the run is %s", got)
	}
}

// A run whose query was changed meanwhile serves nobody, and starts over with the new query.
func TestChangedQueryStartsOver(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	n := startNode(t, url, nodeOptions{Steps: queried.hold})
	newTask(t, n, "task", `select 'old' as item`, nil)
	r := n.click(t, "task", "ann", 1)
	<-queried.reached
	if _, err := n.UpdateTask(t.Context(), "task", 1, "boss", func(s *assign.Settings) error { s.Query = `select 'new' as item`; return nil }); err != nil {
		t.Fatal(err)
	}
	close(queried.open)
	if r = n.endedRequest(t, r.ID); fmt.Sprint(items(r)) != "[new]" {
		t.Errorf("ann got %v", items(r))
	}
}

// A run that a manager stopped fails nobody either: neither by an error of the replaced query, nor while the task is paused.
func TestErrorsOfAStoppedRunConcernNobody(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, stop := range map[string]func(*assign.Settings){
		"changed": func(s *assign.Settings) { s.Query = `select 'new' as item` },
		"paused":  func(s *assign.Settings) { s.Paused = true },
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			queried := newGate(StepQueried)
			n := startNode(t, url, nodeOptions{Steps: queried.hold})
			db := pool(t, url)
			newTask(t, n, "task", `select 1 / i as item from generate_series(0, 1) i`, nil)
			r := n.click(t, "task", "ann", 1)
			<-queried.reached
			if _, err := n.UpdateTask(t.Context(), "task", 1, "boss", func(s *assign.Settings) error { stop(s); return nil }); err != nil {
				t.Fatal(err)
			}
			close(queried.open)
			await(t, "the run is given up", func() bool {
				return query[string](t, db, `select state from getwork.run order by id limit 1`) == "cancelled"
			})
			if name == "paused" {
				n.idle(t)
				if got := query[string](t, db, `select state from getwork.work_requested`); got != "pending" {
					t.Errorf("ann's request is %s", got)
				}
			} else if r = n.endedRequest(t, r.ID); fmt.Sprint(items(r)) != "[new]" {
				t.Errorf("ann got %s %v", r.State, items(r))
			}
			if f := query[int](t, db, `select failures from getwork.task_state`); f != 0 {
				t.Errorf("a back-off after %d failures", f)
			}
		})
	}
}

// After a fault that is not the query's own the requests wait, and the run is repeated: here its backend is terminated.
func TestLostConnectionIsRetried(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table wait (seconds float8)`)
	execute(t, db, `insert into wait values (600)`)
	newTask(t, n, "task", `select 1 as item from wait, pg_sleep(seconds)`, nil)
	r := n.click(t, "task", "ann", 1)
	const backend = `from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep' and query like '%pg_sleep(seconds)%' and pid <> pg_backend_pid()`
	await(t, "the query runs", func() bool { return query[int](t, db, `select count(*) `+backend) == 1 })
	execute(t, db, `update wait set seconds = 0`)
	execute(t, db, `select pg_terminate_backend(pid) `+backend)
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("the request is %s (%v)", r.State, r.Error)
	}
	if got := query[string](t, db, `select string_agg(state, ', ' order by id) from getwork.run`); got != "failed, finished" {
		t.Errorf("the runs are %s", got)
	}
}

// One run slot, two tasks: the second waits for it without holding a lock, and runs when it is free.
func TestTasksWaitForAPlaceToRun(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	n := startNode(t, url, nodeOptions{Steps: queried.hold, MaxRuns: 1})
	newTask(t, n, "first", `select 1 as item`, nil)
	newTask(t, n, "second", `select 1 as item`, nil)
	a := n.click(t, "first", "ann", 1)
	<-queried.reached
	b := n.click(t, "second", "bob", 1)
	await(t, "the second task is noted", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.slots.parked) == 1
	})
	close(queried.open)
	for _, id := range []int64{a.ID, b.ID} {
		if r := n.endedRequest(t, id); r.State != assign.Assigned {
			t.Errorf("%s is %s", r.User, r.State)
		}
	}
}

// A node that shuts down gives its run up, and another takes over at once.
func TestEndingNodeHandsOver(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	b := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table wait (seconds float8)`)
	execute(t, db, `insert into wait values (600)`)
	newTask(t, a, "task", `select 1 as item from wait, pg_sleep(seconds)`, nil)
	r := a.click(t, "task", "ann", 1)
	const running = `select coalesce(max(node), '') from getwork.run where state = 'running'`
	await(t, "a run", func() bool { return query[string](t, db, running) != "" })
	execute(t, db, `update wait set seconds = 0`)
	first, other := a, b
	if query[string](t, db, running) == b.Node {
		first, other = b, a
	}
	first.stop()
	if r = other.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("the request is %s", r.State)
	}
}

// A passing error says nothing about whether the server can detect that a client is gone.
func TestWatchingClientsIsAskedAgain(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	n.clientWatch.Setting(ended)
	if got := n.clientWatch.Setting(t.Context()); got == "" {
		t.Errorf("the lock's transaction begins with %q", got)
	}
}

// Items are compared byte by byte, whatever the collation of the query's column is.
func TestItemsOfAnotherCollation(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create collation loose (provider = icu, locale = 'und-u-ks-level1', deterministic = false)`)
	execute(t, db, `create table loan (id text collate loose); insert into loan values ('a'), ('A'), ('b')`)
	newTask(t, n, "task", `select id as item from loan order by id collate "C" desc`, nil)
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	ben := n.endedRequest(t, n.click(t, "task", "ben", 5).ID)
	if got := fmt.Sprint(items(ann), items(ben)); got != "[b] [a A]" {
		t.Errorf("got %s (%v)", got, ben.Error)
	}
}

// Runs are given up, one after another, through a pooler that exits if a client hangs up before its cancel request is
// answered. The pooler lives.
func TestGivingUpRunsSparesThePooler(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	bouncer := pgbouncer.Start(t, url, pgbouncer.Options{})
	n := startNode(t, bouncer.URL, nodeOptions{Pooled: true, Deaf: true})
	task := newTask(t, n, "verify", `select 1 as item from pg_sleep(600)`, nil)
	db := pool(t, url)
	const running = `select count(*) = 1 from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`
	for i := range 12 {
		r := n.click(t, "verify", "oliver", 1)
		await(t, "the query runs", func() bool { return query[bool](t, db, running) })
		if _, err := n.Cancel(t.Context(), r.ID, assign.Holder{User: "oliver"}, false); err != nil {
			t.Fatal(err)
		}
		await(t, "the run is given up", func() bool {
			return query[int](t, db, `select count(*)::integer from getwork.run where task_id = $1 and state = 'cancelled'`, task.ID) == i+1
		})
	}
	bouncer.Tell("show version") // fails if the pooler was restarted
}
