package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/user"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/schema"
)

// Database has the flags of commands that reach the database itself, without a node.
type Database struct {
	DatabaseURL     string `help:"The PostgreSQL database." env:"GETWORK_DATABASE_URL,DATABASE_URL" placeholder:"URL"`
	DatabaseURLFile string `help:"Read the URL from this file; it overrides --database-url, unless only that is given as a flag." placeholder:"FILE" complete:"file"`
	Schema          string `help:"The schema that has getwork's tables." default:"getwork"`
}

// URL returns the URL that the flags name. Its errors are wrong uses of them.
func (t Database) URL() (string, error) {
	if err := ReadURL(&t.DatabaseURL, t.DatabaseURLFile, "database-url-file"); err != nil {
		return "", err
	}
	if t.DatabaseURL == "" {
		return "", command.Usage("no database: give --database-url, or set DATABASE_URL")
	}
	return t.DatabaseURL, nil
}

// resolved returns the flags with the URL that they name, also where that stands in a file. Whatever connects needs them so.
func (t Database) resolved() (Database, error) {
	url, err := t.URL()
	t.DatabaseURL, t.DatabaseURLFile = url, ""
	return t, err
}

// with connects, calls f, and closes the connection.
func (t Database) with(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn, name schema.Name) error) error {
	t, err := t.resolved()
	if err != nil {
		return err
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

// connect prepares no statements, so that the version can be read through a pooler, too. It refuses a standby: one that lags lacks the
// newest rows of the audit, which would look as if somebody had removed them.
func (t Database) connect(ctx context.Context) (*pgx.Conn, error) {
	config, err := pg.ParseConn(t.DatabaseURL)
	if err != nil {
		return nil, err
	}
	pg.SpeakUTF8(config)
	pg.ToPrimary(config)
	return open(ctx, config)
}

// open opens a connection that prepares no statements, and so gets text.
func open(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	if err := pg.ReadText(ctx, conn); err != nil {
		_ = conn.Close(ctx)
		return nil, err
	}
	return conn, nil
}

// withSession is with for work under a lock that belongs to the session. It refuses a transaction pooler, which would
// leave the lock behind.
func (t Database) withSession(ctx context.Context, f func(ctx context.Context, conn *pgx.Conn, name schema.Name) error) error {
	t, err := t.resolved()
	if err != nil {
		return err
	}
	return t.with(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if shared, err := sharesSessions(ctx, t.connect); err != nil || shared {
			return cmp.Or(err, errNotDirect)
		}
		return f(ctx, conn, name)
	})
}

// directly is the node's name in the audit for what a command writes to the database itself.
const directly = "direct"

// selectLogin names the login, and where it comes from as far as the server sees.
const selectLogin = `select session_user::text, host(inet_client_addr())`

// Rights calls f with the registry of the people and tokens in this database, through any pooler. What f does is audited as
// done by the database's login, and announced to all nodes.
func (t Database) Rights(ctx context.Context, log *slog.Logger, f func(ctx context.Context, g *rights.Registry) error) error {
	t, err := t.resolved()
	if err != nil {
		return err
	}
	return t.with(ctx, func(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
		if err := schema.Check(ctx, conn, name); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		actor := audit.Actor{By: directly}
		var address *string
		if err := conn.QueryRow(ctx, selectLogin).Scan(&actor.User, &address); err != nil {
			return fmt.Errorf("read the login's name: %w", err)
		}
		if address != nil {
			actor.Address, _ = netip.ParseAddr(*address)
		}
		pool, err := t.pool(ctx)
		if err != nil {
			return noConnection(err)
		}
		defer pool.Close()
		db := pg.Router{Calls: pool}
		return f(audit.WithActor(ctx, actor), rights.New(rights.Config{Node: directly, DB: db, SQL: name.SQL, Channel: name.Channel(), Log: log,
			Audit: &audit.Writer{Node: directly, SQL: name.SQL, Log: log, DB: db}}))
	})
}

// pool keeps no state of sessions. It refuses a standby, so that a URL with several hosts finds the primary.
func (t Database) pool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(t.DatabaseURL)
	if err != nil {
		return nil, err
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	pg.ConfigureConn(config.ConnConfig, "getwork direct", true)
	pg.ToPrimary(config.ConnConfig)
	config.AfterConnect = pg.ReadText
	return pgxpool.NewWithConfig(ctx, config)
}

// Operator names who runs this program, as far as the machine knows: the user, and the machine.
func Operator() string {
	name, host := "somebody", "an unknown machine"
	if u, err := user.Current(); err == nil && u.Username != "" {
		name = u.Username
	}
	if h, err := os.Hostname(); err == nil && h != "" {
		host = h
	}
	return name + "@" + host
}

// ReadURL reads a database's URL from a file, if a flag names one. A URL often holds a password, and everybody on the
// machine may read command lines.
func ReadURL(url *string, file, flag string) error {
	if file == "" {
		return nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return command.Usage("--%s: %v", flag, err)
	}
	text := strings.TrimSpace(string(b))
	if text == "" || strings.ContainsAny(text, "\r\n") {
		return command.Usage("--%s: %s must hold one URL, such as postgres://getwork@db.bank.example/work, and nothing else", flag, file)
	}
	*url = text
	return nil
}

// now returns a function that reads a database's URL again, if it stands in a file.
func now(url, file, flag string) func() (string, error) {
	return func() (string, error) {
		url := url
		err := ReadURL(&url, file, flag)
		return url, err
	}
}

// noConnection returns an error that says why the database can't be reached, and what to do. Each cause appears once,
// even if pgx tried with and without TLS, or several addresses of one name.
func noConnection(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return fmt.Errorf("connect to the database: %w", err)
	}
	var lines []string
	for line := range strings.Lines(connect.Error()) {
		line = strings.TrimSpace(line)
		if told := strings.Join(lines, "\n"); !strings.Contains(told, line) {
			lines = append(lines, line)
		}
	}
	if advice, found := pg.Advice(err); found {
		return fmt.Errorf("can't connect to the database: %s\n%s", strings.Join(lines, "\n  "), advice)
	}
	return fmt.Errorf("can't connect to the database: %s\ncheck the URL (--database-url, or DATABASE_URL): PostgreSQL must run there and accept connections from here, and the user and the database must exist",
		strings.Join(lines, "\n  "))
}

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
