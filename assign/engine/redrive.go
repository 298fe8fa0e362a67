package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// The rows stay as they were closed; that they were put back, when and by whom is written beside. The next attempt is
// the first again.
const redriveWork = `
with redriven as (
  update getwork.work w
  set available_at = clock_timestamp(), redriven_by = $3
  where w.task_id = $1 and w.state = 'never' and w.redriven_by is null
    and case when $2::text[] is null then w.exhausted else w.item = any($2) end
  returning w.item
), ready as (
  update getwork.item i
  set due_at = null
  from (select distinct item from redriven) r
  where i.task_id = $1 and i.item = r.item and i.done_at is null and i.due_at = 'infinity'
)
select count(distinct item) from redriven`

// Redrive puts back what was never to return: the named items, or, without names, those whose attempts were used up. It
// returns how many items those were; names that are not never are left out.
func (e *Engine) Redrive(ctx context.Context, name string, items []string, by string) (n int64, err error) {
	for i, item := range items {
		if detail := assign.CheckItem(item); detail != "" {
			return 0, assign.RefuseField(fmt.Sprintf("items[%d]", i), "%s", detail)
		}
	}
	task, _, err := e.Records.Find(ctx, name, assign.Who{Anything: true})
	if err != nil {
		return 0, err
	}
	err = e.transact(ctx, func(tx pgx.Tx) error {
		if _, err := e.openRound(ctx, tx, task); err != nil {
			return err
		}
		return tx.QueryRow(ctx, e.SQL(redriveWork), task, items, by).Scan(&n)
	})
	if err != nil {
		return 0, fmt.Errorf("redrive: %w", err)
	}
	if n > 0 {
		e.Announce.Items(task)
		e.Stir(task)
	}
	return n, nil
}
