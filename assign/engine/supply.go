package engine

import (
	"context"
	"errors"
	"fmt"
	"math/bits"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// offer is an item of a supply as the plan sees it, and what is written when it is handed out.
type offer struct {
	cand ranking.Candidate
	plan.Item
	attempt int        // the number of the attempt if it is handed out
	again   bool       // somebody has let go of it before
	from    *int64     // the completed work that an inbox's item went on from; nil: none
	until   *time.Time // for an item of an inbox with several places: when the first user who has put it off may have it again
}

// supply is where a round's items come from. source, cut, usable, used and stale are what [plan.Supply] has under these names.
type supply interface {
	source() plan.Source
	// take reads the best items that anybody could have now, at least n of them if there are that many. all: there are no
	// others.
	take(ctx context.Context, r *round, n int) (offers []offer, all bool, err error)
	cut() bool
	usable() bool         // whether there were any usable items, handed out or not
	used() bool           // items of the shelf were handed out since its run
	stale() bool          // the items are from a shelf that has expired
	runID() *int64        // the run that ranked the items; nil: none
	rankedAt() *time.Time // what that run saw was committed before; nil: none did
	needs() classes       // what the items need; nil: nothing

	// settle returns what the round's transaction writes to remember what it handed out. args begin with $2; $1 is the task. The
	// statement may return renewIn.
	settle(after settlement) (statement string, args []any)
}

// settlement is what a supply must remember of a round.
type settlement struct {
	next   int64    // candidates of a lower rank are gone
	froms  []int64  // likewise by class; nil: there are none
	gone   int      // how many items are used up
	used   bool     // a request was answered, or lingers from now on
	spent  bool     // the shelf ends
	handed []string // the items that were handed out
}

// shelfServes is true if the result of the run u on the shelf of task s may still be handed out: its time is not over, or it
// may go on serving while its refresh runs. ShelfFresh is true for the former alone. Neither is true of a shelf of a later time.
//
// The cluster must still be in the life in which the run was made. A cluster that was restored from a dump, or became the
// primary by logical replication, has other transaction ids. Every closing may then look older than the run's snapshot, and
// finished items would be handed out. A snapshot from the future is of another life, too. The time comes first, because it
// costs least.
const (
	ShelfFresh  = `(` + records.ShelfFresh + ` and ` + sameLife + `)`
	shelfServes = `(` + records.ShelfLasts + ` and ` + sameLife + `)`

	// shelfExpired is true if a shelf that serves does so by stale_for. It repeats what stale_for asks, because the clock goes on
	// within a statement: a shelf that was fresh a microsecond ago may have expired by now.
	shelfExpired = `coalesce(s.fresh_until <= clock_timestamp() and s.fresh_until = s.expires_at and v.stale_for > interval '0', false)`

	sameLife = `coalesce(u.cluster = getwork.cluster()
    and coalesce(pg_snapshot_xmax(u.snapshot) <= pg_snapshot_xmax(pg_current_snapshot()), true), false)`
)

// supply returns what a round hands out without a run: the inbox or the fresh shelf.
func (r *round) supply() supply {
	if r.state.Inbox() {
		return &inbox{round: r}
	}
	return shelf{r}
}

// shelf hands out what the last run left.
type shelf struct{ *round }

func (s shelf) source() plan.Source  { return plan.Shelf }
func (s shelf) cut() bool            { return s.state.shelfCut }
func (s shelf) usable() bool         { return s.state.shelfUsable > 0 && (!s.dropped || s.state.shelfTaken) }
func (s shelf) used() bool           { return s.state.shelfUsed }
func (s shelf) stale() bool          { return s.state.stale }
func (s shelf) runID() *int64        { return &s.state.shelfRun }
func (s shelf) rankedAt() *time.Time { return s.state.rankedAt }
func (s shelf) needs() classes       { return s.state.needs }

const selectShelf = `
select c.rank, c.item, c.details::text, c.deadline, ` + AvailabilityColumns + `
from getwork.candidate c join getwork.run u on u.id = c.run_id` + Availability + `
where c.run_id = $3 and c.rank >= $4 and not st.gone
order by c.rank`

// atMost ends a statement that is to return at least n rows, if there are that many, and at most a quarter more; most is how many.
//
// The number stands in the text. Were it a parameter, PostgreSQL would make a new plan for each execution, which takes longer than
// the execution: a plan for any number looks dear to it, because it expects a tenth of all rows. The few numbers, four for each
// power of two, keep the texts few, and so the plans that a connection keeps.
func atMost(n int) (limit string, most int) {
	step := 1 << max(bits.Len(uint(n))-3, 0)
	most = (n + step - 1) / step * step
	return "\nlimit " + strconv.Itoa(most), most
}

// take reads the shelf from where it was left: candidates of a lower rank were handed out, or can't be any more.
func (s shelf) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	if s.state.needs != nil {
		return s.takeByClass(ctx, r, n)
	}
	offers, known := r.ahead.shelf(r, n)
	if !known {
		limit, _ := atMost(n)
		rows, err := r.tx.Query(ctx, r.e.SQL(selectShelf+limit), r.task, s.state.conflicts, s.state.shelfRun, s.state.shelfFrom)
		if err == nil {
			offers, err = pgx.CollectRows(rows, scanOffer)
		}
		if err != nil {
			return nil, false, err
		}
		offers = offers[:min(n, len(offers))]
	}
	return offers, len(offers) < n, r.dropUnmatched(offers)
}

