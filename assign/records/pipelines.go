package records

import (
	"bytes"
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
  (extract(epoch from w.lease) * 1000000)::bigint, w.closed_by, w.deadline, coalesce(w.again, false), coalesce(w.from_work, 0), w.code, w.result, w.later_until, w.task_id`

// workScan reads rows of WorkColumns, one after another.
type workScan struct {
	w                           assign.Work
	task, user, instance, state repeated
	details, result             borrowed
	into                        []any

	// carried returns the counts of the answers that the row's work is for. Its details are left out unless they fit into all of
	// them. Nil: they are never too much.
	carried func(*assign.Work) []*assign.Carried
}

// borrowed is a row's bytes, which are good until the next row is read.
type borrowed []byte

// ScanBytes implements [pgtype.BytesScanner].
func (b *borrowed) ScanBytes(text []byte) error {
	*b = text
	return nil
}

// NewWorkScan returns a scan of WorkColumns, and of further columns into also.
func NewWorkScan(also ...any) *workScan {
	s := &workScan{}
	w := &s.w
	s.into = append([]any{&w.ID, &s.task, &w.Item, &s.user, &s.instance, &w.Slot, &s.details, &w.AssignedAt, &w.LeaseExpiresAt,
		&w.Attempt, &s.state, &w.ClosedAt, &w.AvailableAt, &w.Note,
		&w.Error, &w.ToOthers, &w.Exhausted, &w.Expiring, &w.Lease, &w.ClosedBy, &w.Deadline, &w.Again, &w.From, &w.Code, &s.result, &w.LaterUntil, &w.TaskID}, also...)
	return s
}

// Within makes the scan leave out details that don't fit into one answer with the others.
func (s *workScan) Within(c *assign.Carried) *workScan {
	s.carried = func(*assign.Work) []*assign.Carried { return []*assign.Carried{c} }
	return s
}

// Scan reads one row.
func (s *workScan) Scan(row pgx.CollectableRow) (assign.Work, error) {
	err := row.Scan(s.into...)
	w := s.w
	w.Task, w.User, w.Instance, w.State = string(s.task), string(s.user), string(s.instance), assign.WorkState(s.state)
	if s.fits(&w) {
		w.SetDetails(bytes.Clone(s.details))
		w.Result = bytes.Clone(s.result)
	} else {
		w.LeaveOut()
	}
	w.AssignedAt = w.AssignedAt.UTC()
	w.LeaseExpiresAt, w.ClosedAt, w.AvailableAt = assign.UTC(w.LeaseExpiresAt), assign.UTC(w.ClosedAt), assign.UTC(w.AvailableAt)
	w.Deadline, w.LaterUntil = assign.UTC(w.Deadline), assign.UTC(w.LaterUntil)
	return w, err
}

func (s *workScan) fits(w *assign.Work) bool {
	if s.carried == nil {
		return true
	}
	for _, c := range s.carried(w) {
		if !c.Fits(len(s.details) + len(s.result)) {
			return false
		}
	}
	return true
}

// manyCarried returns the count of what is read at once for many holders.
func manyCarried() *assign.Carried { return &assign.Carried{Most: assign.MaxInFlight} }

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

// selectPipelineWork and selectPipelineRequests look up one user after another. With "user_name = any($1)" a plan that was made while
// little was held, or few waited, reads all that is held or waits, and compares each row with a thousand names: hundreds of
// milliseconds instead of ten. The sub-query's order is its index's, and keeps it a look-up.
const selectPipelineWork = `
select ` + WorkColumns + `
from (select distinct unnest($1::text[]) as name) u
cross join lateral (
  select * from getwork.work where user_name = u.name and state = 'held' order by user_name, instance, task_id, item
) w join getwork.task_state s using (task_id)
order by w.id`

const selectPipelineRequests = `
select ` + RequestColumns + `
from (select distinct unnest($1::text[]) as name) u
cross join lateral (
  select * from getwork.work_requested where user_name = u.name and state = 'pending' order by user_name, instance, task_id
) r left join getwork.task_state s using (task_id)
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
	var one assign.Carried
	works, requests, absences, _, err := rs.held(ctx, []string{user}, func(assign.Holder) *assign.Carried { return &one })
	return assign.Pipeline{Work: append([]assign.Work{}, works...), Requests: append([]assign.Request{}, requests...), Absences: absences}, err
}

