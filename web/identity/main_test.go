package identity

import (
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/enginetest"
	"getwork/assign/pg"
	"getwork/assign/report"
	"getwork/assign/rights"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/logs"
	"getwork/web"
	"getwork/ws"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// station is a node in this process, whose callers show credentials.
type station struct {
	*httptest.Server
	rights *rights.Watch
	engine *engine.Engine
	db     *pgxpool.Pool
	log    *logs.Buffer
}

func start(t *testing.T, change ...func(*Config)) *station {
	t.Helper()
	return startOn(t, schematest.URL(t), true, change...)
}

// startOn starts a node on a database; listening: it hears NOTIFY.
func startOn(t *testing.T, url string, listening bool, change ...func(*Config)) *station {
	t.Helper()
	n := &station{log: &logs.Buffer{}}
	written := io.MultiWriter(t.Output(), n.log)
	log := slog.New(slog.NewTextHandler(written, nil))
	node := enginetest.New(t, url, enginetest.Options{Look: 2 * time.Second, Deaf: !listening, Log: written})
	n.engine, n.db = node.Engine, node.Pools.API
	auditor := &audit.Writer{Node: node.Node, Log: log, DB: node.DB}
	n.rights = rights.NewWatch(rights.New(rights.Config{Node: node.Node, DB: node.DB, Channel: "getwork", Audit: auditor, Log: log, QueryAuthors: "authors",
		Cancel: n.engine.EndCredentials, CancelEnded: n.engine.CancelEnded, Rebind: n.engine.Rebind, Regroup: n.engine.ChangeGroups}))
	c := Config{Rights: n.rights.Registry, Log: log, Address: func(*http.Request) netip.Addr { return netip.MustParseAddr("127.0.0.1") }}
	c.Cookie = func(r *http.Request) string {
		if cookie, err := r.Cookie("session"); err == nil {
			return cookie.Value
		}
		return ""
	}
	for _, f := range change {
		f(&c)
	}
	node.Hears = func(m notify.Message) {
		if m.Rights {
			n.rights.Heard()
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	var watching sync.WaitGroup
	watching.Go(func() { _ = n.rights.Run(ctx) })
	node.Begin()
	hub := ws.NewHub(ws.Config{
		Open: func(who assign.Who, ready func()) ws.Stream { return node.Feed.Open(who, ready) },
		Caller: func(r *http.Request) (assign.Who, string) {
			c := web.CallerOf(r)
			return c.Who(), string(c.Role)
		},
		Follow: func(r *http.Request, end func(ws.Status, string)) func() {
			return web.FollowSocket(n.rights, nil, r, func(code int, reason string) { end(ws.Status(code), reason) })
		},
		Problem: pg.ProblemOf, Refuse: web.Refuser(log), Log: log,
	})
	n.Server = httptest.NewServer(web.Handler(web.Config{
		Engine: n.engine, Records: node.Records, Feed: node.Feed, Report: report.New(n.db, nil), Identify: c.Identify(), LogInBy: "token",
		Auth: Terminals{Rights: n.rights.Registry, LogIn: "/auth/login", Problem: web.Refuser(log), Log: log}.Routes(), Rights: n.rights,
		Socket: hub, Audit: auditor, Ready: func(context.Context) []web.Check { return nil }, Draining: make(chan struct{}), Log: log,
	}))
	t.Cleanup(func() {
		hub.Close(context.Background(), 0)
		n.Server.CloseClientConnections()
		n.Server.Close()
		cancel()
		watching.Wait()
	})
	return n
}

// service makes a token for a service.
func (n *station) service(t *testing.T, name string, role assign.Role, change ...func(*rights.NewToken)) (token, id string) {
	t.Helper()
	made := rights.NewToken{Label: "test", Scopes: rights.Scopes, Service: name, Role: role}
	for _, f := range change {
		f(&made)
	}
	token, shown, err := n.rights.CreateToken(t.Context(), made)
	if err != nil {
		t.Fatal(err)
	}
	return token, shown.ID
}

// call makes a call with these headers, pairs of a name and a value.
func (n *station) call(t *testing.T, method, path, body string, headers ...string) (status int, answer string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, n.URL+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		r.Header.Add(headers[i], headers[i+1])
	}
	response, err := n.Client().Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response.StatusCode, string(b)
}

func bearer(token string) []string { return []string{"Authorization", "Bearer " + token} }

func decode[T any](t *testing.T, text string) (v T) {
	t.Helper()
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return v
}

func noRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