// dropUnmatched takes the places off items that no longer match. They stay on the shelf, since they may match again.
func (r *round) dropUnmatched(offers []offer) error {
	if r.state.Recheck == "" {
		return nil
	}
	if r.matching.By != r.state.Recheck {
		return errTooFewRechecked
	}
	for i := range offers {
		matches, known := r.matching.Items[offers[i].cand.Item]
		if !known {
			return errTooFewRechecked
		}
		if !matches {
			offers[i].Slots = 0
			r.dropped = true
		}
	}
	return nil
}

// scanOffer reads a rank, an item, its details and deadline, and its availability.
func scanOffer(row pgx.CollectableRow) (o offer, err error) {
	err = scanAvailability(row, &o, &o.cand.Rank, &o.cand.Item, &o.cand.Details, &o.cand.Deadline)
	return o, err
}

const settleShelf = `
update getwork.task_state s
set shelf_from = greatest(shelf_from, $2), fresh_until = case when $3 then clock_timestamp() else fresh_until end,
    shelf_left = greatest(shelf_left - $4, 0), used_at = case when $5 then clock_timestamp() else used_at end
from getwork.task_version v
where s.task_id = $1 and v.task_id = s.task_id and v.version = s.version
returning ` + renewIn

// settleClasses is settleShelf if its items need something.
var settleClasses = strings.Replace(settleShelf, "set ", "set shelf_froms = $6, ", 1)

// settle moves the shelf on. A spent shelf ends at once, and the next run replaces it.
func (s shelf) settle(after settlement) (string, []any) {
	if after.froms != nil {
		return settleClasses, []any{after.next, after.spent, after.gone, after.used, after.froms}
	}
	return settleShelf, []any{after.next, after.spent, after.gone, after.used}
}

