package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
	"getwork/notify"
)

// transact runs f in a transaction, as [pg.Transact] does.
func (e *Engine) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.Transact(ctx, e.api, f)
}

// write executes one statement that writes, in a transaction of its own. By itself the statement would run at the server's
// default isolation level. At a higher one it fails when it meets another session's change, instead of waiting and reading
// again.
func (e *Engine) write(ctx context.Context, statement string, args ...any) (tag pgconn.CommandTag, err error) {
	err = e.transact(ctx, func(tx pgx.Tx) error {
		tag, err = tx.Exec(ctx, e.SQL(statement), args...)
		return err
	})
	return tag, err
}

// transactAnnouncing is transact for changes that others must hear of; f returns what it changed. Unless many such
// transactions come, the announcement is part of the transaction, so that no death can separate them.
func (e *Engine) transactAnnouncing(ctx context.Context, f func(pgx.Tx) ([]notify.Change, error)) error {
	var told *notify.Telling
	err := e.transact(ctx, func(tx pgx.Tx) error {
		told.End(false) // f begins again
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

// queueAnnouncement adds the round's one NOTIFY as the last statement, so that it is sent if and only if the transaction
// commits. quick: only the clicks that started the round are answered, and they know already; of many such rounds the
// announcer tells.
func (r *round) queueAnnouncement(wrote *expecting, quick bool) {
	r.announced = true
	r.telling.End(false) // left from a plan that was given up
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
