package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// ageShelf moves a task's times into the past.
func ageShelf(t *testing.T, db *pgxpool.Pool, task int64, column string, by time.Duration) {
	t.Helper()
	execute(t, db, `update getwork.task_state set `+column+` = `+column+` - $2::interval where task_id = $1`, task, by)
}

// gates holds a node at one step, each time that it comes there, until it is released.
type gates struct {
	at          Step
	reached, on chan struct{}
	open        atomic.Bool
	free        chan struct{} // closed: it holds the node no longer
}

func newGates(at Step) *gates {
	return &gates{at: at, reached: make(chan struct{}), on: make(chan struct{}), free: make(chan struct{})}
}

func (g *gates) hold(ctx context.Context, step Step) {
	if step != g.at || g.open.Load() {
		return
	}
	select {
	case g.reached <- struct{}{}:
	case <-g.free:
		return
	case <-ctx.Done():
		return
	}
	select {
	case <-g.on:
	case <-g.free:
	case <-ctx.Done():
	}
}

// While a task is in use its next run begins before the shelf ends, and nobody waits for it: the old shelf serves until the
// new one is there.
func TestRefreshAhead(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	begins := newGates(StepRunBegins)
	n := startNode(t, url, nodeOptions{Steps: begins.hold, Look: 50 * time.Millisecond})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 9) i order by i`, fresh(time.Hour))
	first := n.click(t, "task", "ann", 1)
	<-begins.reached
	begins.on <- struct{}{}
	n.endedRequest(t, first.ID)

	n.idle(t)
	ageShelf(t, db, task.ID, "fresh_until", time.Hour-30*time.Second)
	execute(t, db, `update getwork.task_state set usual = '1 minute', longest = '1 minute' where task_id = $1`, task.ID)
	<-begins.reached // while no request waits
	if r := n.click(t, "task", "bob", 2); fmt.Sprint(r.State, items(r)) != "assigned[2 3]" {
		t.Errorf("beside the run bob got %v %v, want [2 3]", r.State, items(r))
	}
	n.Poke(task.ID) // it checks whether it is still wanted
	begins.on <- struct{}{}
	await(t, "the shelf is new", func() bool {
		return query[bool](t, db, `select fresh_until > clock_timestamp() + interval '59 minutes' from getwork.task_state where task_id = $1`, task.ID)
	})
	if r := n.click(t, "task", "cyd", 5); fmt.Sprint(r.State, items(r)) != "assigned[4 5 6 7 8]" {
		t.Errorf("from the new shelf cyd got %v %v, want [4 5 6 7 8]", r.State, items(r))
	}
	if states := query[string](t, db, `select string_agg(state, ' ' order by id) from getwork.run`); states != "finished finished" {
		t.Errorf("runs %s, want two that finished", states)
	}
	if usual := query[time.Duration](t, db, `select usual from getwork.task_state where task_id = $1`, task.ID); usual <= 0 || usual > time.Minute {
		t.Errorf("a run usually takes %v", usual)
	}
}

// A run begins when twice the longest would fit before the shelf's end, or when half of its time is over, and no click finds the shelf
// expired.
func TestRefreshIsInTime(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	begins := newGates(StepRunBegins)
	n := startNode(t, url, nodeOptions{Steps: begins.hold})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 9) i order by i`, func(s *assign.Settings) {
		s.FreshFor, s.QueryTimeout = assign.Duration(time.Hour), assign.Duration(time.Hour)
	})
	begun := func(when string) {
		t.Helper()
		n.Wake(task.ID)
		select {
		case <-begins.reached:
		case <-time.After(timeout.Scale(10 * time.Second)):
			t.Fatalf("%s no run begins", when)
		}
	}
	notYet := func(when string) {
		t.Helper()
		if p, err := n.readTaskView(t.Context(), n.DB, task.ID); err != nil || p.view.Refresh {
			t.Errorf("%s the shelf is to be renewed: %v, %v", when, p.view.Refresh, err)
		}
	}
	// The run under way takes so long, and somebody clicks when it ends.
	lasts := func(took time.Duration, user string) {
		t.Helper()
		ageShelf(t, db, task.ID, "fresh_until", took)
		execute(t, db, `update getwork.run set started_at = started_at - $1::interval where state = 'running'`, took)
		if r := n.click(t, "task", user, 1); r.State != assign.Assigned {
			t.Errorf("%s found no fresh shelf: %s", user, r.State)
		}
		begins.on <- struct{}{}
		n.idle(t)
	}

	first := n.click(t, "task", "ann", 1)
	begun("for a click")
	begins.on <- struct{}{}
	n.endedRequest(t, first.ID)
	n.idle(t)
	execute(t, db, `update getwork.task_state set longest = interval '14 minutes'`)
	ageShelf(t, db, task.ID, "fresh_until", 31*time.Minute)
	notYet("29 minutes before its end")
	ageShelf(t, db, task.ID, "fresh_until", 90*time.Second)
	begun("less than twice fourteen minutes before its end")
	lasts(27*time.Minute, "bob")

	ageShelf(t, db, task.ID, "fresh_until", 29*time.Minute)
	notYet("before half of its time is over")
	ageShelf(t, db, task.ID, "fresh_until", 90*time.Second)
	begun("when half of its time is over")
	lasts(27*time.Minute, "cyd")
	if got := runs(t, db); got != 3 {
		t.Errorf("%d runs, want 3", got)
	}
}

