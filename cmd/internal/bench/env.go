package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/cputime"
	"getwork/schema/postgres"
)

// Env is where measurements are made.
type Env struct {
	Binary      string // getwork's executable
	Against     string // another one to compare it with; empty: no comparison is made
	DatabaseURL string // a server's, with a database in which schemas may be made
	ServerPID   int    // PostgreSQL's first process, if it is on this machine; 0: its CPU is not known
	Rounds      int    // how often each figure is taken
	Quick       bool   // smaller numbers of users and rows: a first answer, not to be quoted
	Log         func(format string, args ...any)
}

func (e *Env) log(format string, args ...any) {
	if e.Log != nil {
		e.Log(format, args...)
	}
}

// sized is one of two numbers: with --quick the first.
func sized[T any](e *Env, quick, full T) T {
	if e.Quick {
		return quick
	}
	return full
}

// cleanUpWithin bounds what is done after the measurements, when the caller's context may be over.
const cleanUpWithin = 30 * time.Second

// Private starts a PostgreSQL for the bench alone, and sets what the Env needs to know of it. Its data is on disk and
// durable: if a commit didn't wait for the disk it would cost nothing, and batching commits would gain nothing.
func (e *Env) Private(ctx context.Context) (stop func(), err error) {
	parent, err := os.MkdirTemp("", "getwork-bench-")
	if err != nil {
		return nil, fmt.Errorf("make a folder for the database: %w", err)
	}
	// PostgreSQL may run as another user, who has to pass through.
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
	return func() {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpWithin)
		defer cancel()
		if err := errors.Join(server.Stop(ctx), os.RemoveAll(parent)); err != nil {
			e.log("stop the private PostgreSQL: %v", err)
		}
	}, nil
}

// FindServer looks for the server's first process on this machine, so that its CPU time can be read.
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
	conn, err := pgx.Connect(ctx, e.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}
