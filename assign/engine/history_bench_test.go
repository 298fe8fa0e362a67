package engine

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// However long the history is, frequent operations cost the same: the figures of each benchmark with ten thousand and with a
// million rows behind it should be alike.
//
// go test -run '^$' -bench History -benchtime 200x ./assign/engine
func BenchmarkHistory(b *testing.B) {
	for _, rows := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("expiry of 100 due/%d finished", rows), func(b *testing.B) { benchmarkExpiry(b, rows) })
		b.Run(fmt.Sprintf("click on an inbox/%d finished", rows), func(b *testing.B) { benchmarkClick(b, rows, finishedItems) })
		b.Run(fmt.Sprintf("click on an inbox/%d put off", rows), func(b *testing.B) { benchmarkClick(b, rows, putOffItems) })
		b.Run(fmt.Sprintf("click on an inbox/%d finished and put off before", rows), func(b *testing.B) { benchmarkClick(b, rows, finishedItems, putOffItems) })
	}
}

// Requests, finished work and work that was put off, as somebody leaves them behind after that many items.
const (
	finishedWork = `
insert into getwork.work (task_id, item, user_name, lease, lease_expires_at, assigned_at, state, closed_at, closed_by, closed_xid)
select $1, 'done ' || i, 'ann', '1 minute', clock_timestamp() - i * interval '1 second', clock_timestamp() - i * interval '1 second',
  'completed', clock_timestamp() - i * interval '1 second', 'ann', pg_current_xact_id()
from generate_series(1, $2::integer) i`
	finishedItems = `
with i as (
  insert into getwork.item (task_id, item, pushed_by, pushed_at, done_at, priority)
  select $1, 'done ' || i, 'boss', clock_timestamp() - i * interval '1 second', clock_timestamp() - i * interval '1 second', i % 10
  from generate_series(1, $2::integer) i
)` + finishedWork
	putOffItems = `
with i as (
  insert into getwork.item (task_id, item, pushed_by, due_at, priority)
  select $1, 'put off ' || i, 'boss', clock_timestamp() + interval '1 day' + i * interval '1 second', i % 10
  from generate_series(1, $2::integer) i
)
insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid, after, available_at)
select $1, 'put off ' || i, 'ann', 'returned', clock_timestamp(), 'ann', pg_current_xact_id(), '24 hours', clock_timestamp() + interval '1 day' + i * interval '1 second'
from generate_series(1, $2::integer) i`
	// What an operator would run after loading this much, or autovacuum does by itself.
	analyze = `vacuum analyze getwork.work, getwork.item, getwork.work_requested`
)

func loadHistory(b *testing.B, db *pgxpool.Pool, task int64, rows int, statements ...string) {
	b.Helper()
	for _, s := range statements {
		execute(b, db, s, task, rows)
	}
	execute(b, db, analyze)
}

// benchmarkExpiry sweeps a hundred rows whose leases have run out.
func benchmarkExpiry(b *testing.B, rows int) {
	url := schematest.URL(b)
	db := pool(b, url)
	n := still(b, url)
	task := newTask(b, n, "task", numbers, leased(time.Minute))
	loadHistory(b, db, task.ID, rows, finishedWork)
	round := 0
	for b.Loop() {
		b.StopTimer()
		round++
		execute(b, db, `insert into getwork.work (task_id, item, user_name, lease, lease_expires_at)
			select $1, $2::text || ' ' || i, 'ann', '1 minute', clock_timestamp() from generate_series(1, 100) i`, task.ID, fmt.Sprint(round))
		b.StartTimer()
		if found, err := (sweeper{n.Engine}).sweepOnce(b.Context(), expireWork); err != nil || len(found) != 100 {
			b.Fatal(len(found), err)
		}
	}
}

// benchmarkClick asks for one item of an inbox, gets it, and completes it.
func benchmarkClick(b *testing.B, rows int, statements ...string) {
	url := schematest.URL(b)
	db := pool(b, url)
	n := startNode(b, url, nodeOptions{deaf: true})
	task := newInbox(b, n, "inbox", nil)
	loadHistory(b, db, task.ID, rows, statements...)
	execute(b, db, `insert into getwork.item (task_id, item, pushed_by) select $1, 'open ' || i, 'boss' from generate_series(1, $2::integer) i`, task.ID, b.N+20_000)
	execute(b, db, analyze)
	for b.Loop() {
		r := n.click(b, "inbox", "ann", 1)
		if len(r.Work) != 1 {
			b.Fatalf("%s %v", r.State, why(r))
		}
		n.let(b, r.Work[0], assign.Disposition{Outcome: "complete"})
	}
}

// BenchmarkItem does the same in turn with an item without history and with one that has a million closings, so that other
// load on the machine affects both. "ratio" is of the medians.
//
// go test -run '^$' -bench Item/ -benchtime 2000x ./assign/engine
func BenchmarkItem(b *testing.B) {
	claim := func(b *testing.B, n *node, task string) assign.Work {
		b.Helper()
		w, _, err := n.Claim(b.Context(), task, old, who("zoe"))
		if err != nil {
			b.Fatal(err)
		}
		return w
	}
	for what, take := range map[string]func(b *testing.B, n *node, which string) assign.Work{
		"claim":                 func(b *testing.B, n *node, which string) assign.Work { return claim(b, n, which) },
		"click":                 func(b *testing.B, n *node, which string) assign.Work { return n.take(b, which, "zoe") },
		"claim under four eyes": func(b *testing.B, n *node, which string) assign.Work { return claim(b, n, "beside-"+which) },
	} {
		b.Run(what, func(b *testing.B) {
			url := schematest.URL(b)
			n := startNode(b, url, nodeOptions{deaf: true})
			for _, which := range []string{"bare", "long"} {
				task := newInbox(b, n, which, nil)
				newInbox(b, n, "beside-"+which, func(s *assign.Settings) { s.ConflictsWith = []string{which} })
				n.push(b, which, old)
				n.push(b, "beside-"+which, old)
				if which == "long" {
					execute(b, pool(b, url), closings, task.ID, old, 1_000_000)
				}
			}
			execute(b, pool(b, url), analyze)
			took := map[string][]time.Duration{}
			for b.Loop() {
				for _, which := range []string{"bare", "long"} {
					began := time.Now()
					n.let(b, take(b, n, which), giveBack(0))
					took[which] = append(took[which], time.Since(began))
				}
			}
			for which, t := range took {
				slices.Sort(t)
				b.ReportMetric(float64(t[len(t)/2].Microseconds()), which+"-µs")
			}
			b.ReportMetric(float64(took["long"][len(took["long"])/2])/float64(took["bare"][len(took["bare"])/2]), "ratio")
		})
	}
}