// A shelf that nobody has used for its whole time is not refreshed, however often a node reads it; and a refresh is given
// up when that becomes the case.
func TestNoRefreshWithoutUse(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Look: 20 * time.Millisecond})
	db := pool(t, url)
	execute(t, db, `create table seconds as select 0 as s`)
	task := newTask(t, n, "task", `select i as item from seconds, pg_sleep(s), generate_series(1, 9) i order by i`, fresh(time.Hour))
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	execute(t, db, `update seconds set s = 60`)
	execute(t, db, `update getwork.task_state set used_at = used_at - interval '1 hour', fresh_until = fresh_until - interval '1 hour'`)
	n.refreshAll(t.Context())
	n.Wake(task.ID)
	n.idle(t)
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs of a task that nobody uses, want 1", got)
	}

	execute(t, db, `update getwork.task_state set used_at = clock_timestamp()`)
	await(t, "it is renewed while it is used", func() bool { return runs(t, db) == 2 })
	n.Poke(task.ID)
	execute(t, db, `update getwork.task_state set used_at = used_at - interval '1 hour'`)
	await(t, "it is given up when it is not used any more", func() bool {
		return query[string](t, db, `select state from getwork.run order by id desc limit 1`) == "cancelled"
	})
	n.idle(t)
	if got := runs(t, db); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
}

