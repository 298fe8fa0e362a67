package torture

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/node"
	"getwork/cmd/lab/torture/history"
	"getwork/schema/postgres"
	"getwork/schema/schematest/clock"
)

// stage has the parts of a run's cluster: the server, and the nodes in front of it.
type stage struct {
	ctx      context.Context // ends with the run
	o        Options
	rec      *history.Recorder
	dir      string // folder for logs, and for the binary if it was built here
	server   *postgres.Server
	config   postgres.Config // of the server
	clock    *clock.Clock    // the server's clock; nil: it uses this machine's
	url      string          // of the database, bypassing all proxies
	login    string          // the same with the nodes' login
	binary   string          // of the nodes
	newer    string          // the binary of the nodes that replace them; empty: none do
	former   int             // the version of the schema that binary makes, and latest the one that newer does
	latest   int
	members  []*member
	sockets  atomic.Int64 // how many were opened
	findings *findings
	books    books
	logIns   *logIns   // nil: the nodes believe names
	queries  string    // the URL of the query login; empty: queries run under the nodes' own
	receiver *receiver // of web hooks; nil: there are none
	answered chan int  // nodes that have answered a change, for faults that wait for one

	upgraded atomic.Bool  // nodes that start from now on are the newer ones
	revoked  atomic.Int64 // how often rights were revoked from the nodes' login and granted again
	database sync.Mutex   // held by a fault of the database
	epoch    atomic.Int64 // counts events that may make a node's start fail, such as faults of the database
	sparing  sync.Mutex   // held while deciding whether a node can be spared
}

const (
	memory = "/dev/shm"
	enough = 2 << 30 // bytes that must be free in memory
)

// setUp starts everything. If it fails, tearDown must still be called.
func (s *stage) setUp(ctx context.Context) error {
	s.binary = s.o.Binary
	if s.binary == "" {
		s.binary = filepath.Join(s.dir, "getwork")
		s.o.Log("building getwork")
		if err := Build(ctx, s.binary, s.o); err != nil {
			return err
		}
	}
	if err := s.startServer(ctx); err != nil {
		return err
	}
	s.login = strings.TrimSuffix(s.url, speaking)
	if scenario, _ := scenarioOf(s.o.Scenario); scenario.prepare != nil {
		if err := scenario.prepare(s, ctx); err != nil {
			return err
		}
	}
	var g errgroup.Group
	for i := range s.o.Nodes {
		m, err := newMember(s, i)
		if err != nil {
			return err
		}
		s.members = append(s.members, m)
		g.Go(func() error { return m.start(ctx) })
	}
	return g.Wait()
}

// Build compiles the getwork that the options ask for; flags are further flags of `go build`.
func Build(ctx context.Context, path string, o Options, flags ...string) error {
	if o.Race {
		flags = append(flags, "-race")
	}
	return node.Build(ctx, path, flags...)
}

// dataDir makes a folder for a PostgreSQL.
func (s *stage) dataDir() (string, error) {
	below := s.o.DataDir
	if below == "" {
		below = os.TempDir()
		if available(memory) >= enough {
			below = memory
		}
	}
	dir, err := os.MkdirTemp(below, "getwork-torture-")
	if err != nil {
		return "", fmt.Errorf("make a folder for PostgreSQL's data: %w; see --data-dir", err)
	}
	return dir, nil
}

// startServer starts a PostgreSQL that keeps what it has acknowledged, however it ends.
func (s *stage) startServer(ctx context.Context) error {
	dir, err := s.dataDir()
	if err != nil {
		return err
	}
	parameters := map[string]string{"max_connections": "300", "fsync": "on", "synchronous_commit": "on",
		"track_activity_query_size": "4096", "log_min_messages": "error", "lc_messages": "C", "track_commit_timestamp": "on"}
	if s.o.Isolation != "" {
		parameters["default_transaction_isolation"] = s.o.Isolation
	}
	log, err := os.Create(filepath.Join(s.dir, postgresLog))
	if err != nil {
		return err
	}
	s.config = postgres.Config{Dir: dir, Parameters: parameters, TCP: true, Remove: true, Log: log,
		Environment: []string{postgres.HugePages}}
	if s.o.jumps() {
		if s.clock, err = clock.New(ctx); err != nil {
			return errors.Join(err, os.RemoveAll(dir))
		}
		s.config.Environment = append(s.config.Environment, s.clock.Environment()...)
	}
	s.server, err = postgres.Start(ctx, s.config)
	if err != nil {
		return errors.Join(err, os.RemoveAll(dir))
	}
	if s.url, err = s.makeDatabase(ctx); err != nil {
		return err
	}
	if s.clock != nil {
		return s.clock.Check(ctx, s.url)
	}
	return nil
}

// speaking makes the harness's own connections use UTF-8; the nodes must do that themselves.
const speaking = "&client_encoding=UTF8"

// makeDatabase creates the database that the scenario needs, and returns its URL.
func (s *stage) makeDatabase(ctx context.Context) (url string, err error) {
	url = s.server.URL("postgres")
	scenario, _ := scenarioOf(s.o.Scenario)
	if scenario.encoding == "" {
		return url, nil
	}
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, fmt.Sprintf(`create database bank template template0 encoding '%s' lc_collate 'C' lc_ctype 'C'`, scenario.encoding))
	return s.server.URL("bank") + speaking, err
}

// now returns the time of the database's clock.
func (s *stage) now() time.Time {
	if s.clock == nil {
		return time.Now()
	}
	return time.Now().Add(s.clock.Ahead())
}

// tearDown ends all processes. It may be called after any failure of setUp.
func (s *stage) tearDown() error {
	for _, m := range s.members {
		m.end()
	}
	s.books.close()
	s.logIns.close()
	s.receiver.close()
	var err error
	if s.server != nil {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
		defer cancel()
		err = s.server.Stop(ctx)
	}
	if s.clock != nil {
		err = errors.Join(err, s.clock.Remove())
	}
	return err
}

// spare takes a node out of service if another is left to serve: the given one or else the next. It returns nil if none
// can be spared. take must not wait. The node is back in service when back is called.
func (s *stage) spare(node int, take func(*member) bool) (m *member, back func()) {
	s.sparing.Lock()
	defer s.sparing.Unlock()
	for i := range s.members {
		m = s.members[(node+i)%len(s.members)]
		others := 0
		for _, other := range s.members {
			if other != m && other.away.Load() == 0 {
				others++
			}
		}
		if others > 0 && take(m) {
			m.away.Add(1)
			return m, func() { m.away.Add(-1) }
		}
	}
	return nil, nil
}
