// Package clock gives a private PostgreSQL a time of day that can be set while it runs, forwards and back, at once in all of
// its processes: as NTP corrects a wrong clock, or the clock of a virtual machine that was suspended.
//
//	c, err := clock.New(ctx)
//	server, err := postgres.Start(ctx, postgres.Config{…, Environment: c.Environment()})
//	c.Set(2 * time.Hour)
//
// A library of a few lines is compiled and preloaded. libfaketime is unsuitable: it opens a file when it is asked for the
// time, and PostgreSQL asks in its signal handlers, even in the middle of an allocation. Such a server's heap is corrupted
// within seconds. This does not work for Go programs, which ask the kernel without any library.
package clock

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
)

//go:embed testdata/ahead.c
var source []byte

// ErrUnavailable means that the clock can't be set on this machine; the error that wraps it says what is missing.
var ErrUnavailable = errors.New("PostgreSQL's clock can't be set here")

// compiler compiles the library.
const compiler = "gcc"

// Available returns nil if [New] can work; otherwise the error says what is missing.
func Available() error {
	if !mappable {
		return fmt.Errorf("%w: that needs Linux", ErrUnavailable)
	}
	if _, err := exec.LookPath(compiler); err != nil {
		return fmt.Errorf("%w: that needs a C compiler: apt-get install gcc", ErrUnavailable)
	}
	return nil
}

// Clock controls how far a server's clock is ahead of this machine's. Its methods may be called by any goroutine.
type Clock struct {
	dir string

	mu     sync.Mutex
	mapped []byte // nil: removed
	ahead  time.Duration
}

// New compiles the library, in a folder of its own below the temporary one. The clock is right until it is set.
func New(ctx context.Context) (c *Clock, err error) {
	if err := Available(); err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "getwork-clock-")
	if err != nil {
		return nil, err
	}
	c = &Clock{dir: dir}
	if err := c.make(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("a clock for PostgreSQL: %w", err), c.Remove())
	}
	return c, nil
}

func (c *Clock) make(ctx context.Context) (err error) {
	if err := os.Chmod(c.dir, 0o755); err != nil { // root's server runs as another user
		return err
	}
	if err := os.WriteFile(c.file("ahead.c"), source, 0o644); err != nil {
		return err
	}
	build := exec.CommandContext(ctx, compiler, "-O2", "-shared", "-fPIC", "-o", c.file("ahead.so"), c.file("ahead.c"), "-ldl")
	out, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%s: %w\n%s", compiler, err, out)
	}
	if c.mapped, err = share(c.file("ahead")); err != nil {
		return err
	}
	for _, name := range []string{"ahead.so", "ahead"} { // whatever the umask is
		if err := os.Chmod(c.file(name), 0o755); err != nil {
			return err
		}
	}
	return nil
}

func (c *Clock) file(name string) string { return filepath.Join(c.dir, name) }

// Environment returns the variables that the server's environment must have.
func (c *Clock) Environment() []string {
	return []string{"LD_PRELOAD=" + c.file("ahead.so"), "GETWORK_TEST_CLOCK=" + c.file("ahead")}
}

// Set puts the server's clock so far ahead of this machine's, to the microsecond; a negative duration puts it behind.
func (c *Clock) Set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mapped != nil {
		put(c.mapped, ahead.Microseconds())
		c.ahead = ahead
	}
}

// Ahead returns how far the clock is ahead.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// Check returns an error if the server of that URL does not use the clock: a server that can't read the library runs
// without it.
func (c *Clock) Check(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	before := c.Ahead()
	defer c.Set(before)
	const much = time.Hour
	c.Set(before + much)
	var now time.Time
	if err := conn.QueryRow(ctx, `select clock_timestamp()`).Scan(&now); err != nil {
		return err
	}
	if got := time.Until(now) - before; got < much/2 {
		return fmt.Errorf("PostgreSQL does not use the clock that it was given: can it read %s?", c.dir)
	}
	return nil
}

// Remove deletes the library. The server must have ended; the clock can't be set any more.
func (c *Clock) Remove() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	var err error
	if c.mapped != nil {
		err = unshare(c.mapped)
		c.mapped = nil
	}
	return errors.Join(err, os.RemoveAll(c.dir))
}
