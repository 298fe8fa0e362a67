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

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/feed"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/report"
	"getwork/assign/rights"
	"getwork/notify"
	"getwork/schema/schematest"
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
	log    *lockedText
}

func start(t *testing.T, change ...func(*Config)) *station {
	t.Helper()
	return startOn(t, schematest.URL(t), true, change...)
}

// startOn starts a node on a database; listening: it hears NOTIFY.
func startOn(t *testing.T, url string, listening bool, change ...func(*Config)) *station {
	t.Helper()
	n := &station{log: &lockedText{}}
	log := slog.New(slog.NewTextHandler(io.MultiWriter(t.Output(), n.log), nil))
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: url, MaxRuns: 2, Name: "getwork identity test"})
	if err != nil {
		t.Fatal(err)
	}
	n.db = pools.API
	send := func(ctx context.Context, channel, payload string) error {
		_, err := pools.API.Exec(ctx, notify.NotifySQL, channel, payload)
		return err
	}
	announcer := notify.NewAnnouncer(send, "getwork", "n1", log)
	records := records.New(pools.Router(), nil)
	feed := feed.New(feed.Config{Node: "n1", DB: pools.Router(), Records: records, Log: log})
	auditor := &audit.Writer{Node: "n1", Log: log, DB: pools.Router()}
	n.engine = engine.New(engine.Config{Node: "n1", Records: records, API: pools.API, Runs: pools.Runs, MaxRuns: 2, Channel: "getwork", Announce: announcer, Log: log})
	n.rights = rights.NewWatch(rights.New(rights.Config{Node: "n1", DB: pools.Router(), Channel: "getwork", Audit: auditor, Log: log,
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
	up := make(chan struct{}, 100)
	listener := &notify.Listener{
		Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
		Send:    send, Channel: "getwork", Node: "n1", Log: log,
		Handle: func(m notify.Message) {
			if m.Rights {
				n.rights.Heard()
			}
			n.engine.Heard(m)
			feed.Heard(m)
		},
		Up:   func() { feed.Connected(); up <- struct{}{} },
		Down: func(error) { feed.Disconnected() },
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	run := []func(context.Context) error{n.engine.Run, feed.Run, announcer.Run, n.rights.Run}
	if listening {
		run = append(run, listener.Run)
	} else {
		feed.Deaf()
	}
	for _, f := range run {
		running.Go(func() { _ = f(ctx) })
	}
	hub := ws.NewHub(ws.Config{
		Open: func(who assign.Who, ready func()) ws.Stream { return feed.Open(who, ready) },
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
		Engine: n.engine, Records: records, Feed: feed, Report: report.New(pools.API, nil), Identify: c.Identify(), LogInBy: "token",
		Auth: Terminals{Rights: n.rights.Registry, LogIn: "/auth/login", Problem: web.Refuser(log), Log: log}.Routes(), Rights: n.rights,
		Socket: hub, Audit: auditor, Ready: func(context.Context) []web.Check { return nil }, Draining: make(chan struct{}), Log: log,
	}))
	t.Cleanup(func() {
		hub.Close(context.Background(), 0)
		n.Server.CloseClientConnections()
		n.Server.Close()
		cancel()
		running.Wait()
		pools.Close()
	})
	if listening {
		<-up
	}
	return n
}

// lockedText is a log that may be read while it is written.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
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
