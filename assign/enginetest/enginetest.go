// Package enginetest starts nodes for tests of the engine and of what stands above it. Tests in packages engine and feed themselves,
// which this one imports, get it from nodes_test.go there.
package enginetest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/explain"
	"getwork/assign/feed"
	"getwork/assign/manage"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/tracing"
	"getwork/notify"
	"getwork/schema/schematest/pgbouncer"
	"getwork/schema/schematest/timeout"
)

// pooledMode makes every node use a PgBouncer in transaction mode, except for its listener:
//
// GETWORK_TEST_MODE=pooled go test -race ./assign/engine
var pooledMode = os.Getenv("GETWORK_TEST_MODE") == "pooled"

// Node is one engine with its own pools, announcer and listener, as a real node has them.
type Node struct {
	*engine.Engine
	*records.Records
	Feed  *feed.Feed
	Pools *pg.Pools
	Hears func(notify.Message) // who else hears what the listener receives
	Begin func()               // lets a node run that New has made
	Stop  func()
}

// Options say what is unusual about a node. Package engine's NodeOptions has the same fields, so that one can be converted to the other.
type Options struct {
	Steps   func(ctx context.Context, step engine.Step)
	Queries string // URL of the query database
	MaxRuns int
	MaxRow  int           // bytes
	Look    time.Duration // LookEvery; default: never, so that no rescuer serves anybody
	Deaf    bool          // no listener
	Mute    bool          // a listener that never comes up
	Pooled  bool          // as through a transaction pooler: nothing prepared
	Role    string
	Confine bool
	Every   time.Duration // between two announcements
	Dumb    bool          // its announcer can't send, as if the node had died before
	Log     io.Writer
	Tracer  trace.Tracer                                // nil: tracing is off
	Dial    func(under pgconn.DialFunc) pgconn.DialFunc // for calls
}

var nodes atomic.Int64

// Start starts a node on the database of that URL, and stops it when the test ends.
func Start(t testing.TB, url string, o Options) *Node {
	t.Helper()
	n := New(t, url, o)
	n.Begin()
	return n
}

