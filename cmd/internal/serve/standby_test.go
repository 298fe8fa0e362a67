package serve

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
	"getwork/schema/schematest"
)

// A command that reaches the database itself takes the host that is no standby, as nodes do, unless the URL says what it wants.
func TestCommandsPassOverAStandby(t *testing.T) {
	t.Parallel()
	server := schematest.OwnServer(t, nil)
	primary, err := pgx.ParseConfig(schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	admin, err := pgx.Connect(t.Context(), server.URL("getwork"))
	if err != nil {
		t.Fatal(err)
	}
	defer admin.Close(context.Background())
	var data string
	if err := admin.QueryRow(t.Context(), `show data_directory`).Scan(&data); err != nil {
		t.Fatal(err)
	}
	for _, sql := range []string{ // a standby, in recovery for good, with the same login and a database of the same name
		fmt.Sprintf(`create role %s login password '%s'`, pgx.Identifier{primary.User}.Sanitize(), primary.Password),
		`create database ` + pgx.Identifier{primary.Database}.Sanitize(),
		`copy (select) to '` + data + `/standby.signal'`,
	} {
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	standby := admin.Config()
	address := func(hosts, ports, more string) Database {
		u := url.URL{Scheme: "postgres", User: url.UserPassword(primary.User, primary.Password), Path: "/" + primary.Database,
			RawQuery: url.Values{"host": {hosts}, "port": {ports}, "sslmode": {"disable"}}.Encode() + more}
		return Database{DatabaseURL: u.String(), Schema: "getwork"}
	}
	one := fmt.Sprint(standby.Port)
	alone, both := address(standby.Host, one, ""), address(standby.Host+","+primary.Host, one+","+fmt.Sprint(primary.Port), "")
	recovers := func(d Database) (is bool, err error) {
		err = d.with(t.Context(), func(ctx context.Context, conn *pgx.Conn, _ schema.Name) error {
			return conn.QueryRow(ctx, `select pg_is_in_recovery()`).Scan(&is)
		})
		return is, err
	}
	if is, err := recovers(both); err != nil || is {
		t.Errorf("of two hosts: a standby %v, %v", is, err)
	}
	if _, err := recovers(alone); err == nil || !strings.Contains(err.Error(), "this server is a standby") {
		t.Errorf("a standby alone: %v", err)
	}
	if is, err := recovers(address(standby.Host, one, "&target_session_attrs=standby")); err != nil || !is {
		t.Errorf("a standby that is meant: a standby %v, %v", is, err)
	}
	// Ranking queries may run there, also if transactions are serializable by default, which no standby can do.
	dangers, err := new(node).dangers(t.Context(), alone.DatabaseURL+"&default_transaction_isolation=serializable", selectDangers)
	if err != nil || len(dangers) != 0 {
		t.Errorf("the login of the standby: %v, %v", dangers, err)
	}
}
