package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign"
	"getwork/assign/feed"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/tracing"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/pgbouncer"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// pooledMode makes every node use a PgBouncer in transaction mode, except for its listener:
//
// GETWORK_TEST_MODE=pooled go test -race ./assign/engine
var pooledMode = os.Getenv("GETWORK_TEST_MODE") == "pooled"

// node is one engine with its own pools, announcer and listener, as a real node has them.
type node struct {
	*Engine
	*records.Records
	Feed  *feed.Feed
	pools *pg.Pools
	stop  func()
}

type nodeOptions struct {
	steps   func(ctx context.Context, step Step)
	queries string // URL of the query database
	maxRuns int
	maxRow  int           // bytes
	look    time.Duration // LookEvery; default: never, so that no rescuer serves anybody
	deaf    bool          // no listener
	mute    bool          // a listener that never comes up
	pooled  bool          // as through a transaction pooler: nothing prepared
	role    string
	confine bool
	every   time.Duration // between two announcements
	dumb    bool          // its announcer can't send, as if the node had died before
	log     io.Writer
	tracer  trace.Tracer                                // nil: tracing is off
	dial    func(under pgconn.DialFunc) pgconn.DialFunc // for calls
}

var nodeCount struct {
	sync.Mutex
	n int
}

// startNode starts a node on the database of that URL, and stops it when the test ends.
func startNode(t testing.TB, url string, o nodeOptions) *node {
	t.Helper()
	nodeCount.Lock()
	nodeCount.n++
	name := fmt.Sprintf("n%d", nodeCount.n)
	nodeCount.Unlock()
	if o.maxRuns == 0 {
		o.maxRuns = 2
	}
	if o.look == 0 {
		o.look = time.Hour
	}
	if o.log == nil {
		o.log = t.Output()
	}
	log := slog.New(slog.NewTextHandler(o.log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", name)
	through := url
	if pooledMode {
		o.pooled, through = true, pgbouncer.Start(t, url, pgbouncer.Options{}).URL
	}
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: through, QueryURL: o.queries, MaxRuns: o.maxRuns, MaxRow: o.maxRow, Pooled: o.pooled, Name: "getwork " + name})
	if err != nil {
		t.Fatal(err)
	}
	if o.dial != nil {
		config := pools.API.Config()
		config.ConnConfig.DialFunc = o.dial(config.ConnConfig.DialFunc)
		pools.API.Close()
		if pools.API, err = pgxpool.NewWithConfig(context.Background(), config); err != nil {
			t.Fatal(err)
		}
	}
	send := func(ctx context.Context, channel, payload string) error {
		_, err := pools.API.Exec(ctx, notify.NotifySQL, channel, payload)
		return err
	}
	announce := send
	if o.dumb {
		announce = func(context.Context, string, string) error { return errors.New("dumb") }
	}
	announcer := notify.NewAnnouncer(announce, "getwork", name, log)
	if o.every > 0 {
		announcer.Every = o.every
	}
	router := pg.Router{Calls: pools.API}
	rs := records.New(router, nil)
	var traces *tracing.Tracer
	if o.tracer != nil {
		traces = tracing.New(tracing.Config{Tracer: o.tracer, DB: router, Log: log})
	}
	f := feed.New(feed.Config{Node: name, DB: router, Records: rs, Trace: traces, Log: log})
	e := New(Config{Node: name, Records: rs, API: pools.API, Runs: pools.Runs, Queries: pools.Queries, MaxRuns: o.maxRuns, Pooled: o.pooled, QueryRole: o.role, Confined: o.confine,
		Channel: "getwork", Announce: announcer, Trace: traces, Log: log, LookEvery: o.look, Steps: o.steps})
	working, endEngine := context.WithCancel(context.Background())
	ctx, cancel := context.WithCancel(context.Background())
	var engine, running sync.WaitGroup
	engine.Go(func() {
		if err := e.Run(working); err != nil {
			t.Error(err)
		}
	})
	engine.Go(func() { _ = f.Run(working) })
	running.Go(func() { _ = announcer.Run(ctx) })
	if traces != nil {
		running.Go(func() { _ = traces.Run(ctx) })
	}
	up := make(chan struct{}, 1)
	switch {
	case o.deaf:
		f.Deaf()
		up <- struct{}{}
	case o.mute:
		up <- struct{}{}
	default:
		l := &notify.Listener{
			Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
			Send:    send, Channel: "getwork", Node: name, Handle: func(m notify.Message) { e.Heard(m); f.Heard(m) },
			Up:   func() { f.Connected(); up <- struct{}{} },
			Down: func(error) { f.Disconnected() },
			Log:  log,
		}
		running.Go(func() { _ = l.Run(ctx) })
	}
	n := &node{Engine: e, Records: rs, Feed: f, pools: pools}
	n.stop = sync.OnceFunc(func() {
		endEngine()
		engine.Wait()
		cancel()
		running.Wait()
		pools.Close()
	})
	t.Cleanup(n.stop)
	<-up
	await(t, "the engine runs", func() bool { return e.Running() })
	return n
}

