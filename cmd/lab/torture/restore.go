package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/jackc/pgx/v5"

	"getwork/schema/postgres"
)

// shelved are tasks whose shelves are still fresh when they come back from a dump.
func shelved(o Options) []job {
	n := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	books := fromBooks(n(0.3, 0.6))
	books.settings["fresh_for"] = "1m"
	return []job{
		books,
		all(ranked("shelf", "loan", 300, n(0.2, 0.5), map[string]any{"fresh_for": "1m"})),
		all(ranked("quick", "quick", 400, n(0.005, 0.03), nil)),
		leased(job{name: "inbox", keys: "in", settings: map[string]any{"name": "inbox", "max_attempts": 3, "backoff": "1s"}}, "4s", leaseOfInbox),
	}
}

// restore moves everything into another cluster at the same address, while the nodes run on.
func (s *storm) restore(ctx context.Context, _ *rand.Rand) {
	s.database.Lock()
	defer s.database.Unlock()
	s.epoch.Add(1)
	defer s.epoch.Add(1)
	began := s.rec.Now()
	if err := s.move(ctx); err != nil && ctx.Err() == nil {
		s.findings.add("database", "it can't be restored: %v", err)
	}
	s.count("restore")
	s.record("restore", -1, began, "")
}

// move replaces the server by one that is restored from its dump.
func (s *stage) move(ctx context.Context) error {
	found, err := postgres.Find()
	if err != nil {
		return err
	}
	admitted, err := os.ReadFile(s.admission())
	if err != nil {
		return err
	}
	file := filepath.Join(s.dir, "dump")
	defer os.Remove(file)
	next := s.config
	if next.Dir, err = s.sameAddress(); err != nil {
		return err
	}
	hidden := next // nobody can connect before everything is restored
	hidden.TCP, hidden.Remove = false, false
	server, err := postgres.Start(ctx, hidden)
	if err != nil {
		return errors.Join(err, os.RemoveAll(next.Dir))
	}
	if err = s.dump(ctx, found.Dir, file); err == nil {
		err = tool(ctx, found.Dir, "pg_restore", "--exit-on-error", "--dbname="+server.URL("postgres"), file)
	}
	if err = errors.Join(err, server.Stop(ctx)); err == nil {
		server, err = postgres.Start(ctx, next)
	}
	if err != nil {
		return errors.Join(err, os.RemoveAll(next.Dir), os.WriteFile(s.admission(), admitted, 0o600), s.server.Restart(ctx))
	}
	former := s.server
	s.server, s.config = server, next
	if server.URL("postgres") != former.URL("postgres") {
		err = errors.New("its address has changed")
	}
	return errors.Join(err, former.Stop(ctx))
}

// sameAddress makes a folder for a server that gets the current one's port and password.
func (s *stage) sameAddress() (dir string, err error) {
	const file = "postgres.json"
	text, err := os.ReadFile(filepath.Join(s.config.Dir, file))
	if err != nil {
		return "", err
	}
	var state map[string]any
	if err := json.Unmarshal(text, &state); err != nil {
		return "", err
	}
	delete(state, "socket_dir")
	if text, err = json.Marshal(state); err != nil {
		return "", err
	}
	if dir, err = s.dataDir(); err != nil {
		return "", err
	}
	return dir, os.WriteFile(filepath.Join(dir, file), text, 0o600)
}

// dump writes everything into a file, and ends the server. No answered write is missing, since by then only the dump
// can connect, through the server's socket.
func (s *stage) dump(ctx context.Context, tools, file string) error {
	if err := os.WriteFile(s.admission(), []byte("local all all trust\n"), 0o600); err != nil {
		return err
	}
	u, err := url.Parse(s.url)
	if err != nil {
		return err
	}
	socket := fmt.Sprintf("postgres://%s@%s?host=%s&port=%s", postgres.Superuser, u.Path, url.QueryEscape(s.config.Dir), u.Port())
	conn, err := pgx.Connect(ctx, socket)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, `select pg_reload_conf()`); err != nil {
		return err
	}
	for others := 1; others > 0; {
		if late, err := pgx.Connect(ctx, s.url); err == nil {
			_ = late.Close(ctx)
			continue // not reloaded yet
		}
		if err := conn.QueryRow(ctx, endOthers).Scan(&others); err != nil {
			return err
		}
	}
	if err := tool(ctx, tools, "pg_dump", "--format=custom", "--file="+file, socket); err != nil {
		return err
	}
	s.server.Halt(ctx)
	return nil
}

const endOthers = `select count(pg_terminate_backend(pid)) from pg_stat_activity where client_addr is not null`

// admission returns the path of pg_hba.conf.
func (s *stage) admission() string { return filepath.Join(s.config.Dir, "data", "pg_hba.conf") }

// tool runs one of PostgreSQL's programs.
func tool(ctx context.Context, dir, name string, args ...string) error {
	path := filepath.Join(dir, name)
	if _, err := os.Stat(path); err != nil {
		path = name
	}
	if out, err := exec.CommandContext(ctx, path, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", name, err, out)
	}
	return nil
}
