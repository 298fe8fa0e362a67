package postgres

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// connect opens a connection of the superuser through the socket. It does not read the caller's variables PG…: they are for another
// server, and one such as PGCHANNELBINDING=require, or PGSERVICE with an unknown service, would make each attempt fail.
func (s *Server) connect(ctx context.Context, database string) (*pgx.Conn, error) {
	if errPlain != nil {
		return nil, errPlain
	}
	config := plain.Copy()
	config.Host, config.Port, config.Database = s.state.SocketDir, uint16(s.state.Port), database
	return pgx.ConnectConfig(ctx, config)
}

// plain is the configuration that connect copies. pgx accepts none that it has not parsed itself, and reads the variables whenever
// it parses one. They are taken away while packages are initialised, when nobody else reads them.
var plain, errPlain = func() (*pgx.ConnConfig, error) {
	for _, name := range clientVariables() {
		value := os.Getenv(name)
		_ = os.Unsetenv(name) // fails only for a malformed name
		defer func() { _ = os.Setenv(name, value) }()
	}
	config, err := pgx.ParseConfig("postgres://" + Superuser + "@/postgres?host=/tmp&port=5432&sslmode=disable")
	if err != nil {
		return nil, fmt.Errorf("prepare connections to the private PostgreSQL: %w", err)
	}
	return config, nil
}()

// DropVariables removes the variables that configure PostgreSQL's clients, such as PGSERVICE, from this process's environment. A
// program calls it before it uses the URL of a private server: pgx and libpq would add the variables to the URL. It keeps those
// that do nothing at a private server's socket, but that a query database's URL may rely on: passwords and certificates.
func DropVariables() {
	for _, name := range clientVariables() {
		if !slices.Contains([]string{"PGPASSFILE", "PGPASSWORD", "PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLPASSWORD"}, name) {
			_ = os.Unsetenv(name) // fails only for a malformed name
		}
	}
}

// clientVariables returns the names of this process's variables for clients of PostgreSQL.
func clientVariables() (names []string) {
	for _, e := range os.Environ() {
		if name, _, _ := strings.Cut(e, "="); strings.HasPrefix(name, "PG") {
			names = append(names, name)
		}
	}
	return names
}
