package records

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// paces knows what was completed lately, and what nobody may have. Tasks are read several times a second, and this is read every ten seconds at most.
type paces struct {
	mu      sync.Mutex
	at      time.Time // when it was read, by this node's clock
	counted time.Time // until when there are sums of hours
	hours   map[int64]map[int64]int64
	today   map[int64]int64
	last    map[int64]int64
	since   time.Time
	now     time.Time
	nobody  map[int64]int64 // see SelectNobody

	midnight int64 // the hour in which the day began, by its number since 1970
}

const pacesLast = 10 * time.Second

const (
	// The hours since the last sum are counted, three at most.
	selectMoment = `
select n.now, date_trunc('day', n.now), m.counted, greatest(coalesce(m.counted, '-infinity'), date_trunc('hour', n.now) - interval '2 hours')
from (select clock_timestamp() as now) n, (select max(hour) + interval '1 hour' as counted from getwork.task_hour where task_id = 0) m`

	selectWorked = `
select task_id, floor(extract(epoch from hour) / 3600)::bigint, completed
from getwork.task_hour
where hour >= $1 and hour < $2 and completed > 0`

	selectLast = `
select task_id, count(*), count(*) filter (where closed_at >= $2)
from getwork.work
where closed_at >= $1::timestamptz and state = 'completed'
group by task_id`
)

// paced adds to tasks how fast they are worked on.
func (rs *Records) paced(ctx context.Context, tasks []assign.Task) error {
	p := &rs.pace
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.at) > pacesLast && len(tasks) > 0 {
		if err := rs.readPaces(ctx, p); err != nil {
			return fmt.Errorf("read what was completed: %w", err)
		}
	}
	for i := range tasks {
		t := &tasks[i]
		w := assign.Worked{Hours: p.hours[t.ID], Since: p.since, Last: p.last[t.ID], Now: p.now}
		today := p.today[t.ID]
		for h, n := range w.Hours {
			if h >= p.midnight {
				today += n
			}
		}
		var free *int64
		if t.Backlog != nil {
			free = &t.Backlog.Free
		}
		t.Pace, t.ItemsNobody = w.Pace(today, free), p.nobody[t.ID]
	}
	return nil
}

// readPaces reads what was completed lately. The sums are read again only after others have been written.
func (rs *Records) readPaces(ctx context.Context, p *paces) error {
	var midnight time.Time
	var counted *time.Time
	if err := rs.db.QueryRow(ctx, rs.sql(selectMoment)).Scan(&p.now, &midnight, &counted, &p.since); err != nil {
		return err
	}
	if counted == nil {
		counted = &time.Time{}
	}
	read := func(statement string, each func(task, a, b int64), args ...any) error {
		rows, err := rs.db.Query(ctx, rs.sql(statement), append([]any{pgx.QueryExecModeExec}, args...)...) // planned for these times: see WorkHistory
		if err != nil {
			return err
		}
		var task, a, b int64
		_, err = pgx.ForEachRow(rows, []any{&task, &a, &b}, func() error {
			each(task, a, b)
			return nil
		})
		return err
	}
	if p.hours == nil || !p.counted.Equal(*counted) {
		hours := map[int64]map[int64]int64{}
		err := read(selectWorked, func(task, hour, n int64) {
			if hours[task] == nil {
				hours[task] = map[int64]int64{}
			}
			hours[task][hour] = n
		}, p.now.Add(-8*24*time.Hour), p.since)
		if err != nil {
			return err
		}
		p.hours, p.counted = hours, *counted
	}
	p.last, p.today = map[int64]int64{}, map[int64]int64{}
	err := read(selectLast, func(task, n, today int64) { p.last[task], p.today[task] = n, today }, p.since, midnight)
	if err != nil {
		return err
	}
	rows, err := rs.db.Query(ctx, rs.sql(SelectNobody))
	if err != nil {
		return err
	}
	p.nobody = map[int64]int64{}
	var task, items int64
	if _, err := pgx.ForEachRow(rows, []any{&task, nil, &items, nil}, func() error { p.nobody[task] = items; return nil }); err != nil {
		return err
	}
	p.midnight, p.at = midnight.Unix()/3600, time.Now()
	return nil
}
