package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A redrive puts back items that used up their attempts, and items that are named. An item that a user said is never to come
// back stays so unless it is named. The next attempt is the first again.
func TestRedrive(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, kind := range []string{"inbox", "query"} {
		t.Run(kind, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			attempts := 1
			sql := `select i as item from generate_series(1, 5) i order by i`
			if kind == "inbox" {
				sql = ""
			}
			newTask(t, n, "task", sql, func(s *assign.Settings) { s.MaxAttempts, s.RerunAfter = &attempts, assign.Duration(time.Second) })
			if kind == "inbox" {
				n.push(t, "task", "1", "2", "3", "4", "5")
			}
			r := n.endedRequest(t, n.click(t, "task", "ann", 5).ID)
			for i, d := range []assign.Disposition{{Outcome: "fail"}, {Outcome: "never"}, {Outcome: "fail"}, giveBack(time.Hour)} {
				n.let(t, r.Work[i], d)
			}
			redrive := func(want int64, keys ...string) {
				t.Helper()
				got, err := n.Redrive(t.Context(), "task", keys, "boss")
				if err != nil || got != want {
					t.Fatalf("%v: %d, %v, want %d", keys, got, err, want)
				}
			}
			redrive(0, "4", "5", "nothing")
			waiting := n.linger(t, "task", "bob", 2)
			redrive(2)
			if r := n.endedRequest(t, waiting.ID); fmt.Sprint(items(r)) != "[1 3]" || r.Work[0].Attempt != 1 {
				t.Errorf("bob got %v", items(r))
			}
			redrive(0)
			redrive(1, "2", "1")
			if w := n.take(t, "task", "cyd"); w.Item != "2" || w.Attempt != 1 {
				t.Errorf("cyd has %s, attempt %d", w.Item, w.Attempt)
			}
			if got := query[string](t, db, `select string_agg(item || redriven_by, ' ' order by item) from getwork.work where redriven_by is not null`); got != "1boss 2boss 3boss" {
				t.Errorf("recorded: %s", got)
			}
			_, err := n.Redrive(t.Context(), "task", []string{"1", ""}, "boss")
			wantKind(t, err, assign.Invalid)
			_, err = n.Redrive(t.Context(), "nowhere", nil, "boss")
			wantKind(t, err, assign.NotFound)
			if got, err := n.Redrive(t.Context(), "task", []string{}, "boss"); err != nil || got != 0 {
				t.Errorf("none named: %d, %v", got, err)
			}
		})
	}
}

// Several hold an item when its places become one. A redrive of what one of them will never have leaves it with the other: it is not
// counted as ready, and is due when the other says, also if they let go of it at the same moment.
func TestRedriveBesideAHolder(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, c := range map[string]struct {
		after  time.Duration // for which bob returns it
		beside string        // which of the two transactions waits for the other
	}{
		"later":                          {time.Hour, ""},
		"the redrive waits":              {0, "redrive"},
		"the redrive waits, later":       {time.Hour, "redrive"},
		"the return waits":               {0, "return"},
		"the return waits, and is later": {time.Hour, "return"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			n := startNode(t, url, nodeOptions{})
			task := newInbox(t, n, "jobs", func(s *assign.Settings) { s.Slots = 2 })
			n.push(t, "jobs", "a")
			ann, bob := n.take(t, "jobs", "ann"), n.take(t, "jobs", "bob")
			n.let(t, ann, assign.Disposition{Outcome: "never"})
			if _, err := n.change(t, "jobs", func(s *assign.Settings) { s.Slots = 1 }); err != nil {
				t.Fatal(err)
			}
			again := func() error {
				_, err := n.Redrive(context.Background(), "jobs", []string{"a"}, "boss")
				return err
			}
			leave := func() error {
				_, err := n.Dispose(context.Background(), bob.ID, giveBack(c.after), bob.Holder(), false)
				return err
			}
			beside := func(tx pgx.Tx, f func() error) { // f waits for tx
				t.Helper()
				done := make(chan error, 1)
				go func() { done <- f() }()
				wantWaiting(t, db, "%getwork.%")
				if err := tx.Commit(t.Context()); err != nil {
					t.Fatal(err)
				}
				if err := <-done; err != nil {
					t.Fatal(err)
				}
			}
			switch c.beside {
			case "redrive":
				beside(n.returning(t, db, bob, c.after), again)
			case "return":
				tx, err := db.Begin(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = tx.Rollback(context.Background()) }()
				if _, err := redrive(t.Context(), tx, n.SQL, task.ID, []string{"a"}, "boss"); err != nil {
					t.Fatal(err)
				}
				beside(tx, leave)
			default:
				if err := again(); err != nil {
					t.Fatal(err)
				}
				figures, err := n.Records.TaskFigures(t.Context())
				if err != nil || figures[0].Shelf != 0 {
					t.Errorf("%+v, %v: bob holds what counts as ready", figures, err)
				}
				if r := n.click(t, "jobs", "cyd", 1); why(r) != assign.AllHeld {
					t.Errorf("while bob holds it cyd gets %s %v", r.State, why(r))
				}
				if err := leave(); err != nil {
					t.Fatal(err)
				}
			}
			if c.after == 0 {
				n.take(t, "jobs", "cyd")
			} else if !query[bool](t, db, `select i.due_at is not distinct from w.available_at from getwork.item i, getwork.work w where w.id = $1`, bob.ID) {
				t.Errorf("it is due at %s", query[string](t, db, `select coalesce(due_at::text, 'once') from getwork.item`))
			}
		})
	}
}
