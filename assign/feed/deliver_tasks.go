package feed

import (
	"context"
	"maps"
	"time"

	"getwork/assign"
)

const (
	mergeFor   = 250 * time.Millisecond // the least time between two events of one task
	tellTaskIn = 100 * time.Microsecond // and this for each follower, which takes a tenth of a core at most
)

// deliverTasks delivers the present state of tasks to their followers if it has changed, or if other holders wait or hold
// than before, though as many. However many changes came, each task has at most one event in mergeFor or more, and the last
// state is always delivered. A new follower does not wait for the others' turn.
func (f *Feed) deliverTasks(ctx context.Context, n news) error {
	f.mu.Lock()
	followers := 0
	for _, t := range f.topics {
		followers += len(t.followers)
	}
	f.mu.Unlock()
	if followers == 0 || len(n.tasks)+len(n.newcomers) == 0 {
		return nil
	}
	if wait := mergeFor - time.Since(f.readTasks); wait > 0 {
		f.putOff(wait, func(later *news) {
			maps.Copy(later.tasks, n.tasks)
			maps.Copy(later.newcomers, n.newcomers)
		})
		return nil
	}
	ids := n.newcomers
	wait := mergeFor + time.Duration(followers)*tellTaskIn - time.Since(f.toldTasks)
	switch {
	case wait <= 0:
		maps.Copy(ids, n.tasks)
		f.toldTasks = time.Now()
	case len(n.tasks) > 0:
		f.putOff(wait, func(later *news) { maps.Copy(later.tasks, n.tasks) })
	}
	if len(ids) == 0 {
		return nil
	}
	f.readTasks = time.Now()
	tasks, err := f.someTasks(ctx, keys(ids))
	if err != nil {
		return err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for i := range tasks {
		if t := f.topics[tasks[i].Name]; t != nil {
			t.deliver(&tasks[i], wait > 0)
		}
	}
	return nil
}

// 100,000 items are counted in 10 ms, or in 35 before a vacuum. If each change had them counted, every node would do so four times a
// second for each such inbox, and deliver nothing to anybody meanwhile.
const (
	longInbox  = 10_000          // a shorter inbox is counted whenever it is read, in less than a millisecond
	countEvery = 2 * time.Second // the least time between two counts of a longer one
)

// counted is how many items were ready in a long inbox, and when.
type counted struct {
	ready int64
	at    time.Time
}

// someTasks reads tasks. A long inbox that was counted lately is said to have as many ready items as then, and is read again when it
// may be counted.
func (f *Feed) someTasks(ctx context.Context, ids []int64) ([]assign.Task, error) {
	now := time.Now()
	maps.DeleteFunc(f.counts, func(_ int64, c counted) bool { return now.Sub(c.at) >= countEvery })
	tasks, err := f.config.Records.SomeTasks(ctx, nil, ids, keys(f.counts))
	if err != nil {
		return nil, err
	}
	for i := range tasks {
		t := &tasks[i]
		switch {
		case t.Shelf < 0:
			t.Ready(f.counts[t.ID].ready)
			f.putOff(countEvery-now.Sub(f.counts[t.ID].at), func(later *news) { later.tasks[t.ID] = true })
		case t.Query == "" && t.Shelf >= longInbox:
			f.counts[t.ID] = counted{t.Shelf, now}
		}
	}
	return tasks, nil
}

const tellListEvery = time.Second // and tellTaskIn for each subscription: the least time between two events of the list of tasks

// deliverList sends all connected users that the list of tasks has changed. It names no task, because a user may not know of
// every task. However many changes came, one event follows the last. The list is read first: the next reread then finds later
// changes, even if nobody announces them.
func (f *Feed) deliverList(ctx context.Context) {
	f.mu.Lock()
	wait := tellListEvery + time.Duration(f.all)*tellTaskIn - time.Since(f.toldList)
	f.mu.Unlock()
	if wait <= 0 {
		_, _, err := f.listChanged(ctx)
		if err == nil {
			f.toldList = time.Now()
			f.Broadcast(assign.Event{Type: "tasks", Body: struct{}{}})
			return
		}
		wait = tellListEvery // the clients could not read the list now
	}
	f.putOff(wait, func(later *news) { later.list = true })
}

// deliver delivers the task to the followers who do not know its present state, or only to those to whom nothing was sent yet.
func (t *topic) deliver(task *assign.Task, newcomers bool) {
	now := assign.Event{Type: "task", Body: task}.Shared()
	if t.last == nil || t.last.Body.(*assign.Task).Newest != task.Newest || !t.last.Same(now) {
		t.last = &now
	}
	for s, told := range t.followers {
		switch {
		case s.quiet || told == t.last || newcomers && told != nil:
		case s.who.May(task.Groups):
			t.followers[s] = t.last
			s.deliver(*t.last)
		default: // the task got groups meanwhile
			t.drop(s)
		}
	}
}
