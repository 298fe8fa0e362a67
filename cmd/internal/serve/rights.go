package serve

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign/pg"
	"getwork/assign/rights"
	"getwork/schema"
)

// A ranking query can leave the query role. It can then do whatever its login may do or, since SET ROLE needs only
// membership, may become. It must never be able to read or write the server's files, run programs there, end other
// sessions, or raise its own rights.

// selectDangers lists the rights of a login that a query must not have, each with the SQL that removes it. A superuser
// has every right, so the list names only that. A right that comes from another role is removed by ending the
// membership.
const selectDangers = `
with me as (select oid, rolname, rolsuper from pg_roles where rolname = session_user),
mine as (select r.* from pg_roles r, me where pg_has_role(me.oid, r.oid, 'member')),
dangers as (
  select oid, case
      when rolsuper then 'is a superuser'
      when rolname = 'pg_read_server_files' then 'may read the server''s files'
      when rolname = 'pg_write_server_files' then 'may write files on the server'
      when rolname = 'pg_execute_server_program' then 'may run programs on the server'
      when rolname = 'pg_signal_backend' then 'may end others'' backends'
      when rolcreaterole then 'may make roles'
      when rolreplication then 'may replicate the server'
      when rolbypassrls then 'is not bound by row security'
    end as danger,
    case when rolsuper then 'nosuperuser' when rolcreaterole then 'nocreaterole' when rolreplication then 'noreplication' else 'nobypassrls' end as without
  from mine
)
select me.rolname, d.danger, case
    when me.oid = 10 then 'create role getwork_login login password ''…''; alter database ' || quote_ident(current_database()) || ' owner to getwork_login'
    when d.oid = me.oid then format('alter role %I %s', me.rolname, d.without)
    else (
      select coalesce(string_agg(format('revoke %I from %I', g.rolname, me.rolname), '; ' order by g.rolname), 'drop the membership by hand')
      from pg_auth_members m join pg_roles g on g.oid = m.roleid
      where m.member = me.oid and pg_has_role(g.oid, d.oid, 'member'))
  end
from dangers d cross join me
where d.danger is not null and (d.oid = me.oid or not me.rolsuper)
union all
select me.rolname, 'may execute ' || p.oid::regprocedure, format('revoke execute on function %s from public, %I', p.oid::regprocedure, me.rolname)
from pg_proc p cross join me
where not me.rolsuper and p.pronamespace = 'pg_catalog'::regnamespace and has_function_privilege(me.oid, p.oid, 'execute')
  and p.proname in ('lo_import', 'lo_export', 'pg_read_file', 'pg_read_binary_file', 'pg_ls_dir', 'pg_stat_file', 'pg_reload_conf', 'pg_rotate_logfile')
order by 2`

// selectReadable lists what a query login may read or change in getwork's schema but must not: everything except reading the
// view blocked. A role that it can enter by set role counts, whether it inherits the role's rights or not.
const selectReadable = `
select session_user, format('may %s %s', case when able.reads then 'read' else 'change' end, c.oid::regclass), case
    when pg_has_role(session_user, c.relowner, 'member') then 'create role getwork_reader login password ''…'''
    when able.everybody or able.oid = me.oid then format('revoke all on all tables in schema %I from public, %I', n.nspname, me.rolname)
    else (
      select coalesce(string_agg(format('revoke %I from %I', g.rolname, me.rolname), '; ' order by g.rolname), 'drop the membership by hand')
      from pg_auth_members m join pg_roles g on g.oid = m.roleid
      where m.member = me.oid and pg_has_role(g.oid, able.oid, 'member'))
  end
from pg_class c
join pg_namespace n on n.oid = c.relnamespace
join pg_roles me on me.rolname = session_user
cross join lateral (
  select r.oid, c.relname <> 'blocked' and has_any_column_privilege(r.oid, c.oid, 'select') as reads,
    has_any_column_privilege('public', c.oid, 'select, insert, update, references') or has_table_privilege('public', c.oid, 'delete, truncate, trigger') as everybody
  from pg_roles r
  where pg_has_role(me.oid, r.oid, 'member') and has_schema_privilege(r.oid, n.oid, 'usage')
    and (c.relname <> 'blocked' and has_any_column_privilege(r.oid, c.oid, 'select')
      or has_any_column_privilege(r.oid, c.oid, 'insert, update, references') or has_table_privilege(r.oid, c.oid, 'delete, truncate, trigger'))
  order by r.oid <> me.oid desc
  limit 1
) able
where n.nspname = $1 and c.relkind in ('r', 'p', 'v', 'm') and not me.rolsuper
order by c.oid
limit 1`

const (
	queryFlag     = "--query-database-url"
	loginPatience = 10 * time.Second // for a question about a login
)

