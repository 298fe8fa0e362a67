package postgres

import (
	"context"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
)

// Login is the role that programs log in as. It is no superuser: a user who can make such a program execute SQL, for example
// by a ranking query, could otherwise write files and run programs as the server's account.
const Login = "getwork"

// adopt makes Login the owner of everything that the superuser made in a database, because a former version of getwork
// worked as the superuser. "reassign owned" refuses to, since the superuser also owns PostgreSQL's own objects. Sequences
// change their owner with their tables.
const adopt = `
do $$
declare todo record;
begin
  for todo in
    with ours as (select oid, nspname, nspowner from pg_namespace where nspname !~ '^pg_' and nspname <> 'information_schema'),
    extension as (select classid, objid from pg_depend where deptype = 'e'),
    owned as (select objid from pg_depend where classid = 'pg_class'::regclass and deptype in ('a', 'i'))
    select format('schema %I', nspname) as what from ours where nspowner = 10 and nspname <> 'public'
    union all
    select format('%s %s', case c.relkind when 'v' then 'view' when 'm' then 'materialized view' when 'S' then 'sequence'
      when 'f' then 'foreign table' else 'table' end, c.oid::regclass)
    from pg_class c join ours on ours.oid = c.relnamespace
    where c.relowner = 10 and c.relkind in ('r', 'p', 'v', 'm', 'S', 'f')
      and (c.relkind <> 'S' or c.oid not in (select objid from owned)) and ('pg_class'::regclass, c.oid) not in (select * from extension)
    union all
    select format('routine %s', p.oid::regprocedure)
    from pg_proc p join ours on ours.oid = p.pronamespace
    where p.proowner = 10 and ('pg_proc'::regclass, p.oid) not in (select * from extension)
    union all
    select format('type %s', t.oid::regtype)
    from pg_type t join ours on ours.oid = t.typnamespace
    where t.typowner = 10 and (t.typtype in ('d', 'e', 'r') or exists (select from pg_class c where c.oid = t.typrelid and c.relkind = 'c'))
      and ('pg_type'::regclass, t.oid) not in (select * from extension)
  loop
    execute format('alter %s owner to ` + Login + `', todo.what);
  end loop;
end $$`

// LoginURL returns the URL of a database of this server for [Login], which owns the database and everything in it. It makes
// both if they are missing, and hands over everything that the superuser made there before.
func (s *Server) LoginURL(ctx context.Context, database string) (string, error) {
	if err := s.as(ctx, "postgres", func(conn *pgx.Conn) error { return s.makeLogin(ctx, conn, database) }); err != nil {
		return "", fmt.Errorf("make the login %s: %w", Login, err)
	}
	err := s.as(ctx, database, func(conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, adopt)
		return err
	})
	if err != nil {
		return "", fmt.Errorf("hand the database %s over to %s: %w", database, Login, err)
	}
	u, err := url.Parse(s.URL(database))
	if err != nil {
		return "", err
	}
	u.User = url.User(Login)
	if s.cfg.TCP {
		u.User = url.UserPassword(Login, s.state.LoginPassword)
	}
	return u.String(), nil
}

func (s *Server) as(ctx context.Context, database string, f func(*pgx.Conn) error) error {
	conn, err := s.connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return f(conn)
}

func (s *Server) makeLogin(ctx context.Context, conn *pgx.Conn, database string) error {
	var role, made, owns bool
	const there = `
select exists (select from pg_roles where rolname = $1), exists (select from pg_database where datname = $2),
  exists (select from pg_database d join pg_roles r on r.oid = d.datdba where d.datname = $2 and r.rolname = $1)`
	if err := conn.QueryRow(ctx, there, Login, database).Scan(&role, &made, &owns); err != nil {
		return err
	}
	var todo []string
	if !role {
		todo = append(todo, "create role "+Login)
	}
	todo = append(todo, fmt.Sprintf("alter role %s login nosuperuser nocreatedb nocreaterole noreplication nobypassrls password '%s'", Login, s.state.LoginPassword))
	name := pgx.Identifier{database}.Sanitize()
	switch {
	case !made:
		todo = append(todo, "create database "+name+" owner "+Login)
	case !owns:
		todo = append(todo, "alter database "+name+" owner to "+Login)
	}
	for _, statement := range todo {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	return nil
}
