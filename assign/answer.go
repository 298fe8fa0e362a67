package assign

import (
	"context"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/plan"
)

// What a round writes: work for those who got something, an answer for each request, what the supply has to remember.
const (
	// The lease counts from here, by clock_timestamp(): now() stands still since the lock.
	insertWork = `
insert into getwork.work (task_id, item, slot, exclusive, user_name, instance, request_id, run_id, rank, details, attempt,
  lease, lease_expires_at, warn_at)
select $1, g.item, g.slot, g.exclusive, g.user_name, g.instance, nullif(g.request_id, 0), $2, g.rank, g.details::json, g.attempt,
  g.lease * interval '1 microsecond', clock_timestamp() + g.lease * interval '1 microsecond',
  clock_timestamp() + g.lease * 0.8::float8 * interval '1 microsecond'
from unnest($3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[],
  $12::integer[]) as g (item, slot, exclusive, user_name, instance, request_id, rank, details, lease, attempt)`

	// It repeats what it relies on: a cancel that was answered 200 meanwhile stays one.
	answerRequests = `
update getwork.work_requested r
set state = a.state, requested = a.assigned, assigned = a.assigned, reason = a.reason,
    completed_at = clock_timestamp(), round_id = $1, run_id = $2
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as a (id, state, assigned, reason)
where r.id = a.id and r.state = 'pending'`

	// They were read and stay: from now on they alone are a reason to run at that time only. Who was left so a moment
	// ago is not written again: a round for each pushed item leaves hundreds of agents lingering.
	leaveLingering = `
update getwork.work_requested r
set look_after = least(clock_timestamp() + $3::bigint * interval '1 microsecond', r.linger_until, $4), reason = a.reason
from unnest($1::bigint[], $2::text[]) as a (id, reason)
where r.id = a.id and r.state = 'pending'
  and (r.look_after is null or r.reason is distinct from a.reason
    or r.look_after < least(clock_timestamp() + $3::bigint / 2 * interval '1 microsecond', r.linger_until)
    or r.look_after > $4::timestamptz)`

	// They are a reason to run now: the others took all that a cut result had, and the next has more ($2); or a rule keeps
	// them from what is left on the shelf, which goes on without them. In that case not those whom a round has left
	// lingering: they alone are no reason before their time, however often something comes back to the shelf. While a
	// back-off runs nobody is.
	leaveForRun = `
update getwork.work_requested r
set look_after = case when $2 then clock_timestamp() else greatest(coalesce(r.look_after, clock_timestamp()), s.failed_until, s.retry_at) end
from getwork.task_state s
where r.id = any($1::bigint[]) and r.state = 'pending' and s.task_id = r.task_id`
)

// reasons are what a plan's reasons are called outside.
var reasons = map[plan.Reason]Reason{plan.NoMatch: NoMatch, plan.AllHeld: AllHeld, plan.Barred: Rules, plan.AtLimit: AtLimit}

// answers are the columns of answerRequests.
type answers struct {
	ids     []int64
	states  []string
	counts  []int32
	reasons []*string
}

func (a *answers) add(id int64, state State, count int, reason Reason) {
	a.ids = append(a.ids, id)
	a.states = append(a.states, string(state))
	a.counts = append(a.counts, int32(count))
	var why *string
	if reason != "" {
		why = (*string)(&reason)
	}
	a.reasons = append(a.reasons, why)
}

// grants are the columns of insertWork.
type grants struct {
	items, users, instances, details []string
	slots, attempts                  []int32
	exclusives                       []*string
	requests                         []int64
	ranks, leases                    []*int64
}

// add gives a place of an item to somebody; lease is the task's.
func (g *grants) add(w waiter, o *offer, slot int, lease *Duration) {
	if lease == nil {
		lease = w.lease
	}
	var rank *int64
	if o.rank > 0 {
		rank = &o.rank
	}
	g.items = append(g.items, o.item)
	g.slots = append(g.slots, int32(slot))
	g.attempts = append(g.attempts, int32(o.attempt))
	g.exclusives = append(g.exclusives, o.exclusive)
	g.users = append(g.users, w.holder.User)
	g.instances = append(g.instances, w.holder.Instance)
	g.requests = append(g.requests, w.id)
	g.ranks = append(g.ranks, rank)
	g.details = append(g.details, o.details)
	g.leases = append(g.leases, microsOf(lease))
}

