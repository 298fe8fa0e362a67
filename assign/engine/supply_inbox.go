package engine

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
	"getwork/assign/records"
)

// inbox hands out items that were pushed to a task without a query. There is no run, no run lock and no shelf: a round takes
// only the assign lock, and reads the best items by index.
type inbox struct {
	*round
	empty bool // the inbox has no items at all
}

func (b *inbox) source() plan.Source  { return plan.Inbox }
func (b *inbox) cut() bool            { return false }
func (b *inbox) usable() bool         { return !b.empty }
func (b *inbox) used() bool           { return false }
func (b *inbox) stale() bool          { return false }
func (b *inbox) runID() *int64        { return nil }
func (b *inbox) rankedAt() *time.Time { return nil }

// inboxPlaces is the number of places of an item i; $3 is the task's default.
const inboxPlaces = `case when i.exclusive is null then coalesce(i.slots, $3) else 1 end`

const (
	// Items that have fallen due join the ready ones, best first, so that nothing better stays behind than this round hands
	// out. They do not join all at once, so that the lock is held for milliseconds; the loop's next round takes the rest.
	// An item that another transaction has locked is skipped, and left to a later round: clicks wait for the assign lock meanwhile.
	fallDue = `
with due as materialized (
  select i.id
  from getwork.item i
  where i.task_id = $1 and i.done_at is null and i.due_at <= (select clock_timestamp()) and i.due_at < 'infinity'
  order by i.priority desc, i.id
  for update skip locked%s
)
update getwork.item i set due_at = null from due where i.id = due.id`

	// Members of a group of which one is held are left out here, by one look-up of what is held: a group may have very many
	// members. PostgreSQL hashes the sub-query of "not in", as it does not hash an array that it has to read first: each member
	// would be compared with each group that is held. As "case" the condition gives the planner no estimate. With one it would
	// expect next to no rows, and read all items to sort them. Items without a group do not ask what is held.
	selectInbox      = inboxHead + availability + ` where ` + inboxTail
	selectInboxAlone = inboxHead + availabilityUnconflicted + ` where $2::bigint[] = '{}' and ` + inboxTail // for a task that conflicts with none

	inboxHead = `
select c.item, c.details::text, st.until, ` + availabilityColumns + `
from getwork.item i
cross join lateral (select i.item, i.details, ` + inboxPlaces + ` as slots, i.exclusive) c
` + nothingSeen
	inboxTail = `i.task_id = $1 and i.due_at is null and i.done_at is null and not st.gone
  and case when i.exclusive is null then true else i.exclusive not in (
    select w.exclusive from getwork.work w where w.task_id = $1 and w.exclusive is not null and w.state = 'held') end
order by i.priority desc, i.id`

	anyItem = `select exists (select from getwork.item where task_id = $1 and done_at is null)`

	// Items that can't be handed out leave the index of ready ones. Items with several places stay in it: the free places are
	// counted from work. The sub-query hides how many items there are, for which there would be a new plan each time; see atMost.
	parkItems = `
update getwork.item i
set due_at = 'infinity'
where i.task_id = $1 and i.item = any((select $2::text[])::text[]) and i.done_at is null and ` + inboxPlaces + ` = 1`
)

// take reads the best items that are ready now.
func (b *inbox) take(ctx context.Context, r *round, n int) ([]offer, bool, error) {
	limit, _ := atMost(max(n, 1000))
	if _, err := r.tx.Exec(ctx, r.e.SQL(fmt.Sprintf(fallDue, limit)), r.task); err != nil {
		return nil, false, err
	}
	statement := selectInbox
	if len(r.state.conflicts) == 0 {
		statement = selectInboxAlone
	}
	limit, _ = atMost(n)
	rows, err := r.tx.Query(ctx, r.e.SQL(statement+limit), r.task, r.state.conflicts, r.state.Slots)
	if err != nil {
		return nil, false, err
	}
	offers, err := pgx.CollectRows(rows, scanPushed)
	offers = offers[:min(n, len(offers))]
	if err != nil || len(offers) > 0 {
		return offers, len(offers) < n, err
	}
	var pushed bool
	err = r.tx.QueryRow(ctx, r.e.SQL(anyItem), r.task).Scan(&pushed)
	b.empty = !pushed
	return nil, true, err
}

