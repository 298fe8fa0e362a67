package schematest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
)

// LockWaits returns how many sessions of a database wait for a lock that another session of it holds. The lock that every commit
// with NOTIFY takes does not count: the sessions of all databases of the server share it, so that anybody may wait for it a moment.
// db must be no transaction, because that sees pg_stat_activity as it was when it first read it.
func LockWaits(t testing.TB, db interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}) (n int) {
	t.Helper()
	const count = `
select count(*) from pg_stat_activity
where datname = current_database() and wait_event_type = 'Lock' and wait_event <> 'object'`
	if err := db.QueryRow(t.Context(), count).Scan(&n); err != nil {
		t.Fatal(err)
	}
	return n
}
