package report

import (
	"context"
	"slices"
	"sort"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// History counts what happened to each task, in steps of the same length. It refuses a name that no task has with
// [assign.NotFound], and a span that is too long or has too many steps with [assign.Invalid]. [assign.Busy] means that other
// callers count, and [assign.Unavailable] that counting took too long. Deleted tasks are left out.
//
// Days, and hours that are longer ago than rows are counted, come from the sums of hours ([Report.Sum]).
func (r *Report) History(ctx context.Context, s assign.Span) (assign.History, error) {
	if s.Days {
		s.Step = maxStep
	} else if s.Zone != "" {
		return assign.History{}, assign.RefuseField("zone", "a zone is for steps of 1d; leave it out of others")
	}
	if s.Step != 0 && (s.Step < minStep || s.Step > maxStep || s.Step%time.Second != 0) {
		return assign.History{}, assign.RefuseField("step", "a step is 10s to 24h, in whole seconds, not %s", s.Step)
	}
	k, err := keyOf(s)
	if err != nil {
		return assign.History{}, err
	}
	return r.histories.ask(ctx, k)
}

// readHistory counts; only one call runs at a time.
func (r *Report) readHistory(ctx context.Context, k spanKey) (h assign.History, err error) {
	err = r.begin(ctx, func(tx pgx.Tx) error {
		ids, names, now, err := r.tasks(ctx, tx, k.names())
		if err != nil {
			return err
		}
		var b *buckets
		if k.bySums(now) {
			b, err = r.readSums(ctx, tx, k, now, ids)
		} else if b, err = newBuckets(k, now, ids); err == nil {
			err = b.count(ctx, r.sql, tx)
		}
		if err == nil && b.step >= time.Hour {
			err = b.leave(ctx, r.sql, tx)
		}
		if err != nil {
			return err
		}
		h = assign.History{From: b.from, To: now, Step: assign.Duration(b.step), Tasks: make([]assign.TaskHistory, len(ids))}
		for i, id := range ids {
			h.Tasks[i] = assign.TaskHistory{Task: names[i], Buckets: b.of[id], Codes: b.codes[id]}
		}
		return nil
	})
	return h, err
}

// buckets are the buckets of some tasks while they are filled.
type buckets struct {
	from time.Time
	last time.Time // within the last bucket; events that seem to be later, after the clock was set back, count as of then
	step time.Duration
	ids  []int64
	of   map[int64][]assign.Bucket

	codes map[int64]assign.Codes // of all buckets of a task
	taken map[int64]int64        // what was handed out from a task's last list, and is held or is done
}

// newBuckets returns the empty buckets of a span. Without a step it takes the first usual one that keeps within the limits, so that
// however many tasks there are, a caller who asks for all of them is answered.
func newBuckets(k spanKey, now time.Time, ids []int64) (*buckets, error) {
	steps := usualSteps
	if k.step != 0 {
		steps = []time.Duration{k.step}
	}
	var from time.Time
	var n int
	for _, k.step = range steps {
		var err error
		if from, err = k.begin(now, historyPast); err != nil {
			return nil, err
		}
		if k.usual {
			from = from.Truncate(k.step) // so that repeated questions have the same buckets
		}
		if n = max(1, int((now.Sub(from)+k.step-1)/k.step)); n <= maxSteps && n*len(ids) <= maxBuckets {
			break
		}
	}
	if n > maxSteps {
		least := (now.Sub(from)/maxSteps + time.Minute).Truncate(time.Minute)
		return nil, assign.RefuseField("step", "from %s to now there are %d steps of %s, and at most %d are counted; ask for a later from, or for steps of %s",
			assign.TimeText(from), n, assign.Duration(k.step), maxSteps, assign.Duration(least))
	}
	if n*len(ids) > maxBuckets {
		return nil, assign.RefuseField("task", "%d steps of %d tasks are more than %d buckets; name fewer tasks, or ask for longer steps", n, len(ids), maxBuckets)
	}
	return emptyBuckets(from, k.step, n, ids), nil
}

// emptyBuckets returns n empty buckets of each task.
func emptyBuckets(from time.Time, step time.Duration, n int, ids []int64) *buckets {
	b := &buckets{from: from, last: from.Add(time.Duration(n-1) * step), step: step, ids: ids, of: make(map[int64][]assign.Bucket, len(ids)), codes: map[int64]assign.Codes{}, taken: map[int64]int64{}}
	for _, id := range ids {
		all := make([]assign.Bucket, n)
		for i := range all {
			all[i].At = from.Add(time.Duration(i) * step)
		}
		b.of[id] = all
	}
	return b
}

// at returns a task's bucket that begins at that time.
func (b *buckets) at(task int64, begins time.Time) *assign.Bucket {
	all := b.of[task]
	return &all[min(int(begins.Sub(b.from)/b.step), len(all)-1)]
}

// "is true" keeps the planner from indexes that begin with the task or are limited to some states: they contain the whole
// past. It must use the index by time.
const (
	onlyTasks = `(task_id = any($3::bigint[])) is true`
	bucketOf  = `date_bin($2::bigint * interval '1 microsecond', least($4::timestamptz, `

	countRequests = `
select task_id, ` + bucketOf + `created_at), $1), count(*),
  count(*) filter (where state in ('assigned', 'partial')), count(*) filter (where state = 'none'),
  count(*) filter (where state = 'failed'), count(*) filter (where state = 'cancelled'),
  percentile_disc('{0.5, 0.9, 1}'::float8[]) within group (order by (greatest(extract(epoch from completed_at - created_at), 0) * 1000)::float8)
    filter (where linger_until is null and completed_at is not null)
from getwork.work_requested
where created_at >= $1::timestamptz and ` + onlyTasks + `
group by 1, 2`

	countRuns = `
select task_id, ` + bucketOf + `started_at), $1), count(*), count(*) filter (where state in ('failed', 'lost')),
  percentile_disc('{0.5, 1}'::float8[]) within group (order by (greatest(extract(epoch from finished_at - started_at), 0) * 1000)::float8)
    filter (where state = 'finished')
from getwork.run
where started_at >= $1::timestamptz and ` + onlyTasks + `
group by 1, 2`

	// Work that was handed out since then is either held, or was closed since then. Earlier events, and held work, have no
	// bucket: null. The last column counts what was handed out since the task's last list.
	countWork = `
select w.task_id, e.what, case when e.happened >= $1 then ` + bucketOf + `e.happened), $1) end, e.code, count(*), count(*) filter (where w.assigned_at >= l.started_at)
from (
  select task_id, state, assigned_at, closed_at, code from getwork.work where closed_at >= $1::timestamptz and ` + onlyTasks + `
  union all
  select task_id, state, assigned_at, null, null from getwork.work where state = 'held' and ` + onlyTasks + `
) w
cross join lateral (values ('assigned', w.assigned_at, null), (w.state, w.closed_at, w.code)) e (what, happened, code)
left join (select s.task_id, u.started_at from getwork.task_state s join getwork.run u on u.id = s.last_run) l on l.task_id = w.task_id
group by 1, 2, 3, 4`

	// What is left now, of tasks of which it is known.
	selectFree = `
select s.task_id, case when v.query is null
  then (select count(*) from (select from getwork.item i where i.task_id = s.task_id and i.due_at is null and i.done_at is null limit 100000) ready)
  else u.given - u.passed_over - u.blocked end
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
left join getwork.run u on u.id = s.last_run
where s.task_id = any($1::bigint[]) and (v.query is null or u.given is not null)`

	// What was left at the ends of hours.
	selectLeft = `
select task_id, hour + interval '1 hour', free
from getwork.task_hour
where hour >= $2::timestamptz - interval '1 hour' and task_id = any($1::bigint[]) and free is not null
order by hour`
)

// count fills the buckets.
func (b *buckets) count(ctx context.Context, sql func(string) string, tx pgx.Tx) error {
	held := map[int64]int64{} // now
	var batch pgx.Batch
	args := []any{b.from, b.step.Microseconds(), b.ids, b.last}
	batch.Queue(sql(countRequests), args...).Query(b.readRequests)
	batch.Queue(sql(countRuns), args...).Query(b.readRuns)
	batch.Queue(sql(countWork), args...).Query(func(rows pgx.Rows) error { return b.readWork(rows, held) })
	if err := tx.SendBatch(ctx, &batch).Close(); err != nil {
		return err
	}
	for id, all := range b.of {
		now := held[id]
		for i := range slices.Backward(all) {
			c := &all[i]
			c.Held = max(now, 0) // after the clock was set back, work may seem to be closed before it was handed out
			now += c.Completed + c.Returned + c.Never + c.FailedWork + c.Expired + c.Reassigned - c.Assigned
		}
	}
	return nil
}

// leave notes what was left at the end of each step, and what came in.
func (b *buckets) leave(ctx context.Context, sql func(string) string, tx pgx.Tx) error {
	before := make(map[int64]*int64, len(b.of)) // what was left at the beginning of the first step
	rows, err := tx.Query(ctx, sql(selectLeft), b.ids, b.from)
	if err != nil {
		return err
	}
	var task, n int64
	var ended time.Time
	_, err = pgx.ForEachRow(rows, []any{&task, &ended, &n}, func() error {
		all := b.of[task]
		if i := sort.Search(len(all), func(i int) bool { return !all[i].At.Before(ended) }) - 1; i >= 0 {
			all[i].Left = new(n)
		} else {
			before[task] = new(n)
		}
		return nil
	})
	if err == nil {
		err = b.free(ctx, sql, tx, func(task, n int64) { all := b.of[task]; all[len(all)-1].Left = &n })
	}
	for task, all := range b.of {
		former := before[task]
		for i := range all {
			c := &all[i]
			if former != nil && c.Left != nil {
				c.Came = new(max(0, *c.Left-*former+c.Assigned-c.Returned-c.FailedWork-c.Expired-c.Reassigned))
			}
			former = c.Left
		}
	}
	return err
}

// free calls f with what is left now of each task of which it is known.
func (b *buckets) free(ctx context.Context, sql func(string) string, tx pgx.Tx, f func(task, n int64)) error {
	rows, err := tx.Query(ctx, sql(selectFree), b.ids)
	if err != nil {
		return err
	}
	var task, n int64
	_, err = pgx.ForEachRow(rows, []any{&task, &n}, func() error { f(task, max(0, n-b.taken[task])); return nil })
	return err
}

func (b *buckets) readRequests(rows pgx.Rows) error {
	var task int64
	var at time.Time
	var n, given, empty, failed, cancelled int64
	var waits []float64
	_, err := pgx.ForEachRow(rows, []any{&task, &at, &n, &given, &empty, &failed, &cancelled, &waits}, func() error {
		c := b.at(task, at)
		c.Requests, c.Given, c.Empty, c.Failed, c.Cancelled = n, given, empty, failed, cancelled
		if len(waits) == 3 {
			c.WaitMS = &assign.Waits{P50: waits[0], P90: waits[1], Max: waits[2]}
		}
		return nil
	})
	return err
}

func (b *buckets) readRuns(rows pgx.Rows) error {
	var task int64
	var at time.Time
	var n, failed int64
	var took []float64
	_, err := pgx.ForEachRow(rows, []any{&task, &at, &n, &failed, &took}, func() error {
		c := b.at(task, at)
		c.Runs, c.RunsFailed = n, failed
		if len(took) == 2 {
			c.RunMS = &assign.RunTimes{P50: took[0], Max: took[1]}
		}
		return nil
	})
	return err
}

func (b *buckets) readWork(rows pgx.Rows, held map[int64]int64) error {
	var task, n, since int64
	var what string
	var at *time.Time
	var code *string
	_, err := pgx.ForEachRow(rows, []any{&task, &what, &at, &code, &n, &since}, func() error {
		if code != nil {
			codes := b.codes[task]
			codes.Add(*code, n)
			b.codes[task] = codes
		}
		if what == "held" || what == "completed" || what == "never" {
			b.taken[task] += since
		}
		switch {
		case what == "held":
			held[task] = n
		case at != nil:
			if count := counter(b.at(task, *at), what); count != nil {
				*count += n
			}
		}
		return nil
	})
	return err
}

// counter returns the bucket's counter of work that was handed out or closed in that way.
func counter(c *assign.Bucket, what string) *int64 {
	return map[string]*int64{"assigned": &c.Assigned, "completed": &c.Completed, "returned": &c.Returned, "never": &c.Never,
		"failed": &c.FailedWork, "expired": &c.Expired, "reassigned": &c.Reassigned}[what]
}
