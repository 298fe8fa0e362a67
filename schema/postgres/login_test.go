package postgres_test

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/postgres"
)

// A server's Login is no superuser, and owns its database with everything that the superuser made there: getwork's tables,
// which it can migrate away, and tables with sequences, partitions, functions and types of others.
func TestLoginOwnsWhatTheSuperuserMade(t *testing.T) {
	t.Parallel()
	s := start(t, postgres.Config{Dir: folder(t), Fast: true, Remove: true, TCP: true})
	ctx := context.Background()
	conn, err := pgx.Connect(ctx, s.URL("postgres"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	if err := schema.Up(ctx, conn, schema.Default); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(ctx, `
create schema bank; create table bank.loan (id serial, other bigint generated always as identity) partition by range (id);
create table bank.old partition of bank.loan for values from (0) to (9); create sequence bank.free; create materialized view bank.seen as select 1;
create type bank.kind as enum ('a'); create domain bank.key as text; create type bank.pair as (a int, b int);
create function bank.two() returns int language sql as 'select 2'`); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		url, err := s.LoginURL(ctx, "postgres")
		if err != nil {
			t.Fatal(err)
		}
		login, err := pgx.Connect(ctx, url)
		if err != nil {
			t.Fatal(err)
		}
		defer login.Close(ctx)
		var may bool
		const super = `select rolsuper or rolcreaterole or pg_has_role(current_user, 'pg_execute_server_program', 'member') from pg_roles where rolname = current_user`
		if err := login.QueryRow(ctx, super).Scan(&may); err != nil || may {
			t.Errorf("the login is dangerous: %v (%v)", may, err)
		}
		var left int
		const owned = `
select count(*) from pg_class c join pg_namespace n on n.oid = c.relnamespace
where n.nspname in ('bank', 'getwork') and (c.relowner = 10 or n.nspowner = 10)`
		if err := login.QueryRow(ctx, owned).Scan(&left); err != nil || left > 0 {
			t.Errorf("%d things are the superuser's (%v)", left, err)
		}
		if err := schema.Down(ctx, login, schema.Default, 0); err != nil {
			t.Error(err)
		}
		if err := schema.Up(ctx, login, schema.Default); err != nil {
			t.Error(err)
		}
	}
	url, err := s.LoginURL(ctx, "a new one")
	if err != nil {
		t.Fatal(err)
	}
	login, err := pgx.Connect(ctx, url)
	if err != nil {
		t.Fatal(err)
	}
	defer login.Close(ctx)
	if _, err := login.Exec(ctx, `drop schema if exists bank cascade; create schema bank`); err != nil {
		t.Error(err)
	}
}
