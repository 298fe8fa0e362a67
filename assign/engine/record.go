package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/assign/records"
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

// GetWork records a click and returns its request. The request is complete if the shelf or the inbox could answer it, or if it
// ended as it was recorded (paused, in back-off). Otherwise it is pending; its result is pushed, or found by asking again. A holder who has a
// pending request for the task gets that one. [assign.NotFound]: no such task is open to the user. [assign.KeyReused]: the key belongs to
// another body. [assign.Unauthenticated]: the credential has ended. [assign.Busy], [assign.Unavailable]: ask again. If ctx ends, its
// error is returned, and the click may still be recorded.
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

// recordBatch records one batch, wakes its task, and gives each click its answer or its error.
func (c recorder) recordBatch(ctx context.Context, name string, batch []*click) {
	t, batch, err := c.admitInstances(ctx, name, batch)
	if len(batch) == 0 {
		return
	}
	var served *round // nil: the clicks were only recorded
	record := func(found ranking.Matching) (err error) {
		for range attempts {
			err = c.transactAnnouncing(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
				served, err = c.recordAndServe(ctx, tx, t, batch, found)
				return []notify.Change{{Task: t.id, Requests: unanswered(batch)}}, err
			})
			if !errors.Is(err, errSettle) {
				return err
			}
			if batch, err = c.settle(ctx, t.id, batch); err != nil || len(batch) == 0 {
				return err
			}
		}
		return errSettle
	}
	switch {
	case err != nil:
	case t.fresh:
		limited, done := context.WithTimeout(ctx, recheckPatience)
		err = c.withRecheckedShelf(limited, t.id, t.settings, wanted(batch), record)
		done()
		if !errors.Is(err, errNoRecheck) && !errors.Is(err, errTooFewRechecked) {
			break
		}
		fallthrough // the serve loop, which can wait, does the recheck
	default:
		t.fresh = false
		err = record(ranking.Matching{})
	}
	if served == nil {
		c.forget(name)
	}
	if errors.Is(err, errRemembered) { // now they are admitted by what the database says
		c.recordBatch(ctx, name, batch)
		return
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
	followKeys(batch)
	c.countClicks(t.id, batch)
	c.Steps(ctx, StepRecorded)
	if served != nil {
		c.after(served)
	}
	c.answer(ctx, t.id, batch)
}

// clicksTask is a task as clicks find it.
type clicksTask struct {
	id         int64
	name       string
	version    int
	settings   assign.Settings // those that concern a click
	fresh      bool            // the clicks may be served as they are recorded
	remembered bool            // not read, but remembered from earlier clicks
}

// is reports whether the task that was locked is the remembered one.
func (t clicksTask) is(locked lockedState) bool {
	return locked.version == t.version && locked.Name == t.name && !locked.deleted
}

// errRemembered says that a task is not as the node remembers it: it was changed, renamed or deleted, perhaps on another node.
var errRemembered = errors.New("the task is not as it was")

// remembers returns the task of that name as the last clicks found it, if there was a fresh shelf or an inbox, and the clicks
// may be served by what is remembered. A round compares the name and the version under the assign lock. A node remembers
// nothing that changes without a version: whether the task is paused, its back-off, its shelf. It refuses nobody by what it
// remembers, because that is not compared with anything.
func (c recorder) remembers(name string, batch []*click) (t clicksTask, ok bool) {
	c.mu.Lock()
	t, ok = c.clicked[name]
	c.mu.Unlock()
	if !ok {
		return t, false
	}
	return t, !slices.ContainsFunc(batch, func(k *click) bool { return t.refuses(k) != nil })
}

func (c recorder) remember(t clicksTask) {
	t.remembered = true
	c.mu.Lock()
	defer c.mu.Unlock()
	c.clicked[t.name] = t
}

func (c recorder) forget(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.clicked, name)
}

// forgetTask saves clicks on a task that was changed a round trip in vain. Its name may be another by now.
func (c recorder) forgetTask(id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	maps.DeleteFunc(c.clicked, func(_ string, t clicksTask) bool { return t.id == id })
}

// refuses returns why the settings don't allow a click; nil: they allow it.
func (t clicksTask) refuses(k *click) error {
	if !(assign.Who{Holder: k.Holder, Groups: k.Groups, Anything: k.Anything}).May(t.settings.Groups) {
		return assign.NoTask(t.name)
	}
	return k.Check(t.settings.MaxRequest)
}

