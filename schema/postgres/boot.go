package postgres

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const (
	// pollEvery is how often a starting or ending server is checked.
	pollEvery = 20 * time.Millisecond

	// orphanTimeout is how long a former server on the same data may take to end: as long as the shell that
	// watches it takes to lose patience.
	orphanTimeout = 25 * time.Second
)

// letInWithin is how long a server that is ready may refuse this process, whose waiting would otherwise never end.
var letInWithin = 30 * time.Second

var (
	errPortTaken = errors.New("the port is taken")

	// errInUse means that processes of a former server, whose postmaster is dead, are still ending.
	errInUse = errors.New("processes of a former server still run")
)

// boot starts the process and waits until it accepts connections.
func (s *Server) boot(ctx context.Context) error {
	if s.ownSocketDir() {
		if err := s.makeSocketDir(); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	patience := time.NewTimer(orphanTimeout)
	defer patience.Stop()
	for {
		if err := s.awaitFormer(ctx, patience.C); err != nil {
			return err
		}
		err := s.bootOnce(ctx)
		if !errors.Is(err, errInUse) {
			return err
		}
		select {
		case <-patience.C:
			return err
		case <-ctx.Done():
			return err
		case <-time.After(pollEvery):
		}
	}
}

// bootOnce launches the postmaster under a unique name. An answer with that name is this server's, so neither a
// file left behind nor another server on the same port is mistaken for it.
func (s *Server) bootOnce(ctx context.Context) error {
	name := "getwork-" + rand.Text()[:12]
	p, err := launch(s.account, s.cfg.Dir, s.throwaways(), s.cfg.Log, s.environment(), s.binaries.postgres(), s.arguments(name)...)
	if err != nil {
		return err
	}
	s.current.Store(p)
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	var refused <-chan time.Time
	for {
		ready, err := s.answers(ctx, name)
		if ready {
			return nil
		}
		if refused == nil && s.isReady(p) {
			refused = time.After(letInWithin)
		}
		select {
		case <-p.done:
			return p.startError()
		case <-ctx.Done():
			p.end(ctx, immediateShutdown)
			return fmt.Errorf("not ready in time: %w", errors.Join(ctx.Err(), err))
		case <-refused:
			p.end(ctx, immediateShutdown)
			return fmt.Errorf("it runs, but refuses connections through %s; correct what the reason names, such as pg_hba.conf in %s: %w",
				s.state.SocketDir, s.data(), err)
		case <-tick.C:
		}
	}
}

// isReady reports whether the lock file says that the process accepts connections: its first line is the id, its eighth the state.
func (s *Server) isReady(p *process) bool {
	text, err := os.ReadFile(s.lockFile())
	if err != nil {
		return false
	}
	lines := strings.Split(string(text), "\n")
	return len(lines) > 7 && lines[0] == strconv.Itoa(p.cmd.Process.Pid) &&
		(strings.HasPrefix(lines[7], "ready") || strings.HasPrefix(lines[7], "standby"))
}

// answers asks the server for its name.
func (s *Server) answers(ctx context.Context, name string) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	conn, err := s.connect(ctx, "postgres")
	if err != nil {
		return false, err
	}
	defer conn.Close(ctx)
	var got string
	if err := conn.QueryRow(ctx, `select current_setting('cluster_name')`).Scan(&got); err != nil {
		return false, err
	}
	if got != name {
		return false, fmt.Errorf("another server answers on %s", s.state.SocketDir)
	}
	return true, nil
}

// environment returns what the server's environment has besides ours.
func (s *Server) environment() []string {
	if !s.cfg.Fast {
		return s.cfg.Environment
	}
	return append([]string{HugePages}, s.cfg.Environment...)
}

// arguments returns the settings: ours that may be changed, the caller's, and ours that may not.
func (s *Server) arguments(name string) []string {
	args := []string{"-D", s.data()}
	set := func(key, value string) { args = append(args, "-c", key+"="+value) }
	set("timezone", "UTC")
	set("log_timezone", "UTC")
	if s.cfg.Fast {
		set("fsync", "off")
		set("full_page_writes", "off")
		set("synchronous_commit", "off")
		set("checkpoint_timeout", "1h")
		set("min_wal_size", "32MB")
		set("jit", "off") // compiling a statement costs more than any test's statement
	}
	for key, value := range s.cfg.Parameters {
		set(key, value)
	}
	set("cluster_name", name)
	set("unix_socket_directories", s.state.SocketDir)
	set("unix_socket_permissions", "0700")
	set("port", strconv.Itoa(s.state.Port))
	if _, given := s.cfg.Parameters["listen_addresses"]; !given {
		addresses := ""
		if s.cfg.TCP {
			addresses = "127.0.0.1"
		}
		set("listen_addresses", addresses)
	}
	return args
}

