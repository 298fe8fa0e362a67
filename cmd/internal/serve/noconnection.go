package serve

import (
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// noConnection is why a database can't be connected to: each thing once, though it was tried with TLS and without, or at several
// addresses of one name; and what to do.
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
	return fmt.Errorf("can't connect to the database: %s\ncheck the URL (--database-url, or DATABASE_URL): that PostgreSQL runs there and takes connections from here, and that the user and the database exist",
		strings.Join(lines, "\n  "))
}
