package engine

import (
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
)

// A round on a fresh shelf or an inbox records the clicks that it serves in their final state: one row written once, instead
// of one that waits and is answered by the next statement. The answer is built from what was written, so nothing is read
// again.

// recordInline makes the round record these clicks, too. A holder who has a pending request already gets that one. A holder who clicks on
// this task alone and over several gets one request here, and the other click is left to other tasks.
func (r *round) recordInline(batch []*click) {
	r.clicks = map[assign.Holder][]*click{}
	for _, k := range sortedHolders(batch) {
		first := r.clicks[k.holder]
		if first == nil {
			r.clickers = append(r.clickers, k.holder)
		} else if (first[0].targets == nil) != (k.targets == nil) {
			if k.targets == nil {
				leave(first)
				r.clicks[k.holder] = []*click{k}
			} else {
				k.err = errElsewhere
			}
			continue
		}
		r.clicks[k.holder] = append(first, k)
	}
}

// ticket is what a round reads for a holder who clicks.
type ticket struct {
	id         int64 // for a request; from the sequence under the assign lock, so it is later than those of all whom the round can see
	holder     assign.Holder
	own        int64 // the request that waits already; 0: none
	credential string
	validUntil *time.Time
}

// It asks for each holder's own request: those who wait are not all read. "+ 0" and "limit" are as in insertRequests. The sub-queries
// hide how many holders there are, for which there would be a new plan each time; see atMost.
const selectTickets = `
select nextval('getwork.work_requested_id_seq'), c.user_name, c.instance, coalesce(own.id, 0), coalesce(own.credential, ''), own.valid_until
from unnest((select $1::bigint[]), (select $2::text[]), (select $3::text[])) as c (line, user_name, instance)
left join lateral (
  select p.id, p.credential, p.valid_until
  from getwork.work_requested p
  where p.task_id + 0 = c.line and p.user_name = c.user_name and p.instance = c.instance and p.state = 'pending'
  limit 1) own on true`

// queueTickets asks for the tickets of holders, whose lines are those of their clicks.
func queueTickets(r *round, batch *pgx.Batch, holders []assign.Holder, lines []int64) {
	var users, instances []string
	for _, h := range holders {
		users, instances = append(users, h.User), append(instances, h.Instance)
	}
	batch.Queue(r.e.SQL(selectTickets), lines, users, instances)
}

func readTickets(results pgx.BatchResults) ([]ticket, error) {
	rows, err := results.Query()
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (t ticket, err error) {
		err = row.Scan(&t.id, &t.holder.User, &t.holder.Instance, &t.own, &t.credential, &t.validUntil)
		return t, err
	})
}

// inline returns the clicks that are not recorded yet as waiters, one for each holder. errSettle: a click makes its holder's
// waiting request stand on something else.
func (r *round) inline(tickets []ticket) (clicked []waiter, err error) {
	ids := make([]int64, 0, len(tickets))
	of := make(map[assign.Holder]ticket, len(tickets))
	for _, t := range tickets {
		ids, of[t.holder] = append(ids, t.id), t
	}
	slices.Sort(ids)
	for i, h := range r.clickers {
		id, t := ids[i], of[h]
		if t.own != 0 {
			id = t.own
		}
		var here []*click // that this request answers
		for _, k := range r.clicks[h] {
			k.id, k.lost, k.inserted, k.answer, k.err = id, false, "", nil, nil
			if k.followed(r.ahead.made) {
				continue
			}
			if here = append(here, k); len(here) == 1 && t.own == 0 && k.Key != "" {
				r.ahead.made[k.keyOf()] = keyed{id, bodyOf(k.Click)} // if the round plans again, they are read again
			}
		}
		if len(here) == 0 {
			continue
		}
		as := standing(here)
		if t.own != 0 {
			if rebinds(as, t.credential, t.validUntil) && len(leave(here)) > 0 {
				return nil, errSettle
			}
			continue
		}
		k := here[0]
		k.recorded = as
		clicked = append(clicked, waiter{id: id, holder: h, wanted: k.Count, lingers: k.Linger > 0, unread: true,
			groups: waitersGroups(assign.Who{Holder: k.Holder, Groups: as.Groups, Anything: as.Anything}), program: as.Program, lease: k.Lease, click: k})
	}
	return clicked, nil
}

