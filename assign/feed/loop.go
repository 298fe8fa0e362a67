package feed

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
)

const (
	rereadEvery = 10 * time.Second // announcements may be lost, so followed tasks and the list of all tasks are read anyway
	deafEvery   = 2 * time.Second  // how often all users are read again while nothing is heard, and debts are collected
)

// Run reads and delivers until ctx ends, and returns nil. While nobody follows, nothing wakes it.
func (f *Feed) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	again := time.NewTimer(deafEvery)
	defer again.Stop()
	ticks, reread := true, time.Now()
	_, _, _ = f.listChanged(ctx) // nobody follows yet; if the list can't be read now, the first followers hear of it
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-again.C:
			ticks = false
			f.missed()
			if f.collect() {
				f.manyAfter = time.Time{}
			}
			if time.Since(reread) > f.every {
				reread = time.Now()
				f.reread(ctx)
			}
		}
		if !ticks && f.anybody() {
			again.Reset(deafEvery)
			ticks = true
		}
		if err := f.drainNews(ctx); err != nil && ctx.Err() == nil {
			if facts := f.limit.About(err); facts != nil {
				f.config.Log.Warn("deliver events; it is tried again", facts...)
			}
			f.mu.Lock()
			f.hear(func(n *news) { n.gap = true })
			f.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// missed makes the feed read all users again while nothing is heard.
func (f *Feed) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all > 0 && (f.deaf || f.state != assign.Live) {
		f.change(func(n *news) { n.gap = true })
	}
}

// selectList reads the ids of some tasks, and a hash that stands for the list of all: each change makes a new version, or
// pauses or resumes the task.
const selectList = `
select coalesce(array_agg(task_id) filter (where name = any($1::text[])), '{}'),
  md5(coalesce(string_agg(concat(task_id, ' ', version, ' ', paused), ',' order by task_id), ''))
from getwork.task_state
where deleted_at is null`

// reread marks every followed task as news, and the list of tasks if it has changed.
func (f *Feed) reread(ctx context.Context) {
	changed, ids, err := f.listChanged(ctx)
	if err != nil {
		if facts := f.limit.Again("look for changed tasks", err); facts != nil && ctx.Err() == nil {
			f.config.Log.Warn("look for changed tasks; it is tried again", facts...)
		}
		return
	}
	if !changed && len(ids) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(func(n *news) {
		n.list = n.list || changed
		note(n.tasks, ids)
	})
}

// listChanged reads the list of tasks, and reports whether it has changed since it was last read. ids are the ids of the
// followed tasks.
func (f *Feed) listChanged(ctx context.Context) (changed bool, ids []int64, err error) {
	f.mu.Lock()
	names := slices.Collect(maps.Keys(f.topics))
	f.mu.Unlock()
	var list string
	if err := f.config.DB.QueryRow(ctx, f.config.SQL(selectList), names).Scan(&ids, &list); err != nil {
		return false, nil, fmt.Errorf("read the list of tasks: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = f.list != list
	f.list = list
	return changed, ids, nil
}

// drainNews reads everything that was heard, and delivers it. If it fails, the rest of what it took is lost, so the caller must have
// all users read again.
func (f *Feed) drainNews(ctx context.Context) error {
	f.mu.Lock()
	n := f.news
	f.news = news{}
	live := f.state == assign.Live
	nobody := f.all == 0
	f.mu.Unlock()
	if nobody || n.rounds == nil {
		return nil
	}
	if n.list {
		f.deliverList(ctx)
	}
	if n.gap {
		if err := f.resync(ctx); err != nil {
			return err
		}
		if live {
			f.Broadcast(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Live}})
		}
	}
	for _, tell := range []func(context.Context, news) error{f.deliverRequests, f.deliverWork, f.deliverAbsences, f.deliverTasks, f.deliverMany} {
		if err := tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}
