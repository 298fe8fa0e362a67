package engine

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// These tests distinguish faults that are not the query's own, which are retried, from the query's, which fail its requests.

// impatient returns the URL of a database in which a wait for a lock is short.
func impatient(address string) string { return address + separator(address) + "lock_timeout=300ms" }

// A lock on one of getwork's own tables while a query runs is not the query's fault: the waiting request is served
// afterwards.
func TestOwnLockIsNotTheQuerysFault(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.URL(t)
	n := startNode(t, impatient(address), nodeOptions{})
	db := pool(t, address)
	newTask(t, n, "task", `select i as item from generate_series(1, 9) i, pg_sleep(0.2)`, func(s *assign.Settings) {
		s.Recheck, s.FreshFor = `select unnest($1::text[]) as item`, assign.Duration(time.Hour)
	})
	r := n.click(t, "task", "ann", 1)
	await(t, "the query runs", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) > 0
	})
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table getwork.work_requested in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	await(t, "the query is over, and its node can't read what is asked for", func() bool {
		return query[bool](t, db, `select count(*) filter (where wait_event = 'PgSleep') = 0 and count(*) filter (where wait_event_type = 'Lock') > 0
from pg_stat_activity where datname = current_database()`)
	})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("ann is %s, %v", r.State, r.Error)
	}
}

// A customer's table that is locked for a while does not make the query wrong.
func TestLockedTableIsNoWrongQuery(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := startNode(t, impatient(address), nodeOptions{})
	db := pool(t, address)
	execute(t, db, `create table loan as select 1 as id`)
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	if _, err := tx.Exec(t.Context(), `lock table loan in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	s := assign.DefaultSettings()
	s.Name, s.Query = "task", `select id as item from loan`
	_, err = n.CreateTask(t.Context(), s, "boss")
	if p, _ := pg.ProblemOf(err); p.Status != 503 {
		t.Errorf("%d: %s", p.Status, p.Detail)
	}
}

// A query that needs more room than temp_file_limit allows fails like any other wrong query: it would need it again.
func TestTempFileLimitIsTheQuerysFault(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address := schematest.URL(t)
	db := pool(t, address)
	execute(t, db, `do $$ begin
  execute format('alter database %I set temp_file_limit = ''64kB''', current_database());
  execute format('alter database %I set work_mem = ''64kB''', current_database());
end $$`)
	n := startNode(t, address, nodeOptions{})
	const sorts = `select i as item from generate_series(1, 300000) i order by md5(i::text)`
	newTask(t, n, "task", sorts, nil)
	if r := n.endedRequest(t, n.click(t, "task", "ann", 1).ID); r.State != assign.Failed {
		t.Errorf("ann is %s", r.State)
	}
	q := assign.Query(sorts)
	_, err := n.Ranker.Preview(t.Context(), "task", &q, 5)
	if p, _ := pg.ProblemOf(err); p.Status != 422 {
		t.Errorf("preview: %d %s", p.Status, p.Detail)
	}
}

// The error that a changed table causes in prepared statements has a standby's code, but is not taken for one.
func TestCachedPlanIsNoStandby(t *testing.T) {
	t.Parallel()
	db := pool(t, schematest.URL(t))
	execute(t, db, `create table loan as select 1 as id`)
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	const read = `select id from loan`
	var id any
	if err := conn.QueryRow(t.Context(), read).Scan(&id); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `alter table loan alter id type text`)
	err = conn.QueryRow(t.Context(), read).Scan(&id)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "0A000" {
		t.Fatal(err)
	}
	if p, _ := pg.ProblemOf(err); p.Status == 503 {
		t.Errorf("%s is answered with: %s", pgErr.Message, p.Detail)
	}
}

// A run died with its node, and no request waits: it ends all the same, or every node would check often for ever.
func TestDeadRunForNobodyEnds(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := startNode(t, address, nodeOptions{Look: 200 * time.Millisecond})
	db := pool(t, address)
	task := newTask(t, n, "task", `select 1 as item`, nil)
	execute(t, db, `
insert into getwork.run (task_id, version, node, backend, started_at)
values ($1, 1, 'dead', $2, clock_timestamp() - interval '3 days')`, task.ID, 1<<30)
	await(t, "it is given up", func() bool { return query[string](t, db, `select state from getwork.run`) == "lost" })
}

// A click whose caller has gone takes no place in the queue.
func TestAQueueOfGoneClicksIsNotFull(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startNode(t, schematest.URL(t), nodeOptions{})
	gone := make(chan struct{})
	close(gone)
	d := &dispatcher{}
	for range maxQueued {
		d.queue = append(d.queue, &click{gone: gone, done: make(chan struct{})})
	}
	n.mu.Lock()
	n.dispatches["task"] = d // its batch never ends
	n.mu.Unlock()
	k := &click{Click: assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1}, done: make(chan struct{}), gone: make(chan struct{})}
	if err := n.dispatch("task", k); err != nil {
		t.Error(err)
	}
}

// A commit that finds the notification queue full is a passing error: it is as PostgreSQL 15 returns it when its 8 GB are
// used up. Other limits with the same code are not.
func TestAFullQueueOfNotificationsPasses(t *testing.T) {
	schematest.Long(t)
	full := &pgconn.PgError{Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "54000", Message: "too many notifications in the NOTIFY queue",
		File: "async.c", Line: 977, Routine: "PreCommit_Notify"}
	if p, logged := pg.ProblemOf(fmt.Errorf("record request: %w", full)); p.Status != 503 || !strings.Contains(p.Detail, "notifications") || !logged {
		t.Errorf("%d %s", p.Status, p.Detail)
	}
	address := schematest.URL(t)
	_, err := pool(t, address).Exec(t.Context(), `create table wide (t text); create index on wide (t); insert into wide select string_agg(md5(i::text), '') from generate_series(1, 3000) i`)
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) || pgErr.Code != "54000" {
		t.Fatal(err)
	}
	if p, _ := pg.ProblemOf(err); p.Status != 500 {
		t.Errorf("a row that is too wide for its index: %d %s", p.Status, p.Detail)
	}
}
