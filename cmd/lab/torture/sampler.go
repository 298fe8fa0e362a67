package torture

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/lab/torture/history"
)

// sampler reads, over a connection of its own past all proxies, which queries the server executes, and the server's
// clock.
type sampler struct {
	url string
	rec *history.Recorder

	within time.Duration // how soon who waits for any task must get what is free
	found  *findings     // nil: that is not looked at

	mu      sync.Mutex
	running int           // the node whose query was seen last; -1: none runs
	seen    chan struct{} // closed, and replaced, when a query is seen
	before  map[execution]string
	last    map[string]int // each task's executions as last recorded
	ticked  history.Clock  // when the last recorded tick began
}

// execution is one execution of a statement.
type execution struct {
	pid   int
	began time.Time
}

const sampleEvery = 25 * time.Millisecond

func newSampler(url string, rec *history.Recorder) *sampler {
	return &sampler{url: url, rec: rec, running: -1, seen: make(chan struct{}), last: map[string]int{}}
}

// run samples until the context ends. While the database is away it tries again.
func (s *sampler) run(ctx context.Context) {
	for ctx.Err() == nil {
		s.follow(ctx)
		s.look(nil, -1)
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// Only runs match: claims, rechecks and explanations begin otherwise. A run whose statement is worded differently one day is not
// seen, which [Report.prove] notices.
const selectExecutions = `
select pid, query_start, application_name, substring(query from '-- torture: (\S+)'), clock_timestamp()
from (select) one
left join pg_stat_activity on state = 'active' and pid <> pg_backend_pid()
  and (query like E'\nwith ranked as (\n  select item, %-- torture: %' or query like E'\nselect item, %, slots_type, exclusive_type%\nfrom %-- torture: %')`

// follow samples until the connection breaks.
func (s *sampler) follow(ctx context.Context) {
	dial, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := pgx.Connect(dial, s.url)
	if err != nil {
		return
	}
	defer conn.Close(context.Background())
	tick := time.NewTicker(sampleEvery)
	defer tick.Stop()
	for n := 0; ; n++ {
		if err := s.sample(ctx, conn, n); err != nil {
			return
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return
		}
	}
}

func (s *sampler) sample(ctx context.Context, conn *pgx.Conn, n int) error {
	t := history.Tick{Began: s.rec.Now()}
	rows, err := conn.Query(ctx, selectExecutions)
	if err != nil {
		return err
	}
	defer rows.Close()
	found, node := map[execution]string{}, -1
	for rows.Next() {
		var pid *int
		var began *time.Time
		var name, task *string
		if err := rows.Scan(&pid, &began, &name, &task, &t.Now); err != nil {
			return err
		}
		if pid != nil && began != nil && task != nil && name != nil {
			found[execution{*pid, *began}] = *task
			if number, ok := strings.CutPrefix(*name, "torture-"); ok {
				node, _ = strconv.Atoi(number)
			}
		}
	}
	if err := rows.Err(); err != nil {
		return err
	}
	t.Ended = s.rec.Now()
	if n%40 == 39 && s.found != nil {
		if err := s.lookForFree(ctx, conn); err != nil {
			return err
		}
	}
	const ticks = 8 // of every eight samples one reads the clock, so five ticks a second
	if n%ticks == 0 {
		s.rec.Add(history.Entry{Tick: &t})
		s.mu.Lock()
		s.ticked = t.Began
		s.mu.Unlock()
	}
	s.look(found, node)
	return nil
}

// Items of inboxes that their users may have, and requests over several tasks that wait for them, both for longer than $1.
const selectFree = `
select r.id, i.item
from getwork.work_requested r
cross join lateral unnest(r.targets) t (id)
join getwork.task_state s on s.task_id = t.id and not s.paused and s.deleted_at is null
join getwork.item i on i.task_id = t.id and i.done_at is null and i.due_at is null and i.exclusive is null
where r.task_id = 0 and r.state = 'pending' and greatest(r.created_at, i.pushed_at) < clock_timestamp() - $1::interval
  and not exists (
    select from getwork.work w
    where w.task_id = t.id and w.item = i.item
      and (w.state = 'held' or w.closed_at > clock_timestamp() - $1::interval or w.available_at > clock_timestamp() - $1::interval or w.to_others))
  and coalesce(i.class, 1) = 1
  and not exists (select from getwork.work w where w.item = i.item and w.user_name = r.user_name) -- completed already, or four eyes
limit 1`

// lookForFree finds whoever waits for any of several tasks while one of them has something for everybody.
func (s *sampler) lookForFree(ctx context.Context, conn *pgx.Conn) error {
	var request int64
	var item string
	err := conn.QueryRow(ctx, selectFree, s.within).Scan(&request, &item)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	case err == nil:
		s.found.add("next", "request %d has waited for any of several tasks for %v while item %q was free", request, s.within, item)
	}
	return err
}

// look records how many executions of each task's query both the last reading and this one show, if that has changed.
func (s *sampler) look(found map[execution]string, node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	counts := map[string]int{}
	for e, task := range found {
		if _, still := s.before[e]; still {
			counts[task]++
		}
	}
	for task := range s.last {
		counts[task] += 0
	}
	for task, n := range counts {
		if was, known := s.last[task]; !known || was != n || n > 1 {
			s.rec.Add(history.Entry{Sample: &history.Sample{At: s.rec.Now(), Task: task, Executions: n}})
			s.last[task] = n
		}
	}
	s.before = found
	s.running = node
	if node >= 0 {
		close(s.seen)
		s.seen = make(chan struct{})
	}
}

// awaitRun waits until a node's query runs. It returns false if none does before the context ends.
func (s *sampler) awaitRun(ctx context.Context) (node int, ok bool) {
	for {
		s.mu.Lock()
		node, seen := s.running, s.seen
		s.mu.Unlock()
		if node >= 0 {
			return node, true
		}
		select {
		case <-seen:
		case <-ctx.Done():
			return -1, false
		}
	}
}