// refuseLogins checks the rights of getwork's logins: the one of --database-url, the one of --listen-database-url if it
// differs, which creates and owns the tables, and the one of --query-database-url. Under --auth dev it only warns,
// because anybody may be a manager there, and only on this machine. If the query database can't be reached, the node starts all the
// same: newNode warns, and admitQueries checks the login before the first query runs there.
func (n *node) refuseLogins(ctx context.Context, name schema.Name) error {
	err := n.lookAtLogin(ctx, "--database-url", n.config.DatabaseURL, selectDangers)
	if url := n.config.ListenDatabaseURL; url != "" && !sameLogin(url, n.config.DatabaseURL) {
		err = errors.Join(err, n.lookAtLogin(ctx, "--listen-database-url", url, selectDangers))
	}
	if url := n.config.QueryDatabaseURL; url != "" {
		queries := n.lookAtLogin(ctx, queryFlag, url, selectDangers)
		if !unreached(queries) {
			queries = errors.Join(queries, n.lookAtLogin(ctx, queryFlag, url, selectReadable, string(name)))
		}
		if config, err := pg.ParseConn(url); err == nil && queries == nil {
			n.admitted.Store(&config.User)
		}
		if !unreached(queries) {
			err = errors.Join(err, queries)
		}
	}
	return err
}

// unreached reports whether an error says that a database can't be reached, or can't serve now. A login that the database turns away
// is a fault of the URL.
func unreached(err error) bool {
	var pgErr *pgconn.PgError
	if !errors.As(err, &pgErr) {
		return pg.Away(err)
	}
	lost := strings.HasPrefix(pgErr.Code, "08") && !refusedParameters(err)
	return lost || strings.HasPrefix(pgErr.Code, "53") || strings.HasPrefix(pgErr.Code, "57P")
}

// admitQueries lets no query run on a connection to the query database before the login has been looked at, which refuseLogins could
// not do if that database was away, or if the URL's file names another login by now. It asks over the connection itself, until the login
// has no right that it must not have.
func (n *node) admitQueries(ctx context.Context, conn *pgx.Conn) error {
	user := conn.Config().User
	if looked := n.admitted.Load(); looked != nil && *looked == user {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	rights, err := askLogin(ctx, conn, selectDangers)
	readable, err2 := askLogin(ctx, conn, selectReadable, string(n.schema))
	err = errors.Join(n.judgeLogin(queryFlag, rights, err), n.judgeLogin(queryFlag, readable, err2))
	if err != nil && !unreached(err) {
		return errors.New(err.Error()) // with PostgreSQL's error in it, it could count as the query's own fault, and fail the requests
	}
	if err == nil {
		n.admitted.Store(&user)
	}
	return err
}

// sameLogin reports whether two URLs certainly name the same login, so that its faults are reported once.
func sameLogin(one, other string) bool {
	a, err := pg.ParseConn(one)
	b, err2 := pg.ParseConn(other)
	return err == nil && err2 == nil && a.User == b.User && a.Database == b.Database
}

// lookAtLogin asks one question about the login of a URL. It returns an error for each right that the login must not have, or if that
// can't be found out; under --auth dev it logs a warning instead.
func (n *node) lookAtLogin(ctx context.Context, flag, url, question string, args ...any) error {
	dangers, err := n.dangers(ctx, url, question, args...)
	return n.judgeLogin(flag, dangers, err)
}

// judgeLogin turns what was found out about a flag's login, or why that failed, into the error or the warnings.
func (n *node) judgeLogin(flag string, dangers []Danger, err error) error {
	if err != nil {
		if n.config.Auth == "dev" {
			n.log.Warn("can't check the login's rights", "of", flag, "error", err)
			return nil
		}
		return fmt.Errorf("check the rights of the login of %s: %w", flag, err)
	}
	var errs []error
	for _, d := range dangers {
		if n.config.Auth == "dev" {
			n.log.Warn("the login has a right that a ranking query must not have; without --auth dev the node refuses it", "of", flag, "login", d.Login, "it", d.What, "mend", d.Mend)
			continue
		}
		why := "and so may every ranking query"
		if flag == "--listen-database-url" {
			why = "which getwork does not need"
		}
		errs = append(errs, fmt.Errorf("the login %s of %s %s, %s: as a superuser, execute %s", d.Login, flag, d.What, why, d.Mend))
	}
	return errors.Join(errs...)
}

// dangers returns the rows of a question, over a connection of its own that prepares no statements.
func (n *node) dangers(ctx context.Context, url, question string, args ...any) ([]Danger, error) {
	ctx, cancel := context.WithTimeout(ctx, loginPatience)
	defer cancel()
	config, err := pg.ParseConn(url)
	if err != nil {
		return nil, err
	}
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	return askLogin(ctx, conn, question, args...)
}

// askLogin returns the rows of a question about the login of a connection.
func askLogin(ctx context.Context, conn *pgx.Conn, question string, args ...any) (found []Danger, err error) {
	// A standby refuses every statement outside of such a transaction if the database's default_transaction_isolation is serializable.
	err = pgx.BeginTxFunc(ctx, conn, pg.ReadOnly, func(tx pgx.Tx) error {
		unprepared := append([]any{pgx.QueryExecModeExec}, args...) // there may be a pooler in between
		rows, err := tx.Query(ctx, question, unprepared...)
		if err != nil {
			return err
		}
		found, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (d Danger, err error) {
			err = row.Scan(&d.Login, &d.What, &d.Mend)
			return d, err
		})
		return err
	})
	return found, err
}

