package demo

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	forgetWork     = `delete from getwork.work where user_name ~ '^demo person [0-9]+$' and ($1 or state <> 'held')`
	forgetRequests = `delete from getwork.work_requested where user_name ~ '^demo person [0-9]+$' and ($1 or state <> 'pending')`
)

// forget deletes what the simulated people did, so that figures about people count only those who exist. Its rows say what is
// over, which no node needs any more. With all it deletes what they still hold and wait for, too; no node may run then.
func (d *demo) forget(ctx context.Context, all bool) error {
	conn, err := pgx.Connect(ctx, d.database)
	if err != nil {
		return fmt.Errorf("connect to the bank's database: %w", err)
	}
	defer conn.Close(context.WithoutCancel(ctx))
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		var there bool
		err := tx.QueryRow(ctx, `select to_regclass('getwork.work') is not null`).Scan(&there)
		if err != nil || !there {
			return err
		}
		for _, statement := range []string{forgetWork, forgetRequests} {
			if _, err := tx.Exec(ctx, statement, all); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("remove the simulated people: %w", err)
	}
	return nil
}
