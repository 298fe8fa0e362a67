package bench

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/cmd/internal/cputime"
	"getwork/schema/postgres"
)

// Env is the machine and the server on which measurements are made.
type Env struct {
	Binary      string // getwork's executable
	Against     string // another executable to compare with; empty: no comparison
	DatabaseURL string // of a database in which schemas can be created
	ServerPID   int    // PostgreSQL's first process, if it is on this machine; 0: its CPU is unknown
	Rounds      int    // how often each figure is measured
	Quick       bool   // fewer users and rows: a first answer, not fit to be quoted
	Log         func(format string, args ...any)

	login  string       // the URL for a login that is no superuser, if this is a private server
	logIns *credentials // nil: the nodes believe names

	queryLogin bool // queries have a login of their own
}

func (e *Env) log(format string, args ...any) {
	if e.Log != nil {
		e.Log(format, args...)
	}
}

// sized returns the first of two numbers with --quick, and otherwise the second.
func sized[T any](e *Env, quick, full T) T {
	if e.Quick {
		return quick
	}
	return full
}

// cleanUpWithin bounds the clean-up after the measurements, when the caller's context may have ended.
const cleanUpWithin = 30 * time.Second

// Private starts a PostgreSQL for the bench alone, and sets the Env's fields about it. Its data is durable and on disk:
// commits that don't wait for the disk would cost nothing, and batching them would gain nothing.
func (e *Env) Private(ctx context.Context) (stop func(), err error) {
	parent, err := os.MkdirTemp("", "getwork-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the database: %w", err)
	}
	// PostgreSQL may run as another user, who must be able to enter.
	if err := os.Chmod(parent, 0o711); err != nil {
		return nil, errors.Join(err, os.RemoveAll(parent))
	}
	server, err := postgres.Start(ctx, postgres.Config{Dir: filepath.Join(parent, "postgres"), Remove: true, Parameters: map[string]string{
		"max_connections":        "400",
		"shared_buffers":         "512MB",
		"track_commit_timestamp": "on", // tells when a round was committed
	}})
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(parent))
	}
	e.DatabaseURL, e.ServerPID = server.URL("postgres"), server.PID()
	e.login, err = server.LoginURL(ctx, "postgres")
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpWithin)
		defer cancel()
		if err := errors.Join(server.Stop(ctx), os.RemoveAll(parent)); err != nil {
			e.log("stop the private PostgreSQL: %v", err)
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// plainURL returns the URL for a login that nodes accept under all of --auth, as far as the Env has one.
func (e *Env) plainURL() string { return cmp.Or(e.login, e.DatabaseURL) }

// FindServer finds the server's first process on this machine, so that its CPU time can be read.
func (e *Env) FindServer(ctx context.Context) error {
	conn, err := e.connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	e.ServerPID, err = cputime.Postmaster(ctx, conn)
	return err
}

func (e *Env) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pg.ParseConn(e.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}
