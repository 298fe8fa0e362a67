package serve

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
)

// noConnection returns an error that says why the database can't be reached, and what to do. Each cause appears once,
// even if pgx tried with and without TLS, or several addresses of one name.
func noConnection(err error) error {
	var connect *pgconn.ConnectError
	if !errors.As(err, &connect) {
		return fmt.Errorf("connect to the database: %w", err)
	}
	var lines []string
	for line := range strings.Lines(connect.Error()) {
		line = strings.TrimSpace(line)
		if told := strings.Join(lines, "\n"); !strings.Contains(told, line) {
			lines = append(lines, line)
		}
	}
	if advice, found := pg.Advice(err); found {
		return fmt.Errorf("can't connect to the database: %s\n%s", strings.Join(lines, "\n  "), advice)
	}
	return fmt.Errorf("can't connect to the database: %s\ncheck the URL (--database-url, or DATABASE_URL): PostgreSQL must run there and accept connections from here, and the user and the database must exist",
		strings.Join(lines, "\n  "))
}
