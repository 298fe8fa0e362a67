package engine

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// A commit waits for a standby that is not there, and its sender goes away. The wait is not cancelled, because PostgreSQL
// would then show everybody a change that is lost if the primary dies. Statements other than a commit are cancelled as usual,
// and their connection is free again.
func TestCommitIsNotCancelled(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	// From its start: a session that knows a changed setting commits without waiting until the checkpointer knows it, too.
	url := schematest.OwnServer(t, map[string]string{"synchronous_commit": "local", "synchronous_standby_names": "nobody"}).URL("getwork")
	db := pool(t, url)
	execute(t, db, `create table told (who text)`)
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: url + separator(url) + "synchronous_commit=on", MaxRuns: 1, Name: t.Name()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pools.Close)
	for name, p := range map[string]*pgxpool.Pool{"calls": pools.API, "own": pools.Own, "runs": pools.Runs} {
		leaves(t, db, "", p, `select pg_sleep(60)`)
		await(t, "what is no commit is cancelled", func() bool {
			return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) == 0
		})
		leaves(t, db, name, p, `insert into told values ('`+name+`')`)
	}
	// A cancel takes a millisecond, even if it has a connection of its own.
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for range 100 {
		if n := query[int](t, db, `select count(*) from told`); n > 0 {
			t.Fatalf("%d are shown, and no standby has them", n)
		}
		<-tick.C
	}
	execute(t, db, `select pg_cancel_backend(pid) from pg_stat_activity where wait_event = 'SyncRep'`) // ends the waits
	await(t, "they are shown", func() bool { return query[int](t, db, `select count(*) from told`) == 3 })
}

// leaves executes a statement in a transaction whose sender goes away while it waits. It commits if the transaction has a
// name.
func leaves(t *testing.T, db *pgxpool.Pool, name string, p *pgxpool.Pool, statement string) {
	t.Helper()
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	tx, err := p.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	backend, left := tx.Conn().PgConn().PID(), make(chan error)
	go func() {
		_, err := tx.Exec(ctx, statement)
		if err == nil {
			err = tx.Commit(ctx)
		}
		if err != nil {
			_ = tx.Rollback(context.Background()) // gives the connection back
		}
		left <- err
	}()
	waits := "PgSleep"
	if name != "" {
		waits = "SyncRep"
	}
	await(t, "it waits", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where pid = $1 and wait_event = $2`, backend, waits) == 1
	})
	leave()
	if err := <-left; err == nil {
		t.Errorf("%s: what nobody waited for has ended", name)
	}
}

func separator(url string) string {
	if strings.Contains(url, "?") {
		return "&"
	}
	return "?"
}

// PostgreSQL may end a transaction because of a deadlock several times in a row. It is repeated, and then commits.
func TestDeadlocksInARow(t *testing.T) {
	t.Parallel()
	db := pool(t, schematest.URL(t))
	attempts := 0
	err := pg.Transact(t.Context(), db, func(tx pgx.Tx) error {
		attempts++
		statement := `create table done ()`
		if attempts < 10 {
			statement = `do $$ begin raise deadlock_detected; end $$`
		}
		_, err := tx.Exec(t.Context(), statement)
		return err
	})
	if err != nil || attempts != 10 {
		t.Errorf("%d attempts: %v", attempts, err)
	}
	execute(t, db, `table done`)
}
