package main

import (
	"fmt"
	"testing"
	"time"

	"getwork/schema/schematest"
)

// A node freezes in the middle of its run, past every time-out: its query ends, its lock is lost, another node serves;
// and when it thaws it hands out nothing of what it found.
func TestRunnerFrozen(t *testing.T) {
	t.Parallel()
	frozen(t, "", func(s *site) (string, func()) { return s.gated(frozenQuery.Seconds(), 100) })
}

// The same with a result of 20 MB: the server is still sending when nobody reads any more.
func TestRunnerFrozenInItsResult(t *testing.T) {
	t.Parallel()
	frozen(t, schematest.OwnServer(t, nil).URL("getwork"), func(s *site) (string, func()) {
		_, open := s.gated(0, 1)
		return fmt.Sprintf(marker+` with nap as materialized (select pg_sleep(%g), gate())
select i as item, repeat(md5(i::text), 600) as report from nap cross join generate_series(1, 1000) i order by i`, frozenQuery.Seconds()), open
	})
}

const frozenQuery = 3 * time.Second

func frozen(t *testing.T, url string, gated func(*site) (query string, open func())) {
	s := newSite(t, 3, url)
	query, open := gated(s)
	s.task("verify", query)
	stop := s.sample()
	oliver := s.click("oliver", 0, 2)
	s.queryRuns()
	runner := s.runner()
	others := []int{(runner + 1) % 3, (runner + 2) % 3}
	s.nodes[runner].Stop()
	began := time.Now()
	tracy := s.click("tracy", others[0], 3)
	peter := s.click("peter", others[1], 1)
	s.sampled(1)
	open()
	s.await("the query ends", soon, `
select count(*) > 0 from pg_locks where locktype = 'advisory' and classid = 1717 and mode = 'ShareLock' and granted
  and database = (select oid from pg_database where datname = current_database())`)
	open = s.shut() // which is when that transaction has ended

	// The lock goes 20 s after the query's end, another node looks within 3 s, and its query takes its time.
	within := 2 * (frozenQuery + 20*time.Second + 3*time.Second + frozenQuery)
	s.await("another run begins", within-time.Since(began), `select count(*) > 1 from getwork.run`)
	s.sampled(2)
	open()
	s.served("tracy", others[0], tracy.ID, soon)
	t.Logf("served %v after the freeze", time.Since(began))
	s.served("peter", others[1], peter.ID, soon)
	s.served("oliver", others[1], oliver.ID, soon)
	work := column[int64](s, `select id from getwork.work order by id`)

	s.nodes[runner].Cont()
	await(t, "the node is ready again", 30*time.Second, func() bool { return s.nodes[runner].Ready() == 200 })
	s.served("oliver", runner, oliver.ID, soon)
	open = s.shut()
	again := s.click("oliver", runner, 2)
	s.sampled(3)
	open()
	s.served("oliver", runner, again.ID, soon)
	if executions, atOnce := stop(); executions != 3 || atOnce != 1 {
		t.Errorf("%d executions, %d at once; want three, one after another", executions, atOnce)
	}
	if states := s.states(); states != "lost finished finished" {
		t.Errorf("runs: %s", states)
	}
	if n := column[int64](s, `select count(*) from getwork.work`); n[0] != int64(len(work))+2 {
		t.Errorf("%d were handed out: %d before the thaw, 2 wanted after it", n[0], len(work))
	}
	s.noDuplicates()
}
