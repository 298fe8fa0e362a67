package engine

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// After three runs of a query that takes equally long each time, the user reads how long to wait: in the answer, while it
// runs, and by the run's event, within a quarter of the truth.
func TestEta(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "steady", `select i as item from generate_series(1, 100) i, (select pg_sleep(3)) s`, nil)
	stood := standstill(t, db) // estimates rest on earlier runs, and can't foresee a machine that stands still
	for range 3 {
		if r := n.click(t, "steady", "ann", 1); n.endedRequest(t, r.ID).State != assign.Assigned {
			t.Fatal("nothing was handed out")
		}
	}
	bob := follow(t, n, "bob")
	if err := bob.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	r := n.click(t, "steady", "bob", 1)
	await(t, "it runs for a third of its time", func() bool {
		return query[bool](t, db, `select exists (select from getwork.run where state = 'running' and clock_timestamp() - started_at > interval '1 s')`)
	})
	before := query[time.Time](t, db, `select clock_timestamp()`)
	later, err := n.Request(t.Context(), r.ID, r.Holder(), false)
	if err != nil {
		t.Fatal(err)
	}
	phase := func(phase string) assign.RunEvent {
		return bob.next("a run that "+phase, func(e assign.Event) bool { return e.Type == "run" && e.Body.(assign.RunEvent).Phase == phase }).Body.(assign.RunEvent)
	}
	started, finished := phase("started"), phase("finished")
	ended, still := n.endedRequest(t, r.ID), stood().Seconds()
	for what, told := range map[string]struct {
		eta *float64
		at  time.Time
	}{
		"in the answer":    {r.EtaSeconds, r.CreatedAt},
		"while it ran":     {later.EtaSeconds, before},
		"by the run event": {started.EtaSeconds, query[time.Time](t, db, `select started_at from getwork.run order by id desc limit 1`)},
	} {
		truth := ended.CompletedAt.Sub(told.at).Seconds()
		if told.eta == nil || math.Abs(*told.eta-truth) > truth/4+still {
			t.Errorf("%s the estimate is %s; it took %.3f s", what, shown(told.eta), truth)
		}
	}
	if ended.EtaSeconds != nil || ended.Position != nil || finished.EtaSeconds != nil {
		t.Errorf("when it is over: eta %s, position %v, run event's eta %s", shown(ended.EtaSeconds), ended.Position, shown(finished.EtaSeconds))
	}
}

func shown(eta *float64) string {
	if eta == nil {
		return "null"
	}
	return fmt.Sprintf("%.3f s", *eta)
}

// waits inserts pending requests that nobody serves, and returns their ids.
func waits(t *testing.T, db *pgxpool.Pool, task assign.Task, count int) (ids []int64) {
	t.Helper()
	return query[[]int64](t, db, `
with r as (
  insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until)
  select $1, 'user ' || i, 1, 1, clock_timestamp() + interval '1 hour' from generate_series(1, $2::integer) i
  returning id)
select array_agg(id order by id) from r`, task.ID, count)
}