// New makes a node in which nothing runs before Begin.
func New(t testing.TB, url string, o Options) *Node {
	t.Helper()
	name := fmt.Sprintf("n%d", nodes.Add(1))
	if o.MaxRuns == 0 {
		o.MaxRuns = 2
	}
	if o.Look == 0 {
		o.Look = time.Hour
	}
	if o.Log == nil {
		o.Log = t.Output()
	}
	log := slog.New(slog.NewTextHandler(o.Log, &slog.HandlerOptions{Level: slog.LevelInfo})).With("node", name)
	through := url
	if pooledMode {
		o.Pooled, through = true, pgbouncer.Start(t, url, pgbouncer.Options{}).URL
	}
	pools, err := pg.OpenPools(pg.PoolsConfig{DatabaseURL: through, QueryURL: o.Queries, MaxRuns: o.MaxRuns, MaxRow: o.MaxRow, Pooled: o.Pooled, Name: "getwork " + name})
	if err != nil {
		t.Fatal(err)
	}
	if o.Dial != nil {
		config := pools.API.Config()
		config.ConnConfig.DialFunc = o.Dial(config.ConnConfig.DialFunc)
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
	if o.Dumb {
		announce = func(context.Context, string, string) error { return errors.New("dumb") }
	}
	announcer := notify.NewAnnouncer(announce, "getwork", name, log)
	if o.Every > 0 {
		announcer.Every = o.Every
	}
	router := pg.Router{Calls: pools.API}
	rs := records.New(router, nil)
	var traces *tracing.Tracer
	if o.Tracer != nil {
		traces = tracing.New(tracing.Config{Tracer: o.Tracer, DB: router, Log: log})
	}
	f := feed.New(feed.Config{Node: name, DB: router, Records: rs, Trace: traces, Log: log})
	e := engine.New(engine.Config{Node: name, Records: rs, API: pools.API, Runs: pools.Runs, Queries: pools.Queries, MaxRuns: o.MaxRuns, Pooled: o.Pooled, QueryRole: o.Role, Confined: o.Confine,
		Channel: "getwork", Announce: announcer, Trace: traces, Log: log, LookEvery: o.Look, Steps: o.Steps})
	n := &Node{Engine: e, Records: rs, Feed: f, Pools: pools, Hears: func(notify.Message) {}, Stop: sync.OnceFunc(pools.Close)}
	n.Begin = func() {
		t.Helper()
		working, endEngine := context.WithCancel(context.Background())
		ctx, cancel := context.WithCancel(context.Background())
		var parts, running sync.WaitGroup
		parts.Go(func() {
			if err := e.Run(working); err != nil {
				t.Error(err)
			}
		})
		parts.Go(func() { _ = f.Run(working) })
		running.Go(func() { _ = announcer.Run(ctx) })
		if traces != nil {
			running.Go(func() { _ = traces.Run(ctx) })
		}
		up := make(chan struct{}, 1)
		switch {
		case o.Deaf:
			f.Deaf()
			up <- struct{}{}
		case o.Mute:
			up <- struct{}{}
		default:
			l := &notify.Listener{
				Connect: func(ctx context.Context) (*pgx.Conn, error) { return pgx.Connect(ctx, url) },
				Send:    send, Channel: "getwork", Node: name, Handle: func(m notify.Message) { n.Hears(m); e.Heard(m); f.Heard(m) },
				Up:   func() { f.Connected(); up <- struct{}{} },
				Down: func(error) { f.Disconnected() },
				Log:  log,
			}
			running.Go(func() { _ = l.Run(ctx) })
		}
		n.Stop = sync.OnceFunc(func() {
			endEngine()
			parts.Wait()
			cancel()
			running.Wait()
			pools.Close()
		})
		<-up
		Await(t, "the engine runs", func() bool { return e.Running() })
	}
	t.Cleanup(func() { n.Stop() })
	return n
}

// CreateTask is [manage.CreateTask]. Tests read better with these methods.
func (n *Node) CreateTask(ctx context.Context, s assign.Settings, by string) (assign.Task, error) {
	return manage.CreateTask(ctx, n.Engine, s, by)
}

// UpdateTask is [manage.UpdateTask].
func (n *Node) UpdateTask(ctx context.Context, name string, version int, by string, change func(*assign.Settings) error) (assign.Task, error) {
	return manage.UpdateTask(ctx, n.Engine, name, version, by, change)
}

// DeleteTask is [manage.DeleteTask].
func (n *Node) DeleteTask(ctx context.Context, name string, only int) error {
	return manage.DeleteTask(ctx, n.Engine, name, only)
}

// Restore is [manage.Restore].
func (n *Node) Restore(ctx context.Context, task string, version, only int, by string, check func(before, after *assign.Settings) error) (assign.Task, error) {
	return manage.Restore(ctx, n.Engine, task, version, only, by, check)
}

// SetPaused is [manage.SetPaused].
func (n *Node) SetPaused(ctx context.Context, name string, paused bool, only int, by string) (assign.Task, error) {
	return manage.SetPaused(ctx, n.Engine, name, paused, only, by)
}

// Release is [manage.Release].
func (n *Node) Release(ctx context.Context, what assign.Release, by string) (assign.Released, error) {
	return manage.Release(ctx, n.Engine, what, by)
}

// Reassign is [manage.Reassign].
func (n *Node) Reassign(ctx context.Context, id int64, what assign.Reassignment, by string) (assign.Work, error) {
	return manage.Reassign(ctx, n.Engine, id, what, by)
}

// Give is [manage.Give].
func (n *Node) Give(ctx context.Context, task, item string, to assign.Reassignment) (assign.Work, bool, error) {
	return manage.Give(ctx, n.Engine, task, item, to)
}

// Redrive is [manage.Redrive].
func (n *Node) Redrive(ctx context.Context, name string, items []string, by string) (int64, error) {
	return manage.Redrive(ctx, n.Engine, name, items, by)
}

// Explain is [explain.Item].
func (n *Node) Explain(ctx context.Context, task, item string) (assign.Explanation, error) {
	return explain.Item(ctx, n.Engine, task, item, n.Feed.Live())
}

// Await polls until a condition holds. After a while it fails the test.
func Await(t testing.TB, what string, so func() bool) {
	t.Helper()
	timeout.Await(t, what, so)
}

// Click asks for work, and fails the test if it is refused.
func (n *Node) Click(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count})
	if err != nil {
		t.Fatalf("%s clicks: %v", user, err)
	}
	return r
}

