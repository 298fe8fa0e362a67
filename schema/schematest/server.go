package schematest

import (
	"context"
	"errors"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/postgres"
	"getwork/schema/schematest/clock"
	"getwork/schema/schematest/timeout"
)

const (
	// environment names a server that runs already.
	environment = "GETWORK_TEST_POSTGRES"

	// newer names the folder of another version's programs.
	newer = "GETWORK_TEST_NEWER"

	// startTimeout is generous: many test binaries start their servers at once.
	startTimeout = 2 * time.Minute

	// memory is a folder that is kept in memory on Linux.
	memory = "/dev/shm"

	// enough is how many bytes must be free there. Containers often have only 64 MB.
	enough = 1 << 30
)

// shared is the one server of a test binary. It is global because tests have no common caller.
var shared lazy

type lazy struct {
	mu     sync.Mutex
	server *postgres.Server
	err    error
}

// start starts the server for the first caller, and gives all others the same one, or the same error.
func (l *lazy) start() (*postgres.Server, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil && l.err == nil {
		environment, remove := preload()
		l.server, l.err = launch(postgres.Config{Environment: environment})
		remove()
	}
	return l.server, l.err
}

func (l *lazy) stop(ctx context.Context) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.server == nil {
		return nil
	}
	return l.server.Stop(ctx)
}

// launch starts a temporary server with the given settings over those of tests. Without TCP it does not ask for
// passwords, which saves some milliseconds for each connection.
func launch(cfg postgres.Config) (*postgres.Server, error) {
	dir, err := os.MkdirTemp(parent(), "getwork-test-")
	if err != nil {
		return nil, err
	}
	all := map[string]string{"max_connections": "400"} // a node opens up to 17
	maps.Copy(all, cfg.Parameters)
	cfg.Dir, cfg.Parameters, cfg.Fast, cfg.Remove = dir, all, true, true
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(startTimeout))
	defer cancel()
	return postgres.Start(ctx, cfg)
}

// parent is the folder for the servers' data.
func parent() string {
	if available(memory) >= enough {
		if probe, err := os.MkdirTemp(memory, "getwork-test-"); err == nil {
			os.Remove(probe)
			return memory
		}
	}
	return os.TempDir()
}

// Server returns the private server that all tests of this binary share, for its PID and the like; a test that
// stops a server needs [OwnServer]. With GETWORK_TEST_POSTGRES there is none, and the test is skipped.
func Server(t testing.TB) *postgres.Server {
	t.Helper()
	if os.Getenv(environment) != "" {
		t.Skip("needs a private server: " + environment + " is set")
	}
	server, err := shared.start()
	if err != nil {
		t.Fatal(err)
	}
	return server
}

// OwnServer starts a server with the given settings, such as default_transaction_isolation, for this test alone,
// which may stop, crash and restart it. It listens on TCP and has a migrated database getwork:
// OwnServer(t, nil).URL("getwork"). It ends with the test. Starting it takes a second or two, so the test is
// skipped with -short.
func OwnServer(t testing.TB, parameters map[string]string) *postgres.Server {
	t.Helper()
	Long(t)
	return own(t, postgres.Config{Parameters: parameters})
}

// SocketServer is [OwnServer] for a test that reaches it by its socket alone, for example because it listens on another network.
func SocketServer(t testing.TB, parameters map[string]string) *postgres.Server {
	t.Helper()
	Long(t)
	return start(t, postgres.Config{Parameters: parameters})
}

// NewerServer is [OwnServer] on another version of PostgreSQL: the one whose programs are in the folder that
// GETWORK_TEST_NEWER names. Without it the test is skipped.
func NewerServer(t testing.TB) *postgres.Server {
	t.Helper()
	Long(t)
	programs := os.Getenv(newer)
	if programs == "" {
		t.Skip("set " + newer + " to the folder of a newer PostgreSQL's programs; `.ci/postgres 18` installs them and prints it")
	}
	return own(t, postgres.Config{Programs: programs})
}

// ClockServer is [OwnServer] with a clock that the test can set. The test is skipped if that is unavailable, and with
// -short.
func ClockServer(t testing.TB) (*postgres.Server, *clock.Clock) {
	t.Helper()
	Long(t)
	c, err := clock.New(t.Context())
	if errors.Is(err, clock.ErrUnavailable) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { // after the server's end
		if err := c.Remove(); err != nil {
			t.Error(err)
		}
	})
	server := own(t, postgres.Config{Environment: c.Environment()})
	if err := c.Check(t.Context(), server.URL("getwork")); err != nil {
		t.Fatal(err)
	}
	return server, c
}

// Long marks a test that takes seconds of CPU, or waits for seconds. It is skipped with -short, so that `go test -short ./...` stays
// within minutes on two cores.
func Long(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("takes seconds: not with -short")
	}
}

func own(t testing.TB, cfg postgres.Config) *postgres.Server {
	t.Helper()
	cfg.TCP = true
	return start(t, cfg)
}

// start starts a server that ends with the test, and makes the database getwork in it.
func start(t testing.TB, cfg postgres.Config) *postgres.Server {
	t.Helper()
	if cfg.Environment == nil { // a server with a clock preloads that one's library
		environment, remove := preload()
		t.Cleanup(remove) // after the server's end: a restarted one needs it, too
		cfg.Environment = environment
	}
	server, err := launch(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(stopTimeout))
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			t.Error(err)
		}
	})
	ctx, cancel := context.WithTimeout(context.Background(), timeout.Scale(startTimeout))
	defer cancel()
	if err := execute(ctx, server.URL("postgres"), `create database getwork`); err != nil {
		t.Fatal(err)
	}
	if err := migrateUp(ctx, server.URL("getwork")); err != nil {
		t.Fatal(err)
	}
	return server
}

func execute(ctx context.Context, url, sql string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, sql)
	return err
}

func migrateUp(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	return schema.Up(ctx, conn, schema.Default)
}
