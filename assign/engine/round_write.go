package engine

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
)

// A round writes work for the requests that got something, an answer for each request, and what the supply must remember.
const (
	// The unique indexes work_held_slot, work_held_holder and work_held_exclusive refuse what a plan must not do. The lease begins
	// at clock_timestamp(): now() has stood still since the lock.
	insertWork = `
insert into getwork.work (task_id, item, slot, exclusive, user_name, instance, request_id, run_id, rank, details, attempt,
  lease, lease_expires_at, warn_at)
select $1, g.item, g.slot, g.exclusive, g.user_name, g.instance, nullif(g.request_id, 0), $2, g.rank, g.details::json, g.attempt,
  g.lease * interval '1 microsecond', clock_timestamp() + g.lease * interval '1 microsecond',
  clock_timestamp() + g.lease * 0.8::float8 * interval '1 microsecond'
from unnest($3::text[], $4::integer[], $5::text[], $6::text[], $7::text[], $8::bigint[], $9::bigint[], $10::text[], $11::bigint[],
  $12::integer[]) as g (item, slot, exclusive, user_name, instance, request_id, rank, details, lease, attempt)`

	// For rounds that answer their clicks directly.
	returningGiven = `
returning id, item, slot, assigned_at, lease_expires_at`

	// It repeats the state that it relies on, so a cancel that was confirmed meanwhile stays one.
	answerRequests = `
update getwork.work_requested r
set state = a.state, requested = a.assigned, assigned = a.assigned, reason = a.reason,
    completed_at = clock_timestamp(), round_id = $1, run_id = $2,
    ranked_at = case when a.assigned > 0 then $7::timestamptz end, stale = a.assigned > 0 and $8
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as a (id, state, assigned, reason)
where r.id = a.id and r.state = 'pending'`

	// These requests were read and go on lingering. From now on they alone are a reason to run only at their look_after. A
	// request that was left so a moment ago is not written again: a round for each pushed item would leave hundreds of agents
	// lingering.
	leaveLingering = `
update getwork.work_requested r
set look_after = least(clock_timestamp() + $3::bigint * interval '1 microsecond', r.linger_until, $4), reason = a.reason
from unnest($1::bigint[], $2::text[]) as a (id, reason)
where r.id = a.id and r.state = 'pending'
  and (r.look_after is null or r.reason is distinct from a.reason
    or r.look_after < least(clock_timestamp() + $3::bigint / 2 * interval '1 microsecond', r.linger_until)
    or r.look_after > $4::timestamptz)`

	// These requests are a reason to run now. Either the others took all that a cut result had, and the next run has more
	// ($2), or a rule keeps them from what is left on the shelf, which goes on without them. In the latter case requests that
	// a round has left lingering are excepted: before their look_after they alone are no reason, however often something
	// comes back to the shelf. During a back-off nobody is a reason to run.
	leaveForRun = `
update getwork.work_requested r
set look_after = case when $2 then clock_timestamp() else greatest(coalesce(r.look_after, clock_timestamp()), s.failed_until, s.retry_at) end
from getwork.task_state s
where r.id = any($1::bigint[]) and r.state = 'pending' and s.task_id = r.task_id`

	// These requests got too little of what was rechecked of this run's result. They are no reason for another run, whatever they
	// were before it: the shelf that the result becomes serves them as this round would (plan.Request.Ran), when more of it is
	// rechecked. If a look_after stayed that has come, the next run would begin at once, and the next. Until a round answers from
	// that shelf the reason stays null. If the shelf ends before that, the next run does not leave the request to its own shelf, which
	// would end as soon: the query would run for ever.
	leaveForShelf = `
update getwork.work_requested r
set look_after = null, run_id = $2, reason = null
where r.id = any($1::bigint[]) and r.state = 'pending'`
)

// reasons maps a plan's reasons to those of the API.
var reasons = map[plan.Reason]assign.Reason{plan.NoMatch: assign.NoMatch, plan.AllHeld: assign.AllHeld, plan.Barred: assign.Rules, plan.AtLimit: assign.AtLimit}

// answers holds the columns of answerRequests.
type answers struct {
	ids     []int64
	states  []string
	counts  []int32
	reasons []*string
}

