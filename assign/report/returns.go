package report

import (
	"context"
	"math"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Returns counts returned work since the span's beginning, by users and by items. It refuses as [Report.History] does.
func (r *Report) Returns(ctx context.Context, s assign.Span) (assign.Returns, error) {
	s.Step = 0
	k, err := keyOf(s)
	if err != nil {
		return assign.Returns{}, err
	}
	return r.returns.ask(ctx, k)
}

const (
	// Work that its holder closed, or whose lease ran out. closed_by distinguishes a manager from the holder.
	byHolder = `state not in ('held', 'reassigned') and coalesce(closed_by, user_name) = user_name`

	// The first row counts all users. The hours are those since the beginning in which somebody completed something.
	selectPeople = `
select user_name, count(*) filter (where assigned_at >= $1), count(*) filter (where closed),
  count(*) filter (where closed and state = 'completed'), count(*) filter (where closed and state = 'returned'),
  count(*) filter (where closed and state = 'never'), count(*) filter (where closed and state = 'failed'),
  count(*) filter (where closed and state = 'expired'), count(*) filter (where state = 'held'),
  count(distinct date_bin('1 hour', closed_at, $1)) filter (where closed and state = 'completed'),
  max(date_bin('1 hour', closed_at, $1)) filter (where closed and state = 'completed'),
  percentile_disc(0.5) within group (order by extract(epoch from closed_at - assigned_at)::float8) filter (where closed and state = 'completed')
from (
  select user_name, state, assigned_at, closed_at, ` + byHolder + ` as closed
  from getwork.work
  where closed_at >= $1::timestamptz and (task_id = any($2::bigint[])) is true
  union all
  select user_name, state, assigned_at, closed_at, false
  from getwork.work
  where state = 'held' and (task_id = any($2)) is true
) w
group by grouping sets ((user_name), ())
order by grouping(user_name) desc, 5 desc, 3 desc, user_name
limit 51`

	selectCodes = `
select user_name, code, count(*)
from getwork.work
where closed_at >= $1::timestamptz and (task_id = any($2::bigint[])) is true and (code is not null and user_name = any($3::text[]) and ` + byHolder + `) is true
group by 1, 2`

	selectReturned = `
select s.name, r.item, r.returns, r.people, r.last_at, newest.state, (
  select jsonb_object_agg(c.code, c.n) from (
    select w.code, count(*) as n from getwork.work w
    where w.task_id = r.task_id and w.item between r.item and r.item and w.closed_at >= $1 and (w.state = 'returned' and w.code is not null and ` + byHolder + `) is true
    group by 1) c)
from (
  select task_id, item, count(*) as returns, count(distinct user_name) as people, max(closed_at) as last_at
  from getwork.work
  where closed_at >= $1::timestamptz and (task_id = any($2::bigint[])) is true and (state = 'returned' and ` + byHolder + `) is true
  group by task_id, item
  having count(*) > 1
  order by people desc, returns desc, last_at desc, task_id, item
  limit 50
) r
join getwork.task_state s on s.task_id = r.task_id
cross join lateral (
  select w.state from (
    select h.id, h.state from getwork.work h where h.task_id = r.task_id and h.item = r.item and h.state = 'held'
    union all
    (select c.id, c.state from getwork.work c
      where c.task_id = r.task_id and c.item between r.item and r.item and c.state <> 'held' order by c.item desc, c.id desc limit 1)
  ) w
  order by w.id desc limit 1
) newest
order by r.people desc, r.returns desc, r.last_at desc, r.task_id, r.item`
)

// readReturns counts; only one call runs at a time.
func (r *Report) readReturns(ctx context.Context, k spanKey) (found assign.Returns, err error) {
	err = r.begin(ctx, func(tx pgx.Tx) error {
		ids, _, now, err := r.tasks(ctx, tx, k.names())
		if err != nil {
			return err
		}
		found = assign.Returns{People: []assign.PersonReturns{}, Items: []assign.ItemReturns{}}
		if found.From, err = k.begin(now, returnsPast); err != nil {
			return err
		}
		var batch pgx.Batch
		batch.Queue(r.sql(selectPeople), found.From, ids).Query(func(rows pgx.Rows) error { return readPeople(&found, now, rows) })
		batch.Queue(r.sql(selectReturned), found.From, ids).Query(func(rows pgx.Rows) error {
			items, err := pgx.CollectRows(rows, pgx.RowToStructByPos[assign.ItemReturns])
			for i := range items {
				items[i].LastAt = items[i].LastAt.UTC()
			}
			found.Items = append(found.Items, items...)
			return err
		})
		if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, r.sql(selectCodes), found.From, ids, people(&found))
		if err != nil {
			return err
		}
		return readCodes(&found, rows)
	})
	return found, err
}

// people returns the names of those who are listed.
func people(r *assign.Returns) []string {
	names := make([]string, len(r.People))
	for i, p := range r.People {
		names[i] = p.User
	}
	return names
}

// readCodes reads the rows of selectCodes.
func readCodes(r *assign.Returns, rows pgx.Rows) error {
	of := map[string]*assign.Codes{}
	for i := range r.People {
		of[r.People[i].User] = &r.People[i].Codes
	}
	var user, code string
	var n int64
	_, err := pgx.ForEachRow(rows, []any{&user, &code, &n}, func() error { of[user].Add(code, n); return nil })
	return err
}

// readPeople reads the rows of selectPeople.
func readPeople(r *assign.Returns, now time.Time, rows pgx.Rows) error {
	var user *string
	var p assign.PersonReturns
	var hours int
	var last *time.Time // when the last of them began
	into := []any{&user, &p.Assigned, &p.Closed, &p.Completed, &p.Returned, &p.Never, &p.Failed, &p.Expired, &p.Held, &hours, &last, &p.HandlingP50}
	_, err := pgx.ForEachRow(rows, into, func() error {
		p.Share = nil
		if p.Closed > 0 {
			share := float64(p.Returned) / float64(p.Closed)
			p.Share = &share
		}
		if user == nil {
			r.Team = assign.TeamReturns{Closed: p.Closed, Returned: p.Returned, Share: p.Share}
			return nil
		}
		p.User, p.DonePerHour = *user, nil
		if last != nil {
			worked := float64(hours-1) + min(1, max(now.Sub(*last).Hours(), 1./12)) // the first minutes of an hour say little
			p.DonePerHour = new(math.Round(10*float64(p.Completed)/worked) / 10)
		}
		if p.HandlingP50 != nil {
			*p.HandlingP50 = math.Round(1000**p.HandlingP50) / 1000
		}
		r.People = append(r.People, p)
		return nil
	})
	return err
}