func scanPushed(row pgx.CollectableRow) (o offer, err error) {
	err = scanAvailability(row, &o, &o.cand.Item, &o.cand.Details, &o.until)
	return o, err
}

func (b *inbox) settle(after settlement) (string, []any) {
	return parkItems, []any{after.handed, b.state.Slots}
}

// supply returns what a round hands out without a run: the inbox or the fresh shelf.
func (r *round) supply() supply {
	if r.state.Inbox() {
		return &inbox{round: r}
	}
	return shelf{r}
}

// settleItems brings the inbox into line with the work: the item of closed work is done, ready again, due later, or never to
// return. It belongs after a statement "closed" that closes work and returns its rows, in the same transaction. For a task
// with a query it finds nothing. The item's own row tells whether it has one place, and is read again if another transaction
// has changed it meanwhile. With one place, holding it has parked it; with several it was ready all the time.
//
// If the item's places have become one while several held it, it stays parked, and is "shared": what the others did meanwhile is
// unknown to this statement, so settleShared must follow.
const (
	settleItems = `settled as (
  update getwork.item i
  set done_at = case when c.state = 'completed' then clock_timestamp() end,
      due_at = case
        when i.due_at is distinct from 'infinity' then null
        when c.state = 'never' then 'infinity'
        when exists (
          select from ` + records.Binding + ` w
          where w.task_id = i.task_id and w.item = i.item and w.id <> c.id and ` + records.Blocks + `) then 'infinity'
        when c.available_at > clock_timestamp() then c.available_at
      end
  from closed c
  where i.task_id = c.task_id and i.item = c.item and i.done_at is null
  returning i.task_id, i.item, i.done_at is null and i.due_at = 'infinity' and c.state <> 'never' as shared
)`

	// settleShared makes the items of the closed work $1 due when the last of what blocks them is over, or never. It runs in the
	// closing's transaction, which has the items' rows, and sees what was closed before it had them. A change of the places waits for
	// the closing, or the closing for it.
	settleShared = `
update getwork.item i
set due_at = case when i.exclusive is not null or coalesce(i.slots, v.slots) = 1 then (
    select max(coalesce(w.available_at, 'infinity'))
    from ` + records.Binding + ` w
    where w.task_id = i.task_id and w.item = i.item and ` + records.Blocks + `) end
from getwork.work c
join getwork.task_state s on s.task_id = c.task_id
join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where c.id = any($1::bigint[]) and i.task_id = c.task_id and i.item = c.item and i.done_at is null`
)

// settleWhatIsShared executes settleShared, as sql writes it, if there is any such work.
func settleWhatIsShared(ctx context.Context, tx pgx.Tx, sql func(string) string, work []int64) error {
	if len(work) == 0 {
		return nil
	}
	if _, err := tx.Exec(ctx, sql(settleShared), work); err != nil {
		return fmt.Errorf("settle items that several held: %w", err)
	}
	return nil
}

// serveNow is a round without a run, on this node, for all waiting requests.
func (e *Engine) serveNow(ctx context.Context, task int64, s assign.Settings) error {
	return e.withRecheckedShelf(ctx, task, s, 0, func(found ranking.Matching) error {
		tx, err := e.api.BeginTx(ctx, pg.ReadCommitted)
		if err != nil {
			return fmt.Errorf("begin: %w", err)
		}
		defer func() {
			after, cancel := pg.Detached(ctx)
			defer cancel()
			_ = tx.Rollback(after) // after a commit this does nothing
		}()
		r, err := e.openRound(ctx, tx, task)
		if err != nil || !r.state.serves() {
			return err
		}
		r.matching = found
		if err := r.serve(ctx, r.supply()); err != nil {
			return err
		}
		return e.commit(ctx, r, 0)
	})
}
