package report

import (
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// rig is a report, and a node without a listener that produces what is reported.
type rig struct {
	*Report
	node *enginetest.Node
	db   *pgxpool.Pool
}

// start starts a rig on the database of that URL, and ends it with the test.
func start(t testing.TB, url string) *rig {
	t.Helper()
	n := enginetest.Start(t, url, enginetest.Options{MaxRuns: 1, Look: 2 * time.Second, Deaf: true})
	return &rig{Report: New(n.Pools.API, nil), node: n, db: n.Pools.API}
}

// newTask makes a task with that query; an inbox, if it is empty.
func (g *rig) newTask(t testing.TB, name, query string) assign.Task {
	t.Helper()
	return enginetest.NewTask(t, g.node, name, query, nil)
}

// now returns the time by the database's clock.
func now(t testing.TB, p *pgxpool.Pool) time.Time {
	t.Helper()
	return enginetest.Query[time.Time](t, p, `select clock_timestamp()`)
}
