package feed

import (
	"fmt"
	"io"
	"sync"
	"syscall"
	"testing"
	"time"

	"getwork/assign"
	"getwork/notify"
	"getwork/schema/schematest"
)

// BenchmarkPush measures how long it takes to tell the users who follow on this node of a round that answered ten thousand
// requests, three items each: from the NOTIFY to the last message, read, queued and encoded, but not sent.
//
// go test -run '^$' -bench Push -benchtime 20x ./assign/feed
func BenchmarkPush(b *testing.B) {
	for _, here := range []int{10_000, 1_000, 1} {
		b.Run(fmt.Sprintf("%d here", here), func(b *testing.B) { benchmarkPush(b, here) })
	}
}

func benchmarkPush(b *testing.B, here int) {
	const users, each = 10_000, 3
	n := startNode(b, schematest.URL(b), nodeOptions{mute: true, log: io.Discard})
	task := newTask(b, n, "task", numbers, nil)
	db := n.pools.API
	execute(b, db, answeredRun, task.ID, n.Node)
	execute(b, db, answeredRequests, task.ID, users, each)
	execute(b, db, answeredWork, task.ID, each)
	execute(b, db, `vacuum analyze getwork.work, getwork.item, getwork.work_requested`)
	n.Feed.Connected()
	var told sync.WaitGroup
	ready := make(chan *Stream, 2*here)
	defer close(ready)
	for range 2 {
		go writeEvents(b, ready, &told)
	}
	for i := range here {
		var s *Stream
		s = n.Feed.Open(assign.Who{Holder: assign.Holder{User: fmt.Sprintf("user %05d", i+1)}}, func() { ready <- s })
		s.live = true
		b.Cleanup(s.Close)
	}
	b.ResetTimer()
	began := cpu()
	for range b.N {
		told.Add(2 * here) // the answer, and the end of the run
		n.Feed.Heard(notify.Message{Round: &notify.Round{Task: task.ID, ID: 1, Run: 1, Requests: users}})
		told.Wait()
	}
	b.ReportMetric(float64((cpu()-began).Microseconds())/float64(b.N)/1000, "cpu-ms/op")
}

// writeEvents encodes what is ready, as sockets do.
func writeEvents(b *testing.B, ready <-chan *Stream, told *sync.WaitGroup) {
	var message []byte
	for s := range ready {
		events, _ := s.Take()
		for _, e := range events {
			var err error
			if message, err = e.AppendMessage(message[:0]); err != nil {
				b.Error(err)
			}
			if e.Type == "request" || e.Type == "run" {
				told.Done()
			}
		}
	}
}

const (
	answeredRun = `
insert into getwork.run (task_id, version, node, state, finished_at, snapshot, given, blocked, passed_over, candidates, cut)
values ($1, 1, $2, 'finished', clock_timestamp(), pg_current_snapshot(), 1, 0, 0, 1, false)`
	answeredRequests = `
insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, completed_at, round_id, run_id)
select $1, 'user ' || to_char(i, 'FM00000'), $3, $3, $3, 'assigned', clock_timestamp(), 1, 1
from generate_series(1, $2::integer) i`
	answeredWork = `
insert into getwork.work (task_id, item, user_name, request_id, run_id, rank, details)
select $1, 'loan ' || r.id || '/' || i, r.user_name, r.id, 1, i,
  json_build_object('loan_id', r.id, 'name', 'A rather usual name', 'amount', 12345.67, 'submitted', '2026-01-31')
from getwork.work_requested r cross join generate_series(1, $2::integer) i
where r.task_id = $1`
)

// cpu returns the CPU time that this process has used so far.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
