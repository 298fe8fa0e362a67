// Package clock gives a private PostgreSQL a time of day that can be set while it runs, forwards and back, at once in all of
// its processes: as NTP sets a server's that was wrong, or a virtual machine's that stood still.
//
//	c, err := clock.New(ctx)
//	server, err := postgres.Start(ctx, postgres.Config{…, Environment: c.Environment()})
//	c.Set(2 * time.Hour)
//
// A library of a few lines is compiled and preloaded. libfaketime is none for this: asked for the time it opens a file, and
// PostgreSQL asks in its signal handlers, in the middle of an allocation if need be; such a server ends with a corrupted heap
// within seconds. A Go program can't be given a clock in this way: it asks the kernel past all libraries.
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

// ErrUnavailable says that there is no such clock here, and what is missing.
var ErrUnavailable = errors.New("PostgreSQL's clock can't be set here")

// compiler is what the library is compiled by.
const compiler = "gcc"

// Available tells whether [New] can work; the error says what is missing.
func Available() error {
	if !mappable {
		return fmt.Errorf("%w: that needs Linux", ErrUnavailable)
	}
	if _, err := exec.LookPath(compiler); err != nil {
		return fmt.Errorf("%w: that needs a C compiler: apt-get install gcc", ErrUnavailable)
	}
	return nil
}

// Clock is how far a server's clock is ahead of this machine's. Its methods may be called by any goroutine.
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

// Environment is what the server must find in its environment.
func (c *Clock) Environment() []string {
	return []string{"LD_PRELOAD=" + c.file("ahead.so"), "GETWORK_TEST_CLOCK=" + c.file("ahead")}
}

// Set has the server's clock be so far ahead of this machine's, to the microsecond, from now on; below 0: behind.
func (c *Clock) Set(ahead time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mapped != nil {
		put(c.mapped, ahead.Microseconds())
		c.ahead = ahead
	}
}

// Ahead is how far it is ahead.
func (c *Clock) Ahead() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ahead
}

// Check sees whether the server of that URL goes by the clock: one that could not read the library runs without.
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
		return fmt.Errorf("PostgreSQL does not go by the clock that it was given: can it read %s?", c.dir)
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
