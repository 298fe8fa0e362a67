package pg

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest"
)

// All connections of a node read times as UTC, whatever the time zone of its machine.
func TestTimesAreUTC(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	p, err := OpenPools(PoolsConfig{DatabaseURL: url, QueryURL: url, MaxRuns: 1, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for name, pool := range map[string]*pgxpool.Pool{"calls": p.API, "own": p.Own, "signals": p.Signals, "runs": p.Runs, "queries": p.Queries} {
		var at time.Time
		if err := pool.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&at); err != nil || at.Location() != time.UTC {
			t.Errorf("%s: %v, %v", name, at, err)
		}
	}
}
