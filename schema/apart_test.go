package schema_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// reader is a transaction that a build of an index waits for: it began before, and has read the table.
type reader struct{ conn *pgx.Conn }

func (r reader) begin(t *testing.T) {
	t.Helper()
	exec(t, r.conn, `begin isolation level repeatable read; select from getwork.work limit 1`)
}

func (r reader) end(t *testing.T) {
	t.Helper()
	exec(t, r.conn, `commit`)
}

// waitsForReader waits until a migration's connection waits for a reader, and returns what it executes; ok is false if it ended
// instead.
func waitsForReader(t *testing.T, watch *pgx.Conn, pid uint32, done <-chan error) (statement string, ok bool) {
	t.Helper()
	for len(done) == 0 {
		err := watch.QueryRow(t.Context(), `select query from pg_stat_activity, pg_sleep(0.005) where pid = $1 and wait_event = 'virtualxid'`, pid).Scan(&statement)
		if err == nil {
			return statement, true
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			t.Fatal(err)
		}
	}
	return "", false
}

// While the migration that builds and drops indexes of work waits for a reader, in each of its statements and in both directions,
// others write: nobody waits behind it.
func TestIndexesAreBuiltBesideWriters(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(2*time.Minute))
	defer cancel()
	url := schematest.URL(t)
	conn, watch, writer := connect(t, url), connect(t, url), connect(t, url)
	readers := [2]reader{{connect(t, url)}, {connect(t, url)}}
	exec(t, writer, `insert into getwork.task default values; set lock_timeout = '1s'`)
	for _, way := range []struct {
		name string
		f    func() error
	}{
		{"down", func() error { return schema.Down(ctx, conn, schema.Default, schema.Altered) }},
		{"up", func() error { return schema.Up(ctx, conn, schema.Default) }},
	} {
		readers[0].begin(t)
		done := make(chan error, 1)
		go func() { done <- way.f() }()
		seen := map[string]bool{}
		for i := 0; ; i++ {
			statement, waits := waitsForReader(t, watch, conn.PgConn().PID(), done)
			if !waits {
				break
			}
			seen[statement] = true
			exec(t, writer, fmt.Sprintf(`insert into getwork.work (task_id, item, user_name) values (1, '%s %d', 'ann')`, way.name, i))
			exec(t, writer, `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id() where state = 'held'`)
			readers[(i+1)%2].begin(t) // the next wait is for this one
			readers[i%2].end(t)
		}
		if err := <-done; err != nil {
			t.Fatalf("%s: %v", way.name, err)
		}
		for _, r := range readers {
			r.end(t)
		}
		if len(seen) < 10 {
			t.Errorf("%s: it waited in %d statements only: %v", way.name, len(seen), slices.Collect(maps.Keys(seen)))
		}
	}
}

// A migration that builds indexes is killed again and again. What it left behind is no hindrance: the next one goes on from
// there, and in the end everything is as if it had never been killed.
func TestIndexesAfterAKill(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(3*time.Minute))
	defer cancel()
	url := schematest.URL(t)
	watch := connect(t, url)
	want := objects(t, watch)
	_, latest := status(t, watch, schema.Default)
	held := reader{connect(t, url)}
	invalid := func() (n int) {
		t.Helper()
		if err := watch.QueryRow(ctx, `select count(*) from pg_index where not indisvalid`).Scan(&n); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, way := range []struct {
		name string
		to   int32
		f    func(conn *pgx.Conn) error
	}{
		{"down", schema.Altered, func(conn *pgx.Conn) error { return schema.Down(ctx, conn, schema.Default, schema.Altered) }},
		{"up", latest, func(conn *pgx.Conn) error { return schema.Up(ctx, conn, schema.Default) }},
	} {
		kills, left := 0, 0
		for {
			conn, err := pgx.Connect(ctx, url)
			if err != nil {
				t.Fatal(err)
			}
			held.begin(t)
			done := make(chan error, 1)
			go func() { done <- way.f(conn); conn.Close(context.Background()) }()
			// Each drops what a killed one left, builds that, and is killed in the statement after it.
			statement, waits := waitsForReader(t, watch, conn.PgConn().PID(), done)
			for seen := map[string]bool{statement: true}; waits && len(seen) < 3; seen[statement] = true {
				held.end(t)
				held.begin(t)
				statement, waits = waitsForReader(t, watch, conn.PgConn().PID(), done)
			}
			if waits {
				if current, _ := status(t, watch, schema.Default); current == way.to {
					t.Errorf("%s: it is at version %d, and still at work", way.name, current)
				}
				exec(t, watch, fmt.Sprintf(`select pg_terminate_backend(%d)`, conn.PgConn().PID()))
				kills++
			}
			err = <-done
			held.end(t)
			if err == nil {
				break
			}
			if !waits {
				t.Fatalf("%s: %v", way.name, err)
			}
			left += invalid()
		}
		if n := invalid(); kills < 3 || left == 0 || n > 0 {
			t.Errorf("%s: %d kills, %d invalid indexes left by them, %d at the end", way.name, kills, left, n)
		}
		if current, _ := status(t, watch, schema.Default); current != way.to {
			t.Errorf("%s: version %d", way.name, current)
		}
	}
	if diff := cmp.Diff(want, objects(t, watch)); diff != "" {
		t.Error(diff)
	}
}
