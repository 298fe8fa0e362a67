package engine

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/assign/plan"
	"getwork/assign/ranking"
)

// locker takes the run lock of a task, and does what its holder is to do next.
type locker struct{ *Engine }

// tryLock takes a connection of the runs' pool, and tries the run lock. It reports whether it moved the task on, so that the caller
// must look again. That another session has the lock is no error. The caller must have a run slot.
func (l locker) tryLock(ctx context.Context, task int64) (moved bool, err error) {
	begun := l.starting()
	defer begun()
	conn, err := l.runs.Acquire(ctx)
	if err != nil {
		return false, fmt.Errorf("get a connection for the run: %w", err)
	}
	defer conn.Release()
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: beginLocking + l.clientWatch.Setting(ctx)})
	if err != nil {
		return false, fmt.Errorf("begin: %w", err)
	}
	defer func() {
		after, cancel := pg.Detached(ctx)
		defer cancel()
		_ = tx.Rollback(after) // after a commit this does nothing
		ranking.GiveUpSpoilt(after, conn.Conn())
	}()
	return l.underLock(ctx, tx, task, begun)
}

// The settings apply to this transaction alone, so they also work through a transaction pooler. They take no snapshot: the
// lock's statement is the first that does. lock_timeout is set because skip locked still waits behind a lock of the whole
// table. The idle time-out makes a node that froze between the query's end and its round lose the lock, and its round, to
// others. The round then has the limits of any other (roundUnderLock). ClientWatch's setting follows, so that a query ends and its
// lock is free soon after its node died.
const beginLocking = `begin isolation level read committed read write; set local lock_timeout = '5s'; set local idle_in_transaction_session_timeout = '20s'`

// runLock locks the task's row. It returns no row if the row is locked or does not exist. "no key update" and not "update":
// inserting a request takes a key share lock on the row that it refers to. "update" would make it wait for the whole query,
// and one uncommitted click would make a free row look busy. The condition names only the key, because a condition on a
// column that changes can hide a free row.
const runLock = `select pg_backend_pid() from getwork.task where id = $1 for no key update skip locked`

// underLock tries the run lock in a transaction that has executed nothing before, and does what [plan.Next] says. The lock lasts
// until the transaction ends. begun: see run.
func (l locker) underLock(ctx context.Context, tx pgx.Tx, task int64, begun func()) (moved bool, err error) {
	var backend int32
	err = tx.QueryRow(ctx, l.SQL(runLock), task).Scan(&backend)
	if errors.Is(err, pgx.ErrNoRows) {
		l.Steps(ctx, StepBusy)
		l.rescueSoon() // without a listener nothing else says that a run is under way
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock the task: %w", err)
	}
	l.Steps(ctx, StepLocked)
	// A free lock is no reason to run: its last holder may have served us a millisecond ago. A statement after the lock's
	// sees what that holder committed.
	p, err := l.readTaskView(ctx, aside{tx}, task)
	if err != nil {
		return false, err
	}
	p.backend, p.view.Locked = backend, true
	switch plan.Next(p.view) {
	case plan.CancelDeleted:
		return true, l.endDeleted(ctx, tx, task)
	case plan.ServeWithoutRun:
		return true, l.serveShelf(ctx, tx, task)
	case plan.Run, plan.Refresh:
		return true, runner(l).run(ctx, tx, p, begun)
	case plan.Recheck: // the shelf became fresh meanwhile
		l.Wake(task)
		return false, nil
	}
	l.Steps(ctx, StepNothing)
	l.Wake(task) // a request recorded since the read has found the lock taken: look again when it is free
	return false, nil
}

// roundUnderLock is openRound in the transaction of the run lock. With the run lock's own limits the round would give up the assign
// lock's queue sooner than all others, and with it the query's result; and a node that froze in the round would keep the assign lock
// for longer than clicks wait for it.
func (l locker) roundUnderLock(ctx context.Context, tx pgx.Tx, task int64) (*round, error) {
	if _, err := tx.Exec(ctx, pg.OfARound); err != nil {
		return nil, fmt.Errorf("begin the round: %w", err)
	}
	return l.openRound(ctx, tx, task)
}
