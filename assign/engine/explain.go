package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/ranking"
)

// explainHistory is how many work rows an explanation shows.
const explainHistory = 10

// Explain tells how an item stands: whether it matches now, its rank, who holds it, and what keeps it back. If the
// task's shelf is fresh and the item is on it, that is what it says, and the task's recheck; else the query is executed.
// Both as for a preview ([QueryRefused], [Busy]). An item that nobody has heard of does not match, which is no error; a
// task that there is not is [NotFound].
func (e *Engine) Explain(ctx context.Context, task, item string) (assign.Explanation, error) {
	if detail := assign.CheckItem(item); detail != "" {
		return assign.Explanation{}, assign.RefuseField("item", "%s", detail)
	}
	id, settings, err := e.Records.Find(ctx, task, assign.Who{Anything: true})
	if err != nil {
		return assign.Explanation{}, err
	}
	s := standpoint{e: e, id: id, task: settings, Explanation: assign.Explanation{Task: task, Item: item, Slots: settings.Slots, Held: []assign.Work{}, Barred: []assign.Barred{}}}
	if err := s.match(ctx); err != nil {
		return assign.Explanation{}, err
	}
	// One snapshot for all statements: an item that is let go of between two of them would have no reason.
	opts := pgx.TxOptions{IsoLevel: pgx.RepeatableRead, AccessMode: pgx.ReadOnly}
	if err := pgx.BeginTxFunc(ctx, e.api, opts, func(tx pgx.Tx) error { return s.read(ctx, tx) }); err != nil {
		return assign.Explanation{}, fmt.Errorf("explain item: %w", err)
	}
	s.conclude()
	return s.Explanation, nil
}

const (
	selectPlaceOnShelf = `
select s.shelf_run, c.rank, c.slots, c.exclusive, c.details::text
from getwork.task_state s join getwork.candidate c on c.run_id = s.shelf_run join getwork.run u on u.id = s.shelf_run
where s.task_id = $1 and c.item = $2 and ` + shelfFresh + `
order by c.rank
limit 1`

	// The rank is the item's real one, so the condition stays outside; nothing of our schema is named, since the
	// query may run elsewhere.
	rankOfHead = `
select rank, slots, exclusive, ` + ranking.RowDetails + `
from (
  select row_number() over () as rank, getwork_rows.*
  from (values (null::integer, null::text)) getwork_defaults (slots, exclusive)
  cross join lateral (` + ranking.RowsHead
	rankOfTail = ranking.RowsTail + `) getwork_rows
) ranked
where item = $1
order by rank
limit 1`

	selectInInbox = `
select case when i.due_at is null then 1
    + (select count(*) from getwork.item j where j.task_id = $1 and j.due_at is null and j.done_at is null and j.priority > i.priority)
    + (select count(*) from getwork.item j where j.task_id = $1 and j.due_at is null and j.done_at is null and j.priority = i.priority and j.id < i.id)
  end, ` + inboxPlaces + `, i.exclusive, i.details::text
from getwork.item i
where i.task_id = $1 and i.item = $2 and i.done_at is null`
)

// match finds the item where the task has it.
func (s *standpoint) match(ctx context.Context) error {
	var details *string
	into := []any{&s.Rank, &s.Slots, &s.Exclusive, &details}
	var err error
	if s.task.Inbox() {
		s.Source = "inbox"
		err = s.e.api.QueryRow(ctx, s.e.SQL(selectInInbox), s.id, s.Item, s.task.Slots).Scan(into...)
	} else {
		s.Source = "shelf"
		err = s.e.api.QueryRow(ctx, s.e.SQL(selectPlaceOnShelf), s.id, s.Item).Scan(append([]any{&s.shelfRun}, into...)...)
		if errors.Is(err, pgx.ErrNoRows) {
			s.Source = "query"
			statement := fmt.Sprintf(rankOfHead, s.task.Slots) + s.task.Query.Trimmed() + rankOfTail
			err = s.e.Ranker.InTx(ctx, ranking.SlotWait, s.task.QueryTimeout, func(ctx context.Context, tx pgx.Tx) error {
				return tx.QueryRow(ctx, statement, pgx.QueryExecModeExec, s.Item).Scan(into...)
			})
		}
	}
	if errors.Is(err, pgx.ErrNoRows) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("explain item: %w", err)
	}
	if s.Source == "query" {
		*details = ranking.DetailsOf(*details)
	}
	s.Matches, s.Details = true, json.RawMessage(*details)
	s.passedOver = s.Slots < 1 || s.Slots > 1 && s.Exclusive != nil
	if s.Source == "shelf" {
		still, err := s.e.Ranker.Recheck(ctx, s.task, []string{s.Item})
		if err != nil {
			return err
		}
		s.dropped = still != nil && !still[s.Item]
	}
	return nil
}