// EndedRequest waits until a request has ended.
func (n *Node) EndedRequest(t testing.TB, id int64) assign.Request {
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

// Serve asks for work, and waits until the request has ended.
func (n *Node) Serve(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	return n.EndedRequest(t, n.Click(t, task, user, count).ID)
}

// Change changes a task as it is now.
func (n *Node) Change(t testing.TB, task string, change func(*assign.Settings)) (assign.Task, error) {
	t.Helper()
	now, err := n.Task(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return n.UpdateTask(t.Context(), task, now.Version, "boss", func(s *assign.Settings) error { change(s); return nil })
}

// Items returns the keys of the items that a request got.
func Items(r assign.Request) []string {
	keys := []string{}
	for _, w := range r.Work {
		keys = append(keys, w.Item)
	}
	return keys
}

// NewTask makes a task; change may be nil.
func NewTask(t testing.TB, n *Node, name, query string, change func(*assign.Settings)) assign.Task {
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

// NewInbox makes a task without a query; change may be nil.
func NewInbox(t testing.TB, n *Node, name string, change func(*assign.Settings)) assign.Task {
	t.Helper()
	return NewTask(t, n, name, "", change)
}

var boss = assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true}

// PushKeys pushes items that have only a key.
func (n *Node) PushKeys(t testing.TB, task string, keys ...string) {
	t.Helper()
	var batch []assign.NewItem
	for _, k := range keys {
		batch = append(batch, assign.NewItem{Item: k})
	}
	n.PushItems(t, task, batch...)
}

// PushItems pushes items.
func (n *Node) PushItems(t testing.TB, task string, batch ...assign.NewItem) assign.Pushed {
	t.Helper()
	p, err := n.Push(t.Context(), task, batch, boss)
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	return p
}

// Linger asks for work and lingers for an hour.
func (n *Node) Linger(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatalf("%s lingers: %v", user, err)
	}
	return r
}

// Take asks for one item and must get it.
func (n *Node) Take(t testing.TB, task, user string) assign.Work {
	t.Helper()
	r := n.EndedRequest(t, n.Click(t, task, user, 1).ID)
	if len(r.Work) != 1 {
		t.Fatalf("%s's request ended as %s, %v", user, r.State, Why(r))
	}
	return r.Work[0]
}

// Let closes work in its holder's name.
func (n *Node) Let(t testing.TB, w assign.Work, d assign.Disposition) assign.Work {
	t.Helper()
	closed, err := n.Dispose(t.Context(), w.ID, d, w.Holder(), false)
	if err != nil {
		t.Fatalf("%s: %s %s: %v", w.User, d.Outcome, w.Item, err)
	}
	return closed
}

// GiveBack returns an item, to be handed out again after a while.
func GiveBack(after time.Duration) assign.Disposition {
	return assign.Disposition{Outcome: "return", After: Lasting(after)}
}

// Lasting returns a duration as the settings have it.
func Lasting(d time.Duration) *assign.Duration { l := assign.Duration(d); return &l }

// Why returns a request's reason, or "".
func Why(r assign.Request) assign.Reason {
	if r.Reason == nil {
		return ""
	}
	return *r.Reason
}

// Who returns a user without groups.
func Who(user string) assign.Who { return assign.Who{Holder: assign.Holder{User: user}} }

// WorkEvents returns the events of a holder's work.
func (n *Node) WorkEvents(t testing.TB, h assign.Holder) <-chan assign.Work {
	t.Helper()
	told := make(chan assign.Work, 100)
	_, end := n.Feed.Subscribe(h, func(events ...assign.Event) {
		for _, e := range events {
			if w, ok := e.Body.(*assign.Work); ok {
				told <- *w
			}
		}
	})
	t.Cleanup(end)
	return told
}

// Hear waits for the first event that matches.
func Hear(t testing.TB, told <-chan assign.Work, what string, so func(assign.Work) bool) assign.Work {
	t.Helper()
	late := time.NewTimer(timeout.Scale(30 * time.Second))
	defer late.Stop()
	for {
		select {
		case w := <-told:
			if so(w) {
				return w
			}
		case <-late.C:
			t.Fatalf("no event says that %s", what)
		}
	}
}

// Pool returns a connection pool of the test's own.
func Pool(t testing.TB, url string) *pgxpool.Pool {
	t.Helper()
	p, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	return p
}

// Query reads one value.
func Query[T any](t testing.TB, p *pgxpool.Pool, sql string, args ...any) T {
	t.Helper()
	var v T
	if err := p.QueryRow(t.Context(), sql, args...).Scan(&v); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
	return v
}

// Execute executes a statement.
func Execute(t testing.TB, p *pgxpool.Pool, sql string, args ...any) {
	t.Helper()
	if _, err := p.Exec(t.Context(), sql, args...); err != nil {
		t.Fatalf("%s: %v", sql, err)
	}
}

// WantKind fails the test unless an error is a refusal of that kind.
func WantKind(t testing.TB, err error, kind assign.Kind) {
	t.Helper()
	var r *assign.Refusal
	if !errors.As(err, &r) || r.Kind != kind {
		t.Fatalf("error %v, want a refusal of kind %s", err, kind)
	}
}

// Compact returns a work's details without white space.
func Compact(w assign.Work) string {
	b, err := json.Marshal(w.Details)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// These statements insert work in each state; $1 is the task. How it came to that is not shown here.
const (
	HeldRow     = `insert into getwork.work (task_id, item, user_name, slot, exclusive, lease, lease_expires_at) values ($1, $2, $3, $4, $5, '1 hour', clock_timestamp() + '1 hour')`
	ClosedRow   = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) values ($1, $2, $3, $4, clock_timestamp(), pg_current_xact_id())`
	PutOffRow   = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at) values ($1, $2, $3, 'returned', clock_timestamp(), pg_current_xact_id(), '1 hour', clock_timestamp() + $4::bigint * interval '1 second')`
	FailedRow   = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, available_at) values ($1, $2, $3, 'failed', clock_timestamp(), pg_current_xact_id(), clock_timestamp() + interval '1 minute')`
	ToOthersRow = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at, to_others) values ($1, $2, $3, 'returned', clock_timestamp(), pg_current_xact_id(), '0', clock_timestamp(), true)`
)

// WantWaiting waits until a session with such a statement waits for a lock.
func WantWaiting(t testing.TB, db *pgxpool.Pool, like string) {
	t.Helper()
	Await(t, "somebody waits for a lock", func() bool {
		return Query[bool](t, db, `select exists (select from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like $1)`, like)
	})
}

// Numbers is a query of a thousand items.
const Numbers = `select i as item from generate_series(1, 1000) i order by i`

// Fresh gives a task a shelf.
func Fresh(d time.Duration) func(*assign.Settings) {
	return func(s *assign.Settings) { s.FreshFor = assign.Duration(d) }
}
