package fault

import (
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// A node freezes in the middle of its run, past every time-out: its query ends, its lock is lost, and another node
// serves. After the thaw it hands out nothing of its result. As in production, queries have a login of their own: its session
// and the one with the lock both end.
func TestRunnerFrozen(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	const frozenQuery = 3 * time.Second
	s := newSite(t, 3, address, "--query-database-url", schematest.Connector(t, address))
	query, open := s.Gated(frozenQuery.Seconds(), 100)
	s.Task("verify", query)
	stop := s.Sample()
	oliver := s.Click("oliver", 0, 2)
	s.QueryRuns()
	runner := s.runner()
	others := []int{(runner + 1) % 3, (runner + 2) % 3}
	s.Nodes[runner].Stop()
	began := time.Now()
	tracy := s.Click("tracy", others[0], 3)
	peter := s.Click("peter", others[1], 1)
	s.Sampled(1)
	open()
	s.Await("the query ends", e2e.Soon, `
select count(*) > 0 from pg_locks where locktype = 'advisory' and classid = 1717 and mode = 'ShareLock' and granted
  and database = (select oid from pg_database where datname = current_database())`)
	open = s.Shut() // that transaction has ended by then

	// The lock is released 20 s after the query's end, another node sweeps within 3 s, and its query takes its time.
	within := 2 * (frozenQuery + 20*time.Second + 3*time.Second + frozenQuery)
	s.Await("another run begins", within-time.Since(began), `select count(*) > 1 from getwork.run`)
	s.Sampled(2)
	open()
	s.Served("tracy", others[0], tracy.ID, e2e.Soon)
	t.Logf("served %v after the freeze", time.Since(began))
	s.Served("peter", others[1], peter.ID, e2e.Soon)
	s.Served("oliver", others[1], oliver.ID, e2e.Soon)
	work := column[int64](s, `select id from getwork.work order by id`)

	s.Nodes[runner].Cont()
	e2e.Await(t, "the node is ready again", 30*time.Second, func() bool { return s.Nodes[runner].Ready() == 200 })
	s.Served("oliver", runner, oliver.ID, e2e.Soon)
	open = s.Shut()
	again := s.Click("oliver", runner, 2)
	s.Sampled(3)
	open()
	s.Served("oliver", runner, again.ID, e2e.Soon)
	if executions, atOnce := stop(); executions != 3 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want three, one after another", executions, atOnce)
	}
	// While the frozen node's query holds its lock on the query database, runs of others are given up and tried again.
	states := column[string](s, `select string_agg(state, ' ' order by id) from getwork.run where error is null or error not like '%still executes on the query database'`)
	if states[0] != "lost finished finished" {
		t.Errorf("runs: %s", states[0])
	}
	if n := column[int64](s, `select count(*) from getwork.work`); n[0] != int64(len(work))+2 {
		t.Errorf("%d items were handed out: %d before the thaw, want 2 after it", n[0], len(work))
	}
	s.noDuplicates()
}
