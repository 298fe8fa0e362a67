package doctor

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/cmd/internal/serve"
	"getwork/schema"
)

// dangerous turns rights that a login must not have into findings. Under --auth dev nodes start all the same.
func (x *examination) dangerous(flag string, dangers []serve.Danger) (found []Finding) {
	for _, d := range dangers {
		f := failed("as a superuser, execute "+d.Mend, "the login %s of %s %s", d.Login, flag, d.What)
		if x.config.Auth == "dev" {
			f.State = Warning
			f.Found += "; without --auth dev the node refuses it"
		}
		found = append(found, f)
	}
	return found
}

// namesake is whether a schema is called as the user, who looks for tables there before anywhere else.
const namesake = `
select exists (select from pg_namespace n where n.nspname = current_user and has_schema_privilege(n.oid, 'usage')) and current_setting('search_path') ~ '"?\$user"?'`

// namesakes warns if ranking queries of this login find the tables of a schema that has its name, instead of others.
func namesakes(ctx context.Context, c *pgx.Conn, found []Finding) ([]Finding, error) {
	var is bool
	if err := c.QueryRow(ctx, namesake).Scan(&is); err != nil {
		return nil, err
	}
	if login := c.Config().User; is {
		found = append(found, warned(fmt.Sprintf("name the schema of each table in queries, or execute alter role %s set search_path = public", pgx.Identifier{login}.Sanitize()),
			"the login and a schema are both called %s: a table without a schema in a query is looked for there first", login))
	}
	return found, nil
}

func lookAtLogin(ctx context.Context, x *examination) (found []Finding, err error) {
	for flag, url := range map[string]string{"--database-url": x.config.DatabaseURL, "--listen-database-url": x.config.ListenDatabaseURL} {
		if url == "" {
			continue
		}
		dangers, err := x.config.LoginDangers(ctx, url)
		if err != nil {
			return nil, err
		}
		found = append(found, x.dangerous(flag, dangers)...)
	}
	if x.config.QueryRole == "" && x.config.QueryDatabaseURL == "" {
		if found, err = namesakes(ctx, x.db, found); err != nil {
			return nil, err
		}
	}
	return orFine(found, "%s has no right that a ranking query must not have", x.db.Config().User)
}

// lacking are tables and sequences that the login can't use as getwork does. A node must not be able to change or remove rows of
// the audit, nor its head.
const lacking = `
select c.relname, array_to_string(array(select p from unnest(case c.relname when 'version' then '{select}' when 'blocked' then '{select}'
    when 'audit' then '{select,insert}' when 'audit_head' then '{select,update}' else '{select,insert,update,delete}' end::text[]) p where not has_table_privilege(c.oid, p)), ', ')
from pg_class c where c.relnamespace = to_regnamespace($1) and c.relkind in ('r', 'v')
order by 1`

const lackingSequences = `
select c.relname from pg_class c where c.relnamespace = to_regnamespace($1) and case c.relkind when 'S' then not has_sequence_privilege(c.oid, 'usage') end order by 1`

func lookAtPrivileges(ctx context.Context, x *examination) (found []Finding, err error) {
	login, in := x.db.Config().User, x.name.Quoted()
	type lack struct{ Table, Rights string }
	tables, err := rowsOf[lack](ctx, x.db, lacking, in)
	if err != nil {
		return nil, err
	}
	for _, l := range tables {
		if l.Rights != "" {
			found = append(found, failed(fmt.Sprintf("as the owner, execute grant %s on %s.%s to %s", l.Rights, in, l.Table, login), "the login %s may not %s: %s", login, l.Rights, l.Table))
		}
	}
	type sequence struct{ Name string }
	sequences, err := rowsOf[sequence](ctx, x.db, lackingSequences, in)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, s := range sequences {
		names = append(names, s.Name)
	}
	if len(names) > 0 {
		found = append(found, failed(fmt.Sprintf("as the owner, execute grant usage on all sequences in schema %s to %s", in, login), "the login %s may not use sequences: %s", login, some(names)))
	}
	return orFine(found, "%s may read and write all of getwork's tables", login)
}

// reach lists the tables that a role may read or change.
const reach = `
select c.oid::regclass::text, n.nspname,
  has_any_column_privilege($1::name, c.oid, 'select'),
  has_any_column_privilege($1::name, c.oid, 'insert, update') or has_table_privilege($1::name, c.oid, 'delete, truncate')
from pg_class c join pg_namespace n on n.oid = c.relnamespace
where c.relkind in ('r', 'p', 'v', 'm', 'f') and n.nspname !~ '^pg_' and n.nspname <> 'information_schema' and has_schema_privilege($1::name, n.oid, 'usage')
order by 1`

type reached struct {
	Table, Schema string
	Reads, Writes bool
}

// reachFindings says what a role that ranking queries have may do besides reading what they are for.
func (x *examination) reachFindings(ctx context.Context, c *pgx.Conn, role string, own bool) (found []Finding, err error) {
	all, err := rowsOf[reached](ctx, c, reach, role)
	if err != nil {
		return nil, err
	}
	var writes, secrets, schemas []string
	for _, t := range all {
		if t.Writes {
			writes = append(writes, t.Table)
		}
		if t.Schema == string(x.name) {
			if t.Reads && !strings.HasSuffix(t.Table, ".blocked") {
				secrets = append(secrets, t.Table)
			}
			continue
		}
		if t.Reads && (len(schemas) == 0 || schemas[len(schemas)-1] != t.Schema) {
			schemas = append(schemas, t.Schema)
		}
	}
	if len(writes) > 0 {
		found = append(found, warned(fmt.Sprintf("revoke insert, update, delete and truncate on them from %s", role), "%s may change %s; ranking queries only read", role, some(writes)))
	}
	if len(secrets) > 0 && own {
		found = append(found, warned(fmt.Sprintf("execute revoke select on all tables in schema %s from %s; grant select on %[1]s.blocked to %[2]s", x.name.Quoted(), role),
			"%s may read %s: every ranking query sees other people's work and log-ins", role, some(secrets)))
	}
	if len(schemas) == 0 && len(found) == 0 {
		found = append(found, warned("grant usage on the schema and select on the tables that tasks are about to "+role, "%s may read no table: every ranking query fails", role))
	}
	return orFine(found, "%s reads the schema %s, and changes nothing", role, some(schemas))
}

