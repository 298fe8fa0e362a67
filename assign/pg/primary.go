package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

var errStandby = errors.New("this server is a standby, on which nothing can be written: name the primary, or several hosts of which one is")

// ToPrimary has connections go to a primary only. A name or a proxy may still lead to the former primary for a moment after a
// fail-over, or already to the next one before it is promoted; a pool would keep what it got, and read there what is no longer
// true. Of several hosts the next one is tried. A URL that says by target_session_attrs what it wants, other than any, goes by
// that. It costs nothing: servers say in their greeting what they are. A pooler may keep that to itself; then the first write finds out.
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
