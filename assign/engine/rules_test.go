package engine

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Each of two nodes reads the other task's work before it gives an item to the same user. Side by side, each would see
// nothing. The locks of both tasks are taken first, so the second node waits, and sees.
func TestNoWriteSkew(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	atEachLevel(t, func(t *testing.T, url string) {
		db := pool(t, url)
		a, b := still(t, url), still(t, url)
		ra, rb := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
		const only = `select 1 as item`
		for _, s := range []string{"a", "b"} {
			newInbox(t, a, "inbox-"+s, nil)
			newTask(t, a, "shelf-"+s, only, fresh(time.Hour))
			newTask(t, a, "run-"+s, only, nil)
		}
		for _, one := range []string{"inbox", "shelf", "run"} {
			for _, other := range []string{"inbox", "shelf", "run"} {
				if _, err := a.change(t, one+"-a", func(s *assign.Settings) { s.ConflictsWith = append(s.ConflictsWith, other+"-b") }); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range []string{"a", "b"} { // another user's run makes a shelf
			w := ra.take(t, "shelf-"+s, "before "+s)
			execute(t, db, `delete from getwork.work where id = $1`, w.ID)
			execute(t, db, `update getwork.task_state set shelf_from = 1 where name = $1`, "shelf-"+s)
		}
		l := newLatch(t, db)
		click := func(n, running *node, how, task string) func() error {
			return func() error {
				switch how {
				case "claim":
					_, _, err := n.Claim(t.Context(), task, "1", who("ann"))
					return err
				case "run":
					r, err := running.GetWork(t.Context(), task, oneFor("ann"))
					if err == nil {
						r = running.endedRequest(t, r.ID)
					}
					return got1(r, err)
				}
				return got1(n.tryServe(t.Context(), task, oneFor("ann")))
			}
		}
		for _, ways := range [][2]string{{"inbox", "inbox"}, {"shelf", "shelf"}, {"run", "run"}, {"claim", "claim"}, {"inbox", "run"}, {"run", "shelf"}, {"shelf", "claim"}, {"claim", "inbox"}} {
			t.Run(ways[0]+" and "+ways[1], func(t *testing.T) {
				for _, s := range []string{"a", "b"} {
					a.push(t, "inbox-"+s, "1")
				}
				task := func(how, s string) string {
					if how == "claim" {
						how = "inbox"
					}
					return how + "-" + s
				}
				one, two := l.race(t, click(a, ra, ways[0], task(ways[0], "a")), click(b, rb, ways[1], task(ways[1], "b")), nil)
				if one != nil {
					t.Errorf("the first: %v", one)
				}
				wantKind(t, two, assign.NotAvailable)
				if got := query[int](t, db, `select count(*) from getwork.work where state = 'held'`); got != 1 {
					t.Errorf("ann holds it %d times", got)
				}
				execute(t, db, `delete from getwork.work`)
				execute(t, db, `delete from getwork.item`)
				execute(t, db, `update getwork.task_state set shelf_from = 1`)
			})
		}
	})
}

// oneFor is a user's click for one item.
func oneFor(user string) assign.Click {
	return assign.Click{Holder: assign.Holder{User: user}, Count: 1}
}

// got1 returns nil if a request got its one item, and otherwise the refusal that a claim would get.
func got1(r assign.Request, err error) error {
	if err == nil && r.State != assign.Assigned {
		return assign.Refuse(assign.NotAvailable, "%s %v", r.State, why(r))
	}
	return err
}

// change changes a task as it is now.
func (n *node) change(t testing.TB, task string, change func(*assign.Settings)) (assign.Task, error) {
	t.Helper()
	now, err := n.Task(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return n.UpdateTask(t.Context(), task, now.Version, "boss", func(s *assign.Settings) error { change(s); return nil })
}

// A round obeys a conflict that comes into force while it waits for its lock.
func TestConflictAddedBesideARound(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, named := range []string{"a", "z"} { // the other task's lock comes first, or second
		t.Run(named, func(t *testing.T) {
			url := schematest.URL(t)
			db := pool(t, url)
			n, b := still(t, url), still(t, url)
			first := newInbox(t, n, "m", nil)
			other := newInbox(t, n, "other", nil)
			task, late := other, first
			if named == "z" {
				task, late = first, other
			}
			n.push(t, task.Name, "1")
			n.push(t, late.Name, "1")
			if r := n.serve(t, late.Name, "ann", 1); len(r.Work) != 1 {
				t.Fatal(r.State)
			}
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `select from getwork.task_state where task_id = any($1) order by task_id for no key update`, []int64{task.ID, late.ID}); err != nil {
				t.Fatal(err)
			}
			served := make(chan assign.Request, 1)
			go func() {
				r, err := b.tryServe(t.Context(), task.Name, oneFor("ann"))
				if err != nil {
					t.Error(err)
				}
				served <- r
			}()
			await(t, "the round waits for the lock", func() bool {
				return schematest.LockWaits(t, db) == 1
			})
			if _, err := tx.Exec(t.Context(), `insert into getwork.task_conflict (task_id, other_id) values ($1, $2), ($2, $1)`, task.ID, late.ID); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := <-served; why(r) != assign.Rules {
				t.Errorf("ann's: %s %v %v", r.State, why(r), items(r))
			}
		})
	}
}
