package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/notify"
)

// transactTelling is transact for what others must hear of: f returns what it changed. Unless many such transactions come,
// the announcement is part of each, so that no death comes between.
func (e *Engine) transactTelling(ctx context.Context, f func(pgx.Tx) ([]notify.Change, error)) error {
	var told *notify.Telling
	err := e.transact(ctx, func(tx pgx.Tx) error {
		told.End(false) // it begins again
		told = nil
		changes, err := f(tx)
		if err != nil {
			return err
		}
		told = e.Announce.TellChanges(changes...)
		if told.Payload != "" {
			if _, err := tx.Exec(ctx, notify.NotifySQL, e.Channel, told.Payload); err != nil {
				return fmt.Errorf("announce: %w", err)
			}
		}
		return nil
	})
	told.End(err == nil)
	return err
}

// tell has the round's one NOTIFY written as the last statement, so that it goes out if and only if the transaction
// commits. quick: nobody but who clicked is answered, and knows already; of many such rounds the announcer tells.
func (r *round) tell(wrote *expecting, quick bool) {
	r.told = true
	r.telling.End(false) // of a plan that was given up
	r.telling = nil
	payload := ""
	switch {
	case !quick || r.e.tellsAtOnce(r.task):
		payload = r.announcement(r.run).Encode()
	case len(r.answered) > 0:
		r.telling = r.e.Announce.Tell(r.announcement(r.run), notify.Change{Task: r.task, Rounds: []int64{r.id}})
		payload = r.telling.Payload
	}
	if payload != "" {
		wrote.queue(anyNumber, notify.NotifySQL, r.e.Channel, payload)
	}
}
