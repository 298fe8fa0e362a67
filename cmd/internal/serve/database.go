package serve

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"os/user"
	"time"

	"github.com/jackc/pgx/v5"
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
// done by the database's login, and told to all nodes.
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
