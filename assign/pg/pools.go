package pg

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pools are a node's connections, except for the listener's. Code that holds a connection of one pool never waits for another
// of the same pool, or the node could deadlock with itself.
type Pools struct {
	API     *pgxpool.Pool // users' calls
	Own     *pgxpool.Pool // the engine's own work, which must not wait behind calls
	Signals *pgxpool.Pool // NOTIFY and health checks, which touch no table and so wait for no lock
	Runs    *pgxpool.Pool // run locks, each for as long as its run; and users' SQL, unless there are Queries
	Queries *pgxpool.Pool // nil: queries run on the lock's own connection
}

// PoolsConfig says where to connect.
type PoolsConfig struct {
	DatabaseURL string
	QueryURL    string // empty: none

	// These return the URLs as they are now, and are asked before each new connection. nil: the URLs stay as they are.
	DatabaseURLNow, QueryURLNow func() (string, error)

	MaxRuns int
	Pooled  bool   // through a transaction pooler: no session state
	Name    string // shown as application_name
	MaxRow  int    // the most bytes of a row that a query returns, or of an error; 0: 64 MiB

	// Admit is asked of each new connection to the query database, before anything else runs there. After an error the connection is
	// closed, and whoever wanted it gets the error. nil: nobody asks.
	Admit func(ctx context.Context, conn *pgx.Conn) error
}

// These are the most connections that a node opens, besides the listener's and those that [PoolsConfig.slots] counts. Eight for
// calls are enough: on two cores, more only lose. The advice for max_connections states their sum.
const (
	apiConnections    = 8
	ownConnections    = 4
	signalConnections = 2
)

// purpose is what a pool is for. The order counts: the pools before forRuns are for short statements.
type purpose int

const (
	forCalls purpose = iota
	forOwn
	forSignals
	forRuns
	forQueries // of the query database, which may be a standby
)

// OpenPools opens the pools. They connect when they are first used.
func OpenPools(c PoolsConfig) (*Pools, error) {
	p := &Pools{}
	runs, queries := c.slots()
	var err error
	for _, one := range []struct {
		pool **pgxpool.Pool
		size int
		use  purpose
	}{{&p.API, apiConnections, forCalls}, {&p.Own, ownConnections, forOwn}, {&p.Signals, signalConnections, forSignals}, {&p.Runs, runs, forRuns}} {
		if *one.pool, err = c.open(c.DatabaseURL, one.size, one.use); err != nil {
			p.Close()
			return nil, fmt.Errorf("database url: %w", err)
		}
	}
	if c.QueryURL == "" {
		return p, nil
	}
	if p.Queries, err = c.open(c.QueryURL, queries, forQueries); err != nil {
		p.Close()
		return nil, fmt.Errorf("query database url: %w", err)
	}
	return p, nil
}

// slots returns how many connections a node opens for runs, and to the query database. Where queries run there is one more
// for previews, explanations and claims, and on a query database another to check a query when its task is saved.
func (c PoolsConfig) slots() (runs, queries int) {
	if c.QueryURL == "" {
		return c.MaxRuns + 1, 0
	}
	return c.MaxRuns, c.MaxRuns + 2
}

// Connections returns how many connections a node opens at most: to the database, with the listener's, and to the query
// database. Its error is that of a URL.
func (c PoolsConfig) Connections() (database, queries int, err error) {
	calls, err := pgxpool.ParseConfig(c.DatabaseURL)
	if err != nil {
		return 0, 0, fmt.Errorf("database url: %w", err)
	}
	database = apiConnections
	if strings.Contains(c.DatabaseURL, "pool_max_conns") {
		database = int(calls.MaxConns)
	}
	runs, queries := c.slots()
	return database + ownConnections + signalConnections + runs + 1, queries, nil
}

// ParseConn reads the URL of one connection. Unlike [pgx.ParseConfig] it leaves out what is for a pool, such as pool_max_conns: sent to
// the server, it would be refused as an unknown setting.
func ParseConn(url string) (*pgx.ConnConfig, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	return config.ConnConfig, nil
}

// ErrURL means that the URL can't be read at the moment.
var ErrURL = errors.New("read the database's URL")

