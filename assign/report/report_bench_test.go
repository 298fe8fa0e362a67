package report

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// However long the history is, counting an hour of it costs the same: the figures with ten thousand and with a million rows
// should be alike.
//
//	go test -run '^$' -bench Hour -benchtime 200x ./assign/report
func BenchmarkHour(b *testing.B) {
	for _, rows := range []int{10_000, 1_000_000} {
		b.Run(fmt.Sprintf("history/%d finished", rows), func(b *testing.B) { benchmarkHistory(b, rows) })
		b.Run(fmt.Sprintf("returns/%d finished", rows), func(b *testing.B) { benchmarkReturns(b, rows) })
	}
}

// The closed requests and work of a user who worked through so many items.
const (
	endedRequests = `
insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, created_at, completed_at)
select $1, 'ann', 1, 1, 1, 'assigned', clock_timestamp() - i * interval '1 second', clock_timestamp() - i * interval '1 second'
from generate_series($2::integer, 1, -1) i`
	finishedWork = `
insert into getwork.work (task_id, item, user_name, lease, lease_expires_at, assigned_at, state, closed_at, closed_by, closed_xid)
select $1, 'done ' || i, 'ann', '1 minute', clock_timestamp() - i * interval '1 second', clock_timestamp() - i * interval '1 second',
  'completed', clock_timestamp() - i * interval '1 second', 'ann', pg_current_xact_id()
from generate_series(1, $2::integer) i`
	// Anybody would run this after loading so many rows, and autovacuum does it by itself.
	analyze = `vacuum analyze getwork.work, getwork.work_requested`
)

// anHour makes a past with an event in each second.
func anHour(b *testing.B, rows int) (*rig, assign.Span) {
	b.Helper()
	url := schematest.URL(b)
	n := start(b, url)
	task := n.newTask(b, "task", numbers)
	for _, s := range []string{endedRequests, finishedWork} {
		execute(b, n.db, s, task.ID, rows)
	}
	execute(b, n.db, analyze)
	return n, assign.Span{Since: new(time.Now().Add(-time.Hour)), Step: time.Minute}
}

func benchmarkHistory(b *testing.B, rows int) {
	n, span := anHour(b, rows)
	for b.Loop() {
		if h, err := n.History(b.Context(), span); err != nil || h.Tasks[0].Buckets[30].Completed == 0 {
			b.Fatal(h, err)
		}
	}
}

func benchmarkReturns(b *testing.B, rows int) {
	n, span := anHour(b, rows)
	for b.Loop() {
		if r, err := n.Returns(b.Context(), span); err != nil || r.Team.Closed == 0 {
			b.Fatal(r, err)
		}
	}
}