// availabilityBase reads whether an item c (item, slots, exclusive) of the task $1 can be handed out now: who holds its
// places, who may not have it, and whether it is gone. u (snapshot, seen_until) is what the run that ranked the item saw, or
// nulls if none did. It reads the work that binds the item, and only the last of the work that is over.
//
// An item with one place is gone when it is held, put off or never to return. An item that was closed by a transaction that
// the run did not see is not handed out from that run either: the query may have ranked it by the state before. Transactions
// decide, not times: a closing can be stamped before a snapshot and commit after it. The transaction of a closing that we can
// see is older than the end of our own snapshot; a newer one belongs to another server's life, from which the tables were
// restored. Only the last closing of an item is asked. Nobody holds an item of a run's result while the query reads it, so whatever
// the query did not see was handed out, and closed, after all that it saw. Items with several places are never gone: held
// rows use places up, and work that was put off or is never to return binds its own user alone.
//
// A failed or expired attempt counts as an attempt; one that was put off or reassigned does not. After any other closing the
// next attempt is the first. Other holders of the item, whose attempts are not over, do not count.
const availabilityBase = `
cross join lateral (
  select array_agg(w.slot) filter (where w.state = 'held') as taken,
    array_agg(w.user_name) filter (where w.state = 'held') as users,
    array_agg(w.instance) filter (where w.state = 'held') as instances,
    array_agg(w.user_name) filter (where w.to_others or c.slots > 1 and w.state <> 'held') as barred,
    min(w.available_at) filter (where c.slots > 1 and ` + records.Blocks + `) as until,
    coalesce(bool_or(c.slots = 1 and ` + records.Blocks + `), false) as bound
  from ` + records.Binding + ` w
  where w.task_id = $1 and w.item = c.item
) now
left join lateral (
  select w.closed_xid, w.closed_at,
    case when w.state in ('failed', 'expired') then w.attempt + 1 when w.state in ('returned', 'reassigned') then w.attempt end as attempt
  from getwork.work w
  where w.task_id = $1 and ` + records.LastOf + ` and w.state <> 'held'
  ` + records.NewestFirst + `
) last on true
cross join lateral (
  select now.taken, now.users, now.instances, now.barred, now.until, coalesce(last.attempt, 1) as attempt, last.closed_at is not null as again,
    now.bound or coalesce(c.slots = 1 and (
      not pg_visible_in_snapshot(last.closed_xid, u.snapshot) and last.closed_xid < pg_snapshot_xmax(pg_current_snapshot())
      or last.closed_at > u.seen_until), false) as gone
) st`

// busy is true if another member of the item's group is held. "limit 1" makes it an index search for each item, instead of a
// hash of all held work.
const busy = `c.exclusive is not null and coalesce((
    select true from getwork.work w where w.task_id = $1 and w.exclusive = c.exclusive and w.state = 'held' limit 1), false) as busy`

// CompletedBy selects the users who have completed the item c of the task t.id, each by a look-up that begins after the one
// before, since a user may have completed it very often.
const CompletedBy = `(
    with recursive found as (
      (select w.user_name from getwork.work w
        where w.task_id = t.id and w.item = c.item and w.state = 'completed' order by w.user_name limit 1)
      union all
      select (select w.user_name from getwork.work w
        where w.task_id = t.id and w.item = c.item and w.state = 'completed' and w.user_name > found.user_name order by w.user_name limit 1)
      from found where found.user_name is not null
    )
    select user_name from found where user_name is not null
  )`

const (
	// Availability is availabilityBase, and the users whom the tasks $2 bar that $1 conflicts with.
	Availability = availabilityBase + `
cross join lateral (
  select case when $2::bigint[] <> '{}' then array(
    select w.user_name from unnest($2::bigint[]) t (id) cross join lateral (
      select user_name from getwork.work where task_id = t.id and item = c.item and state = 'held' order by slot) w -- see records.Binding
    union all
    select d.user_name from unnest($2::bigint[]) t (id) cross join lateral ` + CompletedBy + ` d) end as elsewhere, ` + busy + `
) eyes`

	// availabilityUnconflicted is Availability for a task that conflicts with none. The check for conflicts would cost a few
	// hundredths of a click.
	availabilityUnconflicted = availabilityBase + `
cross join lateral (select null::text[] as elsewhere, ` + busy + `) eyes`
)

// AvailabilityColumns are what [ScanItem] reads of Availability.
const AvailabilityColumns = `c.slots, c.exclusive, st.attempt, st.taken, st.users, st.instances, st.barred, eyes.elsewhere, eyes.busy, st.again`

// nothingSeen is u for items that no run has ranked.
const nothingSeen = `cross join (select null::pg_snapshot as snapshot, null::timestamptz as seen_until) u`

