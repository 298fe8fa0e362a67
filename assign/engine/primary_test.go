package engine

import (
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/schema/schematest"
)

// standbyAndPrimary returns the addresses of a standby, in recovery for good, and of another server with the same password.
func standbyAndPrimary(t *testing.T) (standby, primary string) {
	server := schematest.OwnServer(t, nil)
	standby, primary = server.URL("getwork"), schematest.OwnServer(t, nil).URL("getwork")
	u, err := url.Parse(primary)
	if err != nil {
		t.Fatal(err)
	}
	secret, _ := u.User.Password()
	db := pool(t, standby)
	execute(t, db, `alter role postgres password '`+secret+`'`)
	execute(t, db, `copy (select) to '`+query[string](t, db, `show data_directory`)+`/standby.signal'`)
	db.Close()
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	s, err := url.Parse(standby)
	if err != nil {
		t.Fatal(err)
	}
	s.User = u.User
	return s.String(), primary
}

// A connection that leads to a standby, because a proxy or a name still does, is not kept, and callers are asked to try again.
// Of several hosts the one that is not a standby is taken. Ranking queries may run on a standby all the same.
func TestStandbyIsPassedOver(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	standby, primary := standbyAndPrimary(t)
	pools := func(url string) *pg.Pools {
		p, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: url, QueryURL: standby, MaxRuns: 1, Name: t.Name()})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(p.Close)
		return p
	}
	alone := pools(standby)
	both := pools(strings.Replace(standby, "/getwork", ","+hostOf(t, primary)+"/getwork", 1))
	for name, use := range map[string]func(*pg.Pools) *pgxpool.Pool{
		"calls": func(p *pg.Pools) *pgxpool.Pool { return p.API }, "own": func(p *pg.Pools) *pgxpool.Pool { return p.Own },
		"signals": func(p *pg.Pools) *pgxpool.Pool { return p.Signals }, "runs": func(p *pg.Pools) *pgxpool.Pool { return p.Runs },
	} {
		err := use(alone).Ping(t.Context())
		if p, _ := pg.ProblemOf(err); err == nil || p.Status != 503 {
			t.Errorf("%s: at a standby: %v, answered %d", name, err, p.Status)
		}
		if query[bool](t, use(both), `select pg_is_in_recovery()`) {
			t.Errorf("%s: of two hosts the standby was taken", name)
		}
	}
	if !query[bool](t, alone.Queries, `select pg_is_in_recovery()`) {
		t.Error("the query database is no standby")
	}
	// Behind a pooler that does not say what it leads to.
	_, err := pool(t, standby).BeginTx(t.Context(), pg.ReadCommitted)
	if p, _ := pg.ProblemOf(err); err == nil || p.Status != 503 {
		t.Errorf("writing at a standby: %v, answered %d", err, p.Status)
	}
}

func hostOf(t *testing.T, address string) string {
	t.Helper()
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// A server that stood still ends the sessions that were idle in a transaction meanwhile, and reports that to the next
// statement, which may be a ranking query. That is not the query's fault, nor getwork's.
func TestEndedSessionIsNobodysFault(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	db := pool(t, address)
	conn, err := pgx.Connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), `begin; set local idle_in_transaction_session_timeout = '10ms'`); err != nil {
		t.Fatal(err)
	}
	await(t, "the session is ended", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where pid = $1`, conn.PgConn().PID()) == 0
	})
	_, err = conn.Exec(t.Context(), `select 1`)
	if p, _ := pg.ProblemOf(err); err == nil || p.Status != 503 {
		t.Errorf("%v is answered %d", err, p.Status)
	}
	var fault *ranking.ErrQuery
	if errors.As(ranking.FaultOf(err, time.Second, assign.Duration(time.Minute)), &fault) {
		t.Errorf("the query is blamed: %v", fault)
	}
}
