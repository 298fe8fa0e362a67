package records

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// RequestColumns are the columns that requestScan reads; r is work_requested, s the task_state of its task, if it has one.
const RequestColumns = `r.id, coalesce(s.name, '*'), r.user_name, r.instance, r.wanted, r.requested, r.assigned, r.state,
  case when r.state <> 'pending' then r.reason end, case when r.state <> 'pending' then r.error end, (extract(epoch from r.lease) * 1000000)::bigint, r.created_at, r.linger_until, r.completed_at, r.task_id, extract(epoch from clock_timestamp() - r.created_at)::float8, r.look_after is not null, r.ranked_at, r.stale,
  case when r.targets is not null then array(
    select o.name from unnest(r.targets) with ordinality t (id, n) join getwork.task_state o on o.task_id = t.id order by t.n) end,
  case when r.task_id <> 0 then r.task_id when r.state = 'pending' then coalesce(r.todo[1], 0) else 0 end,
  case when r.task_id = 0 and r.state = 'pending' then (select o.name from getwork.task_state o where o.task_id = r.todo[1]) end`

// requestScan reads rows of RequestColumns, one after another.
type requestScan struct {
	r                     assign.Request
	task, instance, state repeated
	age                   float64
	into                  []any
}

// NewRequestScan returns a scan of RequestColumns.
func NewRequestScan() *requestScan {
	s := &requestScan{}
	r := &s.r
	s.into = []any{&r.ID, &s.task, &r.User, &s.instance, &r.Wanted, &r.Requested, &r.Assigned, &s.state, &r.Reason, &r.Error,
		&r.Lease, &r.CreatedAt, &r.LingerUntil, &r.CompletedAt, &r.TaskID, &s.age, &r.Left, &r.RankedAt, &r.Stale, &r.Tasks, &r.LineID, &r.Asking}
	return s
}

// Scan reads one row.
func (s *requestScan) Scan(row pgx.CollectableRow) (assign.Request, error) {
	err := row.Scan(s.into...)
	r := s.r
	r.Task, r.Instance, r.State = string(s.task), string(s.instance), assign.State(s.state)
	r.CreatedAt = r.CreatedAt.UTC()
	r.LingerUntil, r.CompletedAt, r.RankedAt = assign.UTC(r.LingerUntil), assign.UTC(r.CompletedAt), assign.UTC(r.RankedAt)
	r.Age = time.Duration(s.age * float64(time.Second))
	r.Work = []assign.Work{}
	s.r.Tasks, s.r.Asking = nil, nil // the next row's own
	return r, err
}

const selectRequests = `
select ` + RequestColumns + `
from getwork.work_requested r left join getwork.task_state s using (task_id)
where r.id = any($1::bigint[])
order by r.id`

// Requests reads requests by id, in the order of their ids, each with its work or its estimated wait. Ids that no request has
// are left out. It reads by index only: it neither starts the heavy query nor waits for it.
func (rs *Records) Requests(ctx context.Context, ids []int64) ([]assign.Request, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectRequests), ids)
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	requests, err := pgx.CollectRows(rows, NewRequestScan().Scan)
	if err != nil {
		return nil, fmt.Errorf("read requests: %w", err)
	}
	if err := rs.Fill(ctx, requests, func(*assign.Request) {}); err != nil {
		return nil, err // clients would take a request without its work for an answer
	}
	return requests, nil
}

const (
	selectWorkOfRequests = `
select ` + WorkColumns + `, w.request_id
from getwork.work w join getwork.task_state s using (task_id)
where w.request_id = any($1::bigint[])
order by w.request_id, w.rank, w.id`
)

// Fill adds to each request its work or its estimated wait, and calls complete for each in turn as soon as it has everything.
// The requests are in the order of their ids. Fill costs one exchange with the database, however many requests there are, and
// none if no request has work or waits. An error may come after complete was called for some.
func (rs *Records) Fill(ctx context.Context, requests []assign.Request, complete func(*assign.Request)) error {
	var batch pgx.Batch
	waits := outlooksOf(requests)
	waits.queue(rs, &batch)
	for part := range slices.Chunk(requests, MaxBatch) {
		if ids := answered(part); len(ids) > 0 {
			batch.Queue(rs.sql(selectWorkOfRequests), ids)
		}
	}
	if batch.Len() == 0 {
		for i := range requests {
			complete(&requests[i])
		}
		return nil
	}
	results := rs.db.SendBatch(ctx, &batch)
	defer results.Close()
	if err := waits.read(results, requests); err != nil {
		return err
	}
	all := manyCarried()
	for part := range slices.Chunk(requests, MaxBatch) {
		if err := addWork(results, part, all, complete); err != nil {
			return fmt.Errorf("read the requests' work: %w", err)
		}
	}
	return nil
}