func (a *answers) add(id int64, state assign.State, count int, reason assign.Reason) {
	a.ids = append(a.ids, id)
	a.states = append(a.states, string(state))
	a.counts = append(a.counts, int32(count))
	var why *string
	if reason != "" {
		why = (*string)(&reason)
	}
	a.reasons = append(a.reasons, why)
}

// grants holds the columns of insertWork.
type grants struct {
	items, users, instances, details []string
	slots, attempts                  []int32
	exclusives                       []*string
	requests                         []int64
	ranks, leases                    []*int64
}

// add gives a place of an item to a waiter; lease is the task's.
func (g *grants) add(w waiter, o *offer, slot int, lease *assign.Duration) {
	if lease == nil {
		lease = w.lease
	}
	var rank *int64
	if o.cand.Rank > 0 {
		rank = &o.cand.Rank
	}
	g.items = append(g.items, o.cand.Item)
	g.slots = append(g.slots, int32(slot))
	g.attempts = append(g.attempts, int32(o.attempt))
	g.exclusives = append(g.exclusives, o.cand.Exclusive)
	g.users = append(g.users, w.holder.User)
	g.instances = append(g.instances, w.holder.Instance)
	g.requests = append(g.requests, w.id)
	g.ranks = append(g.ranks, rank)
	g.details = append(g.details, o.cand.Details)
	g.leases = append(g.leases, microseconds(lease))
}

// microseconds converts a duration that may be missing for use in an array. An array of durations is not known in every
// protocol mode.
func microseconds(d *assign.Duration) *int64 {
	if d == nil {
		return nil
	}
	n := d.Microseconds()
	return &n
}

// insert queues the work rows. given, if set, gets each row as it was written.
func (g *grants) insert(x *pg.Writes, r *round, run *int64, given func(i int, w assign.Work)) {
	if len(g.items) == 0 {
		return
	}
	statement := insertWork
	var read func(pgx.CollectableRow) error
	if given != nil {
		statement += returningGiven
		read = g.reader(r, given)
	}
	x.Read(len(g.items), read, r.e.SQL(statement), r.task, run, g.items, g.slots, g.exclusives, g.users, g.instances,
		g.requests, g.ranks, g.details, g.leases, g.attempts)
	r.brief = r.brief || slices.ContainsFunc(g.leases, func(l *int64) bool { return l != nil && sweeper{r.e}.oversleeps(assign.Microseconds(*l)) })
}

// reader returns a function that makes work from the returned row and from what was to be written.
func (g *grants) reader(r *round, given func(i int, w assign.Work)) func(pgx.CollectableRow) error {
	type place struct {
		item string
		slot int32
	}
	at := make(map[place]int, len(g.items))
	for i := range g.items {
		at[place{g.items[i], g.slots[i]}] = i
	}
	return func(row pgx.CollectableRow) error {
		var p place
		w := assign.Work{Task: r.state.Name, TaskID: r.task, State: "held"}
		if err := row.Scan(&w.ID, &p.item, &p.slot, &w.AssignedAt, &w.LeaseExpiresAt); err != nil {
			return err
		}
		i := at[p]
		w.Item, w.Slot = p.item, int(p.slot)
		w.User, w.Instance, w.Attempt, w.Details = g.users[i], g.instances[i], int(g.attempts[i]), json.RawMessage(g.details[i])
		if l := g.leases[i]; l != nil {
			lease := assign.Microseconds(*l)
			w.Lease = &lease
		}
		w.AssignedAt, w.LeaseExpiresAt = w.AssignedAt.UTC(), assign.UTC(w.LeaseExpiresAt)
		given(i, w)
		return nil
	}
}