// renew makes a connection go where the URL leads now, as its login, with its password, or that in PGPASSFILE, and with the certificates
// in its files. Passwords are replaced while nodes run: some last for minutes. The URL's other settings stay as they were at the start.
func renew(config *pgx.ConnConfig, now func() (string, error)) error {
	url, err := now()
	if err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	to, err := ParseConn(url)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrURL, err)
	}
	config.Host, config.Port, config.Database, config.User, config.Password = to.Host, to.Port, to.Database, to.User, to.Password
	config.TLSConfig, config.Fallbacks = to.TLSConfig, to.Fallbacks
	return nil
}

// Router returns a router that sends short statements to the pool of their purpose.
func (p *Pools) Router() Router { return Router{Calls: p.API, Own: p.Own} }

// Close closes all pools.
func (p *Pools) Close() {
	for _, pool := range []*pgxpool.Pool{p.API, p.Own, p.Signals, p.Runs, p.Queries} {
		if pool != nil {
			pool.Close()
		}
	}
}

func (c PoolsConfig) open(url string, size int, use purpose) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if use != forCalls || !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = int32(max(size, 1))
	}
	ConfigureConn(config.ConnConfig, c.Name, c.Pooled)
	config.AfterConnect = ReadText
	if use >= forRuns && !c.Pooled { // prepared statements return times in binary, and users' SQL keeps its style
		config.AfterConnect = func(_ context.Context, conn *pgx.Conn) error { readTypes(conn); return nil }
	}
	if use != forQueries {
		ToPrimary(config.ConnConfig)
	} else if c.Admit != nil {
		connected := config.AfterConnect
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			return cmp.Or(connected(ctx, conn), c.Admit(ctx, conn))
		}
	}
	if use < forRuns && !c.Pooled {
		if _, set := config.ConnConfig.RuntimeParams["lock_timeout"]; !set {
			config.ConnConfig.RuntimeParams["lock_timeout"] = lockPatience
		}
		for _, plans := range []string{"enable_seqscan", "enable_bitmapscan", "jit"} { // like OwnPlans, also for statements outside of transactions
			config.ConnConfig.RuntimeParams[plans] = "off"
		}
		config.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
			return cmp.Or(ReadText(ctx, conn), findSettings(ctx, conn))
		}
	}
	if use >= forRuns {
		// A run that is given up cancels its query and keeps the connection, and with it the lock, until it has rolled back.
		// It loses the connection only if the server does not answer.
		config.ConnConfig.BuildContextWatcherHandler = newCanceller
	}
	// pgx reads a row, or an error, as a whole. Those of hundreds of MB would use up the node's memory, and then that of the node which
	// takes over its run.
	maxRow := cmp.Or(c.MaxRow, 64<<20)
	if use < forRuns {
		maxRow += maxRow / 4 // what a query returned is read again with other columns beside it
	}
	config.ConnConfig.BuildFrontend = func(r io.Reader, w io.Writer) *pgproto3.Frontend {
		f := pgproto3.NewFrontend(r, w)
		f.SetMaxBodyLen(maxRow)
		return f
	}
	now := c.DatabaseURLNow
	if use == forQueries {
		now = c.QueryURLNow
	}
	if now == nil {
		now = func() (string, error) { return url, nil }
	}
	config.BeforeConnect = func(ctx context.Context, config *pgx.ConnConfig) error {
		if err := renew(config, now); err != nil {
			return err
		}
		return guardCommits(ctx, config)
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// SpeakUTF8 makes the server accept and return text in UTF-8, whatever encoding the database, the login or the URL has. Bytes
// of another encoding would be read as UTF-8: two different keys would become one in JSON, and the stored text would differ
// from the sent one. Poolers also accept this setting at the start of a connection.
func SpeakUTF8(config *pgx.ConnConfig) {
	config.RuntimeParams["client_encoding"] = "UTF8"
}

// ConfigureConn sets what every connection of a node has: UTF-8, a name, a bounded time to connect, and keepalives. Without a
// pooler it also sets keepalives on the server's side, so that a host that vanished silently frees its locks in seconds, not
// hours, and replaces the login's limits by getwork's. A setting in the URL wins. Behind a pooler nothing is prepared,
// because the next statement may meet another session.
func ConfigureConn(config *pgx.ConnConfig, name string, pooled bool) {
	config.DialFunc = dialer.DialContext
	SpeakUTF8(config)
	if config.ConnectTimeout == 0 {
		config.ConnectTimeout = 5 * time.Second
	}
	if _, named := config.RuntimeParams["application_name"]; !named {
		config.RuntimeParams["application_name"] = name
	}
	if pooled {
		config.DefaultQueryExecMode = pgx.QueryExecModeExec
		config.StatementCacheCapacity = 0
		config.DescriptionCacheCapacity = 0
		return
	}
	for setting, value := range map[string]string{
		"tcp_keepalives_idle":     "5",
		"tcp_keepalives_interval": "3",
		"tcp_keepalives_count":    "3",
		"tcp_user_timeout":        "15000",

		// Limits that the login or the database sets for others would interrupt getwork: filling a shelf takes longer than a
		// page's query may, and the listener is idle for hours. Calls and queries have limits of their own.
		"statement_timeout":             "0",
		"idle_session_timeout":          "0",
		"default_transaction_read_only": "off",
	} {
		if _, set := config.RuntimeParams[setting]; !set {
			config.RuntimeParams[setting] = value
		}
	}
}

// Router holds the connections for short statements: one pool for users' calls, another for the engine's own work, which is
// serve loops, rounds, sweeps and announcements. However many calls wait for a lock or for a slow disk, waiting requests are
// still served and their answers announced. A statement's context says which pool it uses. If Own is nil, Calls serves both.
type Router struct{ Calls, Own *pgxpool.Pool }

type ownWork struct{}

// AsOwn marks all statements of the context as the engine's own work.
func AsOwn(ctx context.Context) context.Context { return context.WithValue(ctx, ownWork{}, true) }

func (l Router) of(ctx context.Context) *pgxpool.Pool {
	if l.Own != nil && ctx.Value(ownWork{}) != nil {
		return l.Own
	}
	return l.Calls
}

// BeginTx begins a transaction on the pool that ctx chooses.
func (l Router) BeginTx(ctx context.Context, o pgx.TxOptions) (pgx.Tx, error) {
	return l.of(ctx).BeginTx(ctx, o)
}

// Acquire lends a connection of the pool that ctx chooses.
func (l Router) Acquire(ctx context.Context) (*pgxpool.Conn, error) {
	return l.of(ctx).Acquire(ctx)
}

// Exec executes a statement on the pool that ctx chooses.
func (l Router) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return l.of(ctx).Exec(ctx, sql, args...)
}

