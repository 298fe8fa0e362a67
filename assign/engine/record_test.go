package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

const numbers = `select i as item from generate_series(1, 1000) i order by i`

// The same click twice, whatever happened between: the same Idempotency-Key is answered with the same request.
func TestIdempotencyKey(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
	newTask(t, a, "task", numbers, nil)
	ann := assign.Click{Holder: assign.Holder{User: "ann"}, Count: 2, Key: "k1"}
	first, err := a.GetWork(t.Context(), "task", ann)
	if err != nil {
		t.Fatal(err)
	}
	a.endedRequest(t, first.ID)
	again, err := b.GetWork(t.Context(), "task", ann)
	if err != nil || again.ID != first.ID || len(again.Work) != 2 {
		t.Errorf("repeated on another node: request %d with %d items (%v), want %d with 2", again.ID, len(again.Work), err, first.ID)
	}
	change(t, a, "task", 1, "mia", func(s *assign.Settings) { s.MaxRequest = 1 })
	if again, err := b.GetWork(t.Context(), "task", ann); err != nil || again.ID != first.ID {
		t.Errorf("repeated after max_request was lowered: request %d (%v), want %d", again.ID, err, first.ID)
	}
	fresh := ann
	fresh.Key = "k2"
	_, err = b.GetWork(t.Context(), "task", fresh)
	wantKind(t, err, assign.Invalid)
	change(t, a, "task", 2, "mia", func(s *assign.Settings) { s.MaxRequest = 20 })
	other := ann
	other.Count = 3
	_, err = b.GetWork(t.Context(), "task", other)
	wantKind(t, err, assign.KeyReused)

	bob := assign.Click{Holder: assign.Holder{User: "bob"}, Count: 3, Key: "k1"} // a key belongs to its user
	if r, err := b.GetWork(t.Context(), "task", bob); err != nil || r.ID == first.ID {
		t.Errorf("bob's key gave request %d (%v)", r.ID, err)
	}
	db := pool(t, url)
	execute(t, db, `update getwork.idempotency_key set created_at = created_at - interval '25 hours'`)
	if r, err := a.GetWork(t.Context(), "task", other); err != nil || r.ID == first.ID || r.Wanted != 3 {
		t.Errorf("a key of yesterday gave request %d for %d (%v), want a new one for 3", r.ID, r.Wanted, err)
	}
}

// A key is recorded with the request that answered it, even if that was pending before. Of many clicks with one key at the
// same time, on two nodes and for two instances of one user, one is recorded.
func TestIdempotencyKeyRaces(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
	newTask(t, a, "task", numbers, func(s *assign.Settings) { s.Paused = true })
	waiting, err := a.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		r, err := a.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour), Key: "late"})
		if err != nil || r.ID != waiting.ID {
			t.Errorf("request %d (%v), want the pending one, %d", r.ID, err, waiting.ID)
		}
	}
	ids := make([]int64, 40)
	var all sync.WaitGroup
	for i := range ids {
		all.Go(func() {
			n := a
			if i%2 == 0 {
				n = b
			}
			holder := assign.Holder{User: "bob", Instance: fmt.Sprint("i", i%4)}
			r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: holder, Count: 1, Linger: assign.Duration(time.Hour), Key: "one"})
			if err != nil {
				t.Error(err)
			}
			ids[i] = r.ID
		})
	}
	all.Wait()
	for _, id := range ids {
		if id != ids[0] {
			t.Fatalf("one key got requests %v", ids)
		}
	}
}

// Two instances of a user are two holders.
func TestInstancesAreHolders(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.Paused = true })
	seen := map[int64]bool{}
	for _, instance := range []string{"", "a", "b", "a"} {
		r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "robot", Instance: instance}, Count: 1, Linger: assign.Duration(time.Hour)})
		if err != nil {
			t.Fatal(err)
		}
		seen[r.ID] = true
		if _, err := n.Request(t.Context(), r.ID, assign.Holder{User: "robot", Instance: "c"}, false); !assign.IsRefusal(err, assign.NotFound) {
			t.Errorf("another instance sees the request: %v", err)
		}
	}
	if len(seen) != 3 {
		t.Errorf("%d requests for 3 holders", len(seen))
	}
}