// scanAvailability reads a row whose first columns go into into, followed by AvailabilityColumns.
func scanAvailability(row pgx.Row, o *offer, into ...any) error {
	var users, instances, letGo, fourEyes []string
	err := row.Scan(append(into, &o.cand.Slots, &o.cand.Exclusive, &o.attempt, &o.Taken, &users, &instances, &letGo, &fourEyes, &o.Busy, &o.again)...)
	for i := range users {
		o.Holders = append(o.Holders, plan.Holder{User: users[i], Instance: instances[i]})
	}
	for _, user := range fourEyes {
		o.Barred = append(o.Barred, plan.Bar{User: user, Because: plan.FourEyes})
	}
	for _, user := range letGo {
		o.Barred = append(o.Barred, plan.Bar{User: user, Because: plan.LetGo})
	}
	o.Slots = o.cand.Slots
	if o.cand.Exclusive != nil {
		o.Exclusive = *o.cand.Exclusive
	}
	return err
}

// ScanItem reads such a row as the item that a round would plan with.
func ScanItem(row pgx.Row, into ...any) (plan.Item, error) {
	var o offer
	err := scanAvailability(row, &o, into...)
	return o.Item, err
}

// runResult hands out a run's result in the run's own round.
type runResult struct {
	ranking.Result
	run      int64
	dropped  bool            // some items did not match any more when they were rechecked
	ranked   *time.Time      // see records.RankedAt
	freshFor assign.Duration // how long the leftovers stay as the shelf; 0: not at all
	since    int64           // work with a higher id was begun after the run
	from     int64           // items of a lower rank are gone
}

const selectAvailable = `
select c.rank, ` + AvailabilityColumns + `
from unnest($3::bigint[], $4::text[], $5::integer[], $6::text[]) as c (rank, item, slots, exclusive)
cross join (select $7::text::pg_snapshot as snapshot, $8::timestamptz as seen_until) u` + Availability + `
where not st.gone
order by c.rank
limit $9`

func (o *runResult) cut() bool { return o.Cut || o.unchecked() }

// usable ignores items that no longer match and are not held, as if the query had never returned them. What was not rechecked may
// match.
func (o *runResult) usable() bool {
	return o.Given > o.PassedOver && (!o.dropped || o.Blocked > 0 || o.unchecked())
}

// unchecked reports whether part of the result was not rechecked.
func (o *runResult) unchecked() bool {
	return o.Matching.By != "" && len(o.Matching.Items) < len(o.Items)
}

func (o *runResult) source() plan.Source { return plan.Result }

func (o *runResult) used() bool { return false }

func (o *runResult) stale() bool { return false }

func (o *runResult) runID() *int64 { return &o.run }

func (o *runResult) rankedAt() *time.Time { return o.ranked }

func (o *runResult) needs() classes { return o.Needs }

// take reads which of the items can still be handed out: while the query ran, the old shelf, claims and users went on. It
// begins with the best, in growing chunks, until there are enough.
func (o *runResult) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	if o.Needs != nil {
		return o.takeByClass(ctx, r, n)
	}
	var free []offer
	chunk := max(256, 2*n)
	for from := 0; from < len(o.Items) && len(free) < n; chunk *= 4 {
		part := o.Items[from:min(from+chunk, len(o.Items))]
		found, err := o.available(ctx, r, part, n-len(free))
		if err != nil {
			return nil, false, err
		}
		free = append(free, found...)
		from += len(part)
	}
	return free, len(free) < n, nil
}

// available returns those of the items that can still be handed out, at most n.
func (o *runResult) available(ctx context.Context, r *round, part []ranking.Candidate, n int) ([]offer, error) {
	p := columnsOf(part)
	at := make(map[int64]int, len(part))
	for i, it := range part {
		at[it.Rank] = i
	}
	rows, err := r.tx.Query(ctx, r.e.SQL(selectAvailable), r.task, r.state.conflicts, p.ranks, p.items, p.slots, p.exclusives,
		o.Snapshot, o.SeenUntil, n)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f offer, err error) {
		var rank int64
		if err = scanAvailability(row, &f, &rank); err == nil {
			f.cand = part[at[rank]]
			f.Needs = o.NeedsOf(f.cand)
			if o.Matching.By != "" && !o.Matching.Items[f.cand.Item] { // it no longer matches, or was not rechecked
				f.Slots = 0
				o.dropped = true
			}
		}
		return f, err
	})
}

