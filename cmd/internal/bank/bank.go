// Package bank makes the sample bank that the demo works on: people, their accounts with every booked line, loans, and
// the documents of the borrowers. It also has the tasks of the loan desk, whose ranking queries compute their answers
// from those lines, as a real desk's queries do.
//
// The bank is a constant: the same options give the same rows on every machine and in every year. All random numbers
// come from a seeded generator, and all dates count back from one business day. So a measurement on it can be repeated.
// Money is counted in cents until it is written.
//
// A load is one transaction. An interrupted load leaves nothing behind, and readers of a former bank see that one until
// the new one commits.
package bank

import (
	"context"
	_ "embed"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DefaultLoans is the number of loans that gives about two million transactions.
const DefaultLoans = 6000

// edition is raised whenever the same options begin to give other rows. Otherwise a data directory of an older program
// would be reused.
const edition = 1

// ErrForeign is returned if the database has a schema "bank" that Load did not make, and so refuses to drop.
var ErrForeign = errors.New(`the schema "bank" is not the sample bank: use another database, or rename it`)

// Options set the size of the bank.
type Options struct {
	// Loans is the number of loans. Everything else grows with it: about 1.5 accounts and 360 transactions per loan.
	// Zero or less means DefaultLoans.
	Loans int
}

func (o Options) loans() int {
	if o.Loans <= 0 {
		return DefaultLoans
	}
	return o.Loans
}

// Loaded reports whether the database has the complete bank that opt describes, made by this edition of the program. If
// not, Load has to run: there may be no bank, another one, or something else under its name.
func Loaded(ctx context.Context, conn *pgx.Conn, opt Options) (bool, error) {
	ours, _, err := inspect(ctx, conn)
	if err != nil || !ours {
		return false, err
	}
	const query = `select exists (select from bank.sample where edition = $1 and loans = $2)`
	var same bool
	if err := conn.QueryRow(ctx, query, edition, opt.loans()).Scan(&same); err != nil {
		return false, fmt.Errorf("read the bank's marker: %w", err)
	}
	return same, nil
}

// inspect reports whether the schema is a sample bank, and whether it exists at all.
func inspect(ctx context.Context, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (ours, exists bool, err error) {
	const query = `select to_regclass('bank.sample') is not null, to_regnamespace('bank') is not null`
	if err := db.QueryRow(ctx, query).Scan(&ours, &exists); err != nil {
		return false, false, fmt.Errorf("look for the bank: %w", err)
	}
	return ours, exists, nil
}

// Load creates the schema "bank" and fills it, replacing any sample bank that exists. It begins its own transaction, so
// conn must not be in one, and holds a lock, so that two loads run one after the other. It needs the right to create a
// schema, and grants nobody anything.
//
// progress, which may be nil, is called by one goroutine at a time, not always the caller's, and never after Load has
// returned. It gets the name of the step, and how much of it is done: a table counts the people, accounts or loans
// whose rows are written; any other step goes from 0 to 1 of 1.
//
// If the schema "bank" is not a sample bank, Load leaves it alone and returns ErrForeign.
func Load(ctx context.Context, conn *pgx.Conn, opt Options, progress func(step string, done, total int64)) error {
	if progress == nil {
		progress = func(string, int64, int64) {}
	}
	err := pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if err := create(ctx, tx); err != nil {
			return err
		}
		if err := fill(ctx, conn.PgConn(), newWorld(opt.loans()), progress); err != nil {
			return err
		}
		if err := finish(ctx, tx, progress); err != nil {
			return err
		}
		return mark(ctx, tx, opt)
	})
	if err != nil {
		return fmt.Errorf("load the sample bank: %w", err)
	}
	return nil
}

func mark(ctx context.Context, tx pgx.Tx, opt Options) error {
	const query = `insert into bank.sample (edition, loans, business_day) values ($1, $2, $3)`
	if _, err := tx.Exec(ctx, query, edition, opt.loans(), businessDay); err != nil {
		return fmt.Errorf("write the marker: %w", err)
	}
	// The ranking queries read the business day from here; without statistics the planner assumes that this table has
	// thousands of rows.
	if _, err := tx.Exec(ctx, `analyze bank.sample`); err != nil {
		return fmt.Errorf("analyze the marker: %w", err)
	}
	return nil
}

//go:embed tables.sql
var tables string

func create(ctx context.Context, tx pgx.Tx) error {
	const lock = `select pg_advisory_xact_lock(hashtext('getwork sample bank'))`
	if _, err := tx.Exec(ctx, lock); err != nil {
		return fmt.Errorf("wait for another load: %w", err)
	}
	ours, exists, err := inspect(ctx, tx)
	if err != nil {
		return err
	}
	if exists && !ours {
		return ErrForeign
	}
	if _, err := tx.Exec(ctx, `drop schema if exists bank cascade`); err != nil {
		return fmt.Errorf("drop the former bank: %w", err)
	}
	if _, err := tx.Exec(ctx, tables); err != nil {
		return fmt.Errorf("create tables: %w", err)
	}
	return nil
}