func TestBadClicks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "task", numbers, nil)
	ann := assign.Holder{User: "ann"}
	for name, tt := range map[string]struct {
		task  string
		click assign.Click
		want  assign.Kind
	}{
		"no such task":  {"tusk", assign.Click{Holder: ann, Count: 1}, assign.NotFound},
		"none":          {"task", assign.Click{Holder: ann}, assign.Invalid},
		"too many":      {"task", assign.Click{Holder: ann, Count: 6}, assign.Invalid},
		"lingers long":  {"task", assign.Click{Holder: ann, Count: 1, Linger: assign.Duration(25 * time.Hour)}, assign.Invalid},
		"nobody":        {"task", assign.Click{Count: 1}, assign.Invalid},
		"control":       {"task", assign.Click{Holder: assign.Holder{User: "a\nb"}, Count: 1}, assign.Invalid},
		"not utf-8":     {"task", assign.Click{Holder: assign.Holder{User: "a\xff"}, Count: 1}, assign.Invalid},
		"odd instance":  {"task", assign.Click{Holder: assign.Holder{User: "ann", Instance: "a b"}, Count: 1}, assign.Invalid},
		"long key":      {"task", assign.Click{Holder: ann, Count: 1, Key: string(make([]byte, 256))}, assign.Invalid},
		"slug injected": {"' or true --", assign.Click{Holder: ann, Count: 1}, assign.NotFound},
	} {
		_, err := n.GetWork(t.Context(), tt.task, tt.click)
		if !assign.IsRefusal(err, tt.want) {
			t.Errorf("%s: %v, want %s", name, err, tt.want)
		}
	}
}

// A paused task: a click ends at once and says why, a lingering one waits; resuming serves it.
func TestPauseAndResume(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.Paused = true })
	if r := n.click(t, "task", "ann", 1); r.State != assign.None || *r.Reason != assign.Paused {
		t.Errorf("a click on a paused task is %s", r.State)
	}
	bob, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "bob"}, Count: 2, Linger: assign.Duration(time.Hour)})
	if err != nil || bob.State != assign.Pending {
		t.Fatalf("bob is %s (%v)", bob.State, err)
	}
	if _, err := n.UpdateTask(t.Context(), "task", 1, "boss", func(s *assign.Settings) error { s.Paused = false; return nil }); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, bob.ID); r.Assigned != 2 {
		t.Errorf("bob is %s", r.State)
	}
}

// A lingering request is served by a later run that finds something; lingering requests alone start at most one each
// rerun_after. It ends without a run when its time is over.
func TestLingering(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan (id int)`)
	newTask(t, n, "task", `select id as item from loan order by id`, func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Second) })
	linger := func(user string, d time.Duration) assign.Request {
		r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: user}, Count: 2, Linger: assign.Duration(d)})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	stood := standstill(t, db)
	ann, bob := linger("ann", time.Hour), linger("bob", 300*time.Millisecond)
	if r := n.endedRequest(t, bob.ID); r.State != assign.None || *r.Reason != assign.NoMatch || r.CompletedAt.Before(*r.LingerUntil) || r.CompletedAt.Sub(*r.LingerUntil) > 2*time.Second+stood() {
		t.Errorf("bob is %s at %s, lingering until %s", r.State, r.CompletedAt, r.LingerUntil)
	}
	if r, _ := n.Request(t.Context(), ann.ID, ann.Holder(), false); r.State != assign.Pending {
		t.Fatalf("ann is %s", r.State)
	}
	execute(t, db, `insert into loan values (1)`)
	if r := n.endedRequest(t, ann.ID); r.State != assign.Partial || r.Assigned != 1 {
		t.Errorf("ann is %s with %d", r.State, r.Assigned)
	}
}

// Clicks recorded by a node that died before it woke their task are found by every other node's rescuer.
func TestOrphanedClickIsFound(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{look: 300 * time.Millisecond})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) values ($1, 'ann', 2, 2) returning id`, task.ID)
	if r := n.endedRequest(t, id); r.Assigned != 2 {
		t.Errorf("ann is %s", r.State)
	}
	await(t, "it is counted", func() bool { return n.Rescued.Load() == 1 })
}