// Query executes a statement on the pool that ctx chooses, and returns its rows.
func (l Router) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return l.of(ctx).Query(ctx, sql, args...)
}

// QueryRow executes a statement on the pool that ctx chooses, and returns its first row.
func (l Router) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return l.of(ctx).QueryRow(ctx, sql, args...)
}

// SendBatch sends a batch on the pool that ctx chooses.
func (l Router) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return l.of(ctx).SendBatch(ctx, b)
}

// PoolStat describes the state of a pool of connections.
type PoolStat struct {
	Name             string
	InUse, Idle, Max int
	Waits            int64         // how often a caller waited for a connection, including a new one, and got it
	Waited           time.Duration // the sum of those waits
	Failed           int64         // how often a caller gave up, or ran out of time, before they got one
}

// Stats returns the state of each pool without asking the database.
func (p *Pools) Stats() (stats []PoolStat) {
	for _, one := range []struct {
		name string
		pool *pgxpool.Pool
	}{{"api", p.API}, {"own", p.Own}, {"signals", p.Signals}, {"runs", p.Runs}, {"queries", p.Queries}} {
		if one.pool == nil {
			continue
		}
		s := one.pool.Stat()
		stats = append(stats, PoolStat{Name: one.name, InUse: int(s.AcquiredConns()), Idle: int(s.IdleConns()), Max: int(s.MaxConns()),
			Waits: s.EmptyAcquireCount(), Waited: s.EmptyAcquireWaitTime(), Failed: s.CanceledAcquireCount()})
	}
	return stats
}

var errStandby = errors.New("this server is a standby, which is read only: name the primary, or several hosts of which one is the primary")

// ToPrimary makes connections go to a primary only. For a moment after a fail-over, a name or a proxy may still lead to the
// former primary, or already to the next one before it is promoted. A pool would keep such a connection and read stale data
// from it. If the URL names several hosts, the next one is tried. A URL with a target_session_attrs other than any decides
// for itself. The check costs nothing, because servers report their role in their greeting. A pooler may not pass that on;
// then the first write finds out.
func ToPrimary(config *pgx.ConnConfig) {
	if config.ValidateConnect != nil {
		return
	}
	config.ValidateConnect = func(_ context.Context, conn *pgconn.PgConn) error {
		if conn.ParameterStatus("in_hot_standby") == "on" {
			return errStandby
		}
		return nil
	}
}
