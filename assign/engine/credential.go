package engine

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/notify"
)

// A request records the credential that its user showed, and until when that is valid. When the credential ends, three
// defences keep the request from being served:
//
//   - The transaction of the end cancels what waits ([Engine.EndCredentials]).
//   - A click that commits beside the end is not seen there. Every node reads such requests until no click can be under
//     way any more ([Engine.CancelEnded]). A change of groups does not see such a click, either: the same check mends its groups.
//   - A round asks under the assign lock about those whom it would serve. A user whose credential ended before the round
//     took the lock gets nothing, even if the other two have not reached their request yet.
//
// Under --auth dev there are no credentials, and none of this is asked.
var (
	errEnded = assign.Refuse(assign.Unauthenticated, "your log-in has ended; log in again")

	// errSettle says that a click of the batch shows a credential that has ended, or another one than its holder's waiting
	// request has. That is settled in a transaction of its own, and then the batch is recorded again. In the batch's own
	// transaction rows would be locked in another order.
	errSettle = assign.Refuse(assign.Unavailable, "your log-in changed while your click was recorded; click again")
)

// proof is a credential, and until when it is good; zero: it does not end by itself.
type proof struct {
	credential string
	until      time.Time
}

func proofOf(c assign.Click) proof { return proof{c.Credential, inMicroseconds(c.ValidUntil)} }

// inMicroseconds returns a time as the database keeps it.
func inMicroseconds(t time.Time) time.Time {
	if t.IsZero() {
		return time.Time{}
	}
	return t.UTC().Truncate(time.Microsecond)
}

// proofsOf returns what the clicks show, each once. Programs of one user often share a token.
func proofsOf(clicks []*click) (all []proof) {
	seen := map[proof]bool{}
	for _, k := range clicks {
		if p := proofOf(k.Click); p.credential != "" && !seen[p] {
			seen[p] = true
			all = append(all, p)
		}
	}
	return all
}

// proofColumns returns the arguments of selectEnded.
func proofColumns(proofs []proof) (credentials []string, untils []*time.Time) {
	for _, p := range proofs {
		credentials, untils = append(credentials, p.credential), append(untils, orNull(p.until))
	}
	return credentials, untils
}

// selectEnded returns the numbers, from 1, of the proofs that are no good any more.
const selectEnded = `
select c.n
from unnest($1::text[], $2::timestamptz[]) with ordinality as c (credential, until, n)
where c.until <= clock_timestamp() or c.credential in (select e from getwork.ended_among($1) e)`

// endedOf returns which of the proofs are no good any more, as this statement sees them.
func (e *Engine) endedOf(ctx context.Context, tx pgx.Tx, proofs []proof) (map[proof]bool, error) {
	credentials, untils := proofColumns(proofs)
	rows, err := tx.Query(ctx, e.SQL(selectEnded), credentials, untils)
	var numbers []int
	if err == nil {
		numbers, err = pgx.CollectRows(rows, pgx.RowTo[int])
	}
	if err != nil {
		return nil, fmt.Errorf("ask whether a log-in has ended: %w", err)
	}
	ended := make(map[proof]bool, len(numbers))
	for _, n := range numbers {
		ended[proofs[n-1]] = true
	}
	return ended, nil
}

// standing returns what is recorded for the clicks of one holder: what the first asks for, on the newest one's credential and
// groups, for as long as one of them is good.
func standing(clicks []*click) assign.Click {
	c, last := clicks[0].Click, clicks[len(clicks)-1]
	if last.Credential == "" {
		return c
	}
	c.Credential, c.Groups, c.Anything, c.Program = last.Credential, last.Groups, last.Anything, last.Program
	for _, k := range clicks {
		if c.ValidUntil.IsZero() || k.ValidUntil.IsZero() {
			c.ValidUntil = time.Time{}
			break
		}
		c.ValidUntil = latest(c.ValidUntil, k.ValidUntil)
	}
	return c
}

