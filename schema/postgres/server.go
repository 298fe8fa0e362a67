// Package postgres starts a private PostgreSQL: for the demo, for a single node that has no other, for tests.
//
// A [Server] belongs to the process that started it. It is reachable by that process's user alone, through a
// Unix socket in a folder that nobody else may enter, unless TCP is asked for; and it ends with its owner,
// also when that is killed with -9, because a shell beside it waits on a pipe (see process.go). PostgreSQL
// refuses to run as root: root's server runs as the owner of the data, or the user postgres, or nobody.
//
// The folder given holds everything:
//
//	postgres.json    port, socket and password, so that the next start has the same URL
//	data/            PostgreSQL's data directory; complete, since it is made beside and renamed
//	data.init/       one in the making, thrown away by the next start
//	.s.PGSQL.5432    the socket, or if the path is too long for one, in a folder below the temporary one
//
// A lock on the folder keeps a second process out.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

// Superuser is the login that every private server begins with. It is for tests and for preparing a server; programs are
// handed [Server.LoginURL].
const Superuser = "postgres"

// Config says what kind of server is wanted. Only Dir is needed.
type Config struct {
	// Dir is the folder for data and socket. It is made when missing, and belongs to the server alone: a
	// folder that has other things in it is refused.
	Dir string

	// Parameters are settings, by name, as postgresql.conf would have them.
	Parameters map[string]string

	// Fast gives up durability (fsync and what goes with it): a crash of the machine may cost the data. For
	// tests. A crash of PostgreSQL alone loses nothing but the last transactions, which synchronous_commit
	// would have kept; tests that count on those set it in Parameters.
	Fast bool

	// TCP listens on 127.0.0.1 too, on a free port and with a random password. URL gives that address then. A
	// listen_addresses in Parameters stands instead, and needs 127.0.0.1 in it.
	TCP bool

	// Remove makes the folder a throw-away: it is deleted by Stop, and after the death of this process.
	Remove bool

	// Environment is added to what the server finds in its environment, such as "LD_PRELOAD=…".
	Environment []string

	// Log gets what the server prints; nil drops it. It is written to from one goroutine.
	Log io.Writer
}

// Server is a running PostgreSQL, or one that can be started again. Its methods may be called by any goroutine.
type Server struct {
	cfg      Config
	binaries Binaries
	account  *account
	state    state
	lock     *os.File

	mu      sync.Mutex // held by who starts or ends the process
	stopped bool       // for good, by Stop
	current atomic.Pointer[process]
}

// Start makes the data directory if it is missing, starts the server, and returns when it takes connections.
// The context bounds the start, not the server's life.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil || cfg.Dir == "" {
		return nil, errors.New("private PostgreSQL: a folder for its data is needed")
	}
	cfg.Dir = dir
	s := &Server{cfg: cfg}
	// Asked before the folder is made: nothing is left behind where there is no PostgreSQL.
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); errors.Is(err, fs.ErrNotExist) {
		if s.binaries, err = Find(); err != nil {
			return nil, fmt.Errorf("private PostgreSQL: %w", err)
		}
	}
	if s.lock, err = claimDir(dir); err != nil {
		return nil, fmt.Errorf("private PostgreSQL: %w", err)
	}
	if err := s.start(ctx); err != nil {
		_ = s.discard()
		return nil, fmt.Errorf("private PostgreSQL: %w", err)
	}
	return s, nil
}

// start does what Start promises once the folder is ours.
func (s *Server) start(ctx context.Context) error {
	var err error
	if s.account, err = accountFor(s.data()); err != nil {
		return err
	}
	if err := s.account.canReach(s.cfg.Dir); err != nil {
		return err
	}
	if err := s.account.give(s.cfg.Dir); err != nil {
		return err
	}
	if s.state, err = loadState(s.cfg.Dir, s.cfg.TCP); err != nil {
		return err
	}
	if err := s.ensureData(ctx); err != nil {
		return err
	}
	// A free port can be taken by another before PostgreSQL binds it.
	for attempt := 1; ; attempt++ {
		err := s.boot(ctx)
		if err == nil && s.state.formerSocketDir != "" {
			err = os.RemoveAll(s.state.formerSocketDir) // nobody else does where the shell was killed, too
		}
		if !errors.Is(err, errPortTaken) || attempt == 5 {
			return err
		}
		if err := s.state.newPort(s.cfg.Dir); err != nil {
			return err
		}
	}
}

