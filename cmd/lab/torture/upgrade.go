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
	"regexp"
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

// The files of the newer getwork, in the run's folder.
const (
	newerProgram = "getwork-newer"
	newerSource  = "upgraded.sql"
	newerOverlay = "overlay.json"
)

// findVersions finds the programs of both versions, and which schema each of them makes.
func (s *stage) findVersions(ctx context.Context) (err error) {
	if s.o.Former != "" {
		s.binary, s.newer = s.o.Former, s.binary
	} else if err := s.buildNewer(ctx); err != nil {
		return err
	}
	if s.former, err = s.knows(ctx, s.binary); err != nil {
		return err
	}
	if s.latest, err = s.knows(ctx, s.newer); err != nil {
		return err
	}
	s.o.Log("from version %d of the schema to %d, and back", s.former, s.latest)
	if s.former > s.latest {
		return fmt.Errorf("--former knows version %d of the schema, and the program that is to replace it only %d", s.former, s.latest)
	}
	if s.o.Former == "" && s.former == s.latest {
		return fmt.Errorf("the newer program, built here, makes no other schema than version %d: its overlay had no effect", s.latest)
	}
	return nil
}

var knownSchema = regexp.MustCompile(`newest that this program knows is (\d+)`)

// knows returns the version of the schema that a program makes.
func (s *stage) knows(ctx context.Context, binary string) (version int, err error) {
	out, err := s.command(ctx, binary, "migrate", "status")
	found := knownSchema.FindSubmatch(out)
	if err != nil || found == nil {
		return 0, errors.Join(err, fmt.Errorf("%s migrate status says:\n%s", binary, out))
	}
	return strconv.Atoi(string(found[1]))
}

// command runs a command of one of the programs, on the database.
func (s *stage) command(ctx context.Context, binary string, args ...string) ([]byte, error) {
	command := exec.CommandContext(ctx, binary, append(args, "--database-url", s.url)...)
	command.Env = node.Environment()
	return command.CombinedOutput()
}

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
	added := filepath.Join(s.dir, newerSource)
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {filepath.Join(folder, fmt.Sprintf("%03d_upgraded.sql", len(all)+1)): added}})
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, newerOverlay)
	if err := errors.Join(os.WriteFile(added, []byte(newerMigration), 0o600), os.WriteFile(file, overlay, 0o600)); err != nil {
		return err
	}
	s.newer = filepath.Join(s.dir, newerProgram)
	s.o.Log("building a newer getwork")
	return Build(ctx, s.newer, s.o, "-overlay", file)
}

// upgrade goes to the newer version and back: first half of the way, then, by two calls, all of it.
func (s *storm) upgrade(ctx context.Context, _ *rand.Rand) {
	if s.upgraded.Load() {
		s.downgrade(ctx)
		return
	}
	s.turns++
	if s.former < s.latest && s.turns%2 == 1 {
		s.giveUp(ctx)
	} else {
		s.forward(ctx, s.members)
	}
}

// forward migrates, and replaces the nodes one after the other.
func (s *storm) forward(ctx context.Context, nodes []*member) {
	s.upgraded.Store(true)
	s.epoch.Add(1) // from now on a node of the old version may be refused when it starts
	defer s.epoch.Add(1)
	s.migrate(ctx)
	s.replace(nodes, "upgrade")
}

// replace ends each node and starts it again, one after the other, with the version that new processes have now.
func (s *storm) replace(nodes []*member, kind string) {
	for _, m := range nodes {
		back := s.takeOut(m)
		if back == nil {
			return
		}
		s.strike(planned{kind: Kind{Name: kind}}, m.number, "", m.drain, func() { s.restarted(m) })
		back()
	}
}

// takeOut waits until a node can be spared, and takes it out of service until back is called. If the storm is over
// before, it returns nil.
func (s *storm) takeOut(m *member) (back func()) {
	for s.pause(500 * time.Millisecond) {
		if taken, back := s.spare(m.number, func(other *member) bool { return other == m && m.process.TryLock() }); taken != nil {
			return func() { m.process.Unlock(); back() }
		}
	}
	return nil
}

// giveUp replaces all nodes but one, and then goes back without a pause in service. The newer ones end, one after the
// other. The former one serves on while the migration is taken back: it knows the schema before it and the one after it.
// Only then can others of the former version start.
func (s *storm) giveUp(ctx context.Context) {
	stays := s.members[len(s.members)-1]
	stays.process.Lock() // no fault ends it: it could not start again
	defer stays.process.Unlock()
	newer := s.members[:len(s.members)-1]
	s.forward(ctx, newer)
	ended := 0
	for _, m := range newer {
		back := s.takeOut(m)
		if back == nil {
			break
		}
		began := s.rec.Now()
		m.drain()
		defer func() {
			s.restarted(m)
			s.record("give up", m.number, began, "")
			back()
		}()
		ended++
	}
	if ended < len(newer) {
		return
	}
	beside, cancel := context.WithTimeout(ctx, gapWithin)
	defer cancel()
	if s.takeBack(beside) {
		s.count("give up")
		return
	}
	s.epoch.Add(1)
	defer s.epoch.Add(1)
	began := s.rec.Now()
	stays.drain()
	s.takeBack(ctx)
	s.restarted(stays)
	s.count("downgrade")
	s.record("downgrade", -1, began, "")
}

// gapWithin is how long the way back may wait beside a node for its locks. A trigger of work is dropped in a moment without a
// ranking query alone, for which a busy site may wait in vain; then the last node must end, too.
const gapWithin = 30 * time.Second

// downgrade goes back from the newer version. If that has migrated, no node can serve while the schema goes back: those
// of the former version don't start before, because they don't know the newer schema, and those of the newer version
// need it. So all end. Otherwise nodes are replaced one by one.
func (s *storm) downgrade(ctx context.Context) {
	if s.former == s.latest {
		s.upgraded.Store(false)
		s.replace(s.members, "downgrade")
		return
	}
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
	s.takeBack(ctx)
	for _, m := range s.members {
		s.restarted(m)
	}
	s.count("downgrade")
	s.record("downgrade", -1, began, "")
}

// takeBack takes the migrations back with the newer program; nodes start with the former one again.
func (s *storm) takeBack(ctx context.Context) (done bool) {
	s.database.Lock() // it stays up meanwhile
	defer s.database.Unlock()
	s.epoch.Add(1)
	defer s.epoch.Add(1)
	if out, err := s.command(ctx, s.newer, "migrate", "down", "--to", strconv.Itoa(s.former)); err != nil {
		if ctx.Err() == nil {
			s.findings.add("process", "the migration can't be taken back: %v\n%s", err, out)
		}
		return false
	}
	s.upgraded.Store(false)
	return true
}

// migrate runs the newer version's migrations, while nodes of the old version serve. That breaks nothing, so it is no
// fault.
func (s *storm) migrate(ctx context.Context) {
	s.count("migrate")
	for {
		before := s.epoch.Load()
		out, err := s.command(ctx, s.newer, "migrate", "up")
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

// migrateLast makes the schema whose tables are read at the end.
func (s *stage) migrateLast(ctx context.Context) error {
	if out, err := s.command(ctx, s.newer, "migrate", "up"); err != nil {
		return fmt.Errorf("migrate before the tables are read: %w\n%s", err, out)
	}
	return nil
}
