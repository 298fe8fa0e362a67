package engine

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/notify"
)

// bodyOf is what an Idempotency-Key stands for.
func bodyOf(c assign.Click) string {
	body := fmt.Sprintf("count=%d linger=%s", c.Count, c.Linger)
	if c.Lease != nil {
		body += " lease=" + c.Lease.String()
	}
	return body
}

// groupsOf are the user's as they are recorded: a JSON array; nil: they need none.
func groupsOf(c assign.Click) *string {
	if c.Anything {
		return nil
	}
	text := "[]"
	if len(c.Groups) > 0 {
		b, _ := json.Marshal(c.Groups)
		text = string(b)
	}
	return &text
}

// click is a Click on its way through a dispatcher.
type click struct {
	assign.Click
	holder assign.Holder
	done   chan struct{}
	gone   <-chan struct{} // closed when nobody waits for the answer any more

	id       int64        // of the request that answers it
	lost     bool         // its key belongs to an earlier request
	inserted assign.State // of the request as it was recorded for this click; empty: another's, or one of before, answers it
	answer   *assign.Request
	err      error
}

// GetWork records a click and answers with its request: complete already if the shelf is fresh, or if it is ended
// where it is recorded (paused, in back-off); pending otherwise, and its result comes by push, or by asking again.
// A holder who has a pending request for the task gets that one.
func (e *Engine) GetWork(ctx context.Context, task string, c assign.Click) (assign.Request, error) {
	k := &click{Click: c, holder: c.Holder, done: make(chan struct{}), gone: ctx.Done()}
	if err := e.dispatch(task, k); err != nil {
		return assign.Request{}, err
	}
	select {
	case <-k.done:
	case <-ctx.Done(): // if it is being recorded, it is found again by asking again
		return assign.Request{}, ctx.Err()
	}
	if k.err != nil {
		return assign.Request{}, k.err
	}
	return *k.answer, nil
}

// dispatcher gathers the clicks on one task that come while this node's last transaction for it is in flight, and
// records them together. No timer: on an idle system a click is alone in its batch, and waits for nobody.
type dispatcher struct{ queue []*click }

// recordWithin is how long a batch may take.
const recordWithin = 15 * time.Second

// maxBatch bounds one transaction, and so how long it may hold the assign lock.
const maxBatch = notify.MaxQuickRound

// maxQueued bounds a dispatcher's queue, and so how long the last in it waits.
const maxQueued = 4000

// dispatch queues a click, and has it recorded.
func (e *Engine) dispatch(task string, k *click) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if d := e.dispatches[task]; d != nil {
		if len(d.queue) >= maxQueued {
			d.queue = slices.DeleteFunc(d.queue, func(k *click) bool { // nobody waits behind those who have gone
				select {
				case <-k.gone:
					return true
				default:
					return false
				}
			})
		}
		if len(d.queue) >= maxQueued {
			return assign.Refuse(assign.Busy, "more clicks on this task come than can be recorded; ask again in a moment")
		}
		d.queue = append(d.queue, k)
		return nil
	}
	d := &dispatcher{queue: []*click{k}}
	if !e.spawn(func(context.Context) { e.recordAll(task, d) }) {
		return errEnding
	}
	e.dispatches[task] = d
	return nil
}

// next takes a batch off the queue, without those for whose answer nobody waits any more: they were told to ask again,
// or have gone. Behind a database that stands still for an hour there would be an hour's of them, and each would be given
// work that he knows nothing of.
func (d *dispatcher) next() (batch []*click) {
	for i, k := range d.queue {
		select {
		case <-k.gone:
			continue
		default:
		}
		if batch = append(batch, k); len(batch) == maxBatch {
			d.queue = d.queue[i+1:]
			return batch
		}
	}
	d.queue = nil
	return batch
}

// recordAll records until nobody is queued. What was accepted into the queue is recorded also while the node
// drains, so it is not bound to the engine's context; a batch is ended after recordWithin.
func (e *Engine) recordAll(task string, d *dispatcher) {
	for {
		e.mu.Lock()
		batch := d.next()
		if len(batch) == 0 {
			delete(e.dispatches, task)
			e.mu.Unlock()
			return
		}
		e.mu.Unlock()
		ctx, cancel := context.WithTimeout(context.Background(), recordWithin)
		e.recordBatch(ctx, task, batch)
		cancel()
		for _, k := range batch {
			close(k.done)
		}
	}
}

// recheckPatience is how long clicks wait for their task's recheck before they are recorded as those that wait.
const recheckPatience = 2 * time.Second