// Sorted by holder, like every insert of requests: a batch on another node, which holds no assign lock, may insert the same
// holder or key. This insert then waits for it. If it commits, a unique index refuses this insert, and the round plans again, with the
// other request among those that wait or that keys have made.
const insertInline = `
insert into getwork.work_requested (id, task_id, user_name, instance, wanted, requested, assigned, state, reason, created_at,
  linger_until, completed_at, lease, groups, credential, valid_until, round_id, run_id, ranked_at, stale, traceparent,
  key, key_scope, key_body, program, targets)
overriding system value
select c.id, $1, c.user_name, c.instance, c.wanted, case when c.state = 'pending' then c.wanted else c.assigned end, c.assigned,
  c.state, c.reason, now.at,
  case when c.linger > 0 then now.at + c.linger * interval '1 microsecond' end,
  case when c.state <> 'pending' then now.at end,
  c.lease * interval '1 microsecond',
  c.groups::text[], c.credential, c.valid_until,
  case when c.state <> 'pending' then $2::bigint end, case when c.state <> 'pending' then $3::bigint end,
  case when c.assigned > 0 then $16::timestamptz end, c.assigned > 0 and $17, c.traceparent,
  c.key, case when c.key is null then null when c.targets is null then $1::bigint else 0 end, c.key_body, c.program, c.targets::bigint[]
from unnest($4::bigint[], $5::text[], $6::text[], $7::integer[], $8::text[], $9::integer[], $10::text[], $11::bigint[], $12::bigint[], $13::text[],
  $14::text[], $15::timestamptz[], $18::text[], $19::text[], $20::text[], $21::boolean[], $22::text[])
  as c (id, user_name, instance, wanted, state, assigned, reason, linger, lease, groups, credential, valid_until, traceparent, key, key_body, program, targets)
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
	keys, bodies     []*string
	programs         []bool
	targets          []*string

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
	s.traces = withText(s.traces, len(s.users)-1, k.recorded.Traceparent)
	s.programs = withTrue(s.programs, len(s.users)-1, k.recorded.Program)
	s.keys, s.bodies = withKey(s.keys, s.bodies, len(s.users)-1, k.Click)
	if k.targets != nil {
		s.targets = withText(s.targets, len(s.users)-1, arrayOf(k.targets))
	}
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
		State: state, Lease: asked, Work: []assign.Work{}, Tasks: k.names}
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
		from.rankedAt(), from.stale(), s.traces, s.keys, s.bodies, s.programs, s.targets)
}

// given adds work, as it was written, to the answer of its click.
func (s *inlineRequests) given(g *grants, i int, w assign.Work) {
	k := s.byID[g.requests[i]]
	if k == nil || k.answer == nil {
		return
	}
	k.answer.Work = append(k.answer.Work, w)
}

// share answers a holder's other clicks with the answer of the one that was recorded.
func (r *round) share() {
	for _, clicks := range r.clicks {
		var recorded *assign.Request
		for _, k := range clicks {
			if !k.lost && recorded == nil {
				recorded = k.answer
			} else if !k.lost {
				k.answer = recorded
			}
		}
	}
}

// prefetch is what a round that serves clicks is going to read, asked for in the same round trip as the lock. Each statement
// sees what was committed when it begins, so those after the lock's see what the lock protects.
type prefetch struct {
	asked  int     // at most so many offers were asked for
	proofs []proof // what the clicks show
	ended  bool    // some of it is no good any more

	counted []counted // who clicks, if work was counted when clicks last met their task
	holds   map[counted]holding

	line
	tickets []ticket
	users   []string        // of the clicks that have keys
	keys    []string        // theirs
	scopes  []int64         // theirs
	made    map[keyOf]keyed // the requests that those have made
	unused  bool            // no round has taken line, tickets and made
	offers  []offer         // the shelf's best; only for tasks that conflict with none
}

// The scalar sub-queries let the index give the order. Joined to the state, the whole shelf would be sorted.
const selectShelfPrefetch = `
select c.rank, c.item, c.details::text, c.deadline, ` + AvailabilityColumns + `
from getwork.candidate c join getwork.run u on u.id = c.run_id` + availabilityUnconflicted + `
where c.run_id = (select s.shelf_run from getwork.task_state s where s.task_id = $1)
  and c.rank >= (select s.shelf_from from getwork.task_state s where s.task_id = $1) and not st.gone
