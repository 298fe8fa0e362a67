package serve

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/postgres"
)

// QueryRole is the role that ranking queries run as on a private server, so that they read only what it is granted. A
// malicious query can return to the node's login, which is no superuser and owns only this database.
const QueryRole = "getwork_query"

// Help returns the text that `getwork serve --help` prints before the flags.
func (c *Command) Help() string {
	return `With --private-postgres the node starts a PostgreSQL of its own, which nobody else can reach and which ends with the node. Its data is kept in ` +
		defaultDataDir() + `, or in --data-dir. Ranking queries run there as the role ` + QueryRole +
		`, which may read the schema public and whatever you grant it. The node logs in as ` + postgres.Login + `, which owns the database and is no superuser.`
}

// defaultDataDir returns where a private server's data is kept without --data-dir: the place for data that must stay.
func defaultDataDir() string {
	if os.Geteuid() == 0 && runtime.GOOS == "linux" {
		return "/var/lib/getwork/private" // PostgreSQL refuses to run as root, and the account that it runs as may not enter root's home
	}
	if dir := os.Getenv("XDG_DATA_HOME"); dir != "" {
		return filepath.Join(dir, "getwork", "private")
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = os.TempDir()
	}
	return filepath.Join(home, ".local", "share", "getwork", "private")
}

// startPostgres starts a private server, sets --database-url to its URL, and --query-role unless that is given. ended is closed when the
// server has ended. The caller must call stop, unless there is an error.
func (c *Command) startPostgres(ctx context.Context) (ended <-chan struct{}, stop func(), err error) {
	if c.DataDir == "" {
		c.DataDir = defaultDataDir()
	}
	postgres.DropVariables()
	server, err := postgres.Start(ctx, postgres.Config{Dir: c.DataDir})
	if err != nil {
		return nil, nil, err
	}
	stop = func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		_ = server.Stop(ctx)
	}
	c.DatabaseURL, err = server.LoginURL(ctx, "postgres")
	if err == nil && c.QueryRole == "" {
		c.QueryRole = QueryRole
		err = MakeQueryRole(ctx, server.URL("postgres"))
	}
	if err != nil {
		stop()
		return nil, nil, err
	}
	return server.Done(), stop, nil
}

const createQueryRole = `
do $$ begin
  if not exists (select from pg_roles where rolname = 'getwork_query') then
    create role getwork_query nologin;
  end if;
  if not pg_has_role('getwork', 'getwork_query', 'member') then -- it is new, or dates from when getwork worked as the superuser
    grant getwork_query to getwork;
    grant select on all tables in schema public to getwork_query;
    alter default privileges for role getwork, postgres in schema public grant select on tables to getwork_query;
  end if;
end $$`

// MakeQueryRole creates the role getwork_query if it is missing. The role may read the schema public and nothing else. url is a
// superuser's, on a server that has the login getwork.
func MakeQueryRole(ctx context.Context, url string) error {
	conn, err := pgx.Connect(ctx, url)
	if err != nil {
		return fmt.Errorf("create the query role: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, createQueryRole); err != nil {
		return fmt.Errorf("create the query role: %w", err)
	}
	return nil
}
