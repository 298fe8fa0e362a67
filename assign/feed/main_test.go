package feed

import (
	"context"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/manage"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// Node is a node of enginetest.
type Node struct {
	*engine.Engine
	*records.Records
	Feed  *Feed
	Pools *pg.Pools
	Begin func()
	Stop  func()
}

// NodeOptions are those of enginetest that these tests use, and two of their own.
type NodeOptions struct {
	Steps  func(ctx context.Context, step engine.Step)
	Deaf   bool          // no listener
	Mute   bool          // a listener that never comes up
	Every  time.Duration // between two announcements
	Dumb   bool          // its announcer can't send, as if the node had died before
	Log    io.Writer
	Tracer trace.Tracer // nil: tracing is off

	Still  bool          // nothing runs by itself: the test calls it
	Reread time.Duration // instead of rereadEvery
}

// NewNode makes a node that has not begun. It is set in nodes_test.go: package enginetest imports this one.
var NewNode func(t testing.TB, url string, o NodeOptions) *Node

// startNode starts a node on the database of that URL, and stops it when the test ends.
func startNode(t testing.TB, url string, o NodeOptions) *Node {
	t.Helper()
	n := NewNode(t, url, o)
	if o.Reread > 0 {
		n.Feed.every = o.Reread
	}
	if o.Still {
		return n
	}
	n.Begin()
	// Whoever connected before the feed has begun would hear of the listener as of a change.
	await(t, "the feed has begun", func() bool {
		n.Feed.mu.Lock()
		defer n.Feed.mu.Unlock()
		return n.Feed.list != "" && n.Feed.news.rounds == nil
	})
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
func (n *Node) click(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count})
	if err != nil {
		t.Fatalf("%s clicks: %v", user, err)
	}
	return r
}

// endedRequest waits until a request has ended.
func (n *Node) endedRequest(t testing.TB, id int64) assign.Request {
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
func newTask(t testing.TB, n *Node, name, query string, change func(*assign.Settings)) assign.Task {
	t.Helper()
	s := assign.DefaultSettings()
	s.Name, s.Query = name, assign.Query(query)
	if change != nil {
		change(&s)
	}
	task, err := manage.CreateTask(t.Context(), n.Engine, s, "a manager")
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
	at      engine.Step
	reached chan struct{}
	open    chan struct{}
	once    sync.Once
}

func newGate(at engine.Step) *gate {
	return &gate{at: at, reached: make(chan struct{}), open: make(chan struct{})}
}

// hold stops the first caller.
func (g *gate) hold(ctx context.Context, step engine.Step) {
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

// numbers is a query that finds a thousand items.
const numbers = `select i as item from generate_series(1, 1000) i order by i`

// waits inserts pending requests that nobody serves, and returns their ids.
func waits(t *testing.T, db *pgxpool.Pool, task assign.Task, count int) (ids []int64) {
	t.Helper()
	return query[[]int64](t, db, `
with r as (
  insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until)
  select $1, 'user ' || i, 1, 1, clock_timestamp() + interval '1 hour' from generate_series(1, $2::integer) i
  returning id)
select array_agg(id order by id) from r`, task.ID, count)
}

func newInbox(t testing.TB, n *Node, name string, change func(*assign.Settings)) assign.Task {
	t.Helper()
	return newTask(t, n, name, "", change)
}

// push pushes items that have only a key.
func (n *Node) push(t testing.TB, task string, keys ...string) {
	t.Helper()
	var batch []assign.NewItem
	for _, k := range keys {
		batch = append(batch, assign.NewItem{Item: k})
	}
	n.pushItems(t, task, batch...)
}

func (n *Node) pushItems(t testing.TB, task string, batch ...assign.NewItem) assign.Pushed {
	t.Helper()
	p, err := n.Push(t.Context(), task, batch, assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true})
	if err != nil {
		t.Fatalf("push: %v", err)
	}
	return p
}

// linger asks for work and lingers for an hour.
func (n *Node) linger(t testing.TB, task, user string, count int) assign.Request {
	t.Helper()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: count, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatalf("%s lingers: %v", user, err)
	}
	return r
}
