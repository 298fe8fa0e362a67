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

// oldestReady is when the oldest item of the inbox s that is ready was pushed. Of one priority that is the first by id, so no more is read
// than an item of each priority, of the highest thousand.
const (
	oldestReady = `(
    with recursive oldest as (
      (select i.priority, i.pushed_at, 1 as n ` + readyInOrder + `)
      union all
      select n.priority, n.pushed_at, o.n + 1
      from oldest o cross join lateral (select i.priority, i.pushed_at ` + readyBelow + `) n
      where o.n < 1000)
    select min(pushed_at) from oldest)`
	readyInOrder = `from getwork.item i where i.task_id = s.task_id and i.due_at is null and i.done_at is null order by i.priority desc, i.id limit 1`
	readyBelow   = `from getwork.item i where i.task_id = s.task_id and i.priority < o.priority and i.due_at is null and i.done_at is null order by i.priority desc, i.id limit 1`
)

// oldestFound is since when the oldest free item of the last run has been there, unless as many as were free have been handed out since.
// Of those that are let go of already, the last thousand are looked at.
const oldestFound = `(
    select u.oldest
    from getwork.run u
    where u.id = s.last_run and u.given - u.passed_over - u.blocked >
      (select count(*) from getwork.work w where w.task_id = s.task_id and w.state = 'held' and w.assigned_at >= ` + RankedAt + `)
      + (select count(*) from (
          select w.assigned_at from getwork.work w where w.task_id + 0 = s.task_id and w.state <> 'held' order by w.task_id + 0 desc, w.id desc limit 1000) w
        where w.assigned_at >= ` + RankedAt + `))`

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
    else (select c.deadline ` + waitsOnShelf + ` and c.deadline <= (select clock_timestamp()) order by c.deadline limit 1) end),
  case when b.since <= clock_timestamp() - t.age * interval '1 microsecond' then b.since end
from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as t (id, wait, age)
join getwork.task_state s on s.task_id = t.id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select count(*) as n, min(r.created_at) as oldest
  from getwork.work_requested r
  where r.task_id = s.task_id and r.state = 'pending' and r.look_after is null and r.reason is null
    and r.created_at <= clock_timestamp() - t.wait * interval '1 microsecond') w
cross join lateral (
  select case when t.age is null then null when v.query is null then ` + oldestReady + ` else ` + oldestFound + ` end as since) b
where s.deleted_at is null`

// Alerts returns what is wrong with these tasks, as [Records.Tasks] returns them: most urgent first, and of each kind the oldest. Of paused
// tasks it is what is late alone. It reads more only of tasks with failures, requests or late items.
func (rs *Records) Alerts(ctx context.Context, tasks []assign.Task) ([]assign.Alert, error) {
	alerts := []assign.Alert{}
	doubtful := map[int64]*assign.Task{}
	var ids, waits []int64
	var ages []*int64
	for i := range tasks {
		t := &tasks[i]
		aged := t.AlertBacklogAge != nil && t.Backlog != nil && t.Backlog.Free > 0
		if t.Late > 0 || !t.Paused && (t.Failures+int(t.Waiting) > 0 || aged) {
			var age *int64
			if aged && !t.Paused {
				age = new(t.AlertBacklogAge.Microseconds())
			}
			doubtful[t.ID] = t
			ids, waits, ages = append(ids, t.ID), append(waits, t.AlertWaiting.Microseconds()), append(ages, age)
		}
	}
	if ids == nil {
		return alerts, nil
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectAlerts), ids, waits, ages)
	if err != nil {
		return nil, fmt.Errorf("read alerts: %w", err)
	}
	var id, unserved int64
	var failing, waiting, late, oldest *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &failing, &unserved, &waiting, &late, &oldest}, func() error {
		t := doubtful[id]
		add := func(kind assign.AlertKind, since *time.Time, count int64, detail *string) {
			if since == nil || count == 0 || t.Paused && kind != assign.AlertLate { // it has ended since the tasks were read
				return
			}
			a := assign.Alert{Kind: kind, Task: t.Name, TaskID: t.ID, Since: since.UTC(), Count: count}
			if detail != nil {
				a.Detail = *detail
			}
			alerts = append(alerts, a)
		}
		add(assign.AlertFailing, failing, int64(t.Failures), t.LastError)
		add(assign.AlertUnserved, waiting, unserved, nil)
		add(assign.AlertLate, late, t.Late, nil)
		if oldest != nil {
			add(assign.AlertBacklog, oldest, t.Backlog.Free, nil)
		}
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