// Pipelines reads the pipelines of many holders at once. Each holder is a key of the result.
func (rs *Records) Pipelines(ctx context.Context, holders []assign.Holder) (pipelines map[assign.Holder]assign.Pipeline, at time.Time, err error) {
	pipelines = make(map[assign.Holder]assign.Pipeline, len(holders))
	users := make([]string, 0, len(holders))
	for _, h := range holders {
		pipelines[h] = assign.Pipeline{Work: []assign.Work{}, Requests: []assign.Request{}}
		users = append(users, h.User)
	}
	each := map[assign.Holder]*assign.Carried{}
	works, requests, absences, at, err := rs.held(ctx, users, func(h assign.Holder) *assign.Carried {
		if each[h] == nil {
			each[h] = &assign.Carried{}
		}
		return each[h]
	})
	if err != nil {
		return pipelines, at, err
	}
	of := map[string][]assign.Absence{}
	for _, a := range absences {
		of[a.User] = append(of[a.User], a)
	}
	for h, p := range pipelines {
		if p.Absences = of[h.User]; p.Absences != nil {
			pipelines[h] = p
		}
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

// held reads what users hold and wait for, and when they are away, whatever their instances. Requests come first: each statement sees what has been committed by
// then, so a round that commits in between is in both lists, and not in neither.
//
// answer returns the count of the answer that a holder's work is for.
func (rs *Records) held(ctx context.Context, users []string, answer func(assign.Holder) *assign.Carried) (works []assign.Work, requests []assign.Request, absences []assign.Absence, at time.Time, err error) {
	var batch pgx.Batch
	batch.Queue(SelectClock).QueryRow(func(row pgx.Row) error { return row.Scan(&at) })
	batch.Queue(rs.sql(selectPipelineRequests), users).Query(func(rows pgx.Rows) (err error) {
		requests, err = pgx.CollectRows(rows, NewRequestScan().Scan)
		return err
	})
	batch.Queue(rs.sql(selectPipelineWork), users).Query(func(rows pgx.Rows) (err error) {
		row, all := NewWorkScan(), manyCarried()
		row.carried = func(w *assign.Work) []*assign.Carried { return []*assign.Carried{answer(w.Holder()), all} }
		works, err = pgx.CollectRows(rows, row.Scan)
		return err
	})
	batch.Queue(rs.sql(selectTheirAbsences), users).Query(func(rows pgx.Rows) (err error) {
		absences, err = pgx.CollectRows(rows, ScanAbsence)
		return err
	})
	if err = rs.db.SendBatch(ctx, &batch).Close(); err == nil {
		err = rs.Fill(ctx, requests, func(*assign.Request) {})
	}
	if err != nil {
		err = fmt.Errorf("read pipeline: %w", err)
	}
	return works, requests, absences, at, err
}

// Binding is the work that decides who may have an item now: work that is held, put off, never to return, or returned to others.
// It stands after "from", and a condition on its task and item makes it a search in two indexes: one of held work, and one,
// work_put_off, in which such work is one range, and whose expression stands here. Other closed work is in neither, so the length
// of an item's history does not matter. The order is that of work_held_slot: as long as a table has no statistics, work_holder, which
// also has task and item, but last, seems as good, and all that is held would be read for each item. Both searches are in one
// statement, because work that is closed between two of them could be seen by neither. The sub-query reads the time once, and after
// the statement has fixed what it sees.
const Binding = `(
  (select * from getwork.work where state = 'held' order by task_id, item, slot)
  union all
  select * from getwork.work
  where state in ('never', 'returned', 'failed')
    and coalesce(case when not to_others then available_at end, 'infinity'::timestamptz) > (select clock_timestamp())
)`

// Blocks is true for a binding work row w that keeps an item with one place from everybody, and an item with several places
// from its own user.
const Blocks = `(w.available_at is null or w.available_at > clock_timestamp())`

// LastOf selects an item's work, of which a further condition says that it is not held. With NewestFirst after it, the newest such
// row is read. It says "between" because the planner drops an order by a column that an equality has fixed, and could then walk
// back through the work of all items until it meets one of this item.
const (
	LastOf      = `w.item between c.item and c.item`
	NewestFirst = `order by w.item desc, w.id desc limit 1`
)
