package engine

import (
	"context"
	"strings"
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

// returning returns work, and leaves the transaction open.
func (n *node) returning(t testing.TB, db *pgxpool.Pool, w assign.Work, after time.Duration) pgx.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	if _, err := tx.Exec(t.Context(), n.SQL(closeWork), w.ID, "returned", w.User, after.Microseconds(), false, nil, nil); err != nil {
		t.Fatal(err)
	}
	if err := settleWhatIsShared(t.Context(), tx, n.SQL, []int64{w.ID}); err != nil {
		t.Fatal(err)
	}
	return tx
}

// Two let go of an item at the same time that has one place by now, and neither sees what the other does. The item is not lost: it is
// due when the later of the two says.
func TestTwoReturnsOfTheOnlyPlace(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, c := range map[string]struct{ ann, bob time.Duration }{"at once": {0, 0}, "later": {time.Hour, 0}, "later still": {0, time.Hour}} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			db := pool(t, url)
			n := startNode(t, url, nodeOptions{})
			newInbox(t, n, "jobs", func(s *assign.Settings) { s.Slots = 2 })
			n.push(t, "jobs", "a")
			ann, bob := n.take(t, "jobs", "ann"), n.take(t, "jobs", "bob")
			if _, err := n.change(t, "jobs", func(s *assign.Settings) { s.Slots = 1 }); err != nil {
				t.Fatal(err)
			}
			tx := n.returning(t, db, ann, c.ann)
			closed := make(chan error, 1)
			go func() {
				_, err := n.Dispose(context.Background(), bob.ID, giveBack(c.bob), bob.Holder(), false)
				closed <- err
			}()
			wantWaiting(t, db, "%getwork.%") // for the item's row
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-closed; err != nil {
				t.Fatal(err)
			}
			if !query[bool](t, db, `select i.due_at is not distinct from (select max(w.available_at) from getwork.work w where w.available_at > clock_timestamp()) from getwork.item i`) {
				t.Errorf("it is due at %s", query[string](t, db, `select due_at::text from getwork.item`))
			}
			if c.ann+c.bob == 0 {
				n.take(t, "jobs", "cyd")
			}
		})
	}
}

