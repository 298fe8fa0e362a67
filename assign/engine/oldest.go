package engine

import (
	"context"
	"sync/atomic"
	"time"
)

// The first of each task's by the index of those that wait: who came first has waited longest. It is written so that no other
// index has that order, or the primary key might be gone through, and with it all that is over. Not those who linger and were
// found nothing, nor those of paused tasks: they wait on purpose.
const selectOldest = `
select extract(epoch from greatest(max(clock_timestamp() - r.created_at), interval '0'))::float8, count(*) > 0
from getwork.task_state s
cross join lateral (
  select r.created_at
  from getwork.work_requested r
  where r.task_id between s.task_id and s.task_id and r.state = 'pending' and r.look_after is null
  order by r.task_id, r.id
  limit 1
) r
where s.deleted_at is null and not s.paused`

// Age is how long something has been so, by what was seen last.
type Age struct{ since atomic.Pointer[time.Time] } // nil: it is not

// Load is the age now; 0: there is nothing. It goes on growing while nobody can look.
func (a *Age) Load() time.Duration {
	since := a.since.Load()
	if since == nil {
		return 0
	}
	return time.Since(*since)
}

// lookAtOldest finds out how long people have waited, in all of the cluster, for who watches it. any: somebody may wait; if
// nobody does, that is known without a question. It asks at every pace as rarely as at ease.
func (e *Engine) lookAtOldest(ctx context.Context, any bool) {
	if !any {
		e.Oldest.since.Store(nil)
		return
	}
	if time.Since(e.oldestRead) < e.LookEvery {
		return
	}
	e.oldestRead = time.Now()
	var seconds float64
	var waits bool
	if err := e.api.QueryRow(ctx, e.SQL(selectOldest)).Scan(&seconds, &waits); err != nil {
		e.failedLook("look for who has waited longest", err)
		return // as it was seen last
	}
	if !waits {
		e.Oldest.since.Store(nil)
		return
	}
	if seconds == 0 && e.Oldest.since.Load() != nil {
		return // he came before the clock was set back; nobody knows when, but he has waited since he was seen
	}
	since := time.Now().Add(-time.Duration(seconds * float64(time.Second)))
	e.Oldest.since.Store(&since)
}
