// Package postgres starts a private PostgreSQL: for the demo, for a single node that has no other, for tests.
//
// A [Server] belongs to the process that started it. Unless TCP is asked for, only that process's user can reach
// it, through a Unix socket in a folder that no other user may enter. It ends with its owner, even after kill -9,
// because a shell beside it waits on a pipe (see process.go). PostgreSQL refuses to run as root, so root's server
// runs as the owner of the data, or as the user postgres or nobody.
//
// The folder given holds everything:
//
//	postgres.json    port, socket and password, so that the next start has the same URL
//	data/            PostgreSQL's data directory; always complete, because it is made as data.init and renamed
//	data.init/       an incomplete one, deleted by the next start
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

// HugePages is a variable for the environment of PostgreSQL. It makes each process take its own memory two megabytes at a time,
// where Linux and its C library (glibc 2.35 and later) can. Otherwise each backend takes it page by page; on a virtual machine,
// where a page fault costs tens of microseconds, that is a quarter of the CPU of the engine's tests.
const HugePages = "GLIBC_TUNABLES=glibc.malloc.hugetlb=1:glibc.malloc.top_pad=8388608:glibc.malloc.trim_threshold=268435456"

// Superuser is the login that every private server begins with. It is for tests and for preparing a server; programs use
// [Server.LoginURL].
const Superuser = "postgres"

// Config describes the server to start. Only Dir is required.
type Config struct {
	// Dir is the folder for data and socket. It is made if it is missing, and belongs to the server alone: a folder
	// with other things in it is refused.
	Dir string

	// Programs is the folder of initdb and postgres; empty: those of [Find].
	Programs string

	// Parameters are settings, by name, as postgresql.conf would have them.
	Parameters map[string]string

	// Fast gives up durability (fsync and related settings) and JIT for tests: a crash of the machine may destroy the data.
	// A crash of PostgreSQL alone loses only the last transactions, which synchronous_commit would have kept. Tests
	// that rely on those set it in Parameters. It also takes memory in [HugePages].
	Fast bool

	// TCP makes the server listen on 127.0.0.1, too, on a free port and with a random password. URL then returns that
	// address. A listen_addresses in Parameters overrides this, and must then include 127.0.0.1. Without TCP it opens what it names to
	// whomever its hba_file lets in.
	TCP bool

	// Remove makes the folder temporary: it is deleted by Stop, and after the death of this process.
	Remove bool

	// Environment is added to the server's environment, such as "LD_PRELOAD=…".
	Environment []string

	// Log receives the server's output, written by one goroutine; nil drops it.
	Log io.Writer
}

// Server is a running PostgreSQL, or one that can be started again. Its methods may be called by any goroutine.
type Server struct {
	cfg      Config
	binaries Binaries
	account  *account
	state    state
	lock     *os.File

	mu      sync.Mutex // held while the process is started or ended
	stopped bool       // for good, by Stop
	current atomic.Pointer[process]
}

// Start makes the data directory if it is missing, starts the server, and returns when it accepts connections.
// The context bounds the start, not the server's life.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	dir, err := filepath.Abs(cfg.Dir)
	if err != nil || cfg.Dir == "" {
		return nil, errors.New("private PostgreSQL: a folder for its data is needed")
	}
	cfg.Dir = dir
	s := &Server{cfg: cfg}
	// This comes before the folder is made, so that nothing is left behind where there is no PostgreSQL.
	if _, err := os.Stat(filepath.Join(s.data(), "PG_VERSION")); errors.Is(err, fs.ErrNotExist) {
		if s.binaries, err = cfg.find(); err != nil {
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

// start completes Start once the folder is ours.
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
			err = os.RemoveAll(s.state.formerSocketDir) // the shell normally does; it may have been killed, too
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

// URL returns the URL of a database of this server for the superuser. It stays the same for as long as the folder
// lives, unless another program took its port meanwhile, or its socket has a folder of its own and the former owner
// was killed.
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
	// A space is %20: pgx and libpq read a plus sign as itself.
	return "postgres://" + Superuser + "@/" + url.PathEscape(database) + "?" + strings.ReplaceAll(query.Encode(), "+", "%20")
}

// PID returns the postmaster's process id, or 0 if it doesn't run.
func (s *Server) PID() int {
	p := s.current.Load()
	if p == nil || p.ended() {
		return 0
	}
	return p.cmd.Process.Pid
}

// Done returns a channel that is closed when the present server process has ended, for whatever reason. A Restart
// makes a new one.
func (s *Server) Done() <-chan struct{} { return s.current.Load().done }

// Stop ends the server for good, by a fast shutdown, which aborts transactions and saves the rest, or by an
// immediate one if the context ends first. It returns when the process is gone. It deletes a temporary folder.
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

// Restart starts the server again on the same data, port and socket, after a Halt, a Crash or its own end. It first
// shuts a running server down.
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

// discard releases the folder, after the process's end.
func (s *Server) discard() error {
	var errs []error
	if s.ownSocketDir() {
		errs = append(errs, os.RemoveAll(s.state.SocketDir))
	}
	if s.cfg.Remove {
		errs = append(errs, os.RemoveAll(s.cfg.Dir))
	}
	errs = append(errs, unlockDir(s.lock))
	return errors.Join(errs...)
}

// ownSocketDir reports whether the socket has a folder of its own.
func (s *Server) ownSocketDir() bool {
	return s.state.SocketDir != "" && s.state.SocketDir != s.cfg.Dir
}

// throwaways returns the folders to delete when this process dies.
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