// answered returns the ids of the requests that got something.
func answered(requests []assign.Request) (ids []int64) {
	for i := range requests {
		if requests[i].Assigned > 0 {
			ids = append(ids, requests[i].ID)
		}
	}
	return ids
}

// addWork reads the work of some of the requests. The rows come in the requests' order.
func addWork(results pgx.BatchResults, requests []assign.Request, all *assign.Carried, complete func(*assign.Request)) error {
	n := 0
	for i := range requests {
		n += requests[i].Assigned
	}
	works := make([]assign.Work, 0, n)
	next := 0
	upTo := func(id int64) { // completes the requests before id
		for ; next < len(requests) && requests[next].ID < id; next++ {
			complete(&requests[next])
		}
	}
	if n > 0 {
		rows, err := results.Query()
		if err != nil {
			return err
		}
		defer rows.Close()
		first := 0
		var id int64
		row, one, of := NewWorkScan(&id), &assign.Carried{}, int64(0)
		row.carried = func(*assign.Work) []*assign.Carried {
			if id != of { // the rows of a request come together
				one, of = &assign.Carried{}, id
			}
			return []*assign.Carried{one, all}
		}
		for rows.Next() {
			w, err := row.Scan(rows)
			if err != nil {
				return err
			}
			if upTo(id); next == len(requests) || requests[next].ID != id {
				continue
			}
			if len(requests[next].Work) == 0 {
				first = len(works)
			}
			works = append(works, w)
			requests[next].Work = works[first:len(works):len(works)]
		}
		if err := rows.Err(); err != nil {
			return err
		}
	}
	upTo(math.MaxInt64)
	return nil
}

// Request reads one request. Everybody but its holder is refused with [assign.NotFound], unless a manager asks.
func (rs *Records) Request(ctx context.Context, id int64, by assign.Holder, asManager bool) (assign.Request, error) {
	found, err := rs.Requests(ctx, []int64{id})
	if err != nil {
		return assign.Request{}, err
	}
	if len(found) == 0 || !asManager && found[0].Holder() != by {
		return assign.Request{}, assign.Refuse(assign.NotFound, "no request %d of yours; GET /api/v1/pipeline lists those that wait", id)
	}
	return found[0], nil
}

// selectPending reads the oldest requests of each task by their index, and returns the oldest of all those. "between" is as in
// selectOutlook.
const selectPending = `
select ` + RequestColumns + `
from (
  select s.task_id, s.name from getwork.task_state s where s.deleted_at is null and ($1::text is null or s.name = $1)
  union all
  select 0, '*' where $1 is null) s
cross join lateral (
  select q.*
  from getwork.work_requested q
  where q.state = 'pending' and q.task_id between s.task_id and s.task_id and q.id > $2
  order by q.task_id, q.id
  limit $3
) r
order by r.id
limit $3`

// Waiting reads the requests that wait on a task, or on any task if name is empty, oldest first, starting after the given id.
// A name that no task has is refused with [assign.NotFound].
func (rs *Records) Waiting(ctx context.Context, name string, after int64, limit int) ([]assign.Request, error) {
	var only *string
	if name != "" {
		if !assign.IsTaskName(name) {
			return nil, assign.NoTask(name)
		}
		only = &name
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectPending), only, after, limit)
	if err != nil {
		return nil, fmt.Errorf("read waiting requests: %w", err)
	}
	requests, err := pgx.CollectRows(rows, NewRequestScan().Scan)
	if err != nil {
		return nil, fmt.Errorf("read waiting requests: %w", err)
	}
	if len(requests) == 0 && only != nil {
		_, _, err = rs.Find(ctx, name, assign.Who{Anything: true})
		return nil, err
	}
	return requests, rs.Fill(ctx, requests, func(*assign.Request) {})
}