// insert queues the work rows.
func (g *grants) insert(x *expecting, r *round, run *int64) {
	if len(g.items) == 0 {
		return
	}
	x.queue(len(g.items), r.e.SQL(insertWork), r.task, run, g.items, g.slots, g.exclusives, g.users, g.instances,
		g.requests, g.ranks, g.details, g.leases, g.attempts)
	r.leased = r.leased || slices.ContainsFunc(g.leases, func(l *int64) bool { return l != nil })
}

// write carries out the plan: work, requests, the task's state, and one NOTIFY last.
func (r *round) write(ctx context.Context, from supply, p plan.Plan, offers []offer, all bool) error {
	var ended, lingering answers
	var granted grants
	var forRun []int64
	gone := make([]bool, len(offers))
	for i, a := range p.Answers {
		switch a.Outcome {
		case plan.Wait:
			if from.source() == plan.Run || !p.Spent {
				forRun = append(forRun, a.Request)
			}
		case plan.Linger:
			lingering.add(a.Request, Pending, 0, reasons[a.Reason])
			r.stirs = r.stirs || r.waiting[i].unread || from.source() == plan.Run
		case plan.Assigned:
			ended.add(a.Request, Assigned, len(a.Grants), "")
		case plan.Partial:
			ended.add(a.Request, Partial, len(a.Grants), "")
		case plan.None:
			ended.add(a.Request, None, 0, reasons[a.Reason])
		}
		for _, g := range a.Grants {
			granted.add(r.waiting[i], &offers[g.Item], g.Slot, r.state.Lease)
			gone[g.Item] = offers[g.Item].Slots == 1
		}
	}
	var batch pgx.Batch
	batch.Queue("savepoint planned")
	wrote := expecting{batch: &batch}
	granted.insert(&wrote, r, from.runID())
	if len(ended.ids) > 0 {
		wrote.queue(len(ended.ids), r.e.SQL(answerRequests), r.id, from.runID(), ended.ids, ended.states, ended.counts, ended.reasons)
	}
	if len(lingering.ids) > 0 {
		wrote.queue(anyNumber, r.e.SQL(leaveLingering), lingering.ids, lingering.reasons, r.state.RerunAfter.micros(), nextUntil(offers))
	}
	if len(forRun) > 0 {
		wrote.queue(len(forRun), r.e.SQL(leaveForRun), forRun, from.source() == plan.Run)
	}
	statement, args := from.settle(settlement{next: nextRank(offers, gone, all), spent: p.Spent, handed: granted.items})
	wrote.queue(anyNumber, r.e.SQL(statement), append([]any{r.task}, args...)...)
	if err := wrote.send(ctx, r.tx); err != nil {
		return err
	}
	r.answered = ended.ids
	return nil
}

// nextUntil is when the first offer is somebody's again who has put it off; nil: none is.
func nextUntil(offers []offer) (next *time.Time) {
	for _, o := range offers {
		if o.until != nil && (next == nil || o.until.Before(*next)) {
			next = o.until
		}
	}
	return next
}

// nextRank is the rank of the first item that somebody may have later on. Items with several places stay: one that is
// let go of can be given again.
func nextRank(offers []offer, gone []bool, all bool) int64 {
	for i := range offers {
		if !gone[i] {
			return offers[i].rank
		}
	}
	switch {
	case all: // and what can't be handed out now can't be handed out later: it was taken since the run
		return math.MaxInt64
	case len(offers) > 0:
		return offers[len(offers)-1].rank + 1
	}
	return 1 // nobody waits, so nothing was read
}

// anyNumber of rows will do: what a supply remembers is its own, and who lingers may have been left so before.
const anyNumber = -1

// expecting is a batch of writes, each of which must touch so many rows.
type expecting struct {
	batch *pgx.Batch
	rows  []int
}

func (x *expecting) queue(rows int, statement string, args ...any) {
	x.batch.Queue(statement, args...)
	x.rows = append(x.rows, rows)
}

// send executes the batch, whose last len(rows) statements have expectations; errMoved if one is not met.
func (x *expecting) send(ctx context.Context, tx pgx.Tx) error {
	results := tx.SendBatch(ctx, x.batch)
	defer results.Close()
	for range x.batch.Len() - len(x.rows) {
		if _, err := results.Exec(); err != nil {
			return fmt.Errorf("write the round: %w", err)
		}
	}
	for _, want := range x.rows {
		tag, err := results.Exec()
		if err != nil {
			return fmt.Errorf("write the round: %w", err)
		}
		if want != anyNumber && tag.RowsAffected() != int64(want) {
			return fmt.Errorf("%w: %d rows instead of %d", errMoved, tag.RowsAffected(), want)
		}
	}
	return nil
}
