package schema_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// A migration that needs a table which a long transaction uses waits in short tries: others get the table in between, the
// migration reports whom it waits for, and it goes on when that transaction has ended.
func TestMigrationWaitsInShortTries(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(2*time.Minute))
	defer cancel()
	url := schematest.URL(t)
	conn, long, other := connect(t, url), connect(t, url), connect(t, url)
	if err := schema.Down(ctx, conn, schema.Default, schema.Released); err != nil {
		t.Fatal(err)
	}
	exec(t, long, `set application_name = 'a long query'; begin; select from getwork.work`)
	waits := make(chan string, 100)
	done := make(chan error, 1)
	go func() { done <- schema.Up(ctx, conn, schema.Default, func(message string) { waits <- message }) }()
	select {
	case message := <-waits:
		if !strings.Contains(message, "_altered") || !strings.Contains(message, "a long query (pid ") {
			t.Errorf("it says %q", message)
		}
	case err := <-done:
		t.Fatalf("it did not wait: %v", err)
	}
	for range 20 { // each would wait for the long transaction's end if the migration waited with its place in the queue
		if _, err := other.Exec(ctx, `select from getwork.work`); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case err := <-done:
		t.Fatalf("it ended though the table was in use: %v", err)
	default:
	}
	exec(t, long, `commit`)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := schema.Check(ctx, conn, schema.Default); err != nil {
		t.Error(err)
	}
}

// A migration that never gets its lock names the sessions that were in the way, and leaves nothing behind.
func TestMigrationGivesUp(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	conn, long := connect(t, url), connect(t, url)
	if err := schema.Down(context.Background(), conn, schema.Default, schema.Released); err != nil {
		t.Fatal(err)
	}
	exec(t, long, `set application_name = 'a long query'; begin; select from getwork.work`)
	ctx, cancel := context.WithCancel(context.Background())
	err := schema.Up(ctx, conn, schema.Default, func(string) { cancel() })
	if err == nil || !strings.Contains(err.Error(), "a long query (pid ") || !strings.Contains(err.Error(), "try again later") {
		t.Errorf("error %v", err)
	}
	if current, _ := status(t, connect(t, url), schema.Default); current != schema.Released {
		t.Errorf("version %d, want %d", current, schema.Released)
	}
}

// A login's time-outs, meant for people's queries, do not end a node's wait for another that migrates.
func TestMigrationHasNoTimeOuts(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(2*time.Minute))
	defer cancel()
	url := schematest.URL(t)
	first, second, long, watch := connect(t, url), connect(t, url), connect(t, url), connect(t, url)
	if err := schema.Down(ctx, first, schema.Default, schema.Released); err != nil {
		t.Fatal(err)
	}
	exec(t, long, `begin; select from getwork.work`)
	waits, done := make(chan string, 100), make(chan error, 2)
	go func() { done <- schema.Up(ctx, first, schema.Default, func(message string) { waits <- message }) }()
	<-waits
	exec(t, second, `set statement_timeout = '2s'; set lock_timeout = '2s'`)
	go func() { done <- schema.Up(ctx, second, schema.Default) }()
	var since time.Time
	if err := watch.QueryRow(ctx, `select clock_timestamp()`).Scan(&since); err != nil {
		t.Fatal(err)
	}
	for waited := false; !waited && len(done) == 0; {
		// It asks for the lock again and again; without a snapshot, for which a build of an index would wait.
		err := watch.QueryRow(ctx, `select coalesce((select backend_xmin is null and clock_timestamp() > $2::timestamptz + interval '2500 ms' from pg_stat_activity
			where pid = $1 and query like '%pg_try_advisory_lock%'), false)`, second.PgConn().PID(), since).Scan(&waited)
		if err != nil {
			t.Fatal(err)
		}
	}
	exec(t, long, `commit`)
	for range 2 {
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
}

// Defaults for the transactions of people who only read do not keep the tables from being made and removed.
func TestMigrationWritesWhateverTheDefault(t *testing.T) {
	t.Parallel()
	ctx := context.Background()
	url := schematest.Empty(t)
	conn := connect(t, url)
	name := pgx.Identifier{conn.Config().Database}.Sanitize()
	exec(t, conn, `alter database `+name+` set default_transaction_read_only = on; alter database `+name+` set default_transaction_isolation = serializable`)
	conn = connect(t, url)
	if err := schema.Up(ctx, conn, schema.Default); err != nil {
		t.Fatal(err)
	}
	if err := schema.Down(ctx, conn, schema.Default, 0); err != nil {
		t.Fatal(err)
	}
	var again string
	if err := conn.QueryRow(ctx, `show default_transaction_read_only`).Scan(&again); err != nil || again != "on" {
		t.Errorf("afterwards it is %s, %v", again, err)
	}
}
