package assign

import (
	"context"
	"maps"

	"github.com/jackc/pgx/v5"
)

// note remembers a task that waits for a place to run, and whether it was stirred, and tells the other nodes, which may
// have one.
func (e *Engine) note(task int64, stirred bool) {
	e.mu.Lock()
	was, known := e.noted[task]
	e.noted[task] = was || stirred
	free := len(e.slots) > 0
	e.mu.Unlock()
	if !known {
		e.Announce.Waiting(task)
	}
	if free { // one was given back between our look and our note
		e.lookAtNoted()
	}
}

func (e *Engine) freeSlot() {
	e.slots <- struct{}{}
	e.lookAtNoted()
}

const oldestFirst = `
select task_id
from getwork.work_requested
where task_id = any($1::bigint[]) and state = 'pending'
group by task_id
order by min(id)`

// lookAtNoted looks at all tasks that waited for a place, the one with the oldest request first.
func (e *Engine) lookAtNoted() {
	e.mu.Lock()
	tasks := make([]int64, 0, len(e.noted))
	for t := range e.noted {
		tasks = append(tasks, t)
	}
	stirred := maps.Clone(e.noted)
	clear(e.noted)
	if len(tasks) < 2 {
		e.mu.Unlock()
		for _, t := range tasks {
			e.lookAt(t, stirred[t])
		}
		return
	}
	defer e.mu.Unlock()
	e.spawn(func(ctx context.Context) {
		rows, err := e.api.Query(ctx, e.SQL(oldestFirst), tasks)
		if err == nil {
			tasks, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		if err != nil {
			e.Log.Warn("order of waiting tasks", "error", err) // then in any order
		}
		for _, t := range tasks {
			e.lookAt(t, stirred[t])
		}
	})
}
