// Package stage sets up a getwork to be measured: a schema of its own in a real PostgreSQL, and nodes in processes of their own. This
// process makes the load, as users who click, and counts the CPU of nodes and database. It checks the answers, too: no item is handed
// out twice, and everybody is served, in order.
package stage

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
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
	DatabaseURL string // of a database in which schemas can be created
	ServerPID   int    // PostgreSQL's first process, if it is on this machine; 0: its CPU is unknown
	Rounds      int    // how often each figure is measured
	Quick       bool   // fewer users and rows: a first answer, not fit to be quoted
	Log         func(format string, args ...any)

	NodeFlags []string // further flags of `getwork serve`
	LogIn     LogIn    // nil: the nodes believe names

	// The login under which nodes run queries, and its URL; empty: the nodes' own.
	QueryLogin, QueryURL string

	login string // the URL for a login that is no superuser, if this is a private server
}

// Logf logs to Log, if there is one.
func (e *Env) Logf(format string, args ...any) {
	if e.Log != nil {
		e.Log(format, args...)
	}
}

// LogIn returns the headers by which a stage's nodes know a user of that role.
type LogIn func(ctx context.Context, s *Stage, user, role string) (http.Header, error)

// Sized returns the first of two numbers if Quick is true, and otherwise the second.
func Sized[T any](e *Env, quick, full T) T {
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
	postgres.DropVariables()
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
		"track_commit_timestamp": "on", // records when a round was committed
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
			e.Logf("stop the private PostgreSQL: %v", err)
		}
	}
	if err != nil {
		stop()
		return nil, err
	}
	return stop, nil
}

// PlainURL returns the URL for a login that nodes accept under all of --auth, as far as the Env has one.
func (e *Env) PlainURL() string { return cmp.Or(e.login, e.DatabaseURL) }

// FindServer finds the server's first process on this machine, so that its CPU time can be read.
func (e *Env) FindServer(ctx context.Context) error {
	conn, err := e.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	e.ServerPID, err = cputime.Postmaster(ctx, conn)
	return err
}

// Connect opens a connection of its own, which the caller closes.
func (e *Env) Connect(ctx context.Context) (*pgx.Conn, error) {
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
