package records

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A recheck fails without a run: then the end of the back-off says since when, as far as it is over. Of failed runs no more are read than
// failed in a row. Whoever lingers although a round has looked for them waits for items, not for a node.
const selectAlerts = `
select s.task_id,
  case when s.failures > 0 then coalesce((
    select min(f.finished_at)
    from (select u.finished_at from getwork.run u where u.task_id = s.task_id and u.id > coalesce(s.last_run, 0) and u.state = 'failed' order by u.id desc limit s.failures) f),
    least(s.failed_until, clock_timestamp())) end,
  w.n, w.oldest,
  least((select min(h.deadline) from getwork.work h where h.task_id = s.task_id and h.state = 'held' and h.deadline <= clock_timestamp()),
    case when v.query is null then (select c.deadline ` + waitsInInbox + ` and c.deadline <= (select clock_timestamp()) order by c.deadline limit 1)
    else (select c.deadline ` + waitsOnShelf + ` and c.deadline <= (select clock_timestamp()) order by c.deadline limit 1) end)
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select count(*) as n, min(r.created_at) as oldest
  from getwork.work_requested r
  where r.task_id = s.task_id and r.state = 'pending' and r.look_after is null and r.reason is null
    and r.created_at <= clock_timestamp() - $2 * interval '1 microsecond') w
where s.task_id = any($1::bigint[]) and s.deleted_at is null`

// Alerts returns what is wrong with these tasks, as [Records.Tasks] returns them: most urgent first, and of each kind the oldest. Of paused
// tasks it is what is late alone. It reads more only of tasks with failures, requests or late items.
func (rs *Records) Alerts(ctx context.Context, tasks []assign.Task) ([]assign.Alert, error) {
	alerts := []assign.Alert{}
	doubtful := map[int64]*assign.Task{}
	var ids []int64
	for i := range tasks {
		if t := &tasks[i]; t.Late > 0 || !t.Paused && t.Failures+int(t.Waiting) > 0 {
			doubtful[t.ID] = t
			ids = append(ids, t.ID)
		}
	}
	if ids == nil {
		return alerts, nil
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectAlerts), ids, assign.AlertWaiting.Microseconds())
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	var id, unserved int64
	var failing, waiting, late *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &failing, &unserved, &waiting, &late}, func() error {
		t := doubtful[id]
		add := func(kind assign.AlertKind, since *time.Time, count int64, detail *string) {
			if since == nil || count == 0 || t.Paused && kind != assign.AlertLate { // it has ended since the tasks were read
				return
			}
			a := assign.Alert{Kind: kind, Task: t.Name, Since: since.UTC(), Count: count}
			if detail != nil {
				a.Detail = *detail
			}
			alerts = append(alerts, a)
		}
		add(assign.AlertFailing, failing, int64(t.Failures), t.LastError)
		add(assign.AlertUnserved, waiting, unserved, nil)
		add(assign.AlertLate, late, t.Late, nil)
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	slices.SortFunc(alerts, func(a, b assign.Alert) int {
		return cmp.Or(slices.Index(assign.AlertKinds, a.Kind)-slices.Index(assign.AlertKinds, b.Kind), a.Since.Compare(b.Since), cmp.Compare(a.Task, b.Task))
	})
	return alerts, nil
}