// Without any lock, so the fourth column, whether the clicks may be served as they are recorded, is a guess. recordAndServe asks
// again under the assign lock.
const selectForClicks = `
select s.task_id, v.version, v.max_request, (v.query is null or ` + records.ShelfLasts + `) and not s.paused
    and (v.recheck is null or coalesce(greatest(s.failed_until, s.retry_at) <= clock_timestamp(), true)), v.groups,
  coalesce(v.query, ''), coalesce(v.recheck, ''), (extract(epoch from v.query_timeout) * 1000000)::bigint
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = $1 and s.deleted_at is null`

// admit reads the task, unless the node remembers it, and refuses users who may not take it and counts that it does not
// allow; admitted are the other clicks.
func (c recorder) admit(ctx context.Context, name string, batch []*click) (t clicksTask, admitted []*click, err error) {
	if t, ok := c.remembers(name, batch); ok {
		return t, batch, nil
	}
	t.name = name
	s := &t.settings
	err = c.api.QueryRow(ctx, c.SQL(selectForClicks), name).Scan(&t.id, &t.version, &s.MaxRequest, &t.fresh, &s.Groups, &s.Query, &s.Recheck, &s.QueryTimeout)
	missing := errors.Is(err, pgx.ErrNoRows)
	if err != nil && !missing {
		return t, batch, fmt.Errorf("read the task: %w", err)
	}
	for _, k := range batch {
		if k.err = t.refuses(k); missing {
			k.err = assign.NoTask(name)
		}
	}
	if err := c.admitRepeats(ctx, t.id, batch); err != nil {
		return t, batch, err
	}
	for _, k := range batch {
		if k.err == nil {
			admitted = append(admitted, k)
		}
	}
	if t.fresh && s.Recheck == "" { // a recheck is a round trip itself, and needs the settings
		c.remember(t)
	}
	return t, admitted, nil
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

// recordAndServe is the transaction of a batch. If the shelf serves or the task is an inbox, it is a round: it takes the
// assign lock, and records the batch as it serves all waiting requests. If the shelf has ended, or ends meanwhile,
// it only records; the run lock is the next step, in a transaction of its own. It returns the round, if there was one.
//
// A round is two round trips: the lock and all that is read, and all that is written, with COMMIT. If the round leaves a click
// waiting, others must be told of its request, and COMMIT comes after that.
func (c recorder) recordAndServe(ctx context.Context, tx pgx.Tx, t clicksTask, batch []*click, found ranking.Matching) (r *round, err error) {
	var ahead *prefetch
	serves := false
	if t.fresh {
		if r, err = c.openRoundFor(ctx, tx, t.id, batch); err != nil {
			return nil, err
		}
		if t.remembered && !t.is(r.state) {
			return nil, errRemembered
		}
		if r.ahead.ended {
			return nil, errSettle
		}
		serves, ahead = r.state.serves(), r.ahead
	}
	for _, k := range batch { // the transaction may be a repetition
		k.id, k.lost, k.inserted, k.answer, k.err = 0, false, "", nil, nil
	}
	if err := c.claimKeys(ctx, tx, t.id, batch, ahead); err != nil {
		return nil, err
	}
	if !serves {
		if err := c.insertClicks(ctx, tx, t.id, batch); err != nil {
			return nil, err
		}
		return nil, c.bind(ctx, tx, t.id, batch)
	}
	r.matching = found
	r.recordInline(batch)
	bound := false
	r.last = func(wrote *pg.Writes) bool {
		r.share()
		if bound = len(unanswered(batch)) == 0; bound {
			c.bindKeys(wrote, t.id, batch)
		}
		return bound
	}
	err = r.serve(ctx, r.supply())
	r.share()
	if err == nil && !bound {
		err = c.bind(ctx, tx, t.id, batch)
	}
	if err != nil {
		r.telling.End(false)
		return nil, err
	}
	return r, nil
}

// bind executes bindKeys.
func (c recorder) bind(ctx context.Context, tx pgx.Tx, task int64, batch []*click) error {
	var wrote pg.Writes
	if c.bindKeys(&wrote, task, batch); wrote.Len() == 0 {
		return nil
	}
	if err := wrote.Send(ctx, tx); err != nil {
		return fmt.Errorf("record idempotency keys: %w", err)
	}
	return nil
}

// sortedHolders returns the order in which requests are inserted on every node: two batches with the same holders then wait
// for each other in one direction only.
func sortedHolders(clicks []*click) []*click {
	sorted := slices.Clone(clicks)
	slices.SortStableFunc(sorted, func(a, b *click) int { return a.holder.Compare(b.holder) })
	return sorted
}
