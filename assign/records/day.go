package records

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// The order makes it a walk back through work_past_user. It ends after 5,000 rows, more than a person has in days: a program may have a
// million. Long details have no title, since 200 of them would be megabytes.
const selectDay = `
with mine as materialized (
  select w.id, w.task_id, w.state, w.closed_at
  from getwork.work w
  where w.user_name = $1 and w.state <> 'held'
  order by w.user_name desc, w.id desc
  limit 5000
), lately as materialized (
  select m.*, s.name
  from mine m join getwork.task_state s using (task_id)
  where m.closed_at >= coalesce($2::timestamptz, clock_timestamp() - $3 * interval '1 microsecond') and ($4::text[] is null or s.name = any($4))
)
select (select count(*) from lately where state = 'completed'), l.id, l.name, w.item, l.closed_at, l.state, v.display ->> 'title',
  case when v.display ->> 'title' <> '' and pg_column_size(w.details) < 8192 then w.details end
from (select * from lately order by closed_at desc, id desc limit 200) l
join getwork.work w on w.id = l.id
join getwork.task_state s on s.task_id = l.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
order by l.closed_at desc, l.id desc`

// Day reads what became of a user's work since then (nil: a day ago) under the tasks of these names (nil: all). It refuses a time that is
// to come, or longer ago than [assign.MaxDay], by the database's clock. What is left is not counted.
func (rs *Records) Day(ctx context.Context, user string, since *time.Time, tasks []string) (assign.Day, error) {
	d := assign.Day{Ended: []assign.Ended{}}
	var now time.Time
	var batch pgx.Batch
	batch.Queue(SelectClock).QueryRow(func(row pgx.Row) error { return row.Scan(&now) })
	batch.Queue(rs.sql(selectDay), user, since, assign.UsualDay.Microseconds(), tasks).Query(func(rows pgx.Rows) error {
		var e assign.Ended
		var title *string
		var details []byte
		_, err := pgx.ForEachRow(rows, []any{&d.Done, &e.Work, &e.Task, &e.Item, &e.At, &e.State, &title, &details}, func() error {
			e.At, e.Title = e.At.UTC(), ""
			if title != nil {
				e.Title = titled(*title, e.Item, details)
			}
			d.Ended = append(d.Ended, e)
			return nil
		})
		return err
	})
	if err := rs.db.SendBatch(ctx, &batch).Close(); err != nil {
		return d, fmt.Errorf("read the day: %w", err)
	}
	switch {
	case since == nil:
	case since.After(now):
		return d, assign.RefuseField("since", "since is a time in the past, not %s; by the database's clock it is %s", assign.TimeText(*since), assign.TimeText(now))
	case now.Sub(*since) > assign.MaxDay+time.Minute: // a little more, for the duration of the call
		return d, assign.RefuseField("since", "since is at most 48 hours ago, and not %s; older work is listed by GET /api/v1/work", assign.TimeText(*since))
	}
	return d, nil
}

// titled fills a title from an item's details; empty: they have nothing of it.
func titled(title, item string, raw []byte) string {
	var details map[string]any
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	if len(raw) == 0 || d.Decode(&details) != nil {
		return ""
	}
	return strings.TrimSpace(assign.Fill(title, item, details, func(_ string, value any) string { return fmt.Sprint(value) }))
}