const (
	// TimeLeft estimates how long the task's current run (u) will still take. It is null if no run has finished before.
	TimeLeft = `case when s.usual is not null then
    round(extract(epoch from s.usual - greatest(interval '0', least(s.usual, clock_timestamp() - u.started_at))), 3) end::float8`

	// selectOutlook reads the first thousand requests that wait on a task, in their order, up to $2, with those over several tasks that
	// its run is for. It also estimates how
	// long a request that no round has read yet will wait: until the current run ends, or until the next one has begun and
	// ended. Nobody knows when a manager resumes a task, or when an item is pushed to an inbox.
	//
	// "between", because with an equality the planner may use the primary key for the order, and walk through the ended
	// requests of years.
	selectOutlook = `
select array(
    select l.id
    from (
      (select q.id
      from getwork.work_requested q
      where q.state = 'pending' and q.task_id between $1 and $1 and q.id <= $2
      order by q.task_id, q.id
      limit 1000)
      union all
      (select q.id
      from getwork.work_requested q
      where q.state = 'pending' and q.task_id = 0 and q.todo[1] = $1 and q.id <= $2
      limit 1000)) l
    order by l.id
    limit 1000
  ),
  case
    when s.paused then null
    when u.id is not null then ` + TimeLeft + `
    else round(extract(epoch from s.usual)
      + case when ` + HeldBack + ` then extract(epoch from least(greatest(s.retry_at, s.failed_until) - clock_timestamp(), interval '1 minute')) else 0 end, 3)::float8
  end
from getwork.task_state s left join getwork.run u on u.task_id = s.task_id and u.state = 'running'
where s.task_id = $1`
)

// outlooks maps each task that some of the requests wait on to the last of those requests.
type outlooks map[int64]int64

func outlooksOf(requests []assign.Request) outlooks {
	last := outlooks{}
	for i := range requests {
		if r := &requests[i]; r.State == assign.Pending && r.LineID != 0 {
			last[r.LineID] = max(last[r.LineID], r.ID)
		}
	}
	return last
}

func (o outlooks) queue(rs *Records, batch *pgx.Batch) {
	for _, task := range slices.Sorted(maps.Keys(o)) {
		batch.Queue(rs.sql(selectOutlook), task, o[task])
	}
}

// read gives the waiting requests what the batch found.
func (o outlooks) read(results pgx.BatchResults, requests []assign.Request) error {
	for _, task := range slices.Sorted(maps.Keys(o)) {
		var first []int64
		var eta *float64
		if err := results.QueryRow().Scan(&first, &eta); err != nil {
			return fmt.Errorf("read how long requests will wait: %w", err)
		}
		for i := range requests {
			if r := &requests[i]; r.State == assign.Pending && r.LineID == task {
				foresee(r, first, eta)
			}
		}
	}
	return nil
}

// foresee sets a pending request's position, and its estimated wait unless it is left lingering.
func foresee(r *assign.Request, first []int64, eta *float64) {
	if place, found := slices.BinarySearch(first, r.ID); found {
		position := int64(place + 1)
		r.Position = &position
	}
	if !r.Left {
		r.EtaSeconds = eta
	}
}

const (
	selectOfRequest = `
select coalesce(s.name, '*'), coalesce(v.groups, '{}'), r.user_name,
  case when r.task_id = 0 then array(select o.name from getwork.task_state o where o.task_id = any(r.targets)) end
from getwork.work_requested r left join getwork.task_state s on s.task_id = r.task_id
left join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where r.id = $1`

	selectOfWork = `
select s.name, v.groups, w.user_name, null::text[]
from getwork.work w join getwork.task_state s on s.task_id = w.task_id join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where w.id = $1`

	selectOfWorks = `
select w.id, s.name, v.groups, w.user_name
from getwork.work w join getwork.task_state s on s.task_id = w.task_id join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where w.id = any($1::bigint[])`
)

// Subject is what a request or work is about, and whose it is.
type Subject struct {
	Task   string   // empty: there is no such row
	Groups []string // the task's
	User   string
	Tasks  []string // of a request over several tasks that none has answered
}

// Subject reads what a request or work is about.
func (rs *Records) Subject(ctx context.Context, id int64, work bool) (s Subject, err error) {
	statement := selectOfRequest
	if work {
		statement = selectOfWork
	}
	err = rs.db.QueryRow(ctx, rs.sql(statement), id).Scan(&s.Task, &s.Groups, &s.User, &s.Tasks)
	if errors.Is(err, pgx.ErrNoRows) {
		return Subject{}, nil
	}
	if err != nil {
		return Subject{}, fmt.Errorf("read the task: %w", err)
	}
	return s, nil
}

// WorkSubjects reads what much work is about, by its ids; of work that there is not it has nothing.
func (rs *Records) WorkSubjects(ctx context.Context, ids []int64) (map[int64]Subject, error) {
	rows, err := rs.db.Query(ctx, rs.sql(selectOfWorks), ids)
	if err != nil {
		return nil, fmt.Errorf("read the tasks: %w", err)
	}
	subjects := make(map[int64]Subject, len(ids))
	var id int64
	var s Subject
	if _, err := pgx.ForEachRow(rows, []any{&id, &s.Task, &s.Groups, &s.User}, func() error {
		subjects[id] = s
		s.Groups = nil
		return nil
	}); err != nil {
		return nil, fmt.Errorf("read the tasks: %w", err)
	}
	return subjects, nil
}
