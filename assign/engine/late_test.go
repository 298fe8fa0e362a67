package engine

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// contended is an inbox in hot use. Another session has its assign lock, and a batch that has ann's click waits for that. The node is
// deaf, or it might only now hear that the task was made, and forget what it remembers of it.
type contended struct {
	*node
	db       *pgxpool.Pool
	url      string
	task     assign.Task
	lock     pgx.Tx             // has the lock
	leave    context.CancelFunc // ends ann's call
	answered chan late
}

// late is the answer to a click.
type late struct {
	user string
	assign.Request
	err error
}

func contend(t *testing.T, change func(*assign.Settings)) *contended {
	t.Helper()
	url := schematest.URL(t)
	c := &contended{node: startNode(t, url, nodeOptions{Deaf: true}), db: pool(t, url), url: url, answered: make(chan late, 20)}
	newInbox(t, c.node, "other", nil)
	c.task = newInbox(t, c.node, "inbox", change)
	var keys []string
	for i := range 20 {
		keys = append(keys, fmt.Sprint(i+1))
	}
	c.push(t, "inbox", keys...)
	c.click(t, "inbox", "first", 1) // from now on the node remembers the task
	c.hot(t)
	tx, err := c.db.Begin(t.Context())
	if err == nil {
		_, err = tx.Exec(t.Context(), lockAssign, c.task.ID)
	}
	if err != nil {
		t.Fatal(err)
	}
	c.lock = tx
	t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
	ctx, leave := context.WithCancel(t.Context())
	c.leave = leave
	c.send(ctx, assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1})
	await(t, "ann's batch waits for the lock", func() bool { return schematest.LockWaits(t, c.db) == 1 })
	return c
}

// hot makes the node's next batch one that takes its lock first.
func (c *contended) hot(t *testing.T) {
	t.Helper()
	c.idle(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	remembered, known := c.clicked["inbox"]
	if !known {
		t.Fatal("the task is not remembered")
	}
	remembered.last = use{time.Now().Add(time.Hour), 2, true}
	c.clicked["inbox"] = remembered
}

// send clicks.
func (c *contended) send(ctx context.Context, k assign.Click) {
	go func() {
		r, err := c.GetWork(ctx, "inbox", k)
		c.answered <- late{k.Holder.User, r, err}
	}()
}

// queue clicks, and returns when the click is the n-th in the queue.
func (c *contended) queue(t *testing.T, ctx context.Context, n int, k assign.Click) {
	t.Helper()
	c.send(ctx, k)
	await(t, k.Holder.User+"'s click is in the queue", func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		return len(c.dispatches["inbox"].queue) == n
	})
}

// answers frees the lock, and returns the answers of that many clicks.
func (c *contended) answers(t *testing.T, n int) map[string]late {
	t.Helper()
	if err := c.lock.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := map[string]late{}
	for range n {
		l := <-c.answered
		got[l.user] = l
	}
	return got
}

// together fails the test unless one round answered all of these users, and returns it.
func (c *contended) together(t *testing.T, users ...string) (round int64) {
	t.Helper()
	rounds := query[[]int64](t, c.db, `select array_agg(distinct round_id) from getwork.work_requested where user_name = any($1)`, users)
	if len(rounds) != 1 {
		t.Fatalf("%v were answered by the rounds %v, want one", users, rounds)
	}
	return rounds[0]
}

