package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"getwork/schema/postgres"
)

// cleanUpWithin bounds the clean-up at the end, when the caller's context may have ended.
const cleanUpWithin = 30 * time.Second

// startPrivate starts a PostgreSQL as getwork's bench does: on disk, durable, and with the same settings.
func startPrivate(ctx context.Context) (url string, stop func(log func(string, ...any)), err error) {
	dir, err := os.MkdirTemp("", "getwork-peers-")
	if err != nil {
		return "", nil, fmt.Errorf("make a folder for the database: %w", err)
	}
	server, err := postgres.Start(ctx, postgres.Config{Dir: dir, Remove: true, Parameters: map[string]string{
		"max_connections":        "400",
		"shared_buffers":         "512MB",
		"track_commit_timestamp": "on",
	}})
	if err != nil {
		return "", nil, errors.Join(err, os.RemoveAll(dir))
	}
	return server.URL("postgres"), func(log func(string, ...any)) {
		ctx, cancel := context.WithTimeout(context.Background(), cleanUpWithin)
		defer cancel()
		if err := server.Stop(ctx); err != nil {
			log("stop the private PostgreSQL: %v", err)
		}
	}, nil
}