// write carries out the plan: work, requests, the task's state, and one NOTIFY last.
func (r *round) write(ctx context.Context, from supply, p plan.Plan, offers []offer, all bool) error {
	var ended, lingering answers
	var served inlineRequests // clicks, which are written in their final state
	var granted grants
	var forRun, forShelf []int64
	r.answered, r.ends, r.waits = nil, map[assign.State]int{}, nil
	end := func(i int, a plan.Answer, state assign.State, reason assign.Reason) {
		r.answered = append(r.answered, a.Request)
		if k := r.waiting[i].click; k != nil {
			served.add(k, state, len(a.Grants), reason, r.state.Lease)
		} else {
			ended.add(a.Request, state, len(a.Grants), reason)
			r.ends[state]++
			r.waits = append(r.waits, r.waiting[i].waited)
		}
	}
	for _, id := range r.over {
		r.answered = append(r.answered, id)
		ended.add(id, assign.Cancelled, 0, "")
		r.ends[assign.Cancelled]++
	}
	gone := make([]bool, len(offers))
	after := settlement{spent: p.Spent}
	for i, a := range p.Answers {
		after.used = after.used || a.Outcome != plan.Linger || r.waiting[i].unread
		if k := r.waiting[i].click; k != nil && (a.Outcome == plan.Wait || a.Outcome == plan.Linger) {
			served.add(k, assign.Pending, 0, "", r.state.Lease)
		}
		switch a.Outcome {
		case plan.Wait:
			if from.source() == plan.Result || !p.Spent && r.run == 0 {
				forRun = append(forRun, a.Request)
			} else if r.run != 0 {
				forShelf = append(forShelf, a.Request)
			}
		case plan.Linger:
			lingering.add(a.Request, assign.Pending, 0, reasons[a.Reason])
			r.freed = r.freed || r.waiting[i].unread || r.run != 0
		case plan.Assigned:
			end(i, a, assign.Assigned, "")
		case plan.Partial:
			end(i, a, assign.Partial, reasons[a.Reason])
		case plan.None:
			end(i, a, assign.None, reasons[a.Reason])
		}
		for _, g := range a.Grants {
			granted.add(r.waiting[i], &offers[g.Item], g.Slot, r.state.Lease)
			if offers[g.Item].Slots == 1 {
				gone[g.Item] = true
				after.gone++
			}
		}
	}
	var wrote pg.Writes
	wrote.Queue(pg.AnyNumber, "savepoint planned")
	served.insert(&wrote, r, from)
	var given func(int, assign.Work)
	if len(served.byID) > 0 {
		given = func(i int, w assign.Work) { served.given(&granted, i, w) }
	}
	granted.insert(&wrote, r, from.runID(), given)
	r.given = len(granted.items)
	if len(ended.ids) > 0 {
		wrote.Queue(len(ended.ids), r.e.SQL(answerRequests), r.id, from.runID(), ended.ids, ended.states, ended.counts, ended.reasons,
			from.rankedAt(), from.stale())
	}
	if len(lingering.ids) > 0 {
		wrote.Queue(pg.AnyNumber, r.e.SQL(leaveLingering), lingering.ids, lingering.reasons, r.state.RerunAfter, nextUntil(offers))
	}
	if len(forRun) > 0 {
		wrote.Queue(len(forRun), r.e.SQL(leaveForRun), forRun, from.source() == plan.Result)
	}
	if len(forShelf) > 0 {
		wrote.Queue(len(forShelf), r.e.SQL(leaveForShelf), forShelf, r.run)
	}
	after.next, after.handed = nextRank(offers, gone, all), granted.items
	statement, args := from.settle(after)
	renewal := func(row pgx.CollectableRow) error {
		r.shelf = &shelfScan{}
		return row.Scan(r.shelf.into()...)
	}
	wrote.Read(pg.AnyNumber, renewal, r.e.SQL(statement), append([]any{r.task}, args...)...)
	last := r.last != nil && r.last(&wrote)
	r.queueAnnouncement(&wrote, r.run == 0 && len(ended.ids) == 0)
	send := wrote.Send
	if last {
		send = wrote.SendLast
	}
	if err := send(ctx, r.tx); err != nil {
		return fmt.Errorf("write the round: %w", err)
	}
	return nil
}

// nextUntil returns when the first offer is available again to a user who has put it off; nil: never.
func nextUntil(offers []offer) (next *time.Time) {
	for _, o := range offers {
		if o.until != nil && (next == nil || o.until.Before(*next)) {
			next = o.until
		}
	}
	return next
}

// nextRank returns the rank of the first item that can still be handed out later. Items with several places stay, because a
// place that becomes free can be given again.
func nextRank(offers []offer, gone []bool, all bool) int64 {
	for i := range offers {
		if !gone[i] {
			return offers[i].cand.Rank
		}
	}
	switch {
	case all: // items that can't be handed out now were taken since the run, and can't be later either
		return math.MaxInt64
	case len(offers) > 0:
		return offers[len(offers)-1].cand.Rank + 1
	}
	return 1 // no request waits, so nothing was read
}