func (s *Server) data() string { return filepath.Join(s.cfg.Dir, "data") }

// URL is how to reach a database of this server, as the superuser. It stays the same for as long as the
// folder lives, unless its port was taken by another program meanwhile, or its socket has a folder of its own and
// the former owner was killed.
func (s *Server) URL(database string) string {
	if !s.cfg.TCP {
		return s.socketURL(database)
	}
	u := url.URL{
		Scheme:   "postgres",
		User:     url.UserPassword(Superuser, s.state.Password),
		Host:     "127.0.0.1:" + strconv.Itoa(s.state.Port),
		Path:     "/" + database,
		RawQuery: "sslmode=disable",
	}
	return u.String()
}

func (s *Server) socketURL(database string) string {
	query := url.Values{"host": {s.state.SocketDir}, "port": {strconv.Itoa(s.state.Port)}, "sslmode": {"disable"}}
	// A space as %20: pgx and libpq take a plus sign for itself.
	return "postgres://" + Superuser + "@/" + url.PathEscape(database) + "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
}

// PID is the postmaster's process id, 0 when it doesn't run.
func (s *Server) PID() int {
	p := s.current.Load()
	if p == nil || p.ended() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Done is closed when the server that now runs has ended, for whatever reason. A Restart makes a new one.
func (s *Server) Done() <-chan struct{} { return s.current.Load().done }

// Stop ends the server for good: a fast shutdown, which breaks off what runs and saves the rest, and when the
// context is over before that is done an immediate one. It returns when the process is gone. A folder that is
// a throw-away is deleted.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return nil
	}
	s.stopped = true
	s.current.Load().end(ctx, fastShutdown)
	return s.discard()
}

// Halt shuts down as Stop does, but keeps folder and lock, for a Restart.
func (s *Server) Halt(ctx context.Context) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.current.Load().end(ctx, fastShutdown)
}

// Crash ends the server at once, without saving anything: the next start recovers from the log.
func (s *Server) Crash() {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), killAfter)
	defer cancel()
	s.current.Load().end(ctx, immediateShutdown)
}

// Restart starts the server again on the same data, port and socket, after a Halt, a Crash or its own end. One
// that runs is shut down first.
func (s *Server) Restart(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return errors.New("private PostgreSQL: it was stopped for good")
	}
	s.current.Load().end(ctx, fastShutdown)
	if err := s.boot(ctx); err != nil {
		return fmt.Errorf("private PostgreSQL: %w", err)
	}
	return nil
}

// discard gives the folder back, after the process's end.
func (s *Server) discard() error {
	var errs []error
	if s.ownSocketDir() {
		errs = append(errs, os.RemoveAll(s.state.SocketDir))
	}
	if s.cfg.Remove {
		errs = append(errs, os.RemoveAll(s.cfg.Dir))
	}
	errs = append(errs, s.lock.Close())
	return errors.Join(errs...)
}

// ownSocketDir tells whether the socket has a folder of its own.
func (s *Server) ownSocketDir() bool {
	return s.state.SocketDir != "" && s.state.SocketDir != s.cfg.Dir
}

// throwaways are the folders to delete when this process dies.
func (s *Server) throwaways() []string {
	var dirs []string
	if s.cfg.Remove {
		dirs = append(dirs, s.cfg.Dir)
	}
	if s.ownSocketDir() {
		dirs = append(dirs, s.state.SocketDir)
	}
	return dirs
}

// killAfter is how long an immediate shutdown may take: the postmaster itself gives its children 5 s.
const killAfter = 10 * time.Second
