package serve

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/command"
	"getwork/schema"
)

// Migrate has the commands that change the schema by hand. `getwork serve` migrates up by itself.
type Migrate struct {
	Up     migrateUpCmd     `cmd:"" help:"Migrate to the newest version, over a direct connection: not through a transaction pooler."`
	Down   migrateDownCmd   `cmd:"" help:"Migrate back, over a direct connection. Deletes data."`
	Status migrateStatusCmd `cmd:"" help:"Show the schema's version."`
}

type migrateUpCmd struct {
	Database `embed:""`
}

func (c migrateUpCmd) Run(ctx context.Context, s *command.Streams) error {
	return c.withSession(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if err := schema.Up(ctx, conn, name, tell(s)); err != nil {
			return err
		}
		return printStatus(ctx, s, conn, name)
	})
}

type migrateDownCmd struct {
	Database `embed:""`
	To       int32 `help:"The version to go back to; 0 removes everything." required:""`
	Yes      bool  `help:"Do remove everything, with --to 0."`
}

func (c migrateDownCmd) Run(ctx context.Context, s *command.Streams) error {
	if c.To == 0 && !c.Yes {
		return command.Usage("--to 0 removes all tasks, work, users and the audit for good, also while nodes run: --yes says that this is meant")
	}
	return c.withSession(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if err := schema.Down(ctx, conn, name, c.To, tell(s)); err != nil {
			return err
		}
		return printStatus(ctx, s, conn, name)
	})
}

type migrateStatusCmd struct {
	Database `embed:""`
}

func (c migrateStatusCmd) Run(ctx context.Context, s *command.Streams) error {
	return c.with(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		return printStatus(ctx, s, conn, name)
	})
}

// tell prints what a migration is waiting for.
func tell(s *command.Streams) func(string) {
	return func(message string) { _, _ = fmt.Fprintln(s.Errs, message) }
}

func printStatus(ctx context.Context, s *command.Streams, conn *pgx.Conn, name schema.Name) error {
	current, latest, err := schema.Status(ctx, conn, name)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(s.Out, "schema %s is at version %d; the newest that this program knows is %d\n", name, current, latest)
	return err
}
