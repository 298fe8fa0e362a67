package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/notify"
)

const (
	// Locked in the order of ids, so that the set stays as it was counted, and of two who release the same one waits.
	selectReleased = `
select w.task_id, w.id
from getwork.work w
where w.state = 'held' and ($1 = '' or w.user_name = $1) and ($2 = 0 or w.task_id = $2)
order by w.id
for update`

	tokenOf = `select encode(sha256(convert_to(coalesce(string_agg(id::text, ',' order by id), ''), 'UTF8')), 'hex') from unnest($1::bigint[]) as w (id)`

	releaseWork = `
with closed as (
  update getwork.work w
  set state = 'returned', after = interval '0', available_at = clock_timestamp(),
      closed_at = clock_timestamp(), closed_by = $2, closed_xid = pg_current_xact_id()
  where w.id = any($1::bigint[]) and w.state = 'held'
  returning w.id, w.task_id, w.item, w.state, w.available_at
), ` + settleItems + `
select count(*) from closed`
)

// Release returns the held work that it names, all of it or, if the set is not the token's any more, none
// ([ChangedSet]).
func (e *Engine) Release(ctx context.Context, what assign.Release, by string) (assign.Released, error) {
	if what.User == "" && what.Task == "" {
		return assign.Released{}, assign.RefuseField("user", "say whose work to release, or of which task, or both")
	}
	if !what.DryRun && what.Token == "" {
		return assign.Released{}, assign.RefuseField("token", `a release names the token of a dry run: send "dry_run": true first, and then its token`)
	}
	if what.User != "" {
		if err := assign.CheckUser(what.User); err != nil {
			return assign.Released{}, err
		}
	}
	var task int64
	if what.Task != "" {
		var err error
		if task, _, err = e.Records.Find(ctx, what.Task, assign.Who{Anything: true}); err != nil {
			return assign.Released{}, err
		}
	}
	var done assign.Released
	var byTask map[int64][]int64
	err := e.transactTelling(ctx, func(tx pgx.Tx) (changes []notify.Change, err error) {
		done, byTask, err = e.release(ctx, tx, what, task, by)
		for task, ids := range byTask {
			changes = append(changes, notify.Change{Task: task, Work: ids})
		}
		return changes, err
	})
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return assign.Released{}, err
	}
	if err != nil {
		return assign.Released{}, fmt.Errorf("release work: %w", err)
	}
	if !what.DryRun {
		e.freed(ctx, slices.Collect(maps.Keys(byTask))...)
	}
	return done, nil
}

func (e *Engine) release(ctx context.Context, tx pgx.Tx, what assign.Release, of int64, by string) (done assign.Released, byTask map[int64][]int64, err error) {
	rows, err := tx.Query(ctx, e.SQL(selectReleased), what.User, of)
	if err != nil {
		return done, nil, err
	}
	var ids []int64
	var task, id int64
	byTask = map[int64][]int64{}
	if _, err := pgx.ForEachRow(rows, []any{&task, &id}, func() error {
		ids, byTask[task] = append(ids, id), append(byTask[task], id)
		return nil
	}); err != nil {
		return done, nil, err
	}
	var token string
	if err := tx.QueryRow(ctx, tokenOf, ids).Scan(&token); err != nil {
		return done, nil, err
	}
	if what.DryRun {
		return assign.Released{Count: len(ids), Token: token}, nil, nil
	}
	if token != what.Token {
		return done, nil, assign.Refuse(assign.ChangedSet, "what is held has changed since the dry run: it is %d now; do the dry run again and look at the count", len(ids))
	}
	err = tx.QueryRow(ctx, e.SQL(releaseWork), ids, by).Scan(&done.Count)
	return done, byTask, err
}
