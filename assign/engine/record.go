package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/notify"
)

// bodyOf returns the body that an Idempotency-Key stands for.
func bodyOf(c assign.Click) string {
	body := fmt.Sprintf("count=%d linger=%s", c.Count, c.Linger)
	if c.Lease != nil {
		body += " lease=" + c.Lease.String()
	}
	return body
}

// GetWork records a click and returns its request. The request is complete if the shelf is fresh, or if it ended as it was
// recorded (paused, in back-off). Otherwise it is pending; its result is pushed, or found by asking again. A holder who has a
// pending request for the task gets that one.
func (e *Engine) GetWork(ctx context.Context, task string, c assign.Click) (assign.Request, error) {
	k := &click{Click: c, holder: c.Holder, done: make(chan struct{}), gone: ctx.Done()}
	if err := e.dispatch(task, k); err != nil {
		return assign.Request{}, err
	}
	select {
	case <-k.done:
	case <-ctx.Done(): // if the click is being recorded, asking again finds its request
		return assign.Request{}, ctx.Err()
	}
	if k.err != nil {
		return assign.Request{}, k.err
	}
	return *k.answer, nil
}

// recorder records clicks, and serves them in the same transaction if it can.
type recorder struct{ *Engine }

// recheckPatience is how long clicks wait for their task's recheck before they are recorded as waiting requests.
const recheckPatience = 2 * time.Second

// recordBatch records one batch, wakes its task, and answers its clicks.
func (c recorder) recordBatch(ctx context.Context, name string, batch []*click) {
	task, s, fresh, batch, err := c.admit(ctx, name, batch)
	if len(batch) == 0 {
		return
	}
	var served *round // nil: the clicks were only recorded
	record := func(found ranking.Matching) (err error) {
		for range attempts {
			err = c.transactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
				served, err = c.recordAndServe(ctx, tx, task, batch, fresh, found)
				return []notify.Change{{Task: task, Requests: unanswered(batch)}}, err
			})
			if !errors.Is(err, errSettle) {
				return err
			}
			if batch, err = c.settle(ctx, task, batch); err != nil || len(batch) == 0 {
				return err
			}
		}
		return errSettle
	}
	switch {
	case err != nil:
	case fresh:
		limited, done := context.WithTimeout(ctx, recheckPatience)
		err = c.withRecheckedShelf(limited, task, s, wanted(batch), record)
		done()
		if !errors.Is(err, errNoRecheck) && !errors.Is(err, errTooFewRechecked) {
			break
		}
		fallthrough // the serve loop, which can wait, does the recheck
	default:
		fresh = false
		err = record(ranking.Matching{})
	}
	if half := len(batch) / 2; half > 0 && pg.Unheld(err) { // one click's name or key is at fault, and only that click is refused
		c.recordBatch(ctx, name, batch[:half])
		c.recordBatch(ctx, name, batch[half:])
		return
	}
	if err != nil {
		if served != nil {
			served.telling.End(false)
		}
		for _, k := range batch {
			k.err = fmt.Errorf("record request: %w", err)
		}
		return
	}
	c.countClicks(task, batch)
	c.Steps(ctx, StepRecorded)
	if served != nil {
		c.after(served)
	}
	c.answer(ctx, task, batch)
}

const selectForClicks = `
select s.task_id, v.max_request, (v.query is null or coalesce(s.fresh_until > clock_timestamp(), false)) and not s.paused
    and (v.recheck is null or coalesce(greatest(s.failed_until, s.retry_at) <= clock_timestamp(), true)), v.groups,
  coalesce(v.query, ''), coalesce(v.recheck, ''), (extract(epoch from v.query_timeout) * 1000000)::bigint
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = $1 and s.deleted_at is null`

// admit reads the task, and refuses users who may not take it and counts that it does not allow; admitted are the other
// clicks. fresh: they can be served as they are recorded.
func (c recorder) admit(ctx context.Context, name string, batch []*click) (task int64, s assign.Settings, fresh bool, admitted []*click, err error) {
	err = c.api.QueryRow(ctx, c.SQL(selectForClicks), name).Scan(&task, &s.MaxRequest, &fresh, &s.Groups, &s.Query, &s.Recheck, &s.QueryTimeout)
	missing := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !missing {
		return 0, s, false, batch, fmt.Errorf("read the task: %w", err)
	}
	for _, k := range batch {
		if missing || !(assign.Who{Holder: k.Holder, Groups: k.Groups, Anything: k.Anything}).May(s.Groups) {
			k.err = assign.NoTask(name)
		} else {
			k.err = k.Check(s.MaxRequest)
		}
		if k.err == nil {
			admitted = append(admitted, k)
		}
	}
	return task, s, fresh, admitted, nil
}

// wanted returns the number of items that the clicks ask for.
func wanted(batch []*click) (n int) {
	for _, k := range batch {
		n += k.Count
	}
	return n
}

// unanswered returns the requests of the clicks that no round has answered.
func unanswered(batch []*click) (ids []int64) {
	for _, k := range batch {
		if k.err == nil && k.answer == nil && !k.lost {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// answer gives each click its request. Requests that the round recorded are known completely. The others are read all at
// once, and the task is woken if one of them waits.
func (c recorder) answer(ctx context.Context, task int64, batch []*click) {
	var ids []int64
	for _, k := range batch {
		if k.err == nil && k.answer == nil {
			ids = append(ids, k.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	found, err := c.Records.Requests(ctx, ids)
	byID := make(map[int64]*assign.Request, len(found))
	waits := err != nil
	for i := range found {
		byID[found[i].ID] = &found[i]
		waits = waits || found[i].State == assign.Pending
	}
	for _, k := range batch {
		if k.err != nil || k.answer != nil {
			continue
		}
		k.answer = byID[k.id]
		if k.answer == nil {
			k.err = cmp.Or(err, fmt.Errorf("read requests: request %d is gone", k.id))
		}
	}
	if waits { // a lingering request needs a timer, which the serve loop sets
		c.Wake(task)
	}
}

// recordAndServe is the transaction of a batch. If the shelf is fresh or the task an inbox, it is a round: it takes the
// assign lock, and records the batch as it serves all waiting requests. If the shelf is stale, or has gone stale meanwhile,
// it only records; the run lock is the next step, in a transaction of its own. It returns the round, if there was one.
func (c recorder) recordAndServe(ctx context.Context, tx pgx.Tx, task int64, batch []*click, fresh bool, found ranking.Matching) (r *round, err error) {
	if fresh {
		if r, err = c.openRoundFor(ctx, tx, task, batch); err != nil {
			return nil, err
		}
		fresh = r.state.serves()
	}
	for _, k := range batch { // the transaction may be a repetition
		k.id, k.lost, k.inserted, k.answer, k.err = 0, false, "", nil, nil
	}
	if err := c.claimKeys(ctx, tx, task, batch); err != nil {
		return nil, err
	}
	if fresh {
		r.matching = found
		r.recordInline(batch)
		err = r.serve(ctx, r.supply())
		r.share()
	} else {
		r, err = nil, c.insertClicks(ctx, tx, task, batch)
	}
	if err == nil {
		err = c.bindKeys(ctx, tx, task, batch)
	}
	if err != nil && r != nil {
		r.telling.End(false)
		r = nil
	}
	return r, err
}

// sortedHolders returns the order in which requests are inserted on every node: two batches with the same holders then wait
// for each other in one direction only.
func sortedHolders(clicks []*click) []*click {
	sorted := slices.Clone(clicks)
	slices.SortStableFunc(sorted, func(a, b *click) int { return a.holder.Compare(b.holder) })
	return sorted
}
