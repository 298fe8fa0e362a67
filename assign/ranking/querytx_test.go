package ranking

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A query that PostgreSQL ended for its time-out, though by the node's clock there was time left, met a clock that was set forward.
// One that somebody cancelled did not, and one that has used up its time did not either.
func TestTimeOutThatCameTooEarly(t *testing.T) {
	t.Parallel()
	_, db := confined(t)
	const timeout = assign.Duration(time.Minute)
	for name, c := range map[string]struct {
		statement string
		took      time.Duration
		want      bool
	}{
		"ended too early": {"set local statement_timeout = 20; select pg_sleep(60)", time.Second, true},
		"ended in time":   {"set local statement_timeout = 20; select pg_sleep(60)", time.Minute, false},
		"cancelled":       {"select pg_cancel_backend(pg_backend_pid()), pg_sleep(60)", time.Second, false},
		"faulty":          {"select 1 / 0", time.Second, false},
		"right":           {"select 1", time.Second, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "savepoint entered"); err != nil {
					return err
				}
				_, ended := tx.Conn().Exec(t.Context(), c.statement, pgx.QueryExecModeSimpleProtocol)
				if is := leapt(t.Context(), tx, "entered", ended, c.took, timeout); is != c.want {
					t.Errorf("leapt is %t after %v", is, ended)
				}
				if !c.want {
					_, err := tx.Exec(t.Context(), "rollback to savepoint entered")
					return err
				}
				var left string // what leapt sets goes with its savepoint
				if err := tx.QueryRow(t.Context(), "show statement_timeout").Scan(&left); err != nil || left != "0" {
					t.Errorf("the transaction goes on with a time-out of %s (%v)", left, err)
				}
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
}