// recordBatch records one batch, wakes what serves it, and answers it.
func (e *Engine) recordBatch(ctx context.Context, name string, batch []*click) {
	task, s, fresh, batch, err := e.admit(ctx, name, batch)
	if len(batch) == 0 {
		return
	}
	var served *round // nil: they were only recorded
	record := func(found ranking.Matching) error {
		return e.transactTelling(ctx, func(tx pgx.Tx) (_ []notify.Change, err error) {
			served, err = e.recordAndServe(ctx, tx, task, batch, fresh, found)
			return []notify.Change{{Task: task, Requests: unanswered(batch)}}, err
		})
	}
	switch {
	case err != nil:
	case fresh:
		limited, done := context.WithTimeout(ctx, recheckPatience)
		err = e.rechecked(limited, task, s, wanted(batch), record)
		done()
		if !errors.Is(err, errNoRecheck) && !errors.Is(err, errUnchecked) {
			break
		}
		fallthrough // the look, which can wait, sees to the recheck
	default:
		fresh = false
		err = record(ranking.Matching{})
	}
	if half := len(batch) / 2; half > 0 && pg.Unheld(err) { // somebody's name or key, and only they are refused
		e.recordBatch(ctx, name, batch[:half])
		e.recordBatch(ctx, name, batch[half:])
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
	e.countClicks(batch)
	e.Steps(ctx, StepRecorded)
	if served != nil {
		e.after(served)
	}
	e.answer(ctx, task, batch)
}

const selectForClicks = `
select s.task_id, v.max_request, (v.query is null or coalesce(s.fresh_until > clock_timestamp(), false)) and not s.paused
    and (v.recheck is null or coalesce(greatest(s.failed_until, s.retry_at) <= clock_timestamp(), true)), v.groups,
  coalesce(v.query, ''), coalesce(v.recheck, ''), (extract(epoch from v.query_timeout) * 1000000)::bigint
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = $1 and s.deleted_at is null`

// admit reads the task, and refuses those who may not take it or ask for what can't be; those admitted are left. fresh:
// they can be served where they are recorded.
func (e *Engine) admit(ctx context.Context, name string, batch []*click) (task int64, s assign.Settings, fresh bool, admitted []*click, err error) {
	err = e.api.QueryRow(ctx, e.SQL(selectForClicks), name).Scan(&task, &s.MaxRequest, &fresh, &s.Groups, &s.Query, &s.Recheck, &s.QueryTimeout)
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

// wanted is how many items the clicks ask for.
func wanted(batch []*click) (n int) {
	for _, k := range batch {
		n += k.Count
	}
	return n
}

// unanswered are the requests of the clicks that no round has answered.
func unanswered(batch []*click) (ids []int64) {
	for _, k := range batch {
		if k.err == nil && k.answer == nil && !k.lost {
			ids = append(ids, k.id)
		}
	}
	return ids
}

// answer gives each click its request. Of those that the round recorded everything is known; the others are read, all
// at once, and what waits is looked at.
func (e *Engine) answer(ctx context.Context, task int64, batch []*click) {
	var ids []int64
	for _, k := range batch {
		if k.err == nil && k.answer == nil {
			ids = append(ids, k.id)
		}
	}
	if len(ids) == 0 {
		return
	}
	found, err := e.Records.Requests(ctx, ids)
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
	if waits { // who was left to linger needs a timer, too, which the look arms
		e.Look(task)
	}
}

// recordAndServe is the transaction of a batch. If the shelf is fresh or the task an inbox it is a round: it takes the
// assign lock, and records the batch as it serves everybody who waits. If the shelf has gone stale meanwhile, or was so
// before, it only records: the next step is the run lock's, in a transaction of its own. It returns the round, if there
// was one.
func (e *Engine) recordAndServe(ctx context.Context, tx pgx.Tx, task int64, batch []*click, fresh bool, found ranking.Matching) (r *round, err error) {
	if fresh {
		if r, err = e.openRoundFor(ctx, tx, task, batch); err != nil {
			return nil, err
		}
		fresh = r.state.serves()
	}
	for _, k := range batch { // a transaction may be repeated
		k.id, k.lost, k.inserted, k.answer, k.err = 0, false, "", nil, nil
	}
	if err := e.claimKeys(ctx, tx, task, batch); err != nil {
		return nil, err
	}
	if fresh {
		r.matching = found
		r.record(batch)
		err = r.serve(ctx, r.supply())
		r.share()
	} else {
		r, err = nil, e.insertClicks(ctx, tx, task, batch)
	}
	if err == nil {
		err = e.bindKeys(ctx, tx, task, batch)
	}
	if err != nil && r != nil {
		r.telling.End(false)
		r = nil
	}
	return r, err
}

// Sorted by holder, like every insert of a batch. "+ 0" and "limit" have each holder looked up by the index of holders: there
// may be few clicks, and thousands who wait.
const insertRequests = `
insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, state, reason, error, created_at,
  linger_until, completed_at, lease, groups)
select s.task_id, c.user_name, c.instance, c.wanted,
  case when c.ends is null then c.wanted else 0 end,
  case when c.ends is null then 'pending' when c.ends = 'failed' then 'failed' else 'none' end,
  nullif(c.ends, 'failed'),
  case when c.ends = 'failed' then s.last_error end,
  c.at,
  case when c.linger > 0 then c.at + c.linger * interval '1 microsecond' end,
  case when c.ends is not null then c.at end,
  case when v.lease is null then c.lease * interval '1 microsecond' end,
  case when c.groups is not null then array(select json_array_elements_text(c.groups::json)) end
from getwork.task_state s
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
cross join lateral (
  select u.*, clock_timestamp() as at, case
      when s.paused and u.linger = 0 then 'paused'
      when v.max_open is not null and v.max_open <= (
        select count(*) from getwork.work w where w.task_id = s.task_id and w.user_name = u.user_name and w.state = 'held') then 'at_limit'
      when u.linger > 0 then null
      when s.failed_until > clock_timestamp() and (v.recheck is not null or not coalesce(s.fresh_until > clock_timestamp(), false)) then 'failed'
    end as ends
  from unnest($2::text[], $3::text[], $4::integer[], $5::bigint[], $6::bigint[], $7::text[])
    as u (user_name, instance, wanted, linger, lease, groups)
) c
where s.task_id = $1 and s.deleted_at is null
  and (
    select true from getwork.work_requested p
    where p.task_id + 0 = s.task_id and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending' limit 1) is null
order by c.user_name, c.instance
on conflict (task_id, user_name, instance) where state = 'pending' do nothing
returning id, user_name, instance, state`

// insertClicks records the batch's clicks. Who has a pending request already, or had one in the moment of the
// insert, gets that one; if a round has ended it until we look, he is inserted after all.
func (e *Engine) insertClicks(ctx context.Context, tx pgx.Tx, task int64, batch []*click) error {
	byHolder := map[assign.Holder][]*click{}
	for _, k := range batch {
		if !k.lost {
			byHolder[k.holder] = append(byHolder[k.holder], k)
		}
	}
	for range attempts {
		if len(byHolder) == 0 {
			return nil
		}
		if err := e.insertHolders(ctx, tx, task, byHolder); err != nil {
			return err
		}
		if err := e.findPending(ctx, tx, task, byHolder); err != nil {
			return err
		}
	}
	for _, clicks := range byHolder { // neither inserted nor there
		for _, k := range clicks {
			k.err = assign.Refuse(assign.NotFound, "the task was deleted")
		}
	}
	return nil
}

// insertHolders inserts a request for each holder who has none, as the first of his clicks says.
func (e *Engine) insertHolders(ctx context.Context, tx pgx.Tx, task int64, byHolder map[assign.Holder][]*click) error {
	var users, instances []string
	var wanted []int32
	var lingers []int64
	var leases []*int64
	var groups []*string
	for _, h := range slices.SortedFunc(maps.Keys(byHolder), assign.Holder.Compare) {
		k := byHolder[h][0]
		users = append(users, h.User)
		instances = append(instances, h.Instance)
		wanted = append(wanted, int32(k.Count))
		lingers = append(lingers, k.Linger.Microseconds())
		leases = append(leases, microseconds(k.Lease))
		groups = append(groups, groupsOf(k.Click))
	}
	rows, err := tx.Query(ctx, e.SQL(insertRequests), task, users, instances, wanted, lingers, leases, groups)
	if err != nil {
		return err
	}
	return takeIDs(rows, byHolder)
}

// takeIDs gives the clicks the ids of their requests, and takes them off the map.
func takeIDs(rows pgx.Rows, byHolder map[assign.Holder][]*click) error {
	_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (struct{}, error) {
		var h assign.Holder
		var id int64
		var inserted assign.State
		err := row.Scan(&id, &h.User, &h.Instance, &inserted)
		for i, k := range byHolder[h] {
			k.id = id
			if i == 0 {
				k.inserted = inserted
			}
		}
		delete(byHolder, h)
		return struct{}{}, err
	})
	return err
}

// A statement after the insert's, so that it sees what the insert ran into.
const selectRecorded = `
select p.id, c.user_name, c.instance, ''
from unnest($2::text[], $3::text[]) as c (user_name, instance)
join getwork.work_requested p on p.task_id = $1 and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending'`

func (e *Engine) findPending(ctx context.Context, tx pgx.Tx, task int64, byHolder map[assign.Holder][]*click) error {
	if len(byHolder) == 0 {
		return nil
	}
	var users, instances []string
	for h := range byHolder {
		users, instances = append(users, h.User), append(instances, h.Instance)
	}
	rows, err := tx.Query(ctx, e.SQL(selectRecorded), task, users, instances)
	if err != nil {
		return err
	}
	return takeIDs(rows, byHolder)
}

// sortedHolders is the order in which requests are inserted, on every node: two batches with the same holders then
// wait for each other in one direction only.
func sortedHolders(clicks []*click) []*click {
	sorted := slices.Clone(clicks)
	slices.SortStableFunc(sorted, func(a, b *click) int { return a.holder.Compare(b.holder) })
	return sorted
}
