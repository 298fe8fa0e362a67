package engine

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// wantWaiting waits until a session with such a statement waits for a lock.
func wantWaiting(t testing.TB, db *pgxpool.Pool, like string) {
	t.Helper()
	await(t, "somebody waits for a lock", func() bool {
		return query[bool](t, db, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like $1)`, like)
	})
}

// A row whose group is too long is passed over, here and on a query database, and the rest is handed out.
func TestLongGroupIsPassedOver(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			url := schematest.URL(t)
			db := pool(t, url)
			o := nodeOptions{}
			if where == "elsewhere" {
				o.Queries = url
			}
			n := startNode(t, url, o)
			// Random, so that it can't be compressed to a size that an index accepts.
			execute(t, db, `create table jobs as select 1 as n, string_agg(md5(random()::text), '') as g from generate_series(1, 300)`)
			execute(t, db, `insert into jobs values (2, repeat('g', 201)), (3, repeat('g', 200))`)
			newTask(t, n, "jobs", `select n as item, g as exclusive from jobs order by n`, nil)
			if w := n.take(t, "jobs", "ann"); w.Item != "3" {
				t.Errorf("ann has %s, want 3", w.Item)
			}
			if got := query[string](t, db, `select state || ' ' || passed_over from getwork.run`); got != "finished 2" {
				t.Errorf("the run: %s, want finished 2", got)
			}
			if got := query[int](t, db, `select retries + failures from getwork.task_state`); got != 0 {
				t.Errorf("%d runs failed", got)
			}
			for _, item := range []string{"1", "2"} {
				_, _, err := n.Claim(t.Context(), "jobs", item, who("bob"))
				wantKind(t, err, assign.NotFound)
			}
		})
	}
}

// What is pushed beside the deletion of its task is refused, or is there before the task goes: it is never answered as done and lost.
func TestPushBesideADeletion(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	within := func(begun func(tx pgx.Tx) error, waiting string, do func() error) error {
		t.Helper()
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if err := begun(tx); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- do() }()
		wantWaiting(t, db, waiting)
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		return <-done
	}
	push := func() error {
		_, err := n.Push(context.Background(), "a", []assign.NewItem{{Item: "x"}}, assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true})
		return err
	}
	a := newInbox(t, n, "a", nil)
	err := within(func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), `update getwork.task_state set deleted_at = clock_timestamp()
			where task_id = (select task_id from getwork.task_state where task_id = $1 for update)`, a.ID) // as DeleteTask does; the other half shows that it locks so
		return err
	}, "%getwork.task_state%for key share%", push)
	wantKind(t, err, assign.NotFound)
	if got := query[int](t, db, `select count(*) from getwork.item`); got != 0 {
		t.Errorf("%d items were pushed to a task that is gone", got)
	}
	a = newInbox(t, n, "a", nil)
	err = within(func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), insertItems, a.ID, "boss", []string{"x"}, []int32{0}, []*time.Time{nil}, []*int{nil}, []*string{nil}, []string{"{}"}, 1, []*time.Time{nil}, []*int{nil}, 1, []*string(nil), []*time.Time(nil))
		return err
	}, "%getwork.task_state%for update%", func() error { return n.DeleteTask(context.Background(), "a", 0) })
	if err != nil {
		t.Errorf("the deletion behind a push: %v", err)
	}
}
