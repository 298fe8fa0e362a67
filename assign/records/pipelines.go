package records

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// WorkColumns are the columns that ScanWork reads; s is task_state, w work.
const WorkColumns = `w.id, s.name, w.item, w.user_name, w.instance, w.slot, w.details, w.assigned_at, w.lease_expires_at,
  w.attempt, w.state, w.closed_at, w.available_at, w.note, w.error, w.to_others, w.exhausted,
  coalesce(w.state = 'held' and w.lease_expires_at - w.lease * 0.2 <= clock_timestamp(), false),
  (extract(epoch from w.lease) * 1000000)::bigint, w.closed_by, w.task_id`

// workScan reads rows of WorkColumns, one after another.
type workScan struct {
	w                           assign.Work
	task, user, instance, state repeated
	details                     []byte
	into                        []any
}

// NewWorkScan returns a scan of WorkColumns, and of further columns into also.
func NewWorkScan(also ...any) *workScan {
	s := &workScan{}
	w := &s.w
	s.into = append([]any{&w.ID, &s.task, &w.Item, &s.user, &s.instance, &w.Slot, &s.details, &w.AssignedAt, &w.LeaseExpiresAt,
		&w.Attempt, &s.state, &w.ClosedAt, &w.AvailableAt, &w.Note,
		&w.Error, &w.ToOthers, &w.Exhausted, &w.Expiring, &w.Lease, &w.ClosedBy, &w.TaskID}, also...)
	return s
}

// Scan reads one row.
func (s *workScan) Scan(row pgx.CollectableRow) (assign.Work, error) {
	err := row.Scan(s.into...)
	w := s.w
	w.Task, w.User, w.Instance, w.State = string(s.task), string(s.user), string(s.instance), assign.WorkState(s.state)
	w.Details = s.details
	w.AssignedAt = w.AssignedAt.UTC()
	w.LeaseExpiresAt, w.ClosedAt, w.AvailableAt = assign.UTC(w.LeaseExpiresAt), assign.UTC(w.ClosedAt), assign.UTC(w.AvailableAt)
	return w, err
}

// ScanWork reads one row of WorkColumns, and further columns into also.
func ScanWork(row pgx.CollectableRow, also ...any) (assign.Work, error) {
	return NewWorkScan(also...).Scan(row)
}

// repeated is text that is mostly the same from row to row. It is copied only when it changes.
type repeated string

// ScanBytes implements [pgtype.BytesScanner].
func (r *repeated) ScanBytes(text []byte) error {
	if string(*r) != string(text) {
		*r = repeated(text)
	}
	return nil
}

const selectPipelineWork = `
select ` + WorkColumns + `
from getwork.work w join getwork.task_state s using (task_id)
where w.user_name = any($1::text[]) and w.state = 'held'
order by w.id`

const selectPipelineRequests = `
select ` + RequestColumns + `
from getwork.work_requested r join getwork.task_state s using (task_id)
where r.user_name = any($1::text[]) and r.state = 'pending'
order by r.id`

// Pipeline reads what one holder holds and waits for.
func (rs *Records) Pipeline(ctx context.Context, holder assign.Holder) (assign.Pipeline, error) {
	all, at, err := rs.Pipelines(ctx, []assign.Holder{holder})
	p := all[holder]
	p.At = at
	return p, err
}

// Snapshots reads the pipelines of several holders at once, one for each.
func (rs *Records) Snapshots(ctx context.Context, holders []assign.Holder) ([]assign.Pipeline, error) {
	all, at, err := rs.Pipelines(ctx, holders)
	if err != nil {
		return nil, err
	}
	snapshots := make([]assign.Pipeline, len(holders))
	for i, h := range holders {
		snapshots[i] = all[h]
		snapshots[i].At = at
	}
	return snapshots, nil
}

// UserPipeline reads what a user and all instances of that user hold and wait for.
func (rs *Records) UserPipeline(ctx context.Context, user string) (assign.Pipeline, error) {
	works, requests, _, err := rs.held(ctx, []string{user})
	return assign.Pipeline{Work: append([]assign.Work{}, works...), Requests: append([]assign.Request{}, requests...)}, err
}

// Pipelines reads the pipelines of many holders at once. Each holder is a key of the result.
func (rs *Records) Pipelines(ctx context.Context, holders []assign.Holder) (pipelines map[assign.Holder]assign.Pipeline, at time.Time, err error) {
	pipelines = make(map[assign.Holder]assign.Pipeline, len(holders))
	users := make([]string, 0, len(holders))
	for _, h := range holders {
		pipelines[h] = assign.Pipeline{Work: []assign.Work{}, Requests: []assign.Request{}}
		users = append(users, h.User)
	}
	works, requests, at, err := rs.held(ctx, users)
	if err != nil {
		return pipelines, at, err
	}
	for _, w := range works {
		if p, ok := pipelines[w.Holder()]; ok {
			p.Work = append(p.Work, w)
			pipelines[w.Holder()] = p
		}
	}
	for _, r := range requests {
		if p, ok := pipelines[r.Holder()]; ok {
			p.Requests = append(p.Requests, r)
			pipelines[r.Holder()] = p
		}
	}
	return pipelines, at, nil
}

// SelectClock reads the time by the database's clock.
const SelectClock = `select clock_timestamp()`

// held reads what users hold and wait for, whatever their instances. Requests come first: each statement sees what has been committed by
// then, so a round that commits in between is in both lists, and not in neither.
func (rs *Records) held(ctx context.Context, users []string) (works []assign.Work, requests []assign.Request, at time.Time, err error) {
	var batch pgx.Batch
	batch.Queue(SelectClock).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
	batch.Queue(rs.sql(selectPipelineRequests), users).Query(func(rows pgx.Rows) (err error) {
		requests, err = pgx.CollectRows(rows, NewRequestScan().Scan)
		return err
	})
	batch.Queue(rs.sql(selectPipelineWork), users).Query(func(rows pgx.Rows) (err error) {
		works, err = pgx.CollectRows(rows, NewWorkScan().Scan)
		return err
	})
	if err = rs.db.SendBatch(ctx, &batch).Close(); err == nil {
		err = rs.Fill(ctx, requests, func(*assign.Request) {})
	}
	if err != nil {
		err = fmt.Errorf("read pipeline: %w", err)
	}
	return works, requests, at, err
}
