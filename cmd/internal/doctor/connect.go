package doctor

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/cmd/internal/serve"
)

// sessionName is the application_name of the doctor's connections.
const sessionName = "getwork doctor"

func (x *examination) connect(ctx context.Context, url string) (*pgx.Conn, error) {
	return x.config.Connect(ctx, url, sessionName, x.config.Pooled || x.shared)
}

// lookAtPooler comes before the connections, because they must be made differently through a transaction pooler.
func lookAtPooler(ctx context.Context, x *examination) ([]Finding, error) {
	c := x.config
	shared, err := serve.SharesSessions(ctx, func(ctx context.Context) (*pgx.Conn, error) {
		return c.Connect(ctx, c.DatabaseURL, sessionName, c.Pooled)
	})
	refused := serve.RefusedParameters(err)
	if err != nil && !refused {
		return one(skipped("the database was not reached"))
	}
	x.shared = shared || refused
	switch {
	case x.shared && !c.Pooled:
		return one(failed("add --pooled, and --listen-database-url with a direct connection for LISTEN and migrations; or leave the pooler out",
			"--database-url goes through a transaction pooler, which loses settings and prepared statements between transactions"))
	case x.shared:
		return one(fine("--database-url goes through a transaction pooler, as --pooled says"))
	case c.Pooled:
		return one(warned("leave --pooled out, and the node keeps prepared statements and settings; keep it if the pooler serves few clients just now",
			"--pooled is given, but --database-url seems to lead to PostgreSQL itself, or through a pooler in session mode"))
	}
	return one(fine("there is none between the node and PostgreSQL"))
}

func lookAtDatabase(ctx context.Context, x *examination) (found []Finding, err error) {
	began := time.Now()
	if x.db, err = x.connect(ctx, x.config.DatabaseURL); err != nil {
		return one(unreachable("--database-url", err))
	}
	opened := time.Since(began)
	trip := time.Hour
	for range 3 { // the best of three: this machine may be busy
		began = time.Now()
		if err := x.db.QueryRow(ctx, `select current_setting('server_version_num')::int`).Scan(&x.version); err != nil {
			return nil, err
		}
		trip = min(trip, time.Since(began))
	}
	p := x.db.Config()
	at := fmt.Sprintf("%s as %s on %s: connected in %s, answers in %s", p.Database, p.User, where(p), round(opened), round(trip))
	if trip > x.limits.trip {
		return one(warned("run the nodes in the database's data centre: a click takes several round trips, and locks are held meanwhile", "%s", at))
	}
	return one(fine("%s", at))
}

// unreachable says why, and what to do. A driver's error has both, each on lines of its own.
func unreachable(flag string, err error) Finding {
	advice := "check the URL: PostgreSQL must run there and accept connections from here, and the user and the database must exist"
	var wrong *pgconn.PgError
	if errors.As(err, &wrong) && wrong.Code == "28P01" {
		advice = "correct the password, in the URL or in the file that PGPASSFILE names"
	}
	return failed(advice, "%s can't be reached: %v", flag, err)
}

// lookAtDirect connects as the listener does. Its login also migrates.
func lookAtDirect(ctx context.Context, x *examination) ([]Finding, error) {
	c := x.config
	if c.ListenDatabaseURL == "" && !c.Pooled {
		return one(skipped("--database-url serves for LISTEN and migrations, too"))
	}
	shared, err := serve.SharesSessions(ctx, c.ConnectDirectly)
	switch {
	case err != nil:
		return one(unreachable("--listen-database-url", err))
	case shared && c.NoListen:
		return one(fine("there is none, and --no-listen needs none; run `getwork migrate up` with a direct --database-url before an upgrade"))
	case shared:
		return one(failed("give it the address of PostgreSQL itself; until then nodes poll for results every few seconds",
			"--listen-database-url goes through a transaction pooler, where LISTEN does not work"))
	}
	return one(fine("--listen-database-url leads to PostgreSQL itself"))
}

// lookAtQueryDatabase connects as the pool of queries does. If a pooler refuses that, the connection is made as --pooled would, so that
// the other checks are made all the same.
func lookAtQueryDatabase(ctx context.Context, x *examination) (found []Finding, err error) {
	c := x.config
	if c.QueryDatabaseURL == "" {
		return one(skipped("there is no --query-database-url"))
	}
	shared, err := serve.SharesSessions(ctx, func(ctx context.Context) (*pgx.Conn, error) { return c.ConnectQueries(ctx, sessionName, c.Pooled) })
	refused := serve.RefusedParameters(err)
	if err != nil && !refused {
		return one(unreachable("--query-database-url", err))
	}
	pooled := c.Pooled || shared || refused
	began := time.Now()
	if x.queries, err = c.ConnectQueries(ctx, sessionName, pooled); err != nil {
		return one(unreachable("--query-database-url", err))
	}
	opened := time.Since(began)
	if !pooled { // a standby refuses every statement while this is serializable
		if _, err := x.queries.Exec(ctx, `set default_transaction_isolation = 'read committed'`); err != nil {
			return nil, err
		}
	} else if !c.Pooled {
		return one(failed("give it the address of PostgreSQL itself; or add --pooled, which holds for --database-url, too",
			"--query-database-url goes through a transaction pooler, where every ranking query fails without --pooled"))
	}
	p := x.queries.Config()
	return one(fine("%s as %s on %s: connected in %s", p.Database, p.User, where(p), round(opened)))
}

// lookAtTLS checks what the connection is, and what the URL would also allow.
func lookAtTLS(ctx context.Context, x *examination) (found []Finding, err error) {
	var secure bool
	var version *string
	if err := x.db.QueryRow(ctx, `select coalesce(bool_or(ssl), false), max(version) from pg_stat_ssl where pid = pg_backend_pid()`).Scan(&secure, &version); err != nil {
		return nil, err
	}
	c := x.config
	for flag, url := range map[string]string{"--database-url": c.DatabaseURL, "--listen-database-url": c.ListenDatabaseURL, "--query-database-url": c.QueryDatabaseURL} {
		if host := serve.Unproven(url); host != "" {
			found = append(found, warned("set sslmode=verify-full in the URL, with sslrootcert unless the system knows who signed its certificate",
				"nothing proves that %s of %s is the database: somebody on the way could read everything, or answer in its place", host, flag))
		}
	}
	if secure && version != nil {
		return orFine(found, "%s", *version)
	}
	return orFine(found, "the database is on this machine; the connection needs no TLS")
}

func where(c *pgx.ConnConfig) string {
	if len(c.Host) > 0 && c.Host[0] == '/' {
		return "a socket of this machine"
	}
	return net.JoinHostPort(c.Host, fmt.Sprint(c.Port))
}

// round shortens a time for people. A fast machine's round trip takes tens of microseconds, which must not become 0s.
func round(d time.Duration) time.Duration {
	switch {
	case d < time.Millisecond:
		return d.Round(time.Microsecond)
	case d < 10*time.Millisecond:
		return d.Round(100 * time.Microsecond)
	case d < 10*time.Second:
		return d.Round(time.Millisecond)
	}
	return d.Round(time.Second)
}
