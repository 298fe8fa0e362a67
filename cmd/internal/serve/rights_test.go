package serve

import (
	"bytes"
	"context"
	"log/slog"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/schematest"
)

// A login with a right that no ranking query may have is refused, with the SQL that removes the right; once that is
// executed, the login is accepted. Under --auth dev the node only warns.
func TestDangerousLoginsAreRefused(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	address, ctx := schematest.URL(t), t.Context()
	admin, err := pgx.Connect(ctx, address)
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	execute := func(sql string) {
		t.Helper()
		if _, err := admin.Exec(ctx, sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	var id string
	if err := admin.QueryRow(ctx, `select substr(md5(current_database()), 1, 12)`).Scan(&id); err != nil {
		t.Fatal(err)
	}
	login, group := "login_"+id, "group_"+id
	members := "members_" + id
	execute(`create role ` + login + ` login password 'secret'; create role ` + group + `; create role ` + members)
	t.Cleanup(func() {
		_, _ = admin.Exec(context.Background(), `drop owned by `+login+`, `+members+`; drop role `+login+`; drop role `+group+`; drop role `+members)
	})
	u, err := url.Parse(address)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword(login, "secret")
	var log bytes.Buffer
	look := func(own, query, auth string) error {
		n := &node{config: Command{DatabaseURL: own, QueryDatabaseURL: query, Identity: Identity{Auth: auth}}, log: slog.New(slog.NewTextHandler(&log, nil))}
		err := n.refuseLogins(ctx, schema.Default)
		if query != "" { // a login that could not be looked at then is judged alike later
			conn, failed := pgx.Connect(ctx, query)
			if failed != nil {
				t.Fatal(failed)
			}
			defer conn.Close(context.Background())
			late := &node{config: n.config, schema: schema.Default, log: n.log}
			if later := late.admitQueries(ctx, conn); (later == nil) != (err == nil) || err != nil && !strings.Contains(err.Error(), later.Error()) {
				t.Errorf("at start: %v; later: %v", err, later)
			}
			if may := late.admitted.Load() != nil; may != (err == nil) || (n.admitted.Load() != nil) != may {
				t.Errorf("after %v queries are admitted: %v, later %v", err, n.admitted.Load() != nil, may)
			}
		}
		return err
	}
	plain := u.String()
	if err := look(plain, plain, "token"); err != nil {
		t.Errorf("a login without rights: %v", err)
	}
	for _, c := range []struct{ grant, says string }{
		{"alter role LOGIN superuser", "is a superuser"},
		{"alter role LOGIN createrole", "may make roles"},
		{"alter role LOGIN replication", "may replicate"},
		{"alter role LOGIN bypassrls", "row security"},
		{"grant pg_read_server_files to LOGIN", "may read the server's files"},
		{"grant pg_signal_backend to LOGIN", "may end others' backends"},
		{"grant pg_write_server_files to GROUP; grant GROUP to LOGIN", "may write files"},
		{"alter role LOGIN noinherit; grant pg_execute_server_program to LOGIN", "may run programs"},
		{"alter role GROUP superuser; grant GROUP to LOGIN", "is a superuser"},
		{"grant execute on function lo_export(oid, text) to LOGIN", "may execute lo_export"},
	} {
		execute(strings.NewReplacer("LOGIN", login, "GROUP", group).Replace(c.grant))
		for flag, err := range map[string]error{"--database-url": look(plain, "", "token"), "--query-database-url": look(plain, plain, "token")} {
			if err == nil || !strings.Contains(err.Error(), c.says) || !strings.Contains(err.Error(), flag) {
				t.Fatalf("%s: %v, want it refused: %s", c.grant, err, c.says)
			}
		}
		log.Reset()
		if err := look(plain, "", "dev"); err != nil || !strings.Contains(log.String(), "level=WARN") {
			t.Errorf("%s: under dev %v, and it says %q", c.grant, err, log.String())
		}
		_, mend, _ := strings.Cut(look(plain, "", "token").Error(), "execute ")
		if strings.HasPrefix(c.says, "may execute") {
			_, mend, _ = strings.Cut(mend, "execute revoke")
			mend = "revoke" + mend
		}
		mend, _, _ = strings.Cut(mend, "\n")
		execute(mend)
		if err := look(plain, plain, "token"); err != nil {
			t.Fatalf("%s, after %q: %v", c.grant, mend, err)
		}
		execute("alter role " + group + " nosuperuser")
	}

	for listen, refused := range map[string]bool{address: true, plain: false, plain + "&connect_timeout=3": false} {
		n := &node{config: Command{DatabaseURL: plain, ListenDatabaseURL: listen, Identity: Identity{Auth: "token"}}, log: slog.New(slog.NewTextHandler(&log, nil))}
		err := n.refuseLogins(ctx, schema.Default)
		if !refused && err != nil || refused && (err == nil || !strings.Contains(err.Error(), "of --listen-database-url is a superuser")) {
			t.Errorf("the listener logs in by %s: %v", listen, err)
		}
	}
	execute("alter role " + login + " createrole")
	n := &node{config: Command{DatabaseURL: plain, ListenDatabaseURL: plain + "&connect_timeout=3", Identity: Identity{Auth: "token"}}, log: slog.New(slog.NewTextHandler(&log, nil))}
	if err := n.refuseLogins(ctx, schema.Default); err == nil || strings.Count(err.Error(), "may make roles") != 1 {
		t.Errorf("the fault of a login that both URLs share is not reported once: %v", err)
	}
	execute("alter role " + login + " nocreaterole")

	execute(`grant usage on schema getwork to ` + login + `; grant select on getwork.blocked to ` + login)
	if err := look(plain, plain, "token"); err != nil {
		t.Errorf("a query login that may read what is blocked: %v", err)
	}
	for _, c := range []struct{ grant, says string }{
		{"grant select (user_name) on getwork.work to LOGIN", "may read getwork.work"},
		{"grant select on getwork.session to GROUP; grant usage on schema getwork to GROUP; grant GROUP to LOGIN", "may read getwork.session"},
		{"alter role LOGIN noinherit; grant select on getwork.token to GROUP; grant GROUP to LOGIN", "may read getwork.token"},
		{"grant update on getwork.principal to LOGIN", "may change getwork.principal"},
		{"grant delete on getwork.blocked to LOGIN", "may change getwork.blocked"},
		{"grant select on getwork.audit to public", "may read getwork.audit"},
	} {
		execute(strings.NewReplacer("LOGIN", login, "GROUP", members).Replace(c.grant))
		if err := look(plain, "", "token"); err != nil {
			t.Errorf("%s, of getwork's own login: %v", c.grant, err)
		}
		err := look(plain, plain, "token")
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Fatalf("%s: %v, want it refused: %s", c.grant, err, c.says)
		}
		_, mend, _ := strings.Cut(err.Error(), "execute ")
		execute(mend)
		execute(`grant select on getwork.blocked to ` + login)
		if err := look(plain, plain, "token"); err != nil {
			t.Fatalf("%s, after %q: %v", c.grant, mend, err)
		}
		execute(`revoke all on all tables in schema getwork from ` + members)
	}
	// Getwork's own login is none for queries, even if it is no superuser.
	execute(`alter table getwork.session owner to ` + login)
	if err := look(plain, plain, "token"); err == nil || !strings.Contains(err.Error(), "create role getwork_reader") {
		t.Errorf("a query login that owns getwork's tables: %v", err)
	}
}
