package engine

import (
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

// A round on a fresh shelf or an inbox records the clicks that it serves in their final state: one row written once, instead
// of one that waits and is answered by the next statement. The answer is built from what was written, so nothing is read
// again.

// recordInline makes the round record these clicks, too. A holder who has a pending request already gets that one.
func (r *round) recordInline(batch []*click) {
	r.clicks = map[assign.Holder][]*click{}
	for _, k := range sortedHolders(batch) {
		if !k.lost {
			if r.clicks[k.holder] == nil {
				r.clickers = append(r.clickers, k.holder)
			}
			r.clicks[k.holder] = append(r.clicks[k.holder], k)
		}
	}
}

// The ids come from the sequence under the assign lock, so they are later than those of all requests that the round can see
// waiting.
const selectIDs = `
select nextval('getwork.work_requested_id_seq')
from generate_series(1, (select $1::integer))`

// withInline adds the clicks that are not recorded yet to the waiters, behind those who waited before. errSettle: a click makes
// its holder's waiting request stand on something else.
func (r *round) withInline(waiting []waiter, ids []int64) ([]waiter, error) {
	before := make(map[assign.Holder]*waiter, len(waiting))
	for i := range waiting {
		before[waiting[i].holder] = &waiting[i]
	}
	for i, h := range r.clickers {
		id, k := ids[i], r.clicks[h][0]
		as := standing(r.clicks[h])
		if w := before[h]; w != nil {
			if rebinds(as, w.credential, w.validUntil) {
				return nil, errSettle
			}
			id = w.id
		} else {
			k.recorded = as
			waiting = append(waiting, waiter{id: id, holder: h, wanted: k.Count, lingers: k.Linger > 0, unread: true,
				groups: waitersGroups(assign.Who{Holder: k.Holder, Groups: as.Groups, Anything: as.Anything}), lease: k.Lease, click: k})
		}
		for _, k := range r.clicks[h] {
			k.id, k.inserted, k.answer = id, "", nil
		}
	}
	return waiting, nil
}

// Sorted by holder, like every insert of requests: a batch on another node, which holds no assign lock, may insert the same
// holder. This insert then waits for it. If it commits, the unique index refuses this insert, and the round plans again, with the
// other request among those that wait.
const insertInline = `
insert into getwork.work_requested (id, task_id, user_name, instance, wanted, requested, assigned, state, reason, created_at,
  linger_until, completed_at, lease, groups, credential, valid_until, round_id, run_id, ranked_at, stale, traceparent)
overriding system value
select c.id, $1, c.user_name, c.instance, c.wanted, case when c.state = 'pending' then c.wanted else c.assigned end, c.assigned,
  c.state, c.reason, now.at,
  case when c.linger > 0 then now.at + c.linger * interval '1 microsecond' end,
  case when c.state <> 'pending' then now.at end,
  c.lease * interval '1 microsecond',
  c.groups::text[], c.credential, c.valid_until,
  case when c.state <> 'pending' then $2::bigint end, case when c.state <> 'pending' then $3::bigint end,
  case when c.assigned > 0 then $16::timestamptz end, c.assigned > 0 and $17, c.traceparent
from unnest($4::bigint[], $5::text[], $6::text[], $7::integer[], $8::text[], $9::integer[], $10::text[], $11::bigint[], $12::bigint[], $13::text[],
  $14::text[], $15::timestamptz[], $18::text[])
  as c (id, user_name, instance, wanted, state, assigned, reason, linger, lease, groups, credential, valid_until, traceparent)
cross join (select clock_timestamp() as at offset 0) now
order by c.user_name, c.instance
returning id, created_at, linger_until, completed_at`

// inlineRequests holds the columns of insertInline.
type inlineRequests struct {
	users, instances []string
	wanted           []int32
	answers          answers
	lingers          []int64
	leases           []*int64
	groups           []*string
	credentials      []*string
	untils           []*time.Time
	traces           []*string

	byID map[int64]*click
}

// add records a click in its final state; lease is the task's.
func (s *inlineRequests) add(k *click, state assign.State, count int, reason assign.Reason, lease *assign.Duration) {
	s.answers.add(k.id, state, count, reason)
	s.users = append(s.users, k.holder.User)
	s.instances = append(s.instances, k.holder.Instance)
	s.wanted = append(s.wanted, int32(k.Count))
	s.lingers = append(s.lingers, k.Linger.Microseconds())
	s.groups = append(s.groups, groupsOf(k.recorded))
	s.credentials = append(s.credentials, credentialOf(k.recorded))
	s.untils = append(s.untils, orNull(inMicroseconds(k.recorded.ValidUntil)))
	s.traces = withTrace(s.traces, len(s.users)-1, k.recorded.Traceparent)
	asked := k.Lease
	if lease != nil {
		asked = nil
	}
	s.leases = append(s.leases, microseconds(asked))
	if s.byID == nil {
		s.byID = map[int64]*click{}
	}
	s.byID[k.id] = k
	k.inserted = state
	if state == assign.Pending {
		return // it is read again, together with its position
	}
	k.answer = &assign.Request{ID: k.id, User: k.holder.User, Instance: k.holder.Instance, Wanted: k.Count, Requested: count, Assigned: count,
		State: state, Lease: asked, Work: []assign.Work{}}
	if reason != "" {
		k.answer.Reason = &reason
	}
}

// insert queues the requests' rows.
func (s *inlineRequests) insert(x *pg.Writes, r *round, from supply) {
	if len(s.answers.ids) == 0 {
		return
	}
	read := func(row pgx.CollectableRow) error {
		var id int64
		var created time.Time
		var linger, completed *time.Time
		if err := row.Scan(&id, &created, &linger, &completed); err != nil {
			return err
		}
		a := s.byID[id].answer
		if a == nil {
			return nil
		}
		a.Task, a.TaskID = r.state.Name, r.task
		if a.Assigned > 0 {
			a.RankedAt, a.Stale = assign.UTC(from.rankedAt()), from.stale()
		}
		a.CreatedAt, a.LingerUntil, a.CompletedAt = created.UTC(), assign.UTC(linger), assign.UTC(completed)
		return nil
	}
	x.Read(len(s.answers.ids), read, r.e.SQL(insertInline), r.task, r.id, from.runID(), s.answers.ids, s.users, s.instances, s.wanted,
		s.answers.states, s.answers.counts, s.answers.reasons, s.lingers, s.leases, s.groups, s.credentials, s.untils,
		from.rankedAt(), from.stale(), s.traces)
}

// given adds work, as it was written, to the answer of its click.
func (s *inlineRequests) given(g *grants, i int, w assign.Work) {
	k := s.byID[g.requests[i]]
	if k == nil || k.answer == nil {
		return
	}
	k.answer.Work = append(k.answer.Work, w)
}

// share answers a holder's other clicks with the first one's answer.
func (r *round) share() {
	for _, clicks := range r.clicks {
		for _, k := range clicks[1:] {
			k.answer = clicks[0].answer
		}
	}
}

// prefetch is what a round that serves clicks is going to read, asked for in the same round trip as the lock. Each statement
// sees what was committed when it begins, so those after the lock's see what the lock protects.
type prefetch struct {
	asked   int     // at most so many offers were asked for
	proofs  []proof // what the clicks show
	ended   bool    // some of it is no good any more
	keys    *keys   // what the clicks' keys are; nil: they have none
	waiting []waiter
	ids     []int64
	offers  []offer // the shelf's best; only for tasks that conflict with none
}

// The scalar sub-queries let the index give the order. Joined to the state, the whole shelf would be sorted.
const selectShelfPrefetch = `
select c.rank, c.item, c.details::text, ` + availabilityColumns + `
from getwork.candidate c join getwork.run u on u.id = c.run_id` + availabilityUnconflicted + `
where c.run_id = (select s.shelf_run from getwork.task_state s where s.task_id = $1)
  and c.rank >= (select s.shelf_from from getwork.task_state s where s.task_id = $1) and not st.gone
order by c.rank`

// queue adds the statements after the lock's. read takes their results in the same order.
func (a *prefetch) queue(r *round, batch *pgx.Batch, clicks []*click) {
	var limit string
	limit, a.asked = atMost(wanted(clicks))
	batch.Queue(r.e.SQL(selectWaiting), r.task)
	batch.Queue(r.e.SQL(selectIDs), len(clicks))
	batch.Queue(r.e.SQL(selectShelfPrefetch+limit), r.task)
	if a.proofs = proofsOf(clicks); len(a.proofs) > 0 {
		credentials, untils := proofColumns(a.proofs)
		batch.Queue(r.e.SQL(selectEnded), credentials, untils)
	}
	if a.keys == nil {
		a.keys = keysOf(clicks)
	}
	if a.keys.unread() {
		a.keys.queue(r.e, batch, r.task)
	}
}

func (a *prefetch) read(results pgx.BatchResults) error {
	rows, err := results.Query()
	if err == nil {
		a.waiting, err = pgx.CollectRows(rows, scanWaiter)
	}
	if err == nil {
		rows, err = results.Query()
	}
	if err == nil {
		a.ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
	}
	if err == nil {
		rows, err = results.Query()
	}
	if err == nil {
		a.offers, err = pgx.CollectRows(rows, scanOffer)
	}
	if err == nil && len(a.proofs) > 0 {
		var ended []int
		if rows, err = results.Query(); err == nil {
			ended, err = pgx.CollectRows(rows, pgx.RowTo[int])
		}
		a.ended = len(ended) > 0
	}
	if err == nil && a.keys.unread() {
		if rows, err = results.Query(); err == nil {
			err = a.keys.read(rows)
		}
	}
	if err != nil {
		return fmt.Errorf("read waiting requests and the shelf: %w", err)
	}
	return nil
}

// shelf returns the best n offers of the shelf, if they were prefetched.
func (a *prefetch) shelf(r *round, n int) (offers []offer, known bool) {
	if a == nil || a.offers == nil || n > a.asked || len(r.state.conflicts) > 0 {
		return nil, false
	}
	offers, a.offers = a.offers, nil // only once: if the round plans again, something has changed
	return offers[:min(n, len(offers))], true
}
