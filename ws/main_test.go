package ws

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/enginetest"
	"getwork/assign/feed"
	"getwork/assign/manage"
	"getwork/assign/pg"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
	"getwork/web/contract"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// station is a node in this process: an engine with its listener, and a hub.
type station struct {
	*httptest.Server
	hub    *Hub
	engine *engine.Engine
	feed   *feed.Feed
	db     *pgxpool.Pool
}

// start starts a node, and ends it with the test.
func start(t *testing.T, c Config) *station {
	t.Helper()
	node := enginetest.Start(t, schematest.URL(t), enginetest.Options{Look: 2 * time.Second})
	c.Open, c.Problem, c.Log = func(who assign.Who, ready func()) Stream { return node.Feed.Open(who, ready) }, pg.ProblemOf, node.Log
	if c.Caller == nil {
		c.Caller = func(r *http.Request) (assign.Who, string) {
			return assign.Who{Holder: assign.Holder{User: r.Header.Get("User")}}, "worker"
		}
	}
	if c.Refuse == nil {
		c.Refuse = func(w http.ResponseWriter, _ *http.Request, err error) {
			p, _ := pg.ProblemOf(err)
			w.WriteHeader(p.Status)
			_ = json.NewEncoder(w).Encode(p)
		}
	}
	n := &station{hub: NewHub(c), engine: node.Engine, feed: node.Feed, db: node.Pools.API}
	n.Server = httptest.NewServer(n.hub)
	t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		n.hub.Close(ctx, 0)
		n.Close()
	})
	return n
}

// overBoth runs a test with a node that is reached over TCP, and with one over TLS.
func overBoth(t *testing.T, c Config, test func(t *testing.T, n *station)) {
	t.Helper()
	t.Run("tcp", func(t *testing.T) { test(t, start(t, c)) })
	t.Run("tls", func(t *testing.T) {
		n := start(t, c)
		secure := httptest.NewTLSServer(n.hub)
		t.Cleanup(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			n.hub.Close(ctx, 0)
			secure.Close()
		})
		n.Server.Close()
		n.Server = secure
		test(t, n)
	})
}

// dial connects; the connection ends with the test.
func (n *station) dial(t *testing.T, user string) *client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	var h *http.Client
	if n.TLS != nil {
		h = n.Client()
	}
	c, err := Dial(ctx, h, n.URL, http.Header{"User": {user}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return &client{c, t}
}

// open connects and reads the snapshot.
func (n *station) open(t *testing.T, user string) *client {
	t.Helper()
	c := n.dial(t, user)
	c.next("snapshot")
	return c
}

// client reads messages.
type client struct {
	*Client
	t *testing.T
}

// message returns the next message of any type.
func (c *client) message() (kind string, body map[string]any, err error) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(c.t.Context(), timeout.Scale(30*time.Second))
	defer cancel()
	b, err := c.Read(ctx)
	if err != nil {
		return "", nil, err
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		c.t.Fatalf("%s: %v", b, err)
	}
	kind, _ = m["type"].(string)
	body, ok := m[kind].(map[string]any)
	if !ok || len(m) != 2 {
		c.t.Fatalf(`%s is not {"type":T, T:{…}}`, b)
	}
	if kind != "mark" { // which is a test's own
		if err := contract.Check(kind, b); err != nil {
			c.t.Errorf("%s is not as asyncapi.json describes it: %v", b, err)
		}
	}
	return kind, body, nil
}

// next returns the body of the next message of that type.
func (c *client) next(kind string) map[string]any {
	c.t.Helper()
	for {
		got, body, err := c.message()
		if err != nil {
			c.t.Fatalf("waiting for %s: %v", kind, err)
		}
		if got == kind {
			return body
		}
	}
}

// ended reads until a request is no longer pending. Events with its pending state may come before.
func (c *client) ended() map[string]any {
	c.t.Helper()
	r := c.next("request")
	for r["state"] == "pending" {
		r = c.next("request")
	}
	return r
}

// closed reads until the connection ends, and returns the code.
func (c *client) closed() Status {
	c.t.Helper()
	for {
		if _, _, err := c.message(); err != nil {
			return CloseStatus(err)
		}
	}
}

func (c *client) say(message string) {
	c.t.Helper()
	if err := c.Write(c.t.Context(), []byte(message)); err != nil {
		c.t.Fatal(err)
	}
}

// newTask makes a task with five items.
func (n *station) newTask(t *testing.T, name string, paused bool) assign.Task {
	t.Helper()
	s := assign.DefaultSettings()
	s.Name, s.Query, s.Paused = name, "select g as item from generate_series(1, 5) g", paused
	task, err := manage.CreateTask(t.Context(), n.engine, s, "maria")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

func (n *station) click(t *testing.T, task, user string, linger assign.Duration) assign.Request {
	t.Helper()
	r, err := n.engine.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: 2, Linger: linger})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// mark broadcasts a distinctive event.
func (n *station) mark(text string) {
	n.feed.Broadcast(assign.Event{Type: "mark", Body: map[string]string{"text": text}})
}

// await polls until the condition is true.
func await(t *testing.T, what string, so func() bool) {
	t.Helper()
	timeout.Await(t, what, so)
}

func (n *station) awaitCount(t *testing.T, want int) {
	t.Helper()
	await(t, "the hub has let go of the others", func() bool { return n.hub.Count() == want })
}

// address returns the hub's address, as HOST:PORT.
func (n *station) address() string { return n.Listener.Addr().String() }