// A refresh leaves a slot for waiting requests; a node with one slot starts none.
func TestRefreshLeavesAPlace(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1, Look: 20 * time.Millisecond})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 9) i order by i`, fresh(time.Hour))
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	ageShelf(t, db, task.ID, "fresh_until", time.Hour-30*time.Second)
	execute(t, db, `update getwork.task_state set usual = '1 minute', longest = '1 minute' where task_id = $1`, task.ID)
	if p, err := n.readTaskView(t.Context(), n.DB, task.ID); err != nil || !p.view.Refresh {
		t.Fatalf("the shelf is to be renewed: %v, %v", p.view.Refresh, err)
	}
	n.Wake(task.ID)
	n.idle(t)
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
	two := startNode(t, url, nodeOptions{})
	two.Wake(task.ID)
	two.idle(t)
	if got := runs(t, db); got != 2 {
		t.Errorf("%d runs where there is a slot, want 2", got)
	}
}

// A refresh that fails costs no user their work while the old shelf is fresh, and is not repeated before the back-off is
// over.
func TestRefreshThatFails(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table divisor as select 1 as d`)
	task := newTask(t, n, "task", `select i as item, 1 / d as one from generate_series(1, 9) i, divisor order by i`, fresh(time.Hour))
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	execute(t, db, `update divisor set d = 0`)
	ageShelf(t, db, task.ID, "fresh_until", time.Hour-30*time.Second)
	execute(t, db, `update getwork.task_state set usual = '1 minute', longest = '1 minute' where task_id = $1`, task.ID)
	n.Wake(task.ID)
	n.idle(t)
	if state := query[string](t, db, `select state from getwork.run order by id desc limit 1`); state != "failed" {
		t.Fatalf("the refresh %s", state)
	}
	if r := n.click(t, "task", "bob", 1); fmt.Sprint(r.State, items(r)) != "assigned[2]" {
		t.Errorf("bob got %s %v", r.State, items(r))
	}
	if !query[bool](t, db, `select failed_until is not null from getwork.task_state`) {
		t.Fatal("there is no back-off")
	}
	execute(t, db, `update getwork.task_state set failed_until = clock_timestamp() + interval '1 minute'`) // otherwise it may be over just then
	n.Wake(task.ID)
	n.idle(t)
	if got := runs(t, db); got != 2 {
		t.Errorf("%d runs during the back-off, want 2", got)
	}
}

// expire makes a task's shelf expire, as if that much time had passed.
func expire(t *testing.T, db *pgxpool.Pool, task int64, by time.Duration) {
	t.Helper()
	execute(t, db, `update getwork.task_state set fresh_until = fresh_until - $2::interval, expires_at = expires_at - $2::interval where task_id = $1`, task, by)
}

func stale(s *assign.Settings) {
	s.FreshFor, s.StaleFor = assign.Duration(time.Hour), assign.Duration(30*time.Minute)
}

