package schematest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest/timeout"
)

// PlannedOnce fails the test if a session of the pool planned a statement more than eight times, instead of keeping its plan. It
// waits until it has seen a kept plan: that connection may still be in use.
func PlannedOnce(t testing.TB, pool *pgxpool.Pool) {
	t.Helper()
	timeout.Await(t, "a statement has run so often that its plan is kept", func() bool { return keptPlan(t, pool) })
}

// keptPlan reports whether a statement's plan was kept in one of the connections that are idle.
func keptPlan(t testing.TB, pool *pgxpool.Pool) bool {
	t.Helper()
	kept := 0
	for _, c := range pool.AcquireAllIdle(t.Context()) {
		var often *string
		var here int
		err := c.QueryRow(t.Context(), `
select string_agg(format('%s times, and %s without: %s', custom_plans, generic_plans, left(statement, 150)), e'\n') filter (where custom_plans > 8),
  count(*) filter (where generic_plans > 8)
from pg_prepared_statements`).Scan(&often, &here)
		c.Release()
		if err != nil {
			t.Fatal(err)
		}
		if kept += here; often != nil {
			t.Errorf("planned again and again:\n%s", *often)
		}
	}
	return kept > 0
}
