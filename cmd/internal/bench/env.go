package bench

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/postgres"
)

// schemaPrefix is what all schemas of a bench begin with.
const schemaPrefix = "getwork_bench_"

// cleanUpWithin bounds what is done after the measurements, when the caller's context may be over.
const cleanUpWithin = 30 * time.Second

// Private starts a PostgreSQL for the bench alone, and sets what the Env needs to know of it. Its data is on disk and
// it is durable: without waiting for the disk, commits would cost nothing, and batching them would gain nothing.
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

func (e *Env) log(format string, args ...any) {
	if e.Log != nil {
		e.Log(format, args...)
	}
}

// Connect opens a connection to the database.
func (e *Env) Connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := pgx.Connect(ctx, e.DatabaseURL)
	if err != nil {
		return nil, fmt.Errorf("connect to the database: %w", err)
	}
	return conn, nil
}

// Schema chooses the name of a schema for one measurement. Nothing is made: the nodes do that when they start. drop
// drops it with all that is in it, and says so if it can't; call it after the nodes are gone.
func (e *Env) Schema(ctx context.Context) (name string, drop func(), err error) {
	b := make([]byte, 4)
	_, _ = rand.Read(b)
	name = schemaPrefix + hex.EncodeToString(b)
	return name, func() {
		// Also after a Ctrl-C.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpWithin)
		defer cancel()
		if err := e.drop(ctx, name); err != nil {
			e.log("the schema %s is left behind; drop it with: drop schema %s cascade (%v)", name, name, err)
		}
	}, nil
}

func (e *Env) drop(ctx context.Context, name string) error {
	conn, err := e.Connect(ctx)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "drop schema if exists "+pgx.Identifier{name}.Sanitize()+" cascade")
	return err
}