// await polls until a condition holds. After a while it fails the test.
func await(t testing.TB, what string, so func() bool) {
	t.Helper()
	timeout.Await(t, what, so)
}

// standstill measures for how long, from now on, the machine or the database stood still. Nothing can go on meanwhile, so a
// bound in seconds is extended by that.
func standstill(t testing.TB, db *pgxpool.Pool) (until func() time.Duration) {
	t.Helper()
	const step, normal = 10 * time.Millisecond, 60 * time.Millisecond
	ctx, end := context.WithCancel(t.Context())
	var mu sync.Mutex
	var sum time.Duration
	last := time.Now()
	count := func() {
		mu.Lock()
		defer mu.Unlock()
		sum += max(0, time.Since(last)-normal)
		last = time.Now()
	}
	var watching sync.WaitGroup
	watching.Go(func() {
		tick := time.NewTicker(step)
		defer tick.Stop()
		for ctx.Err() == nil {
			if _, err := db.Exec(ctx, `select 1`); err == nil {
				count()
			}
			select {
			case <-tick.C:
			case <-ctx.Done():
			}
		}
	})
	stop := func() { end(); watching.Wait() }
	t.Cleanup(stop)
	return func() time.Duration {
		stop()
		count()
		return sum
	}
}

// click asks for work, and fails the test if it is refused.
func (n *node) click(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count})
	if err != nil {
		t.Fatalf("%s clicks: %v", user, err)
	}
	return r
}

// endedRequest waits until a request has ended.
func (n *node) endedRequest(t testing.TB, id int64) assign.Request {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout.Scale(60*time.Second))
	defer cancel()
	r, err := n.Feed.Await(ctx, id, assign.Holder{}, true, func(r *assign.Request) bool { return r.State != assign.Pending })
	if err != nil {
		t.Fatal(err)
	}
	if r.State == assign.Pending {
		t.Fatalf("request %d of %s waits in vain", id, r.User)
	}
	return r
}

// items returns the keys of the items that a request got.
func items(r assign.Request) []string {
	keys := []string{}
	for _, w := range r.Work {
		keys = append(keys, w.Item)
	}
	return keys
}

// newTask makes a task; change may be nil.
func newTask(t testing.TB, n *node, name, query string, change func(*assign.Settings)) assign.Task {
	t.Helper()
	s := assign.DefaultSettings()
	s.Name, s.Query = name, assign.Query(query)
	if change != nil {
		change(&s)
	}
	task, err := n.CreateTask(t.Context(), s, "a manager")
	if err != nil {
		t.Fatal(err)
	}
	return task
}

// pool returns a connection pool of the test's own.
func pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// query reads one value.
func query[T any](t testing.TB, p *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := p.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

func execute(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// gate holds the first caller that comes to it at one step, until it is opened.
type gate struct {
	at      Step
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newGate(at Step) *gate {
	return &gate{at: at, reached: make(chan struct{}), open: make(chan struct{})}
}

// hold stops the first caller.
func (g *gate) hold(ctx context.Context, step Step) {
	if step != g.at {
		return
	}
	g.once.Do(func() {
		close(g.reached)
		select {
		case <-g.open:
		case <-ctx.Done():
		}
	})
}

func wantKind(t testing.TB, err error, kind assign.Kind) {
	t.Helper()
	var r *assign.Refusal
	if !errors.As(err, &r) || r.Kind != kind {
		t.Fatalf("error %v, want a refusal of kind %s", err, kind)
	}
}

// compact returns a work's details without white space.
func compact(w assign.Work) string {
	b, err := json.Marshal(w.Details)
	if err != nil {
		return err.Error()
	}
	return string(b)
}