// A run that succeeded ends every back-off. Its leftovers are fresh from the end of the query on, not from its beginning;
// "now" is the database's clock_timestamp(), since now() has stood still since the lock.
const (
	settleRun = `
update getwork.task_state s
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    ` + settleTimes + `, used_at = case when $2 then clock.at else used_at end,
    last_run = $3, shelf_run = $3, shelf_from = $4, shelf_froms = null, shelf_cut = $5, shelf_left = $6,
    fresh_until = clock.at + $7::bigint * interval '1 microsecond', expires_at = clock.at + $7::bigint * interval '1 microsecond'
from getwork.task_version v, (select clock_timestamp() as at offset 0) clock
where s.task_id = $1 and v.task_id = s.task_id and v.version = s.version
returning ` + renewIn

	settleRunWithoutShelf = `
update getwork.task_state s
set failures = 0, failed_until = null, last_error = null, retries = 0, retry_at = null, retry_since = null,
    ` + settleTimes + `, used_at = case when $2 then clock_timestamp() else used_at end,
    last_run = $3, shelf_run = null, shelf_from = 1, shelf_cut = false, shelf_left = 0, fresh_until = null, expires_at = null
where task_id = $1`
)

func (o *runResult) settle(after settlement) (string, []any) {
	if o.freshFor == 0 {
		return settleRunWithoutShelf, []any{after.used, o.run}
	}
	return settleRun, []any{after.used, o.run, max(after.next, o.from), o.Cut, len(o.Items) - after.gone, o.freshFor}
}

// columns holds ranked items as the database takes them.
type columns struct {
	ranks          []int64
	items, details []string
	slots          []int32
	exclusives     []*string
}

func columnsOf(items []ranking.Candidate) (c columns) {
	for _, it := range items {
		c.ranks = append(c.ranks, it.Rank)
		c.items = append(c.items, it.Item)
		c.details = append(c.details, it.Details)
		c.slots = append(c.slots, int32(it.Slots))
		c.exclusives = append(c.exclusives, it.Exclusive)
	}
	return c
}

// quicklyRead is how many items are read or looked up without anybody noticing.
const quicklyRead = 1000

// selectHandedOut selects the items that were handed out since the run began, and that it can't hand out therefore: see gone in
// availabilityBase. They are read by their ids, among those of all tasks. The limit bounds the node's memory; rounds look up the rest.
const selectHandedOut = `
select w.item
from getwork.work w
where w.task_id + 0 = $1 and w.id > $2
  and (w.state in ('held', 'never', 'returned', 'failed') and ` + records.Blocks + ` or coalesce(
    not pg_visible_in_snapshot(w.closed_xid, $3::text::pg_snapshot) and w.closed_xid < pg_snapshot_xmax(pg_current_snapshot())
    or w.closed_at > $4, false))
limit 1000000`

// dropHandedOut leaves out what was handed out since the run began, and returns its ranks. In a minute of a busy shelf that may
// be a hundred thousand items. Otherwise the first rounds from the new shelf look up each of them under the assign lock, and
// every click waits for seconds. It needs no lock: an item that is gone can't be handed out from this run later either.
func (o *runResult) dropHandedOut(ctx context.Context, e *Engine, tx pgx.Tx, task int64) (ranks []int64, err error) {
	rows, err := tx.Query(ctx, e.SQL(selectHandedOut), pgx.QueryExecModeExec, task, o.since, o.Snapshot, o.SeenUntil)
	gone := map[string]bool{}
	if err == nil {
		var item string
		_, err = pgx.ForEachRow(rows, []any{&item}, func() error { gone[item] = true; return nil })
	}
	if err != nil {
		return nil, fmt.Errorf("look for what was handed out: %w", err)
	}
	o.Items = slices.DeleteFunc(o.Items, func(it ranking.Candidate) bool {
		if it.Slots != 1 || !gone[it.Item] {
			return false
		}
		delete(o.Matching.Items, it.Item)
		ranks = append(ranks, it.Rank)
		return true
	})
	return ranks, nil
}

