package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
	"getwork/notify"
)

// transact runs f in a transaction, as [Transact] does.
func (e *Engine) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.Transact(ctx, e.api, f)
}

// write executes one statement that writes, in a transaction of its own: by itself it would have the server's default
// level, at which it fails where it meets another's change instead of waiting and looking again.
func (e *Engine) write(ctx context.Context, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		tag, err = tx.Exec(ctx, e.SQL(statement), args...)
		return err
	})
	return tag, err
}

// transactAnnouncing is transact for what others must hear of: f returns what it changed. Unless many such transactions come,
// the announcement is part of each, so that no death comes between.
func (e *Engine) transactAnnouncing(ctx context.Context, f func(pgx.Tx) ([]notify.Change, error)) error {
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

// queueAnnouncement has the round's one NOTIFY written as the last statement, so that it goes out if and only if the transaction
// commits. quick: nobody but who clicked is answered, and knows already; of many such rounds the announcer tells.
func (r *round) queueAnnouncement(wrote *expecting, quick bool) {
	r.announced = true
	r.telling.End(false) // of a plan that was given up
	r.telling = nil
	payload := ""
	switch {
	case !quick || r.e.announcesAtOnce(r.task):
		payload = r.announcement(r.run).Encode()
	case len(r.answered) > 0:
		r.telling = r.e.Announce.Tell(r.announcement(r.run), notify.Change{Task: r.task, Rounds: []int64{r.id}})
		payload = r.telling.Payload
	}
	if payload != "" {
		wrote.queue(anyNumber, notify.NotifySQL, r.e.Channel, payload)
	}
}
