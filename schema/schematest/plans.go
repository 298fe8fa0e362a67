package schematest

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// PlannedOnce fails the test if a session of the pool planned a statement more than eight times, instead of keeping its plan. All
// connections must be idle, and some statement's plan kept, since otherwise nothing was seen.
func PlannedOnce(t testing.TB, pool *pgxpool.Pool) {
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
	if kept == 0 {
		t.Error("no statement ran so often that its plan was kept")
	}
}
