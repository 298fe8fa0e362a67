package pg

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

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
