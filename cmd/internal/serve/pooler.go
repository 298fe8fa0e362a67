package serve

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
	"getwork/schema"
)

// These errors say what is wrong with a URL that goes through a transaction pooler, and what to do.
var (
	errNeedsPooled = errors.New("--database-url goes through a transaction pooler, which loses settings and prepared statements between transactions: " +
		"add --pooled, and --listen-database-url with a direct connection for LISTEN and migrations; or leave the pooler out")
	errQueriesNeedPooled = errors.New("--query-database-url goes through a transaction pooler, which loses settings and prepared statements between transactions: " +
		"give it the address of PostgreSQL itself; or add --pooled, which holds for --database-url, too")
	errNotDirect = errors.New("migrations need a direct connection, but this one goes through a transaction pooler: " +
		"run `getwork migrate` with the address of PostgreSQL itself as its --database-url")
	errDeaf = errors.New("--listen-database-url goes through a transaction pooler, where LISTEN does not work: " +
		"give it a direct connection, and start the node again; until then the node polls for results every few seconds")
)

// refusedParameters reports whether PgBouncer refused the connection because it does not accept settings of a session.
func refusedParameters(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01" && strings.Contains(pg.Message, "unsupported startup parameter")
}

// tries is how often two connections are compared. If other clients use the pooler, too, ours may miss each other a few
// times.
const tries = 10

// sharesSessions reports whether two connections can be served by the same server process, which happens only behind a
// transaction pooler. A direct connection is recognised by its process id, without opening a second one.
func sharesSessions(ctx context.Context, connect func(context.Context) (*pgx.Conn, error)) (bool, error) {
	var conns [2]*pgx.Conn
	for i := range conns {
		conn, err := connect(ctx)
		if err != nil {
			return false, err
		}
		defer conn.Close(ctx)
		backend, err := backendOf(ctx, conn)
		if err != nil || i == 0 && backend == conn.PgConn().PID() {
			return false, err
		}
		conns[i] = conn
	}
	for range tries {
		one, err := backendOf(ctx, conns[0])
		if err != nil {
			return false, err
		}
		if other, err := backendOf(ctx, conns[1]); err != nil || one == other {
			return err == nil, err
		}
	}
	return false, nil // a pooler in session mode
}

// backendOf returns the id of the server process that executes the query. It prepares no statement.
func backendOf(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	results, err := conn.PgConn().Exec(ctx, "select pg_backend_pid()").ReadAll()
	if err != nil {
		return 0, fmt.Errorf("read the server's process id: %w", err)
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	return uint32(pid), err
}

// lookForPoolers finds out which URLs go through a transaction pooler. Without --pooled those of calls and queries must not. If the
// direct one does, the node goes on without LISTEN. Databases that do not answer are left to the steps that follow.
func (n *node) lookForPoolers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !n.config.Pooled {
		if err := sharing(ctx, errNeedsPooled, func(ctx context.Context) (*pgx.Conn, error) {
			return n.connect(ctx, n.config.DatabaseURL, "getwork", false)
		}); err != nil {
			return err
		}
		if n.config.QueryDatabaseURL != "" {
			if err := sharing(ctx, errQueriesNeedPooled, func(ctx context.Context) (*pgx.Conn, error) {
				return n.connectQueries(ctx, "getwork", false)
			}); err != nil {
				return err
			}
		}
	}
	if n.directURL() == n.config.DatabaseURL && !n.config.Pooled {
		return nil // the same URL
	}
	var err error
	n.shared, err = sharesSessions(ctx, n.connectDirectly)
	if err == nil && n.shared && !n.config.NoListen {
		n.log.Error(errDeaf.Error())
		n.deaf = errDeaf
	}
	return nil
}

// sharing returns the error wrong if connections go through a transaction pooler.
func sharing(ctx context.Context, wrong error, connect func(context.Context) (*pgx.Conn, error)) error {
	shared, err := sharesSessions(ctx, connect)
	switch {
	case refusedParameters(err):
		return fmt.Errorf("%w (it says: %w)", wrong, err)
	case shared:
		return wrong
	}
	return nil
}

// connectQueries opens a connection to the query database, which may be a standby, as its pool does.
func (n *node) connectQueries(ctx context.Context, name string, pooled bool) (*pgx.Conn, error) {
	config, err := pg.ParseConn(n.config.QueryDatabaseURL)
	if err != nil {
		return nil, err
	}
	pg.ConfigureConn(config, name, pooled)
	return open(ctx, config)
}

// connect opens a connection outside the pools. It prepares nothing on it, since the connection may go through a
// pooler.
func (n *node) connect(ctx context.Context, url, name string, pooled bool) (*pgx.Conn, error) {
	config, err := pg.ParseConn(url)
	if err != nil {
		return nil, err
	}
	pg.ConfigureConn(config, name, pooled)
	pg.ToPrimary(config)
	return open(ctx, config)
}

// connectDirectly opens a connection with a session of its own. A pooler in session mode offers one, but accepts no
// settings when a connection starts.
func (n *node) connectDirectly(ctx context.Context) (*pgx.Conn, error) {
	const name = "getwork listener"
	read := now(n.config.DatabaseURL, n.config.DatabaseURLFile, "database-url-file")
	if n.config.ListenDatabaseURL != "" {
		read = now(n.config.ListenDatabaseURL, n.config.ListenDatabaseURLFile, "listen-database-url-file")
	}
	url, err := read() // the listener connects again for as long as the node lives, and the password may change
	if err != nil {
		return nil, err
	}
	conn, err := n.connect(ctx, url, name, false)
	if refusedParameters(err) {
		return n.connect(ctx, url, name, true)
	}
	return conn, err
}

// bringUp migrates the schema. It only checks the schema if the node is not to migrate, or if it can reach the
// database only through a transaction pooler, which would leave the migration lock behind.
func (n *node) bringUp(ctx context.Context, conn *pgx.Conn, name schema.Name) error {
	if !n.config.NoMigrate && !n.shared {
		return schema.Up(ctx, conn, name, func(message string) { n.log.Warn(message) })
	}
	err := schema.Check(ctx, conn, name)
	if errors.Is(err, schema.ErrOlder) && n.shared {
		return fmt.Errorf("%w: %w", errNotDirect, err)
	}
	return err
}
