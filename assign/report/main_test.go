package report

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/pg"
	"getwork/notify"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// rig is a report, and an engine without a listener that produces what is reported.
type rig struct {
	*Report
	engine *engine.Engine
	db     *pgxpool.Pool
}

// start starts a rig on the database of that URL, and ends it with the test.
func start(t testing.TB, url string) *rig {
	t.Helper()
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: url, MaxRuns: 1, Name: "getwork report test"})
	if err != nil {
		t.Fatal(err)
	}
	send := func(context.Context, string, string) error { return nil }
	announcer := notify.NewAnnouncer(send, "getwork", "n1", log)
	e := engine.New(engine.Config{Node: "n1", API: pools.API, Runs: pools.Runs, MaxRuns: 1, Channel: "getwork", Announce: announcer, Log: log})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = e.Run(ctx) })
	running.Go(func() { _ = announcer.Run(ctx) })
	t.Cleanup(func() {
		cancel()
		running.Wait()
		pools.Close()
	})
	return &rig{Report: New(pools.API, nil), engine: e, db: pools.API}
}

const numbers = `select i as item from generate_series(1, 1000) i order by i`

// newTask makes a task with that query; an inbox, if it is empty.
func (g *rig) newTask(t testing.TB, name, query string) assign.Task {
	t.Helper()
	s := assign.DefaultSettings()
	s.Name, s.Query = name, assign.Query(query)
	task, err := g.engine.CreateTask(t.Context(), s, "a manager")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// pool is a connection pool of the test's own.
func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

func execute(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// now returns the time by the database's clock.
func now(t testing.TB, p *pgxpool.Pool) (at time.Time) {
	t.Helper()
	if err := p.QueryRow(t.Context(), `select clock_timestamp()`).Scan(&at); err != nil {
		t.Fatal(err)
	}
	return at
}

func wantKind(t testing.TB, err error, kind assign.Kind) {
	t.Helper()
	var r *assign.Refusal
	if !errors.As(err, &r) || r.Kind != kind {
		t.Fatalf("error %v, want a refusal of kind %s", err, kind)
	}
}