// A change from one place to several, or back, waits for a return that is not committed yet: the item is neither lost nor
// kept back.
func TestPlacesChangeBesideAReturn(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, c := range map[string]struct {
		from, to int
		after    time.Duration
		places   int // that others get afterwards
	}{
		"fewer": {from: 2, to: 1, places: 1},
		"more":  {from: 1, to: 2, after: time.Hour, places: 2},
	} {
		t.Run(name, func(t *testing.T) {
			url := schematest.URL(t)
			db := pool(t, url)
			n := startNode(t, url, nodeOptions{})
			newInbox(t, n, "jobs", func(s *assign.Settings) { s.Slots = c.from })
			n.push(t, "jobs", "a")
			tx := n.returning(t, db, n.take(t, "jobs", "ann"), c.after)
			changed := make(chan error, 1)
			go func() {
				_, err := n.UpdateTask(context.Background(), "jobs", 1, "boss", func(s *assign.Settings) error { s.Slots = c.to; return nil })
				changed <- err
			}()
			wantWaiting(t, db, "%getwork.%") // for the work's row
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if err := <-changed; err != nil {
				t.Fatal(err)
			}
			if c.after > 0 {
				if r := n.click(t, "jobs", "ann", 1); why(r) != assign.Rules {
					t.Errorf("ann has put it off, and gets %s %v", r.State, why(r))
				}
			}
			for i, user := range []string{"bob", "cyd"}[:c.places] {
				if w := n.take(t, "jobs", user); w.Item != "a" || w.Slot != i+1 {
					t.Errorf("%s has place %d of %s, want %d of a", user, w.Slot, w.Item, i+1)
				}
			}
			if r := n.click(t, "jobs", "late", 1); why(r) != assign.AllHeld {
				t.Errorf("afterwards: %s %v", r.State, why(r))
			}
		})
	}
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
				o.queries = url
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

// A task can't come to name another that is being deleted, and can be changed afterwards.
func TestNamedWhileDeleted(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "a", nil)
	naming := func(s *assign.Settings) error { s.ConflictsWith = []string{"b"}; return nil }
	for name, do := range map[string]func() error{
		"changed": func() error {
			_, err := n.UpdateTask(context.Background(), "a", 1, "boss", naming)
			return err
		},
		"created": func() error {
			s := assign.DefaultSettings()
			s.Name = "c"
			_ = naming(&s)
			_, err := n.CreateTask(context.Background(), s, "boss")
			return err
		},
	} {
		b := newInbox(t, n, "b", nil)
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback(context.Background())
		if _, err := (taskEditor{n.Engine}).deleteTask(t.Context(), tx, b, 0); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() { done <- do() }()
		wantWaiting(t, db, "%getwork.task_state s%for no key update%")
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-done; !assign.IsRefusal(err, assign.Invalid) || !strings.Contains(err.Error(), "no task b") {
			t.Errorf("%s: %v, want that there is no task b", name, err)
		}
	}
	if x, err := n.change(t, "a", func(s *assign.Settings) { s.Title = "later" }); err != nil || len(x.ConflictsWith) != 0 {
		t.Errorf("changed later: %+v, %v", x.ConflictsWith, err)
	}
	if got := query[int](t, db, `select count(*) from getwork.task_conflict`); got != 0 {
		t.Errorf("%d conflicts are in force", got)
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
		_, err := (taskEditor{n.Engine}).deleteTask(t.Context(), tx, a, 0)
		return err
	}, "%getwork.task_state%for key share%", push)
	wantKind(t, err, assign.NotFound)
	if got := query[int](t, db, `select count(*) from getwork.item`); got != 0 {
		t.Errorf("%d items were pushed to a task that is gone", got)
	}
	a = newInbox(t, n, "a", nil)
	err = within(func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), insertItems, a.ID, "boss", []string{"x"}, []int32{0}, []*time.Time{nil}, []*int{nil}, []*string{nil}, []string{"{}"}, 1)
		return err
	}, "%getwork.task_state%for update%", func() error { return n.DeleteTask(context.Background(), "a", 0) })
	if err != nil {
		t.Errorf("the deletion behind a push: %v", err)
	}
}

// A back-off that is longer than the retention does not make a failed attempt forgotten: when it is over the attempts go on,
// to the last.
func TestShortRetentionForgetsNoAttempt(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	n.Retention = time.Hour
	db := pool(t, url)
	attempts := 3
	newInbox(t, n, "jobs", func(s *assign.Settings) { s.MaxAttempts, s.Backoff = &attempts, assign.Duration(2*time.Hour) })
	n.push(t, "jobs", "a")
	for i := range attempts {
		r := n.serve(t, "jobs", "ann", 1)
		if len(r.Work) != 1 || r.Work[0].Attempt != i+1 {
			t.Fatalf("ann got %+v, want attempt %d", r.Work, i+1)
		}
		w := n.let(t, r.Work[0], assign.Disposition{Outcome: "fail"})
		if last := i == attempts-1; w.Exhausted != last {
			t.Errorf("attempt %d leaves it %s", i+1, w.State)
		}
		// The back-off is over, and its beginning is past the retention.
		execute(t, db, `update getwork.work set closed_at = clock_timestamp() - interval '2 hours'`)
		execute(t, db, `update getwork.work set available_at = clock_timestamp() where available_at is not null`)
		execute(t, db, `update getwork.item set due_at = clock_timestamp() where due_at < 'infinity'`)
		if err := n.Retain(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if r := n.serve(t, "jobs", "bob", 1); why(r) != assign.AllHeld {
		t.Errorf("afterwards: %s %v", r.State, why(r))
	}
}
