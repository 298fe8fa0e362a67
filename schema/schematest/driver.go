package schematest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/stdlib"
)

// frugalDriver is pgx's driver for pgtestdb, with two differences. Clones of a template are copied file by file: PostgreSQL's other
// way, the default since version 15, writes each block to the log as well, and costs two to four times as much CPU. A connection
// that is closed is kept for the next database: pgtestdb opens two for each, and they cost as much as the copy.
const frugalDriver = "getwork-frugal"

func init() {
	sql.Register(frugalDriver, &frugal{Driver: stdlib.GetDefaultDriver(), kept: map[string][]*stdlib.Conn{}})
}

type frugal struct {
	driver.Driver

	mu   sync.Mutex
	kept map[string][]*stdlib.Conn // by data source
}

// Open returns a kept connection if one still works.
func (f *frugal) Open(name string) (driver.Conn, error) {
	for kept := f.take(name); kept != nil; kept = f.take(name) {
		if kept.Ping(context.Background()) == nil {
			return &frugalConn{kept, f, name}, nil
		}
		_ = kept.Close()
	}
	conn, err := f.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return &frugalConn{conn.(*stdlib.Conn), f, name}, nil
}

func (f *frugal) take(name string) *stdlib.Conn {
	f.mu.Lock()
	defer f.mu.Unlock()
	all := f.kept[name]
	if len(all) == 0 {
		return nil
	}
	last := len(all) - 1
	f.kept[name] = all[:last]
	return all[last]
}

func (f *frugal) keep(name string, conn *stdlib.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.kept[name] = append(f.kept[name], conn)
}

type frugalConn struct {
	*stdlib.Conn

	of   *frugal
	name string
}

// Close keeps the connection, unless it is broken. A template can't be cloned while one to it is kept: pgtestdb and our migrators open
// none through this driver.
func (c *frugalConn) Close() error {
	if c.Conn.Conn().IsClosed() {
		return c.Conn.Close()
	}
	c.of.keep(c.name, c.Conn)
	return nil
}

// ExecContext adds the strategy to pgtestdb's statement, where the server has a choice.
func (c *frugalConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.HasPrefix(query, "CREATE DATABASE ") && strings.Contains(query, " WITH TEMPLATE ") &&
		!strings.HasPrefix(c.Conn.Conn().PgConn().ParameterStatus("server_version"), "14") {
		query += " STRATEGY FILE_COPY"
	}
	return c.Conn.ExecContext(ctx, query, args)
}