// A dead run that its holder left running is closed as lost by the next holder of the run lock.
func TestOrphanedRunIsClosed(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	execute(t, db, `insert into getwork.run (task_id, version, node) values ($1, 1, 'a dead one')`, task.ID)
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if got := query[string](t, db, `select string_agg(state, ', ' order by id) from getwork.run`); got != "lost, finished" {
		t.Errorf("the runs are %s", got)
	}
}

// A server's higher default isolation level changes nothing, because the level is set where it matters.
func TestOtherIsolationDefaults(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			execute(t, db, `do $$ begin execute format('alter database %I set default_transaction_isolation = '''||'`+level+`'||'''', current_database()); end $$`)
			db.Reset()
			nodes := []*node{startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})}
			newTask(t, nodes[0], "task", numbers, nil)
			newTask(t, nodes[0], "fresh", numbers, fresh(time.Hour))
			var all sync.WaitGroup
			for u := range 10 {
				all.Go(func() {
					n := nodes[u%2]
					for i := range 6 {
						task := []string{"task", "fresh"}[i%2]
						r := n.endedRequest(t, n.click(t, task, fmt.Sprint("user ", u), 2).ID)
						if r.State != assign.Assigned {
							t.Errorf("user %d is %s: %v", u, r.State, r.Error)
							return
						}
						for _, w := range r.Work {
							if _, err := n.Dispose(t.Context(), w.ID, assign.Disposition{Outcome: "never"}, w.Holder(), false); err != nil {
								t.Error(err)
							}
						}
					}
				})
			}
			all.Wait()
			if n := query[int](t, db, `select count(distinct (task_id, item)) from getwork.work`); n != 120 {
				t.Errorf("%d different items handed out, want 120", n)
			}
		})
	}
}

// Behind a transaction pooler nothing is prepared and every parameter is sent as text: the same statements, from the click to
// its disposition, on the lock's own connection and elsewhere.
func TestNothingPrepared(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	for name, n := range map[string]*node{
		"here":      startNode(t, url, nodeOptions{pooled: true}),
		"elsewhere": startNode(t, url, nodeOptions{pooled: true, queries: url}),
	} {
		newTask(t, n, name, numbers, nil)
		newTask(t, n, name+"-fresh", numbers, fresh(time.Hour))
		newTask(t, n, name+"-fails", `select 1 / (i - 1) as item from generate_series(1, 2) i`, nil)
		for _, task := range []string{name, name + "-fresh"} {
			for _, user := range []string{"ann", "ben"} {
				r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: 2, Key: "k"})
				if err != nil {
					t.Fatal(err)
				}
				r = n.endedRequest(t, r.ID)
				if r.State != assign.Assigned {
					t.Fatalf("%s on %s is %s: %v", user, task, r.State, r.Error)
				}
				for _, d := range []assign.Disposition{{Outcome: "complete", Note: new("done")}, {Outcome: "return", After: after(time.Hour)}} {
					w := r.Work[0]
					r.Work = r.Work[1:]
					if _, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false); err != nil {
						t.Error(err)
					}
				}
			}
		}
		failsWith(t, n, name+"-fails", "division by zero")
		if _, err := n.UpdateTask(t.Context(), name, 1, "boss", func(s *assign.Settings) error { s.Title = "x"; return nil }); err != nil {
			t.Error(err)
		}
		if runs, err := n.Runs(t.Context(), name, 0, 10); err != nil || len(runs) == 0 {
			t.Errorf("%d runs, %v", len(runs), err)
		}
	}
}
