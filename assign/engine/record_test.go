package engine

import (
	"context"
	"fmt"
	"strings"
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
	if _, err := a.change(t, "task", func(s *assign.Settings) { s.MaxRequest = 1 }); err != nil {
		t.Fatal(err)
	}
	if again, err := b.GetWork(t.Context(), "task", ann); err != nil || again.ID != first.ID {
		t.Errorf("repeated after max_request was lowered: request %d (%v), want %d", again.ID, err, first.ID)
	}
	fresh := ann
	fresh.Key = "k2"
	_, err = b.GetWork(t.Context(), "task", fresh)
	wantKind(t, err, assign.Invalid)
	if _, err := a.change(t, "task", func(s *assign.Settings) { s.MaxRequest = 20 }); err != nil {
		t.Fatal(err)
	}
	other := ann
	other.Count = 3
	_, err = b.GetWork(t.Context(), "task", other)
	wantKind(t, err, assign.KeyReused)

	bob := assign.Click{Holder: assign.Holder{User: "bob"}, Count: 3, Key: "k1"} // a key belongs to its user
	if r, err := b.GetWork(t.Context(), "task", bob); err != nil || r.ID == first.ID {
		t.Errorf("bob's key gave request %d (%v)", r.ID, err)
	}
	db := pool(t, url)
	execute(t, db, `update getwork.work_requested set created_at = created_at - interval '25 hours'`)
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

// Another node records the same key for another instance. A click waits for that, as a round and as a batch that only records: it is
// answered with the other one's request, or recorded if the other node dies.
func TestKeyIsBeingRecordedElsewhere(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	for _, tt := range []struct {
		task   string
		paused bool
		body   string
		end    string
	}{
		{"inbox", false, "count=1 linger=1h", "commit"},
		{"inbox dies", false, "count=1 linger=1h", "rollback"},
		{"inbox, other", false, "count=2 linger=1h", "commit"},
		{"paused", true, "count=1 linger=1h", "commit"},
		{"paused dies", true, "count=1 linger=1h", "rollback"},
		{"paused, other", true, "count=2 linger=1h", "commit"},
	} {
		name := strings.NewReplacer(" ", "-", ",", "").Replace(tt.task)
		task := newInbox(t, n, name, func(s *assign.Settings) { s.Paused = tt.paused })
		tx, err := db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = tx.Rollback(context.Background()) }()
		var other int64
		if err := tx.QueryRow(t.Context(), `
insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, linger_until, key, key_scope, key_body)
values ($1, 'ann', 'elsewhere', 1, 1, clock_timestamp() + interval '1 hour', 'k', $1, $2) returning id`, task.ID, tt.body).Scan(&other); err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		var got assign.Request
		go func() {
			var err error
			got, err = n.GetWork(t.Context(), name, assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour), Key: "k"})
			done <- err
		}()
		wantWaiting(t, db, "%insert into getwork.work_requested%")
		end := tx.Commit
		if tt.end == "rollback" {
			end = tx.Rollback
		}
		if err := end(t.Context()); err != nil {
			t.Fatal(err)
		}
		err = <-done
		switch {
		case strings.HasSuffix(tt.task, "other"):
			wantKind(t, err, assign.KeyReused)
		case err != nil:
			t.Errorf("%s: %v", tt.task, err)
		case (got.ID == other) != (tt.end == "commit"):
			t.Errorf("%s: request %d, the other node's is %d", tt.task, got.ID, other)
		}
	}
}