func lookAtQueryRole(ctx context.Context, x *examination) (found []Finding, err error) {
	role := x.config.QueryRole
	switch {
	case role == "" && x.config.QueryDatabaseURL != "":
		return one(skipped("queries have a login of their own"))
	case role == "":
		return one(warned("give --query-role, or a login of its own with --query-database-url", "ranking queries run with all rights of getwork's own login"))
	}
	quoted := pgx.Identifier{role}.Sanitize()
	if _, err = x.db.Exec(ctx, `begin read only`); err != nil {
		return nil, err
	}
	var unread error
	_, unset := x.db.Exec(ctx, `set local role `+quoted)
	if unset == nil {
		_, unread = x.db.Exec(ctx, x.name.SQL(`select from getwork.blocked limit 0`))
	}
	if _, failed := x.db.Exec(ctx, `rollback`); failed != nil {
		return nil, failed
	}
	if unset != nil || unread != nil {
		return queryRoleFinding(role, x.db.Config().User, x.name, unset, unread)
	}
	return x.reachFindings(ctx, x.db, role, true)
}

// queryRoleFinding says why the login could not become the query role, or, as that, read the view blocked. Both may be refused
// with the same code, and the text is in the server's language.
func queryRoleFinding(role, login string, name schema.Name, unset, unread error) ([]Finding, error) {
	quoted := pgx.Identifier{role}.Sanitize()
	refused := &pgconn.PgError{}
	_ = errors.As(cmp.Or(unset, unread), &refused)
	switch {
	case unset != nil && refused.Code == "22023":
		return one(failed(fmt.Sprintf("execute create role %s; grant %[1]s to %s", quoted, login), "the role %s does not exist", role))
	case unset != nil && refused.Code == "42501":
		return one(failed(fmt.Sprintf("as a superuser, execute grant %s to %s", quoted, login), "the login %s can't become the role %s", login, role))
	case refused.Code == "42501":
		return one(warned(fmt.Sprintf("execute grant usage on schema %s to %s; grant select on %[1]s.blocked to %[2]s; a node that migrates does so when it starts", name.Quoted(), quoted),
			"the role %s may not read %s.blocked (%s)", role, name, refused.Message))
	}
	return nil, cmp.Or(unset, unread)
}

func lookAtQueryLogin(ctx context.Context, x *examination) (found []Finding, err error) {
	url := x.config.QueryDatabaseURL
	dangers, err := x.config.LoginDangers(ctx, url)
	if err != nil {
		return nil, err
	}
	reads, err := x.config.ReaderDangers(ctx, url, x.name)
	if err != nil {
		return nil, err
	}
	found = x.dangerous("--query-database-url", append(dangers, reads...))
	for _, d := range dangers {
		if strings.Contains(d.What, "superuser") {
			return found, nil // who may read and change everything
		}
	}
	if found, err = namesakes(ctx, x.queries, found); err != nil {
		return nil, err
	}
	var login string
	if err := x.queries.QueryRow(ctx, `select session_user`).Scan(&login); err != nil {
		return nil, err
	}
	more, err := x.reachFindings(ctx, x.queries, login, false)
	if len(found) > 0 && len(more) == 1 && more[0].State == OK {
		return found, err
	}
	return append(found, more...), err
}

// definers are functions that give a role the rights of their owners, and whether everybody has them. What a superuser may do needs
// none, and extensions' functions are the administrator's choice.
const definers = `
select p.oid::regprocedure::text, has_function_privilege('public', p.oid, 'execute') and has_schema_privilege('public', n.oid, 'usage')
from pg_roles r, pg_proc p join pg_namespace n on n.oid = p.pronamespace
where r.rolname = $1 and p.prosecdef and n.nspname not in ('pg_catalog', 'information_schema', $2)
  and has_function_privilege(r.oid, p.oid, 'execute') and has_schema_privilege(r.oid, n.oid, 'usage') and not pg_has_role(r.oid, p.proowner, 'usage')
order by 1`

// lookAtFunctions reads, where ranking queries run and as their login, which functions they may call unchecked. getwork's own guard
// themselves.
func lookAtFunctions(ctx context.Context, x *examination) ([]Finding, error) {
	conn, role := x.db, x.config.QueryRole
	if x.queries != nil {
		conn, role = x.queries, ""
	}
	if role == "" {
		if err := conn.QueryRow(ctx, `select session_user`).Scan(&role); err != nil {
			return nil, err
		}
	}
	type function struct {
		Signature string
		Public    bool
	}
	all, err := rowsOf[function](ctx, conn, definers, role, string(x.name))
	if err != nil {
		return nil, err
	}
	var found []Finding
	for _, f := range all {
		who, from := role, role
		if f.Public {
			who, from = "everybody", "public"
		}
		found = append(found, warned(fmt.Sprintf("execute revoke execute on function %s from %s, and grant it to those who need it, unless every ranking query may call it", f.Signature, from),
			"%s may execute %s with its owner's rights (security definer)", who, f.Signature))
	}
	return orFine(found, "none gives %s its owner's rights", role)
}
