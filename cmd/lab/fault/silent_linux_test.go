package fault

import (
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest"
)

// silentBound is how long it may take until other nodes serve after a node's host has vanished without a word.
const silentBound = 30 * time.Second

// tableNap is a query that sleeps for as long as a table says when the query begins.
const tableNap = e2e.Marker + ` with nap as materialized (select pg_sleep(seconds) from wait)
select i as item from nap cross join generate_series(1, 100) i order by i`

// vanishing is a site of two nodes on this host, and one on another. The database's host can be cut off from that one.
func vanishing(t *testing.T) (database *host, s *site, g *guest) {
	database, node := newHosts(t)
	server := database.server(node)
	s = newSite(t, 2, server.URL("getwork"))
	if _, err := s.DB.Exec(t.Context(), `create table wait as select 0::float8 as seconds`); err != nil {
		t.Fatal(err)
	}
	s.Task("verify", tableNap)
	return database, s, node.start(database, server)
}

// The host of the node that runs the query vanishes, so nobody closes its connections. Keepalives find out, its lock is
// freed, and another node serves.
func TestHostVanishesInItsQuery(t *testing.T) {
	t.Parallel()
	_, s, g := vanishing(t)
	column[bool](s, `update wait set seconds = 600 returning true`)
	if out, answered := g.get("oliver", 0); answered {
		t.Fatalf("served at once: %s", out)
	}
	s.QueryRuns()
	tracy := s.Click("tracy", 0, 3)
	column[bool](s, `update wait set seconds = 0 returning true`)
	s.vanish(g.host, tracy.ID)
}

// The same happens to a node in the middle of its round, while it holds both locks.
func TestHostVanishesInItsRound(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	_, s, g := vanishing(t)
	tx, err := s.DB.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `lock table getwork.work in exclusive mode`); err != nil {
		t.Fatal(err)
	}
	clicked := make(chan string, 1) // not waited for: the round waits for a lock for at most 5 s
	go func() {
		out, answered := g.get("oliver", 0)
		if answered {
			t.Errorf("served at once: %s", out)
		}
		clicked <- out
	}()
	s.Await("the round writes what it hands out", 40*time.Second,
		`select count(*) > 0 from pg_locks l join pg_class c on c.oid = l.relation where c.relname = 'work' and not l.granted`)
	g.host.pull()
	<-clicked
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	tracy := s.Click("tracy", 0, 3)
	s.vanish(g.host, tracy.ID)
	if n := column[int64](s, `select count(*) from getwork.work w join getwork.work_requested r on r.id = w.request_id where r.user_name = 'oliver'`); n[0] != 1 {
		t.Errorf("oliver got %d items, wanted 1", n[0])
	}
}

// vanish pulls the host's cable, and waits until another node has served.
func (s *site) vanish(h *host, request int64) {
	s.T.Helper()
	h.pull()
	began, still := time.Now(), s.Standstill()
	s.Served("tracy", 1, request, 2*silentBound)
	took := time.Since(began) - still()
	s.T.Logf("served %v after the host vanished", took)
	if took > silentBound {
		s.T.Errorf("served %v after the host vanished; want %v", took, silentBound)
	}
	s.Await("everybody is served", e2e.Soon, `select count(*) = 0 from getwork.work_requested where state = 'pending'`)
	if states := s.States(); states != "lost finished" {
		s.T.Errorf("runs: %s", states)
	}
	s.noDuplicates()
}

// The database's host vanishes from a node's sight in the middle of its run, and comes back. The node is alone, and
// serves again by itself, including the requests that waited.
func TestDatabaseVanishesForAWhile(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const away = 20 * time.Second
	database, s, g := vanishing(t)
	for _, n := range s.Nodes {
		n.Kill()
	}
	column[bool](s, `update wait set seconds = 600 returning true`)
	if out, answered := g.get("oliver", 0); answered {
		t.Fatalf("served at once: %s", out)
	}
	s.QueryRuns()
	column[bool](s, `update wait set seconds = 0 returning true`)
	database.pull()
	pulled := time.NewTimer(away)
	defer pulled.Stop()
	<-pulled.C
	database.plug()
	back, still := time.Now(), s.Standstill()
	s.Await("who waited is served", 2*silentBound, `select count(*) > 0 from getwork.work_requested where user_name = 'oliver' and state = 'assigned'`)
	took := time.Since(back) - still()
	t.Logf("the waiting request was served %v after the database was back", took)
	if took > 10*time.Second {
		t.Errorf("the waiting request was served %v after the database was back; want a few seconds", took)
	}
	out, answered := g.get("peter", silentBound)
	if !answered {
		t.Errorf("afterwards: %s", out)
	}
	t.Logf("a click was served %v after the database was back", time.Since(back))
	s.noDuplicates()
}