// A key that is sent while another request waits is not kept: it is answered with that one, and after that one's end makes a request
// of its own. In one batch the keys of a holder's further clicks are such keys; those of other instances are not.
func TestKeyWhileAnotherRequestWaits(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	for name, paused := range map[string]bool{"inbox": false, "paused": true} {
		newInbox(t, n, name, func(s *assign.Settings) { s.Paused = paused })
		ask := func(instance, key string, count int) *click {
			c := assign.Click{Holder: assign.Holder{User: "ann", Instance: instance}, Count: count, Linger: assign.Duration(time.Hour), Key: key}
			return &click{Click: c, holder: c.Holder, done: make(chan struct{})}
		}
		record := func(batch ...*click) (answers string) {
			t.Helper()
			n.recordBatch(t.Context(), name, batch)
			ids := map[int64]int{}
			for _, k := range batch {
				switch {
				case assign.IsRefusal(k.err, assign.KeyReused):
					answers += " reused"
				case k.err != nil:
					t.Fatalf("%s: %v", name, k.err)
				default:
					if ids[k.answer.ID] == 0 {
						ids[k.answer.ID] = len(ids) + 1
					}
					answers += fmt.Sprintf(" %d:%s", ids[k.answer.ID], k.answer.Instance)
				}
			}
			return answers
		}
		if got := record(ask("", "", 1)); got != " 1:" {
			t.Fatalf("%s: the first: %s", name, got)
		}
		// b makes a request by the key, and c follows it. "" comes before them in a round, and after them otherwise.
		want := map[string]string{"inbox": " 1: 1: 2:b 2:b 2:b reused", "paused": " 1:b reused 1:b 1:b 1:b reused"}[name]
		if got := record(ask("", "k", 1), ask("", "k", 2), ask("b", "k", 1), ask("b", "l", 1), ask("c", "k", 1), ask("c", "k", 2)); got != want {
			t.Errorf("%s: %s", name, got)
		}
		keys := func() string {
			return query[string](t, db, `select coalesce(string_agg(instance || '=' || key, ' ' order by id), '') from getwork.work_requested r
join getwork.task_state s using (task_id) where s.name = $1 and key is not null`, name)
		}
		if got := keys(); got != "b=k" {
			t.Errorf("%s: keys %s", name, got)
		}
		execute(t, db, `update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = clock_timestamp() where state = 'pending'`)
		if got := record(ask("b", "l", 1), ask("b", "k", 1), ask("", "k", 1), ask("d", "l", 1)); got != " 1:b 2:b 2:b 1:b" {
			t.Errorf("%s, when they have ended: %s", name, got)
		}
		if got := keys(); got != "b=k b=l" {
			t.Errorf("%s, when they have ended: keys %s", name, got)
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
	n := startNode(t, url, nodeOptions{Look: 300 * time.Millisecond})
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
		"here":      startNode(t, url, nodeOptions{Pooled: true}),
		"elsewhere": startNode(t, url, nodeOptions{Pooled: true, Queries: url}),
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

// The database goes away between the read of a request and that of its work. There must be no answer, since it would say that
// the user holds two items, and show none.
func TestARequestWithoutItsWorkIsNoAnswer(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from generate_series(1, 9) i`, nil)
	id := n.endedRequest(t, n.click(t, "task", "ann", 2).ID).ID

	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(t.Context())
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	batch := []*click{{id: id}}
	done := make(chan struct{})
	go func() { n.answer(t.Context(), 0, batch); close(done) }()
	const cut = `select count(pg_terminate_backend(pid)) > 0 from pg_locks where database = (select oid from pg_database where datname = current_database()) and relation = 'getwork.work'::regclass and not granted`
	await(t, "the reading of its work is cut off", func() bool { return query[bool](t, db, cut) })
	<-done
	if k := batch[0]; k.err == nil || k.answer != nil {
		t.Errorf("answered with %+v, %v", k.answer, k.err)
	}
}

// A program can't have any number of requests wait under instances that it invents. Its user's other clicks are served, and so are
// others'.
func TestInventedInstances(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan (id int)`)
	n := startNode(t, url, nodeOptions{})
	tasks := map[string]assign.Task{
		"query": newTask(t, n, "query", `select id as item from loan`, nil),
		"inbox": newTask(t, n, "inbox", "", nil),
	}
	other := newTask(t, n, "other", "", nil)
	asks := func(task, user, instance string) (assign.Request, error) {
		return n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user, Instance: instance}, Count: 1})
	}
	if _, err := asks("inbox", "ann", "before"); err != nil { // the node remembers the task
		t.Fatal(err)
	}
	const fill = `insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, state)
		select $1, 'ann', 'i' || i, 1, 1, 'pending' from generate_series($2::integer, $3::integer) i`
	keyed := func(instance string) (assign.Request, error) {
		return n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann", Instance: instance}, Count: 1, Key: "repeated"})
	}
	first, err := keyed("repeats")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, `update getwork.work_requested set state = 'none', completed_at = clock_timestamp() where id = $1`, first.ID)
	execute(t, db, fill, other.ID, 2, maxWaiting)
	for name, task := range tasks {
		if _, err := asks(name, "ann", "under-the-limit"); err != nil {
			t.Errorf("%s: below the limit: %v", name, err)
		}
		execute(t, db, `delete from getwork.work_requested where task_id = $1 and state = 'pending'`, task.ID)
	}
	execute(t, db, fill, other.ID, 1, 1)
	for name := range tasks {
		_, err := asks(name, "ann", "invented")
		wantKind(t, err, assign.Busy)
		if !strings.Contains(err.Error(), "you have 5000 requests waiting; cancel some") {
			t.Error(err)
		}
		if _, err := asks(name, "ann", ""); err != nil {
			t.Errorf("%s: ann without an instance: %v", name, err)
		}
		if _, err := asks(name, "bob", "one"); err != nil {
			t.Errorf("%s: bob: %v", name, err)
		}
	}
	if again, err := keyed("repeats"); err != nil || again.ID != first.ID {
		t.Errorf("a call that is repeated finds %d, %v, want %d", again.ID, err, first.ID)
	}
	if r, err := asks("other", "ann", "i7"); err != nil || r.ID == 0 {
		t.Errorf("a request that waits is not found: %v", err)
	}
}