order by c.rank`

// best limits selectShelfPrefetch to the best $2 rows, n of them. The sub-query hides the number: with it in the text, as by atMost, a
// connection would have a statement for each size of a batch, and plan each of them five times before it keeps a plan. The limit in the
// text, one of few, keeps PostgreSQL from expecting a tenth of the shelf, for which a plan of its own for each task would seem cheaper.
func best(statement string, n int) string {
	most := 64
	for most < n {
		most *= 8
	}
	return fmt.Sprintf("select * from (%s\nlimit %d) b\norder by rank\nlimit (select $2::bigint)", statement, most)
}

// queue adds the statements after the lock's. read takes their results in the same order.
func (a *prefetch) queue(r *round, batch *pgx.Batch, clicks []*click) {
	a.asked = wanted(clicks)
	a.both = r.e.nexts.Load()
	a.line.queue(r, batch, 0)
	holders, lines := make([]assign.Holder, 0, len(clicks)), make([]int64, 0, len(clicks))
	for _, k := range clicks {
		holders, lines = append(holders, k.holder), append(lines, k.line(r.task))
	}
	queueTickets(r, batch, holders, lines)
	batch.Queue(r.e.SQL(best(selectShelfPrefetch, a.asked)), r.task, a.asked)
	if a.proofs = proofsOf(clicks); len(a.proofs) > 0 {
		credentials, untils := proofColumns(a.proofs)
		batch.Queue(r.e.SQL(selectEnded), credentials, untils)
	}
	if r.e.counts.Load() {
		a.holds = make(map[counted]holding, len(clicks))
		for _, k := range clicks {
			of := countedOf(k.holder.User, k.Click)
			if _, known := a.holds[of]; !known {
				a.holds[of], a.counted = holding{}, append(a.counted, of)
			}
		}
		queueHeld(r, batch, a.counted)
	}
	a.users, a.keys, a.scopes = keysOf(clicks, r.task)
	a.queueKeys(r, batch)
}

// queueKeys asks for the requests that the clicks' keys have made. It comes after the tickets: if a request is recorded in between, its
// holder seems to have none, and its key is found.
func (a *prefetch) queueKeys(r *round, batch *pgx.Batch) {
	if len(a.keys) > 0 {
		batch.Queue(r.e.SQL(selectKeys), a.scopes, a.users, a.keys)
	}
}

// readKeys takes the result of queueKeys.
func (a *prefetch) readKeys(results pgx.BatchResults) (err error) {
	if len(a.keys) == 0 {
		return nil
	}
	rows, err := results.Query()
	if err == nil {
		a.made, err = readKeys(rows)
	}
	return err
}

func (a *prefetch) read(results pgx.BatchResults) error {
	err := a.line.read(results)
	if err == nil {
		a.tickets, err = readTickets(results)
	}
	var rows pgx.Rows
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
	if err == nil && a.counted != nil {
		err = readHeld(results, a.counted, a.holds)
	}
	if err == nil {
		err = a.readKeys(results)
	}
	if err != nil {
		return fmt.Errorf("read waiting requests and the shelf: %w", err)
	}
	a.unused = true
	return nil
}

// shelf returns the best n offers of the shelf, if they were prefetched.
func (a *prefetch) shelf(r *round, n int) (offers []offer, known bool) {
	if a == nil || a.offers == nil || n > a.asked || len(r.state.conflicts) > 0 || r.state.needs != nil {
		return nil, false
	}
	offers, a.offers = a.offers, nil // only once: if the round plans again, something has changed
	return offers[:min(n, len(offers))], true
}