// An expired shelf goes on serving while its refresh runs, on whatever node. A request that finds too little on it waits for the
// run, and no later one overtakes it.
func TestExpiredShelfServesBesideItsRefresh(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	begins := newGates(StepRunBegins)
	n := startNode(t, url, nodeOptions{Steps: begins.hold, MaxRuns: 1}) // even the last slot; either node may run the query
	other := startNode(t, url, nodeOptions{Steps: begins.hold})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 9) i order by i`, stale)
	first := n.click(t, "task", "ann", 1)
	<-begins.reached
	begins.on <- struct{}{}
	if r := n.endedRequest(t, first.ID); r.Stale || r.RankedAt == nil {
		t.Errorf("from the run: stale %v, ranked at %v", r.Stale, r.RankedAt)
	}
	n.idle(t)
	if r := n.click(t, "task", "ben", 1); r.Stale || r.RankedAt == nil {
		t.Errorf("from the fresh shelf: stale %v, ranked at %v", r.Stale, r.RankedAt)
	}

	expire(t, db, task.ID, 65*time.Minute)
	r := n.click(t, "task", "bob", 2)
	if fmt.Sprint(r.State, items(r), r.Stale) != "assigned[3 4] true" {
		t.Errorf("from the expired shelf bob got %v %v, stale %v", r.State, items(r), r.Stale)
	}
	ranked := query[time.Time](t, db, `select started_at from getwork.run`)
	if again, err := n.Request(t.Context(), r.ID, assign.Holder{User: "bob"}, false); err != nil || !again.Stale || again.RankedAt == nil || !again.RankedAt.Equal(ranked) || !r.RankedAt.Equal(ranked) {
		t.Errorf("read again it is stale %v, ranked at %v, want %v; %v", again.Stale, again.RankedAt, ranked, err)
	}
	<-begins.reached // the refresh, which the click has started
	if r := other.click(t, "task", "cyd", 1); fmt.Sprint(r.State, items(r), r.Stale) != "assigned[5] true" {
		t.Errorf("beside the run on another node cyd got %v %v, stale %v", r.State, items(r), r.Stale)
	}
	much := other.click(t, "task", "dan", 5) // four are left
	if much.State != assign.Pending {
		t.Errorf("dan found too little on an expired shelf, and got %v %v", much.State, items(much))
	}
	late := other.click(t, "task", "eve", 1)
	if late.State != assign.Pending {
		t.Errorf("eve overtook dan: %v %v", late.State, items(late))
	}
	begins.on <- struct{}{}
	for _, id := range []int64{much.ID, late.ID} {
		if r := n.endedRequest(t, id); r.Stale {
			t.Errorf("%s was served by the run, and told that the shelf had expired", r.User)
		}
	}
	if got := n.endedRequest(t, much.ID); fmt.Sprint(got.State, items(got)) != "partial[6 7 8 9]" {
		t.Errorf("dan got %v %v", got.State, items(got))
	}
}

// An expired shelf serves no longer than stale_for, and not after its refresh has failed, its query has changed, or it was used
// up.
func TestExpiredShelfEnds(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	var begins atomic.Pointer[gates]
	n := startNode(t, url, nodeOptions{Steps: func(ctx context.Context, step Step) { begins.Load().hold(ctx, step) }})
	pass := func() {
		t.Helper()
		<-begins.Load().reached
		begins.Load().on <- struct{}{}
	}
	db := pool(t, url)
	execute(t, db, `create table divisor as select 1 as d`)
	for name, end := range map[string]func(task assign.Task){
		"time": func(task assign.Task) { expire(t, db, task.ID, 40*time.Minute) },
		"query": func(task assign.Task) {
			if _, err := n.UpdateTask(t.Context(), task.Name, task.Version, "a manager", func(s *assign.Settings) error { s.Query += " "; return nil }); err != nil {
				t.Fatal(err)
			}
		},
		"setting": func(task assign.Task) {
			if _, err := n.UpdateTask(t.Context(), task.Name, task.Version, "a manager", func(s *assign.Settings) error { s.StaleFor = 0; return nil }); err != nil {
				t.Fatal(err)
			}
		},
		"early": func(task assign.Task) { ageShelf(t, db, task.ID, "fresh_until", time.Minute) },
		"restore": func(task assign.Task) {
			execute(t, db, `update getwork.run set cluster = 'another' where task_id = $1`, task.ID)
		},
		"failed": func(task assign.Task) {
			execute(t, db, `update getwork.task_state set used_at = clock_timestamp() where task_id = $1`, task.ID)
			execute(t, db, `update divisor set d = 0`)
			n.Wake(task.ID)
			pass() // the refresh; another is held
			await(t, "the refresh has failed", func() bool {
				return query[bool](t, db, `select exists (select from getwork.run where task_id = $1 and state = 'failed')`, task.ID)
			})
			execute(t, db, `update divisor set d = 1`)
			execute(t, db, `update getwork.task_state set failed_until = clock_timestamp() where task_id = $1`, task.ID)
		},
	} {
		task := newTask(t, n, name, `select i as item, 1 / d as one from generate_series(1, 9) i, divisor order by i`, stale)
		begins.Store(newGates(StepRunBegins)) // a refresh may come at any time, and waits
		first := n.click(t, name, "ann", 1)
		pass()
		n.endedRequest(t, first.ID)
		n.idle(t)
		expire(t, db, task.ID, 65*time.Minute)
		if p, err := n.readTaskView(t.Context(), n.DB, task.ID); err != nil || !p.view.Serves || !p.view.Stale {
			t.Fatalf("%s: the expired shelf serves: %v, %v", name, p.view.Serves, err)
		}
		end(task)
		r := n.click(t, name, "bob", 1)
		if r.State != assign.Pending {
			t.Fatalf("%s: bob got %v %v, want to wait for a run", name, r.State, items(r))
		}
		close(begins.Load().free)
		if r := n.endedRequest(t, r.ID); r.State != assign.Assigned || r.Stale {
			t.Errorf("%s: bob got %v, stale %v", name, r.State, r.Stale)
		}
		n.idle(t)
	}
}