// Clicks that come while a batch waits for its lock are in it. Whatever a batch asks about its clicks, it asks about them: their keys,
// their credentials, and whether they linger. A click for which the node has to read first is left to the next batch, and one whose
// caller has gone is in none.
func TestClicksJoinABatchThatWaits(t *testing.T) {
	t.Parallel()
	c := contend(t, func(s *assign.Settings) { s.MaxRequest = 3 })
	of := func(user string, count int) assign.Click {
		return assign.Click{Holder: assign.Holder{User: user}, Count: count}
	}
	keyed, lingers, program := of("kim", 1), of("hal", 2), of("dan", 1)
	keyed.Key, lingers.Linger, program.Holder.Instance = "once", assign.Duration(time.Hour), "program"
	kims := query[int64](t, c.db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, reason, completed_at, key, key_scope, key_body)
values ($1, 'kim', 1, 0, 0, 'none', 'no_match', now(), 'once', $1, $2) returning id`, c.task.ID, bodyOf(keyed))
	session := logIn(t, c.db, "gus")
	gone, leave := context.WithCancel(t.Context())
	for i, k := range []assign.Click{of("bob", 2), of("carl", 1), of("eve", 4), keyed, lingers, once("gus", session), program} {
		ctx := t.Context()
		if k.Holder.User == "carl" {
			ctx = gone
		}
		c.queue(t, ctx, i+1, k)
	}
	leave()
	if l := <-c.answered; l.user != "carl" {
		t.Fatalf("%+v", l)
	}
	logOut(t, c.db, session)
	got := c.answers(t, 7)
	for user, want := range map[string]int{"ann": 1, "bob": 2, "dan": 1, "hal": 2} {
		if l := got[user]; l.err != nil || len(l.Work) != want {
			t.Errorf("%s got %v (%v), want %d items", user, items(l.Request), l.err, want)
		}
	}
	wantKind(t, got["eve"].err, assign.Invalid)
	wantKind(t, got["gus"].err, assign.Unauthenticated)
	if l := got["kim"]; l.err != nil || l.ID != kims {
		t.Errorf("kim got request %d (%v), want that of her key, %d", l.ID, l.err, kims)
	}
	if round := c.together(t, "ann", "bob", "hal"); round == c.together(t, "dan") {
		t.Error("a program's click joined without being counted")
	}
	if n := query[int](t, c.db, `select count(*) from getwork.work_requested where user_name in ('carl', 'eve', 'gus')`); n != 0 {
		t.Errorf("%d requests of clicks that were refused or left", n)
	}
}

// A batch that waits for its lock loses the clicks whose callers go meanwhile, and nobody joins it who has gone. None is left if all go.
func TestCallersGoWhileTheirBatchWaits(t *testing.T) {
	t.Parallel()
	for what, others := range map[string]int{"all": 0, "one": 1} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			c := contend(t, nil)
			for range others {
				c.queue(t, t.Context(), 1, assign.Click{Holder: assign.Holder{User: "bob"}, Count: 1})
			}
			gone, leave := context.WithCancel(t.Context())
			c.queue(t, gone, others+1, assign.Click{Holder: assign.Holder{User: "carl"}, Count: 1})
			for user, leave := range map[string]context.CancelFunc{"ann": c.leave, "carl": leave} {
				leave()
				if l := <-c.answered; l.user != user {
					t.Fatalf("%+v", l)
				}
			}
			for user, l := range c.answers(t, others) {
				if l.err != nil || len(l.Work) != 1 {
					t.Errorf("%s got %v (%v)", user, items(l.Request), l.err)
				}
			}
			c.idle(t)
			if n := query[int](t, c.db, `select count(*) from getwork.work_requested where user_name in ('ann', 'carl')`); n != 0 {
				t.Errorf("%d requests of those who have gone", n)
			}
			if r := c.click(t, "inbox", "ann", 1); len(r.Work) != 1 {
				t.Errorf("asked again, she got %v", items(r))
			}
		})
	}
}

// A task that is changed while a batch waits for its lock is read again, and those who joined are admitted by what is read.
func TestTaskChangesWhileABatchWaits(t *testing.T) {
	t.Parallel()
	c := contend(t, nil)
	c.queue(t, t.Context(), 1, assign.Click{Holder: assign.Holder{User: "bob"}, Count: 3})
	for _, statement := range []string{
		`insert into getwork.task_version select (jsonb_populate_record(v, '{"version": 2, "max_request": 2}')).* from getwork.task_version v where task_id = $1`,
		`update getwork.task_state set version = 2 where task_id = $1`,
	} {
		if _, err := c.lock.Exec(t.Context(), statement, c.task.ID); err != nil {
			t.Fatal(err)
		}
	}
	got := c.answers(t, 2)
	if l := got["ann"]; l.err != nil || len(l.Work) != 1 {
		t.Errorf("ann got %v (%v)", items(l.Request), l.err)
	}
	wantKind(t, got["bob"].err, assign.Invalid)
}

// A batch that takes its lock first takes the locks of the tasks that conflict with its own, too, in the order of ids. It obeys what
// their rounds gave while it waited, and they obey what it gives: also to those who joined.
func TestLateBatchBesideAConflictingTask(t *testing.T) {
	t.Parallel()
	c := contend(t, func(s *assign.Settings) { s.ConflictsWith = []string{"other"} })
	c.push(t, "other", "1", "2", "3", "4", "5", "6", "7", "8", "9", "10")
	read := newGate(StepRead)
	beside := startNode(t, c.url, nodeOptions{Steps: read.hold})
	others, bob := make(chan late, 1), assign.Click{Holder: assign.Holder{User: "bob"}, Count: 5}
	go func() {
		r, err := beside.GetWork(t.Context(), "other", bob)
		others <- late{"bob", r, err}
	}()
	await(t, "the other task's round waits behind the batch", func() bool { return schematest.LockWaits(t, c.db) == 2 })
	c.queue(t, t.Context(), 1, bob)
	first := c.answers(t, 2)["bob"]

	<-read.reached // it has the locks, and knows what it gives
	c.hot(t)
	c.send(t.Context(), assign.Click{Holder: assign.Holder{User: "cyd"}, Count: 1})
	await(t, "cyd's batch waits for the lock", func() bool { return schematest.LockWaits(t, c.db) == 1 })
	c.queue(t, t.Context(), 1, bob)
	close(read.open)
	got := map[string]late{"before": first, "of the other task": <-others}
	for range 2 {
		l := <-c.answered
		got[l.user] = l
	}
	for what, want := range map[string]string{"before": "[3 4 5 6 7]", "of the other task": "[1 2 8 9 10]", "cyd": "[8]", "bob": "[11 12 13 14 15]"} {
		if l := got[what]; l.err != nil || fmt.Sprint(items(l.Request)) != want {
			t.Errorf("%s: %v (%v), want %s", what, items(l.Request), l.err, want)
		}
	}
	if n := query[int](t, c.db, `select deadlocks from pg_stat_database where datname = current_database()`); n != 0 {
		t.Errorf("%d deadlocks", n)
	}
}

// An idle click waits for nobody. A task in hot use gathers for those who were just there, but no more than a few, and not if they
// join at the lock anyway.
func TestWhomABatchExpects(t *testing.T) {
	t.Parallel()
	now := time.Now()
	for what, c := range map[string]struct {
		last use
		want int
	}{
		"nobody was there":        {use{}, 0},
		"one was":                 {use{now, 1, false}, 0},
		"one was, and waited":     {use{now, 1, true}, 0},
		"three were":              {use{now, 3, false}, 3},
		"three were, a while ago": {use{now.Add(-2 * hotFor), 3, false}, 0},
		"three were, and waited":  {use{now, 3, true}, 0},
		"hundreds were":           {use{now, 300, false}, gatherEnough},
	} {
		if got := c.last.expects(); got != c.want {
			t.Errorf("%s: waits for %d, want %d", what, got, c.want)
		}
	}
}
