package engine

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/notify"
)

// transact runs f in a transaction, as [pg.Transact] does.
func (e *Engine) transact(ctx context.Context, f func(pgx.Tx) error) error {
	return pg.Transact(ctx, e.DB, f)
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

// TransactAnnouncing is transact for changes that others must hear of; f returns what it changed. Unless many such
// transactions come, the announcement is part of the transaction, so that no death can separate them.
func (e *Engine) TransactAnnouncing(ctx context.Context, f func(pgx.Tx) ([]notify.Change, error)) error {
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

// auditing returns what writes, in a transaction of its own, that somebody is about to try a query of a task; of a task that does not
// exist yet, if it has no name.
func (e *Engine) auditing(act string) func(ctx context.Context, task string, s *assign.Settings) error {
	return func(ctx context.Context, task string, s *assign.Settings) error {
		return e.Audit.WriteAlone(ctx, audit.Act{Act: act, Object: task, Detail: audit.TextsOf(&assign.Settings{Query: s.Query})})
	}
}
