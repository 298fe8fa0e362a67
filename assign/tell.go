package assign

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// resync reads everybody's pipeline again and delivers it as a snapshot; held answers get their requests.
func (f *Feed) resync(ctx context.Context) error {
	holders := f.here()
	for part := range slices.Chunk(holders, 1000) {
		pipelines, _, err := f.engine.pipelines(ctx, part)
		if err != nil {
			return err
		}
		for h, p := range pipelines {
			f.to(h, Event{Type: "snapshot", Body: p})
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for s := range subs {
			if s.quiet {
				s.deliver(Event{Type: "snapshot"}) // read again
			}
		}
	}
	return nil
}

// selectNews reads the requests of some rounds, and some by id, of the users who follow here: all that were
// answered would be too many where ten nodes share ten thousand people.
const selectNews = `
select ` + requestColumns + `
from getwork.work_requested r join getwork.task_state s using (task_id)
where (r.round_id = any($1::bigint[]) or r.id = any($2::bigint[])) and r.user_name = any($3::text[])
order by r.id`

func (f *Feed) tellRequests(ctx context.Context, n news) error {
	if len(n.rounds) == 0 && len(n.requests) == 0 {
		return nil
	}
	holders := f.here()
	users := make([]string, len(holders))
	for i, h := range holders {
		users[i] = h.User
	}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectNews), keys(n.rounds), keys(n.requests), users)
	if err != nil {
		return fmt.Errorf("read what rounds answered: %w", err)
	}
	requests, err := pgx.CollectRows(rows, readRequest)
	if err != nil {
		return fmt.Errorf("read what rounds answered: %w", err)
	}
	if err := f.engine.addWork(ctx, requests); err != nil {
		return err
	}
	for i := range requests {
		r := &requests[i]
		f.to(r.Holder(), Event{Type: "request", Body: r, Request: r})
	}
	return nil
}

const selectWorkNews = `
select ` + workColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.id = any($1::bigint[])
order by w.id`

func (f *Feed) tellWork(ctx context.Context, n news) error {
	if len(n.work) == 0 {
		return nil
	}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectWorkNews), keys(n.work))
	if err != nil {
		return fmt.Errorf("read what became of work: %w", err)
	}
	works, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (Work, error) { return scanWork(row) })
	if err != nil {
		return fmt.Errorf("read what became of work: %w", err)
	}
	for i := range works {
		f.to(works[i].Holder(), Event{Type: "work", Body: &works[i]})
	}
	return nil
}

const (
	selectRunNews = `
select ` + runColumns + `, s.name
from getwork.run u join getwork.task_state s using (task_id)
where u.id = any($1::bigint[])
order by u.id`

	// Who waits, and whom one of these rounds has just answered: he waited until then.
	selectWaitingHolders = `
select r.task_id, r.user_name, r.instance
from getwork.work_requested r
where r.task_id = any($1::bigint[]) and r.state = 'pending' and r.user_name = any($2::text[])
union
select r.task_id, r.user_name, r.instance
from getwork.work_requested r
where r.round_id = any($3::bigint[]) and r.task_id = any($1::bigint[]) and r.user_name = any($2::text[])`
)

// phases maps a run's state to what its event says.
var phases = map[string]string{"running": "started", "finished": "finished", "failed": "failed", "cancelled": "cancelled", "lost": "failed"}

// tellRuns tells of runs whoever waits on the task and whoever follows it.
func (f *Feed) tellRuns(ctx context.Context, n news) error {
	if len(n.runs) == 0 {
		return nil
	}
	events := map[int64][]RunEvent{}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectRunNews), keys(n.runs))
	if err != nil {
		return fmt.Errorf("read runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (r Run, err error) {
		var name string
		if r, err = scanRun(runAndName{row, &name}); err != nil {
			return r, err
		}
		events[r.TaskID] = append(events[r.TaskID], RunEvent{ID: r.ID, Task: name, Phase: phases[r.State], Candidates: r.Candidates, DurationMS: r.DurationMS})
		return r, nil
	})
	if err != nil || len(runs) == 0 {
		return err
	}
	waiting, err := f.waitingHere(ctx, slices.Collect(maps.Keys(events)), keys(n.rounds))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for task, told := range events {
		for h, subs := range f.holders {
			for s := range subs {
				for _, e := range told {
					if !s.quiet && (s.tasks[e.Task] || waiting[taskHolder{task, h}]) {
						s.deliver(Event{Type: "run", Body: e})
					}
				}
			}
		}
	}
	return nil
}

// runAndName lets scanRun read a row that has a name behind the run's columns.
type runAndName struct {
	pgx.CollectableRow
	name *string
}

func (r runAndName) Scan(into ...any) error { return r.CollectableRow.Scan(append(into, r.name)...) }

type taskHolder struct {
	task   int64
	holder Holder
}

// waitingHere are the holders who wait on one of the tasks, or did until one of the rounds, and follow on this node.
func (f *Feed) waitingHere(ctx context.Context, tasks, rounds []int64) (map[taskHolder]bool, error) {
	holders := f.here()
	users := make([]string, len(holders))
	for i, h := range holders {
		users[i] = h.User
	}
	rows, err := f.engine.api.Query(ctx, f.engine.SQL(selectWaitingHolders), tasks, users, rounds)
	if err != nil {
		return nil, fmt.Errorf("read who waits: %w", err)
	}
	waiting := map[taskHolder]bool{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var w taskHolder
		err := row.Scan(&w.task, &w.holder.User, &w.holder.Instance)
		waiting[w] = true
		return struct{}{}, err
	})
	if err != nil {
		return nil, fmt.Errorf("read who waits: %w", err)
	}
	return waiting, nil
}

// tellTasks delivers the present state of tasks to who follows them. However many changes came, each task has at
// most one event in mergeFor, and the last state always comes.
func (f *Feed) tellTasks(ctx context.Context, n news) error {
	if len(n.tasks) == 0 || !f.anybodyFollows() {
		return nil
	}
	if wait := mergeFor - time.Since(f.told); wait > 0 {
		f.mu.Lock()
		defer f.mu.Unlock()
		if f.news.rounds == nil {
			f.news = newNews()
		}
		maps.Copy(f.news.tasks, n.tasks)
		if f.later == nil {
			f.later = time.AfterFunc(wait, func() {
				f.mu.Lock()
				defer f.mu.Unlock()
				f.later = nil
				f.hear(func(*news) {})
			})
		}
		return nil
	}
	f.told = time.Now()
	tasks, err := f.engine.tasks(ctx, nil, keys(n.tasks))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range tasks {
		e := Event{Type: "task", Body: &tasks[i]}
		for _, subs := range f.holders {
			for s := range subs {
				switch {
				case s.quiet || !s.tasks[tasks[i].Name]:
				case s.who.May(&tasks[i].Settings):
					s.deliver(e)
				default: // it got groups since
					delete(s.tasks, tasks[i].Name)
				}
			}
		}
	}
	return nil
}

func (f *Feed) anybodyFollows() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for s := range subs {
			if len(s.tasks) > 0 {
				return true
			}
		}
	}
	return false
}

func keys(set map[int64]bool) []int64 { return slices.Sorted(maps.Keys(set)) }
