package engine

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign"
	"getwork/assign/feed"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// node is enginetest's node. That package imports this one, and so do the packages of managers' acts, so nodes_test.go of package
// engine_test hands over what the tests of this package need of them.
type node struct {
	*Engine
	*records.Records
	Feed  *feed.Feed
	pools *pg.Pools
	stop  func()
}

// Above is what stands above this package.
var Above struct {
	Start func(t testing.TB, url string, o NodeOptions) (e *Engine, rs *records.Records, f *feed.Feed, pools *pg.Pools, stop func())

	CreateTask   func(ctx context.Context, e *Engine, s assign.Settings, by string) (assign.Task, error)
	UpdateTask   func(ctx context.Context, e *Engine, name string, version int, by string, change func(*assign.Settings) error) (assign.Task, error)
	DeleteTask   func(ctx context.Context, e *Engine, name string, only int) error
	Restore      func(ctx context.Context, e *Engine, task string, n, only int, by string, check func(before, after *assign.Settings) error) (assign.Task, error)
	SetPaused    func(ctx context.Context, e *Engine, name string, paused bool, only int, by string) (assign.Task, error)
	Release      func(ctx context.Context, e *Engine, what assign.Release, by string) (assign.Released, error)
	Reassign     func(ctx context.Context, e *Engine, id int64, what assign.Reassignment, by string) (assign.Work, error)
	SetSkills    func(ctx context.Context, e *Engine, user string, skills []string, by string) ([]string, error)
	Give         func(ctx context.Context, e *Engine, task, item string, to assign.Reassignment) (assign.Work, bool, error)
	EnterAbsence func(ctx context.Context, e *Engine, user string, what assign.AbsenceWish, by string) (assign.Absence, error)
	EndAbsence   func(ctx context.Context, e *Engine, id int64, by string, asManager bool) (assign.Absence, error)
	Redrive      func(ctx context.Context, e *Engine, name string, items []string, by string) (int64, error)
	Explain      func(ctx context.Context, e *Engine, task, item string) (assign.Explanation, error)

	Retain, RetainWork, Leftovers func(ctx context.Context, e *Engine, keep time.Duration) error
}

func (e *Engine) CreateTask(ctx context.Context, s assign.Settings, by string) (assign.Task, error) {
	return Above.CreateTask(ctx, e, s, by)
}

func (e *Engine) UpdateTask(ctx context.Context, name string, version int, by string, change func(*assign.Settings) error) (assign.Task, error) {
	return Above.UpdateTask(ctx, e, name, version, by, change)
}

func (e *Engine) DeleteTask(ctx context.Context, name string, only int) error {
	return Above.DeleteTask(ctx, e, name, only)
}

func (e *Engine) Restore(ctx context.Context, task string, n, only int, by string, check func(before, after *assign.Settings) error) (assign.Task, error) {
	return Above.Restore(ctx, e, task, n, only, by, check)
}

func (e *Engine) SetPaused(ctx context.Context, name string, paused bool, only int, by string) (assign.Task, error) {
	return Above.SetPaused(ctx, e, name, paused, only, by)
}

func (e *Engine) Release(ctx context.Context, what assign.Release, by string) (assign.Released, error) {
	return Above.Release(ctx, e, what, by)
}

func (e *Engine) Reassign(ctx context.Context, id int64, what assign.Reassignment, by string) (assign.Work, error) {
	return Above.Reassign(ctx, e, id, what, by)
}

func (e *Engine) SetSkills(ctx context.Context, user string, skills []string, by string) ([]string, error) {
	return Above.SetSkills(ctx, e, user, skills, by)
}

func (e *Engine) Give(ctx context.Context, task, item string, to assign.Reassignment) (assign.Work, bool, error) {
	return Above.Give(ctx, e, task, item, to)
}

func (e *Engine) Redrive(ctx context.Context, name string, items []string, by string) (int64, error) {
	return Above.Redrive(ctx, e, name, items, by)
}

func (e *Engine) Explain(ctx context.Context, task, item string) (assign.Explanation, error) {
	return Above.Explain(ctx, e, task, item)
}

// Retain is what a node does that has just started: it looks at all closed work.
func (e *Engine) Retain(ctx context.Context, keep time.Duration) error {
	return Above.Retain(ctx, e, keep)
}

// NodeOptions has the fields of enginetest.Options, so that one can be converted to the other.
type NodeOptions struct {
	Steps   func(ctx context.Context, step Step)
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

type nodeOptions = NodeOptions

// startNode starts a node on the database of that URL, and stops it when the test ends.
func startNode(t testing.TB, url string, o nodeOptions) *node {
	t.Helper()
	n := &node{}
	n.Engine, n.Records, n.Feed, n.pools, n.stop = Above.Start(t, url, o)
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