// The estimate when something else is known, or nothing.
func TestEtaCases(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Mute: true})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	id := waits(t, db, task, 1)[0]
	run := func(state string) {
		execute(t, db, `insert into getwork.run (task_id, version, node, started_at) values ($1, 1, 'n', clock_timestamp() - $2::text::interval)`, task.ID, state)
	}
	for _, c := range []struct {
		name   string
		change func()
		want   float64 // negative: null
	}{
		{"no run has finished yet", func() {}, -1},
		{"nor is the one under way of any help", func() { run("1 s") }, -1},
		{"no run is under way", func() {
			execute(t, db, `delete from getwork.run`)
			execute(t, db, `update getwork.task_state set usual = '10 s'`)
		}, 10},
		{"one is", func() { run("4 s") }, 6},
		{"one takes longer than usual", func() { execute(t, db, `update getwork.run set started_at = started_at - interval '1 minute'`) }, 0},
		{"a round has read it and left it", func() { execute(t, db, `update getwork.work_requested set look_after = clock_timestamp()`) }, -1},
		{"after the world's fault it is tried again later", func() {
			execute(t, db, `update getwork.work_requested set look_after = null`)
			execute(t, db, `delete from getwork.run`)
			execute(t, db, `update getwork.task_state set retries = 1, retry_since = clock_timestamp(), retry_at = clock_timestamp() + interval '5 s'`)
		}, 15},
		{"after the query's fault, too", func() {
			execute(t, db, `update getwork.task_state set failures = 1, failed_until = clock_timestamp() + interval '20 s'`)
		}, 30},
		{"both are over", func() {
			execute(t, db, `update getwork.task_state set failed_until = clock_timestamp(), retry_at = clock_timestamp()`)
		}, 10},
		{"it is paused", func() { execute(t, db, `update getwork.task_state set paused = true`) }, -1},
		{"paused while it runs", func() { run("1 s") }, -1},
		{"it was cancelled", func() {
			execute(t, db, `update getwork.task_state set paused = false`)
			execute(t, db, `update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = clock_timestamp()`)
		}, -1},
	} {
		began := time.Now()
		c.change()
		r, err := n.Request(t.Context(), id, assign.Holder{}, true)
		if err != nil {
			t.Fatal(err)
		}
		late := time.Since(began).Seconds() // the time left is shorter by this
		if ok := r.EtaSeconds != nil && *r.EtaSeconds < c.want+1 && *r.EtaSeconds > c.want-1-late; ok != (c.want >= 0) || c.want < 0 && r.EtaSeconds != nil {
			t.Errorf("%s: %s, want %v", c.name, shown(r.EtaSeconds), c.want)
		}
		if (r.Position == nil) != (r.State != assign.Pending) {
			t.Errorf("%s: position %v", c.name, r.Position)
		}
	}
	inbox := newTask(t, n, "inbox", "", nil)
	r, err := n.Request(t.Context(), waits(t, db, inbox, 1)[0], assign.Holder{}, true)
	if err != nil || r.EtaSeconds != nil || *r.Position != 1 {
		t.Errorf("of an inbox %s (%v), at %v", shown(r.EtaSeconds), err, r.Position)
	}
}

// Every request has the same position wherever it is read, except those behind a thousand others.
func TestPosition(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{Mute: true})
	db := pool(t, url)
	other := waits(t, db, newTask(t, n, "other", numbers, nil), 3)
	ids := waits(t, db, newTask(t, n, "task", numbers, nil), 1010)
	execute(t, db, `update getwork.work_requested set state = 'cancelled', requested = 0, completed_at = clock_timestamp() where id = any($1)`, ids[:5])
	check := func(where string, requests ...assign.Request) {
		t.Helper()
		for _, r := range requests {
			place := slices.Index(other, r.ID)
			if r.Task == "task" {
				place = slices.Index(ids[5:1005], r.ID)
			}
			if (r.Position == nil) != (place < 0) || r.Position != nil && *r.Position != int64(place+1) {
				t.Errorf("%s %d of %s, %s, has another position than %d", where, r.ID, r.Task, r.State, place+1)
			}
		}
	}
	asked := []int64{other[2], ids[0], ids[5], ids[6], ids[500], ids[1004], ids[1005], ids[1009]}
	requests, err := n.Requests(t.Context(), asked)
	if err != nil || len(requests) != len(asked) {
		t.Fatal(requests, err)
	}
	check("among others", requests...)
	for _, id := range asked {
		r, err := n.Request(t.Context(), id, assign.Holder{}, true)
		if err != nil {
			t.Fatal(err)
		}
		check("alone", r)
	}
	for _, r := range requests[1:] {
		p, err := n.Pipeline(t.Context(), r.Holder())
		if err != nil {
			t.Fatal(err)
		}
		check("in the pipeline", p.Requests...)
	}
}
