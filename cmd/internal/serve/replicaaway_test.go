package serve

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// A node starts while its query database is away, and hands out what needs no query. When that database is back, no query runs there
// before its login has been looked at: requests wait while it has a right that it must not have, and are served once that is mended.
func TestStartWhileTheQueryDatabaseIsAway(t *testing.T) {
	t.Parallel()
	server := schematest.OwnServer(t, nil)
	database, replica := schematest.Plain(t), server.URL("getwork")
	execute := func(sql string) {
		t.Helper()
		admin, err := pgx.Connect(t.Context(), replica)
		if err != nil {
			t.Fatal(err)
		}
		defer admin.Close(context.Background())
		if _, err := admin.Exec(t.Context(), sql); err != nil {
			t.Fatalf("%s: %v", sql, err)
		}
	}
	execute(`create table loan as select 'L-1' as id; create role reader login superuser password 'secret'; grant select on loan to reader`)
	u, err := url.Parse(replica)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.UserPassword("reader", "secret")

	call := func(method, address, body string, want int, header ...string) string {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), method, address, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		for i := 0; i < len(header); i += 2 {
			r.Header.Set(header[i], header[i+1])
		}
		response, err := plain.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		text, err := io.ReadAll(response.Body)
		if err != nil || response.StatusCode != want {
			t.Fatalf("%s %s: %d %s %v, want %d", method, address, response.StatusCode, text, err, want)
		}
		return string(text)
	}
	t.Run("before", func(t *testing.T) { // at a node that has ended when the next one starts
		n := runs(t, Command{DatabaseURL: database, Identity: Identity{Auth: "dev"}, QueryDatabaseURL: u.String()})
		for _, task := range []string{`{"name":"query","query":"select id as item from loan"}`, `{"name":"inbox","query":null}`} {
			call("POST", n.url+"/api/v1/tasks", task, 201, "X-Getwork-User", "mia", "X-Getwork-Role", "manager")
		}
		call("POST", n.url+"/api/v1/tasks/inbox/items", `[{"item":"I-1"}]`, 200, "X-Getwork-User", "mia", "X-Getwork-Role", "manager")
	})
	server.Halt(t.Context())

	n := runs(t, Command{DatabaseURL: database, QueryDatabaseURL: u.String(), Identity: Identity{Auth: "token", PublicURL: "http://127.0.0.1:0"}})
	if n.said("the query database does not answer") != 1 {
		t.Error("it does not warn of the query database")
	}
	call("GET", n.url+"/readyz", "", 200)
	var token string
	err = Database{DatabaseURL: database, Schema: "getwork"}.Rights(t.Context(), slog.New(slog.DiscardHandler), func(ctx context.Context, g *rights.Registry) (err error) {
		g.TokenMax = time.Hour
		token, _, err = g.CreateToken(ctx, rights.NewToken{Service: "desk", Label: "desk", Role: assign.RoleWorker, Scopes: []string{"read", "work"}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	take := func(task string, want int) (request string) {
		t.Helper()
		var made struct{ ID string }
		text := call("POST", n.url+"/api/v1/tasks/"+task+"/requests", `{"count":1}`, want, "Authorization", "Bearer "+token)
		if err := json.Unmarshal([]byte(text), &made); err != nil {
			t.Fatal(err)
		}
		return made.ID
	}
	take("inbox", 201)
	waits := take("query", 202)
	state := func() string {
		var request struct{ State string }
		text := call("GET", fmt.Sprint(n.url, "/api/v1/requests/", waits), "", 200, "Authorization", "Bearer "+token)
		if err := json.Unmarshal([]byte(text), &request); err != nil {
			t.Fatal(err)
		}
		return request.State
	}

	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	timeout.Await(t, "it says why no query runs there", func() bool {
		return n.said("the login reader of --query-database-url is a superuser") > 0
	})
	if now := state(); now != "pending" {
		t.Errorf("by a superuser, the request is %s", now)
	}
	execute(`alter role reader nosuperuser`)
	timeout.Await(t, "the request is served", func() bool { return state() == "assigned" })
}
