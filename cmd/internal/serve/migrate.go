package serve

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/pg"
	"getwork/cmd/internal/command"
	"getwork/schema"
)

// Migrate has the commands that change the schema by hand. `getwork serve` migrates up by itself.
type Migrate struct {
	Up     migrateUpCmd     `cmd:"" help:"Migrate to the newest version."`
	Down   migrateDownCmd   `cmd:"" help:"Migrate back. Deletes data."`
	Status migrateStatusCmd `cmd:"" help:"Show the schema's version."`
}

type migrateTarget struct {
	DatabaseURL     string `help:"The PostgreSQL database; the connection must be direct, not through a transaction pooler." env:"GETWORK_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	DatabaseURLFile string `help:"Read the URL from this file; it overrides --database-url." placeholder:"FILE" complete:"file"`
	Schema          string `help:"The schema that has getwork's tables." default:"getwork"`
}

// with connects, calls f, and closes the connection.
func (t migrateTarget) with(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn, name schema.Name) error) error {
	if err := readURL(&t.DatabaseURL, t.DatabaseURLFile, "database-url-file"); err != nil {
		return err
	}
	if t.DatabaseURL == "" {
		return command.Usage("no database: give --database-url, or set DATABASE_URL")
	}
	name, err := schema.ParseName(t.Schema)
	if err != nil {
		return command.AsUsage(err)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	conn, err := t.connect(ctx)
	if err != nil {
		return noConnection(err)
	}
	defer conn.Close(ctx)
	return f(ctx, conn, name)
}

// connect prepares no statements, so that the version can be read through a pooler, too.
func (t migrateTarget) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(t.DatabaseURL)
	if err != nil {
		return nil, err
	}
	pg.SpeakUTF8(config)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

// withSession is with for work under a lock that belongs to the session. It refuses a transaction pooler, which would
// leave the lock behind.
func (t migrateTarget) withSession(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn, name schema.Name) error) error {
	return t.with(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if shared, err := sharesSessions(ctx, t.connect); err != nil || shared {
			return cmp.Or(err, errNotDirect)
		}
		return f(ctx, conn, name)
	})
}

type migrateUpCmd struct {
	migrateTarget `embed:""`
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
	migrateTarget `embed:""`
	To            int32 `help:"The version to go back to; 0 removes everything." required:""`
}

func (c migrateDownCmd) Run(ctx context.Context, s *command.Streams) error {
	return c.withSession(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if err := schema.Down(ctx, conn, name, c.To, tell(s)); err != nil {
			return err
		}
		return printStatus(ctx, s, conn, name)
	})
}

type migrateStatusCmd struct {
	migrateTarget `embed:""`
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
