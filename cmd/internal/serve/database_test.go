package serve

import (
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// A database without a free connection is there, and its address is right: the message says what its operator can do.
func TestNoConnectionLeft(t *testing.T) {
	t.Parallel()
	url := schematest.OwnServer(t, map[string]string{"max_connections": "5", "superuser_reserved_connections": "0", "max_wal_senders": "0"}).URL("getwork")
	for range 6 {
		conn, err := pgx.Connect(t.Context(), url)
		if err != nil {
			got := noConnection(err).Error()
			if !strings.Contains(got, "max_connections of the database is reached: raise it") || strings.Contains(got, "check the URL") {
				t.Errorf("told: %s", got)
			}
			return
		}
		defer conn.Close(t.Context())
	}
	t.Error("six connections were taken")
}