const (
	unshelve = `delete from getwork.candidate where run_id = $1 and rank = any($2)`

	// insertPlaces makes the items of a long shelf findable by their keys; getwork.shelved reads all of a short one.
	insertPlaces = `
insert into getwork.candidate_place (run_id, bucket, ranks)
select c.run_id, getwork.candidate_bucket(c.item), array_agg(c.rank)
from getwork.candidate c
where c.run_id = $1
group by 1, 2`
)

// shelve stores the result. Clicks go on meanwhile, so it reads twice what they took.
func (o *runResult) shelve(ctx context.Context, e *Engine, tx pgx.Tx, task int64) error {
	long := len(o.Items) > quicklyRead
	if long {
		if _, err := o.dropHandedOut(ctx, e, tx, task); err != nil {
			return err
		}
	}
	if err := o.store(ctx, e, tx); err != nil {
		return err
	}
	if long {
		ranks, err := o.dropHandedOut(ctx, e, tx, task)
		if err == nil {
			_, err = tx.Exec(ctx, e.SQL(unshelve), pgx.QueryExecModeExec, o.run, ranks)
		}
		if err != nil {
			return fmt.Errorf("take off the shelf what is gone: %w", err)
		}
		if _, err := tx.Exec(ctx, e.SQL(insertPlaces), pgx.QueryExecModeExec, o.run); err != nil {
			return fmt.Errorf("note the places on the shelf: %w", err)
		}
	}
	if len(o.Items) > 0 {
		o.from = o.Items[0].Rank
	}
	return nil
}

// store puts the result on the shelf before the assign lock is taken: a million rows take their time, and no click waits for
// them. They count only when settle names the run.
func (o *runResult) store(ctx context.Context, e *Engine, tx pgx.Tx) error {
	schema := strings.Trim(strings.TrimSuffix(e.SQL("getwork.candidate"), ".candidate"), `"`)
	rows := pgx.CopyFromSlice(len(o.Items), func(i int) ([]any, error) {
		it := &o.Items[i]
		var class *int16
		if it.Class != 0 {
			class = new(int16(it.Class))
		}
		return []any{o.run, it.Rank, it.Item, it.Details, int32(it.Slots), it.Exclusive, it.Deadline, class}, nil
	})
	_, err := tx.CopyFrom(ctx, pgx.Identifier{schema, "candidate"}, []string{"run_id", "rank", "item", "details", "slots", "exclusive", "deadline", "class"}, rows)
	if err != nil {
		return fmt.Errorf("put the result on the shelf: %w", err)
	}
	return nil
}

// A task with a recheck hands out only items that matched a moment ago. The recheck is a user's query and may take its time,
// so it is executed before the assign lock is taken, on the best candidates, until somewhat more than twice as many match as are
// wanted. A round that comes to a candidate that was not rechecked is given up, and begins again with more.
var (
	// errTooFewRechecked says that the round needs more candidates rechecked, or by another recheck.
	errTooFewRechecked = errors.New("too few candidates were rechecked")

	// errNoRecheck says that the recheck could not be executed; the reason is wrapped with it.
	errNoRecheck = errors.New("recheck what is on the shelf")
)

