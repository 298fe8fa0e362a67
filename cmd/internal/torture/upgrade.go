package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"getwork/cmd/internal/node"
)

// oneLong returns tasks, one of which has a long query.
func oneLong(o Options) []job {
	n := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	long := all(ranked("long", "long", 200, n(18, 22), nil))
	long.settings["query_timeout"] = "2m"
	return []job{
		long,
		all(ranked("quick", "quick", 400, n(0.005, 0.03), nil)),
		ranked("shelf", "loan", 300, n(0.2, 0.5), map[string]any{"fresh_for": "2s", "recheck": recheck}),
		leased(job{name: "inbox", keys: "in", settings: map[string]any{"name": "inbox", "max_attempts": 3, "backoff": "1s"}}, "4s", leaseOfInbox),
	}
}

// newerMigration locks a table that each click writes, as much as a migration can.
const newerMigration = `alter table getwork.work_requested add column upgraded integer;

---- create above / drop below ----

alter table getwork.work_requested drop column upgraded;
`

// buildNewer builds a getwork with one more migration.
func (s *stage) buildNewer(ctx context.Context) error {
	source, err := node.Source()
	if err != nil {
		return err
	}
	folder := filepath.Join(source, "schema", "migrations")
	all, err := filepath.Glob(filepath.Join(folder, "*.sql"))
	if err != nil {
		return err
	}
	added := filepath.Join(s.dir, "upgraded.sql")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(folder, fmt.Sprintf("%03d_upgraded.sql", len(all)+1)): added}})
	if err != nil {
		return err
	}
	s.former = len(all)
	file := filepath.Join(s.dir, "overlay.json")
	if err := errors.Join(os.WriteFile(added, []byte(newerMigration), 0o600), os.WriteFile(file, overlay, 0o600)); err != nil {
		return err
	}
	s.newer = filepath.Join(s.dir, "getwork-newer")
	s.o.Log("building a newer getwork")
	return Build(ctx, s.newer, s.o, "-overlay", file)
}

// upgrade migrates, and replaces the nodes one after the other. The next call goes back to the former version.
func (s *storm) upgrade(ctx context.Context, _ *rand.Rand) {
	if s.upgraded.Load() {
		s.downgrade(ctx)
		return
	}
	s.upgraded.Store(true)
	s.epoch.Add(1) // from now on a node of the old version may be refused when it starts
	defer s.epoch.Add(1)
	s.migrate(ctx)
	for i := 0; i < len(s.members) && s.pause(500*time.Millisecond); {
		m, back := s.spare(i, func(m *member) bool { return m.number == i && m.process.TryLock() })
		if m == nil {
			continue
		}
		s.strike(planned{kind: Kind{Name: "upgrade"}}, m.number, "", m.drain, func() { s.restarted(m) })
		m.process.Unlock()
		back()
		i++
	}
}

// downgrade ends the newer nodes, takes the migration back with their program, and starts nodes of the former version.
func (s *storm) downgrade(ctx context.Context) {
	for _, m := range s.members {
		m.process.Lock()
		defer m.process.Unlock()
	}
	s.epoch.Add(1)
	defer s.epoch.Add(1)
	began := s.rec.Now()
	var ending sync.WaitGroup
	for _, m := range s.members {
		ending.Go(m.drain)
	}
	ending.Wait()
	s.database.Lock() // it stays up meanwhile
	command := exec.CommandContext(ctx, s.newer, "migrate", "down", "--to", strconv.Itoa(s.former), "--database-url", s.url)
	command.Env = node.Environment()
	out, err := command.CombinedOutput()
	s.database.Unlock()
	if err != nil && ctx.Err() == nil {
		s.findings.add("process", "the migration can't be taken back: %v\n%s", err, out)
	} else {
		s.upgraded.Store(false)
	}
	for _, m := range s.members {
		if !s.upgraded.Load() {
			m.node.Use(s.binary)
		}
		s.restarted(m)
	}
	s.count("downgrade")
	s.record("downgrade", -1, began, "")
}

// migrate runs the newer version's migrations, while nodes of the old version serve. That breaks nothing, so it is no
// fault.
func (s *storm) migrate(ctx context.Context) {
	s.count("migrate")
	for {
		before := s.epoch.Load()
		command := exec.CommandContext(ctx, s.newer, "migrate", "up", "--database-url", s.url)
		command.Env = node.Environment()
		out, err := command.CombinedOutput()
		if err == nil || ctx.Err() != nil {
			return
		}
		if s.epoch.Load() == before && s.database.TryLock() { // otherwise PostgreSQL is, or was, away
			s.database.Unlock()
			s.findings.add("process", "the migration fails: %v\n%s", err, out)
			return
		}
		if !s.pause(time.Second) {
			return
		}
	}
}