func latest(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// rebinds reports whether a click binds its holder's waiting request to another credential, or makes it valid for longer.
func rebinds(c assign.Click, credential string, until *time.Time) bool {
	if c.Credential == "" {
		return false
	}
	longer := until != nil && (c.ValidUntil.IsZero() || inMicroseconds(c.ValidUntil).After(*until))
	return longer || c.Credential != credential
}

const rebindClicks = `
with mine as (
  select r.id, c.credential, c.valid_until, c.groups, c.program
  from unnest($2::text[], $3::text[], $4::text[], $5::timestamptz[], $6::text[], $7::boolean[]) as c (user_name, instance, credential, valid_until, groups, program)
  join getwork.work_requested r on r.task_id = $1 and r.user_name = c.user_name and r.instance = c.instance and r.state = 'pending'
  order by r.id
  for update of r
)
update getwork.work_requested r
set credential = m.credential,
    valid_until = case when r.valid_until is not null and m.valid_until is not null then greatest(r.valid_until, m.valid_until) end,
    groups = m.groups::text[], program = m.program
from mine m
where r.id = m.id and r.state = 'pending'`

// settle refuses the clicks whose credential has ended, binds the waiting requests of the other clicks' holders to what those
// show, and returns the other clicks.
func (e *Engine) settle(ctx context.Context, task int64, batch []*click) (others []*click, err error) {
	var ended map[proof]bool
	err = e.transact(ctx, func(tx pgx.Tx) (err error) {
		if ended, err = e.endedOf(ctx, tx, proofsOf(batch)); err != nil {
			return err
		}
		others = slices.DeleteFunc(slices.Clone(batch), func(k *click) bool { return ended[proofOf(k.Click)] })
		byHolder := map[assign.Holder][]*click{}
		for _, k := range others {
			byHolder[k.holder] = append(byHolder[k.holder], k)
		}
		var users, instances, credentials []string
		var untils []*time.Time
		var groups []*string
		var programs []bool
		for h, clicks := range byHolder {
			if as := standing(clicks); as.Credential != "" {
				users, instances, credentials = append(users, h.User), append(instances, h.Instance), append(credentials, as.Credential)
				untils, groups = append(untils, orNull(proofOf(as).until)), append(groups, groupsOf(as))
				programs = withTrue(programs, len(users)-1, as.Program)
			}
		}
		_, err = tx.Exec(ctx, e.SQL(rebindClicks), task, users, instances, credentials, untils, groups, programs)
		return err
	})
	if err != nil {
		return batch, fmt.Errorf("settle who asks: %w", err)
	}
	for _, k := range batch {
		if ended[proofOf(k.Click)] {
			k.err = errEnded
		}
	}
	return others, nil
}

// dropEnded takes the requests out of the round that the plan serves although their credential has ended, and all others of
// those credentials: the round cancels them, and plans again. The statement comes after the assign lock's, and so sees every
// end that was committed before. Requests that get nothing are not asked about, because thousands may linger.
func (r *round) dropEnded(ctx context.Context, p plan.Plan) (dropped bool, err error) {
	var asked []proof
	for i, a := range p.Answers {
		if w := r.waiting[i]; len(a.Grants) > 0 && w.credential != "" && !r.alive[w.credential] {
			r.lives(w.credential)
			asked = append(asked, proof{credential: w.credential})
		}
	}
	if len(asked) == 0 {
		return false, nil
	}
	ended, err := r.e.endedOf(ctx, r.tx, asked)
	if err != nil || len(ended) == 0 {
		return false, err
	}
	for p := range ended {
		delete(r.alive, p.credential)
	}
	r.setAside(func(w waiter) bool { return w.click == nil && ended[proof{credential: w.credential}] })
	return true, nil
}

// lives notes that a credential had not ended when the round asked.
func (r *round) lives(credential string) {
	if r.alive == nil {
		r.alive = map[string]bool{}
	}
	r.alive[credential] = true
}

// setAside makes the round cancel requests instead of serving them.
func (r *round) setAside(which func(waiter) bool) {
	r.waiting = slices.DeleteFunc(r.waiting, func(w waiter) bool {
		is := which(w)
		if is {
			r.over = append(r.over, w.id)
		}
		return is
	})
}

const lockCredentials = `
select r.id
from getwork.work_requested r
where r.state = 'pending' and r.credential is not null and r.credential = any($1::text[])
order by r.id
for update`

// LockCredentials locks what waits under these credentials, in the order of the requests' ids, as a round does. A transaction that
// changes some of it in several steps begins so. Otherwise it may hold a request that a round waits for, and then wait for one that
// the round holds; PostgreSQL ends one of the two, and with a run's round the query's result is lost.
func (e *Engine) LockCredentials(ctx context.Context, tx pgx.Tx, credentials []string) error {
	if _, err := tx.Exec(ctx, e.SQL(lockCredentials), credentials); err != nil {
		return fmt.Errorf("lock requests of a log-in: %w", err)
	}
	return nil
}

const rebindPending = `
with mine as (
  select r.id
  from getwork.work_requested r
  where r.state = 'pending' and r.credential is not null and r.credential = any($2::text[]) and r.user_name = $1
  order by r.id
  for update
)
update getwork.work_requested r
set credential = $3,
    valid_until = case when r.valid_until is not null and $4::timestamptz is not null then greatest(r.valid_until, $4) end
from mine m
where r.id = m.id and r.state = 'pending'`

// Rebind moves a user's waiting requests from the credentials that a log-in replaces to its own; nothing is cancelled. It
// belongs in the transaction of the log-in. until is when the new one ends; zero: not by itself.
func (e *Engine) Rebind(ctx context.Context, tx pgx.Tx, user string, from []string, to string, until time.Time) error {
	if _, err := tx.Exec(ctx, e.SQL(rebindPending), user, from, to, orNull(inMicroseconds(until))); err != nil {
		return fmt.Errorf("move requests to another log-in: %w", err)
	}
	return nil
}

const regroupPending = `
with mine as (
  select r.id
  from getwork.work_requested r
  where r.state = 'pending' and r.credential is not null and r.credential = any($1::text[]) and r.groups is distinct from $2::text[]
  order by r.id
  for update
)
update getwork.work_requested r
set groups = $2
from mine m
where r.id = m.id and r.state = 'pending'
returning r.task_id, r.id`

// ChangeGroups gives what waits under these credentials other groups. It belongs in the transaction that changes them. Rounds
// go by the new groups, and end what they read of those who may not have the task any more with nothing. Without groups a user may
// have only tasks that are for everybody, also if they needed none before.
func (e *Engine) ChangeGroups(ctx context.Context, tx pgx.Tx, credentials, groups []string) ([]notify.Change, error) {
	if groups == nil {
		groups = []string{} // null would mean that they need none
	}
	changes, err := requestsOf(ctx, tx, e.SQL(regroupPending), credentials, groups)
	if err != nil {
		return nil, fmt.Errorf("change the groups of waiting requests: %w", err)
	}
	return changes, nil
}

// orNull returns nil for no time.
func orNull(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}
