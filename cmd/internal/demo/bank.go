package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/cmd/internal/bank"
	"getwork/cmd/internal/cli"
	"getwork/cmd/internal/serve"
)

const (
	// bankDatabase has the bank's tables and getwork's, so that ranking queries can read the bank and leave out blocked
	// items.
	bankDatabase = "bank"

	// firstTask is the task that the demo's story is about.
	firstTask = "verify-bank-account"
)

// openBank creates the database, the query role and the bank if they are missing.
func (d *demo) openBank(ctx context.Context) error {
	if err := d.ensureDatabase(ctx); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, d.database)
	if err != nil {
		return fmt.Errorf("connect to the bank's database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	adapts := d.Loans == bank.DefaultLoans && !d.Heavier && !d.Naive // nobody asked for a size
	if small := d.Loans / shrink; adapts {
		// The last start found that this machine is too busy for more.
		if d.shrunk, err = bank.Loaded(ctx, conn, bank.Options{Loans: small}); err != nil {
			return err
		} else if d.shrunk {
			d.Loans = small
		}
	}
	options := bank.Options{Loans: d.Loans}
	loaded, err := bank.Loaded(ctx, conn, options)
	if err != nil {
		return err
	}
	if !loaded {
		if err := d.loadBank(ctx, conn, options); err != nil {
			return err
		}
	}
	if adapts && !d.shrunk {
		if err := d.fit(ctx, conn, bearable); err != nil {
			return err
		}
	}
	const grants = `
grant usage on schema bank to ` + serve.QueryRole + `;
grant select on all tables in schema bank to ` + serve.QueryRole
	if _, err := conn.Exec(ctx, grants); err != nil {
		return fmt.Errorf("let the query role read the bank: %w", err)
	}
	return nil
}

const (
	// bearable is how long the first task's query may take. Somebody who wants to see what getwork is about doesn't wait longer.
	bearable = 10 * time.Second

	shrink = 4 // how many times smaller a bank is made whose query takes longer
)

// fit tries the first task's query, and makes the bank smaller if that takes longer than within.
func (d *demo) fit(ctx context.Context, conn *pgx.Conn, within time.Duration) error {
	d.progress.step("trying the first task's query")
	tx, err := conn.Begin(ctx)
	if err != nil {
		return fmt.Errorf("try the first task's query: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if _, err := tx.Exec(ctx, fmt.Sprintf("set local statement_timeout = %d", within.Milliseconds())); err != nil {
		return fmt.Errorf("try the first task's query: %w", err)
	}
	_, err = tx.Exec(ctx, "explain (analyze, timing off) "+bank.Tasks(false)[0].Query)
	var refused *pgconn.PgError
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused) || refused.Code != "57014": // query_canceled
		return fmt.Errorf("try the first task's query: %w", err)
	}
	if err := tx.Rollback(ctx); err != nil {
		return fmt.Errorf("try the first task's query: %w", err)
	}
	d.Loans, d.shrunk = d.Loans/shrink, true
	return d.loadBank(ctx, conn, bank.Options{Loans: d.Loans})
}

func (d *demo) loadBank(ctx context.Context, conn *pgx.Conn, options bank.Options) error {
	if err := bank.Load(ctx, conn, options, d.progress.part); err != nil {
		return err
	}
	// People may hold loans of the former bank that this one does not have.
	if _, err := conn.Exec(ctx, `drop schema if exists getwork cascade`); err != nil {
		return fmt.Errorf("drop the former bank's tables: %w", err)
	}
	return nil
}

// ensureDatabase creates the bank's database, the login that owns it, which is no superuser, and the query role.
func (d *demo) ensureDatabase(ctx context.Context) (err error) {
	if d.Reset {
		if err := d.dropDatabase(ctx); err != nil {
			return err
		}
	}
	if d.database, err = d.server.LoginURL(ctx, bankDatabase); err != nil {
		return err
	}
	return serve.MakeQueryRole(ctx, d.server.URL(bankDatabase))
}

// dropDatabase drops what earlier demos left. Nobody else uses it: the folder is ours.
func (d *demo) dropDatabase(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, d.server.URL("postgres"))
	if err != nil {
		return fmt.Errorf("connect to drop the bank's database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "drop database if exists "+bankDatabase); err != nil {
		return fmt.Errorf("drop the bank's database: %w", err)
	}
	return nil
}

// applyTasks creates the bank's tasks. Existing tasks stay as people changed them, except the first one's query, which
// follows --heavier.
func (d *demo) applyTasks(ctx context.Context) error {
	manager, err := d.manager()
	if err != nil {
		return err
	}
	for i, t := range bank.Tasks(d.Heavier) {
		_, err := manager.Task(ctx, t.Name)
		switch {
		case cli.IsRefused(err, 404):
			settings := assign.Settings{Name: t.Name, Title: t.Title, Description: t.Description, Query: assign.Query(t.Query),
				QueryTimeout: assign.Duration(3 * time.Minute), Position: new(i + 1), Display: &t.Display}
			names := []string{"name", "title", "description", "query", "query_timeout", "position", "display"}
			if i > 0 {
				// The first task shows the bare story. The others show that a run's leftovers can be handed out.
				settings.FreshFor = assign.Duration(time.Minute)
				names = append(names, "fresh_for")
			}
			_, err = manager.Create(ctx, cli.Fields(settings, names...))
		case err == nil && i == 0:
			_, err = manager.Update(ctx, t.Name, cli.Fields(assign.Settings{Query: assign.Query(t.Query)}, "query"))
		}
		if err != nil {
			return fmt.Errorf("task %s: %w", t.Name, err)
		}
	}
	return nil
}
