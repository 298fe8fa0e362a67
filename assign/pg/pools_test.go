package pg

import (
	"bytes"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
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

// A wait in vain counts as one that failed: the sum of waits stands still when nobody gets a connection.
func TestWaitsInVainAreCounted(t *testing.T) {
	t.Parallel()
	p, err := OpenPools(PoolsConfig{DatabaseURL: schematest.Empty(t), MaxRuns: 1, Name: "test"})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	for range p.API.Config().MaxConns {
		conn, err := p.API.Acquire(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(conn.Release)
	}
	before := p.Stats()[0]
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := p.API.Acquire(ctx); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatalf("%v; want no connection", err)
	}
	after := p.Stats()[0]
	if after.Name != "api" || before.Failed != 0 || after.Failed != 1 || after.Waits != before.Waits || after.Waited != before.Waited {
		t.Errorf("%+v, and after a wait in vain %+v", before, after)
	}
}

// Styles that the database sets for other programs do not matter to getwork, which reads the text that they ask for, through a pooler,
// too. What users' SQL means stays as it is.
func TestStylesOfTheDatabase(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	admin, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(t.Context())
	name := pgx.Identifier{admin.Config().Database}.Sanitize()
	if _, err := admin.Exec(t.Context(), `alter database `+name+` set datestyle = 'SQL, DMY'; alter database `+name+` set bytea_output = escape`); err != nil {
		t.Fatal(err)
	}
	all := make([]byte, 256)
	for i := range all {
		all[i] = byte(i)
	}
	look := func(c PoolsConfig) {
		p, err := OpenPools(c)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		for name, pool := range map[string]*pgxpool.Pool{"calls": p.API, "own": p.Own, "signals": p.Signals, "runs": p.Runs, "queries": p.Queries} {
			ours, users := []any{pgx.QueryExecModeExec}, name == "runs" || name == "queries"
			if users {
				ours = nil // as all statements that read times and bytes there
			}
			for range 2 { // the second time, PgBouncer knows the session
				var at time.Time
				var got, empty, none []byte
				err := pool.QueryRow(t.Context(), `select '2026-11-28 14:50:01.5+00'::timestamptz, $1::bytea, ''::bytea, null::bytea`, append(ours, all)...).Scan(&at, &got, &empty, &none)
				if want := time.Date(2026, 11, 28, 14, 50, 1, 5e8, time.UTC); err != nil || at != want || !bytes.Equal(got, all) || empty == nil || len(empty) > 0 || none != nil {
					t.Errorf("pooled %v, %s: %v, %x, %x, %x, %v", c.Pooled, name, at, got, empty, none, err)
				}
				if !users {
					continue
				}
				var month int
				if err := pool.QueryRow(t.Context(), `select extract(month from '03/04/2026'::date)::int`).Scan(&month); err != nil || month != 4 {
					t.Errorf("pooled %v, %s: 3 April is in month %d, %v", c.Pooled, name, month, err)
				}
			}
		}
	}
	look(PoolsConfig{DatabaseURL: url, QueryURL: url, MaxRuns: 1, Name: "test"})
	url = pgbouncer.Start(t, url, pgbouncer.Options{}).URL
	look(PoolsConfig{DatabaseURL: url, QueryURL: url, MaxRuns: 1, Name: "test", Pooled: true})
}
