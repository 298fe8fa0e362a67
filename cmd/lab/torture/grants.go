package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os/exec"
	"regexp"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/node"
)

// worker is a login that may do what a node does, and no more.
const (
	worker     = "torture_worker"
	makeWorker = `
create role torture_worker login password 'worker';
grant usage on schema getwork to torture_worker;
grant select, insert, update, delete on all tables in schema getwork to torture_worker;
grant usage on all sequences in schema getwork to torture_worker`
)

// logInAsWorker has the nodes log in as a user who owns nothing, so that rights can be revoked.
func (s *stage) logInAsWorker(ctx context.Context) error {
	migrate := exec.CommandContext(ctx, s.binary, "migrate", "up", "--database-url", s.url)
	migrate.Env = node.Environment()
	if out, err := migrate.CombinedOutput(); err != nil {
		return fmt.Errorf("migrate: %w\n%s", err, out)
	}
	if err := s.execute(ctx, makeWorker); err != nil {
		return fmt.Errorf("create the nodes' login: %w", err)
	}
	u, err := url.Parse(s.login)
	if err != nil {
		return err
	}
	u.User = url.UserPassword(worker, "worker")
	s.login = u.String()
	return nil
}

func (s *stage) execute(ctx context.Context, sql string, args ...any) error {
	conn, err := pgx.Connect(ctx, s.url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql, args...)
	return err
}

// revoke revokes all rights on one table from the nodes' login, and grants them again. A node's log must report it.
func (s *storm) revoke(ctx context.Context, rng *rand.Rand) {
	tables := []string{"task", "task_state", "task_version", "work_requested", "work", "run", "candidate", "item"}
	table := tables[rng.IntN(len(tables))]
	lasts := between(rng.Float64(), 100*time.Millisecond, 5*time.Second)
	s.database.Lock() // keeps faults of the database away meanwhile
	defer s.database.Unlock()
	s.epoch.Add(1)
	defer s.epoch.Add(1)
	before := s.said(table)
	s.revoked.Add(1)
	defer s.revoked.Add(1)
	s.strike(planned{kind: Kind{Name: "revoke"}, lasts: lasts}, -1, table, func() {
		s.must(s.execute(ctx, "revoke all on getwork."+table+" from "+worker))
	}, func() {
		s.must(s.execute(ctx, "grant select, insert, update, delete on getwork."+table+" to "+worker))
	})
	if before == 0 && lasts > 3*time.Second && s.said(table) == 0 && ctx.Err() == nil { // a repeated log line is not written each time
		s.findings.add("log", "no node's log reports the missing rights on %s, which were missing for %v", table, lasts)
	}
}

func (s *storm) must(err error) {
	if err != nil && s.stage.ctx.Err() == nil {
		s.findings.add("database", "rights can't be changed: %v", err)
	}
}

// said counts the lines in the running nodes' logs that report missing rights on a table.
func (s *stage) said(table string) (n int) {
	line := regexp.MustCompile("permission denied for table " + table + `\b`) // work is not work_requested
	for _, m := range s.members {
		m.process.Lock()
		if m.node.Started() {
			n += len(line.FindAllString(m.node.Output(), -1))
		}
		m.process.Unlock()
	}
	return n
}
