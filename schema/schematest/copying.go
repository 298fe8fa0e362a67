package schematest

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"strings"

	"github.com/jackc/pgx/v5/stdlib"
)

// copyingDriver is pgx's driver for pgtestdb, but clones of a template are copied file by file. PostgreSQL's other way, the default
// since version 15, writes each block to the log as well, and costs two to four times as much CPU.
const copyingDriver = "getwork-copying"

func init() { sql.Register(copyingDriver, copying{stdlib.GetDefaultDriver()}) }

type copying struct{ driver.Driver }

func (d copying) Open(name string) (driver.Conn, error) {
	conn, err := d.Driver.Open(name)
	if err != nil {
		return nil, err
	}
	return copyingConn{conn.(*stdlib.Conn)}, nil
}

type copyingConn struct{ *stdlib.Conn }

// ExecContext adds the strategy to pgtestdb's statement, where the server has a choice.
func (c copyingConn) ExecContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Result, error) {
	if strings.HasPrefix(query, "CREATE DATABASE ") && strings.Contains(query, " WITH TEMPLATE ") &&
		!strings.HasPrefix(c.Conn.Conn().PgConn().ParameterStatus("server_version"), "14") {
		query += " STRATEGY FILE_COPY"
	}
	return c.Conn.ExecContext(ctx, query, args)
}