// makeSocketDir makes the socket's own folder. A folder of that name with another owner may be an attack.
func (s *Server) makeSocketDir() error {
	if err := os.RemoveAll(s.state.SocketDir); err != nil {
		return err
	}
	if err := os.Mkdir(s.state.SocketDir, 0o700); err != nil {
		return err
	}
	if err := s.account.canReach(s.state.SocketDir); err != nil {
		return err
	}
	return s.account.give(s.state.SocketDir)
}

// awaitFormer waits for a former server of this folder to end. Its owner has died, or we would not have the lock.
// It makes a lock file harmless if another process has its id by now: PostgreSQL would refuse to start for as
// long as any process of its user has that id.
func (s *Server) awaitFormer(ctx context.Context, patience <-chan time.Time) error {
	tick := time.NewTicker(pollEvery)
	defer tick.Stop()
	for {
		pid, err := s.lockFilePID()
		if err != nil || pid == 0 || !exists(pid) {
			return err
		}
		if !serves(pid, s.data()) {
			return s.disownLockFile()
		}
		select {
		case <-tick.C:
		case <-patience:
			return fmt.Errorf("%s is in use by the PostgreSQL process %d: stop that one, or choose another folder", s.data(), pid)
		case <-ctx.Done():
			return fmt.Errorf("%s is in use by the PostgreSQL process %d: %w", s.data(), pid, ctx.Err())
		}
	}
}

func (s *Server) lockFile() string { return filepath.Join(s.data(), "postmaster.pid") }

// lockFilePID returns the id in the first line of postmaster.pid, or 0 if there is none.
func (s *Server) lockFilePID() (int, error) {
	text, err := os.ReadFile(s.lockFile())
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	if err != nil {
		return 0, err
	}
	line, _, _ := strings.Cut(string(text), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(line))
	if err != nil || pid < 0 {
		return 0, nil // PostgreSQL judges it
	}
	return pid, nil
}

// disownLockFile puts our id into the lock file. PostgreSQL considers its parent's id there stale, and still checks
// the rest, above all that no process of the former server is attached to its memory. Deleting the file would
// skip that check.
func (s *Server) disownLockFile() error {
	text, err := os.ReadFile(s.lockFile())
	if err != nil {
		return err
	}
	_, rest, _ := strings.Cut(string(text), "\n")
	return os.WriteFile(s.lockFile(), []byte(strconv.Itoa(os.Getpid())+"\n"+rest), 0o600)
}

// serves reports whether the process is a postmaster on this data: its working directory is the data directory.
// Where that is not visible, any process called postgres counts.
func serves(pid int, data string) bool {
	if runtime.GOOS != "linux" {
		out, err := output("ps", "-p", strconv.Itoa(pid), "-o", "comm=")
		return err == nil && strings.HasPrefix(filepath.Base(strings.TrimSpace(out)), "postgres")
	}
	cwd, err := os.Readlink(fmt.Sprintf("/proc/%d/cwd", pid))
	if err != nil {
		return false
	}
	a, err1 := os.Stat(cwd)
	b, err2 := os.Stat(data)
	return err1 == nil && err2 == nil && os.SameFile(a, b)
}

// startError says why the process ended instead of accepting connections.
func (p *process) startError() error {
	reason := p.tail.reason()
	switch {
	case strings.Contains(reason, "could not create any TCP/IP sockets"):
		return fmt.Errorf("%w: %s", errPortTaken, reason)
	case strings.Contains(reason, "is still in use"):
		return fmt.Errorf("%w: %s", errInUse, reason)
	}
	return fmt.Errorf("it ended while starting: %w: %s", p.err, reason)
}

func (p *process) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

// end signals the process and returns when it is gone. When the context ends it uses stronger signals.
func (p *process) end(ctx context.Context, signal syscall.Signal) {
	if p.ended() {
		return
	}
	_ = p.cmd.Process.Signal(signal)
	select {
	case <-p.done:
		return
	case <-ctx.Done():
	}
	_ = p.cmd.Process.Signal(immediateShutdown)
	select {
	case <-p.done:
		return
	case <-time.After(killAfter):
	}
	_ = p.cmd.Process.Kill()
	<-p.done
}
