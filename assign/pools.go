package assign

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgconn/ctxwatch"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pools are a node's connections, but for the listener's. Nothing that holds a connection of one of them waits for
// another of the same.
type Pools struct {
	API     *pgxpool.Pool
	Runs    *pgxpool.Pool
	Queries *pgxpool.Pool // nil: queries run on the lock's own connection
}

// PoolsConfig says where to connect.
type PoolsConfig struct {
	DatabaseURL string
	QueryURL    string // empty: none
	MaxRuns     int
	Pooled      bool   // through a transaction pooler: no session state
	Name        string // shown as application_name
}

// apiConnections is enough: on two cores, more than about eight only lose.
const apiConnections = 8

// OpenPools opens them; it connects when they are first used.
func OpenPools(c PoolsConfig) (*Pools, error) {
	api, err := c.open(c.DatabaseURL, apiConnections, false)
	if err != nil {
		return nil, fmt.Errorf("database url: %w", err)
	}
	p := &Pools{API: api}
	if p.Runs, err = c.open(c.DatabaseURL, c.MaxRuns, true); err != nil {
		p.Close()
		return nil, fmt.Errorf("database url: %w", err)
	}
	if c.QueryURL == "" {
		return p, nil
	}
	if p.Queries, err = c.open(c.QueryURL, c.MaxRuns+1, true); err != nil { // one more, to try a query
		p.Close()
		return nil, fmt.Errorf("query database url: %w", err)
	}
	return p, nil
}

// Close closes all of them.
func (p *Pools) Close() {
	for _, pool := range []*pgxpool.Pool{p.API, p.Runs, p.Queries} {
		if pool != nil {
			pool.Close()
		}
	}
}

func (c PoolsConfig) open(url string, size int, runs bool) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		return nil, err
	}
	if runs || !strings.Contains(url, "pool_max_conns") {
		config.MaxConns = int32(max(size, 1))
	}
	ConfigureConn(config.ConnConfig, c.Name, c.Pooled)
	if !runs && !c.Pooled {
		for _, plans := range []string{"enable_seqscan", "enable_bitmapscan", "jit"} { // see ownPlans; this is for what is read without a transaction
			config.ConnConfig.RuntimeParams[plans] = "off"
		}
	}
	if runs {
		// A run that is given up cancels its query and keeps the connection, and with it the lock, until it has
		// rolled back; only a server that does not answer loses it.
		config.ConnConfig.BuildContextWatcherHandler = func(conn *pgconn.PgConn) ctxwatch.Handler {
			return &pgconn.CancelRequestContextWatcherHandler{Conn: conn, DeadlineDelay: 5 * time.Second}
		}
	}
	return pgxpool.NewWithConfig(context.Background(), config)
}

// ConfigureConn sets what every connection of a node has: a name, a bounded time to connect and, where no pooler
// stands between, keepalives on the server's side, so that a host that vanished silently frees its locks in
// seconds, not hours. Behind a pooler nothing is prepared, since the next statement may meet another session.
func ConfigureConn(config *pgx.ConnConfig, name string, pooled bool) {
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
	} {
		if _, set := config.RuntimeParams[setting]; !set {
			config.RuntimeParams[setting] = value
		}
	}
}