// withRecheckedShelf calls round with what the task's recheck says of the best candidates on its shelf, and again with more
// of them while they are too few. more is the number of wanted items besides those of the waiting requests. The caller must
// hold neither a lock that round's transaction takes nor a connection of the API pool. errNoRecheck: the recheck could not be
// executed.
//
// It goes on however many candidates a rule keeps from somebody who waits: given up, the round would come to the same request again
// and again, and serve nobody. Each turn asks for four times as many as the last, so a shelf of a million takes nine. The assign lock
// is not held meanwhile. A shelf or a recheck that is replaced again and again is given up.
func (e *Engine) withRecheckedShelf(ctx context.Context, task int64, s assign.Settings, more int, round func(ranking.Matching) error) error {
	look := shelfRecheck{e: e, task: task, s: s}
	asked := 0
	for look.begun < attempts {
		if look.s.Recheck != "" {
			n, err := e.Ranker.AskedFor(ctx, task, 100) // more of them if the round comes to them
			if err == nil {
				asked = max(2*(n+more)+20, 4*asked)
				err = look.ask(ctx, asked)
			}
			if err != nil {
				return fmt.Errorf("%w: %w", errNoRecheck, err)
			}
		}
		if err := round(look.found); !errors.Is(err, errTooFewRechecked) {
			return err
		}
		p, err := e.readTaskView(ctx, e.DB, task)
		if err != nil {
			return fmt.Errorf("%w: %w", errNoRecheck, err)
		}
		if look.all || p.Recheck != look.s.Recheck { // there is a new shelf or a new recheck
			look.begin(p.Settings)
		}
	}
	return errTooFewRechecked
}

// shelfRecheck rechecks a shelf, best candidates first.
type shelfRecheck struct {
	e     *Engine
	task  int64
	s     assign.Settings
	found ranking.Matching
	run   int64 // the run whose result is on the shelf
	next  int64 // the first rank that was not rechecked
	all   bool  // the whole shelf was rechecked
	begun int   // how often it began with the best, besides the first time
}

// begin begins again with the best candidates, by the task's settings as they are now.
func (l *shelfRecheck) begin(s assign.Settings) {
	*l = shelfRecheck{e: l.e, task: l.task, s: s, begun: l.begun + 1}
}

// Items that are gone are left out. Otherwise they would be rechecked for ever behind a candidate that does not match and
// keeps the shelf from moving on.
const selectCandidates = `
select c.rank, c.item, c.run_id
from getwork.candidate c join getwork.run u on u.id = c.run_id` + availabilityUnconflicted + `
where c.run_id = (
    select s.shelf_run from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
    where s.task_id = $1 and ` + records.ShelfLasts + `)
  and c.rank >= greatest($2, (select s.shelf_from from getwork.task_state s where s.task_id = $1)) and not st.gone
order by c.rank`

// ask rechecks until enough candidates match, or none are left.
func (l *shelfRecheck) ask(ctx context.Context, enough int) error {
	if l.found.Items == nil {
		l.found = ranking.Matching{By: l.s.Recheck, Items: map[string]bool{}}
	}
	for !l.all && enough > 0 {
		var items []string
		run := l.run
		limit := "\nlimit " + strconv.Itoa(ranking.RecheckAtOnce) // in the text: see atMost
		rows, err := l.e.DB.Query(ctx, l.e.SQL(selectCandidates+limit), l.task, l.next)
		if err == nil {
			_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (item string, err error) {
				err = row.Scan(&l.next, &item, &run)
				items = append(items, item)
				return item, err
			})
		}
		if err != nil {
			return fmt.Errorf("read the candidates to recheck: %w", err)
		}
		if l.run != 0 && run != l.run { // the shelf was swapped meanwhile: begin with its best
			if l.begin(l.s); l.begun >= attempts {
				return errTooFewRechecked
			}
			l.run, l.found = run, ranking.Matching{By: l.s.Recheck, Items: map[string]bool{}}
			continue
		}
		l.run = run
		l.next++
		l.all = len(items) < ranking.RecheckAtOnce
		if len(items) == 0 {
			return nil
		}
		match, err := l.e.Ranker.RecheckNow(ctx, l.s, items)
		if err != nil {
			return err
		}
		for _, item := range items {
			l.found.Items[item] = match[item]
		}
		enough -= len(match)
	}
	return nil
}
