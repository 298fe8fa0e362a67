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

	"getwork/assign/engine"
	"getwork/schema"
)

// What is wrong with a URL that leads through a transaction pooler, and what to do.
var (
	errNeedsPooled = errors.New("--database-url goes through a transaction pooler, where settings and prepared statements are lost between two transactions: " +
		"add --pooled, and --listen-database-url with a direct connection for LISTEN and migrations; or leave the pooler out")
	errNotDirect = errors.New("migrations need a direct connection, and this one goes through a transaction pooler: " +
		"run `getwork migrate` with the address of PostgreSQL itself as its --database-url")
	errDeaf = errors.New("--listen-database-url goes through a transaction pooler, where nothing can be heard: " +
		"give a direct connection there, and start the node again; until then results are found by polling, every few seconds")
)

// refusedParameters reports whether a connection was refused as PgBouncer does: settings of a session mean nothing to it.
func refusedParameters(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == "08P01" && strings.Contains(pg.Message, "unsupported startup parameter")
}

// tries is how often two connections are compared: where others use the pooler, too, they need not meet at once.
const tries = 10

// sharesSessions reports whether connections made so meet each other's server process, which happens through a
// transaction pooler and nowhere else. One that leads to PostgreSQL itself is known by its process, and costs no second.
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

// backendOf asks which process of the server executes the question. Nothing is prepared for it.
func backendOf(ctx context.Context, conn *pgx.Conn) (uint32, error) {
	results, err := conn.PgConn().Exec(ctx, "select pg_backend_pid()").ReadAll()
	if err != nil {
		return 0, fmt.Errorf("ask for the server's process: %w", err)
	}
	pid, err := strconv.ParseUint(string(results[0].Rows[0][0]), 10, 32)
	return uint32(pid), err
}

// lookForPoolers finds out which URLs lead through a transaction pooler. Without --pooled the first must not; where the
// direct one does, the node goes on without LISTEN. What does not answer is left to what comes next.
func (n *node) lookForPoolers(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if !n.config.Pooled {
		shared, err := sharesSessions(ctx, func(ctx context.Context) (*pgx.Conn, error) {
			return n.connect(ctx, n.config.DatabaseURL, "getwork", false)
		})
		switch {
		case refusedParameters(err):
			return fmt.Errorf("%w (it says: %w)", errNeedsPooled, err)
		case shared:
			return errNeedsPooled
		}
	}
	if n.directURL() == n.config.DatabaseURL && !n.config.Pooled {
		return nil // the same
	}
	var err error
	n.shared, err = sharesSessions(ctx, n.connectDirectly)
	if err == nil && n.shared && !n.config.NoListen {
		n.log.Error(errDeaf.Error())
		n.deaf = errDeaf
	}
	return nil
}

// connect opens a connection that is not of the pools. Nothing is prepared on it: what it leads through is not known yet.
func (n *node) connect(ctx context.Context, url, name string, pooled bool) (*pgx.Conn, error) {
	config, err := pgx.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	engine.ConfigureConn(config, name, pooled)
	engine.ToPrimary(config)
	config.DefaultQueryExecMode = pgx.QueryExecModeExec
	return pgx.ConnectConfig(ctx, config)
}

// connectDirectly is for what needs a session of its own. A pooler in session mode has one, but takes no settings at the
// start of a connection.
func (n *node) connectDirectly(ctx context.Context) (*pgx.Conn, error) {
	const name = "getwork listener"
	conn, err := n.connect(ctx, n.directURL(), name, false)
	if refusedParameters(err) {
		return n.connect(ctx, n.directURL(), name, true)
	}
	return conn, err
}

// bringUp migrates, or checks the schema where the node may not migrate: where it was told not to, and through a
// transaction pooler, which would leave the lock of migrations behind.
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