// warnOfReaders warns if others than its owner and group may read a file that holds a secret.
func (n *node) warnOfReaders(flag, file string) {
	if info, err := os.Stat(file); err == nil && info.Mode().Perm()&0o004 != 0 {
		n.log.Warn("everybody on this machine may read a secret; execute chmod o-rwx", "of", flag, "file", file)
	}
}

// warnOfSecrets does so for all files with secrets.
func (n *node) warnOfSecrets() {
	for flag, file := range n.config.Secrets() {
		n.warnOfReaders(flag, file)
	}
}

const selectUsers = `select count(*) from getwork.principal`

// warnOfUsers warns if this node believes every name in a database whose other nodes ask for proof.
func (n *node) warnOfUsers(ctx context.Context, name schema.Name) {
	if n.config.Auth != "dev" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	conn, err := n.connect(ctx, n.config.DatabaseURL, "getwork start", n.config.Pooled)
	if err != nil {
		return // whoever needs the database reports it
	}
	defer conn.Close(ctx)
	var users int
	if err := conn.QueryRow(ctx, name.SQL(selectUsers)).Scan(&users); err == nil && users > 0 {
		n.log.Warn("this node believes every name that it is told, and the database has users who log in: whoever reaches it can work as any of them; give it the --auth of the other nodes", "auth", "dev", "users", users)
	}
}

// warnOfDatabases warns of connections to databases on other machines whose other end is not proven. Somebody on the way
// could read the password and everything else, or answer in the database's place.
func (n *node) warnOfDatabases() {
	c := n.config
	for _, to := range []struct{ flag, url string }{
		{"--database-url", c.DatabaseURL}, {"--listen-database-url", c.ListenDatabaseURL}, {"--query-database-url", c.QueryDatabaseURL},
	} {
		if host := unproven(to.url); host != "" {
			n.log.Warn("nothing proves that this is the database: set sslmode=verify-full in the URL, with sslrootcert unless the system knows who signed its certificate", "of", to.flag, "host", host)
		}
	}
}

// unproven returns a host of a database's URL that is not this machine and may be connected to with less than
// sslmode=verify-full, or an empty string.
func unproven(address string) string {
	if address == "" {
		return ""
	}
	c, err := pgconn.ParseConfig(address)
	if err != nil {
		return "" // whoever connects reports it
	}
	look := func(host string, t *tls.Config) string {
		if strings.HasPrefix(host, "/") || loopback(host) || t != nil && !t.InsecureSkipVerify {
			return ""
		}
		return host
	}
	if host := look(c.Host, c.TLSConfig); host != "" {
		return host
	}
	for _, f := range c.Fallbacks {
		if host := look(f.Host, f.TLSConfig); host != "" {
			return host
		}
	}
	return ""
}

const (
	// Only what people came in with counts: services and tokens made on the database have no groups of a provider. Where nobody
	// has come in yet, nothing can be said.
	selectUnheard = `
select g.name
from unnest($1::text[]) with ordinality as g (name, n)
where exists (select from getwork.principal where iss = $2)
  and not exists (select from getwork.principal where iss = $2 and groups @> array[g.name])
order by g.n`

	// A token that was made for less is never further from its end, and its maker knows.
	selectEndingTokens = `
select t.id, t.label, p.name, t.expires_at
from getwork.token t join getwork.principal p on p.id = t.principal
where t.kind <> 'cli' and t.ended_at is null and not t.admin
  and t.expires_at between clock_timestamp() and clock_timestamp() + interval '14 days' and t.expires_at > t.created_at + interval '14 days'
order by t.expires_at
limit 20`
)

// warnOfRights warns of groups in --grant that nobody who has come in was in, which may be misspelt, and of tokens that end soon.
// With --task-groups PREFIX the database does not have all groups, so nothing is said of them.
func (n *node) warnOfRights(ctx context.Context, sql func(string) string) error {
	if n.rights == nil {
		return nil
	}
	issuer := map[string]string{"oidc": n.config.OIDCIssuer, "proxy": rights.ProxyIssuer}[n.config.Auth]
	if issuer != "" && n.config.TaskGroups == "all" {
		var groups []string
		for _, g := range n.config.rules.Grants {
			groups = append(groups, g.Group)
		}
		rows, err := n.pools.Own.Query(ctx, sql(selectUnheard), groups, issuer)
		if err != nil {
			return err
		}
		unheard, err := pgx.CollectRows(rows, pgx.RowTo[string])
		if err != nil {
			return err
		}
		for _, group := range unheard {
			n.log.Warn("nobody who has come in so far was in a group of --grant; write it as the provider does, byte by byte", "group", group)
		}
	}
	rows, err := n.pools.Own.Query(ctx, sql(selectEndingTokens))
	if err != nil {
		return err
	}
	var id, label, user string
	var ends time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &label, &user, &ends}, func() error {
		n.log.Warn("a token ends within 14 days; make another one in time", "token", id, "label", label, "user", user, "at", ends)
		return nil
	})
	return err
}
