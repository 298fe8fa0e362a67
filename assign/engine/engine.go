package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/assign/ranking"
	"getwork/assign/records"
	"getwork/assign/tracing"
	"getwork/notify"
)

// Config is what an Engine needs. Node, API, Runs, Channel, Announce and Log must be set.
type Config struct {
	Node string // names this process, unique for each start

	API     *pgxpool.Pool // records, rounds of a fresh shelf, reads: short transactions
	Own     *pgxpool.Pool // the engine's own work: serve loops, sweeps, announcements; nil: API
	Runs    *pgxpool.Pool // one connection for each run under way, and one for previews, explanations and claims if they run there
	Queries *pgxpool.Pool // where ranking queries run; nil: on the run lock's own connection
	MaxRuns int
	Pooled  bool // all pools lead through a transaction pooler, and share its connections

	Confined  bool                // refuse queries that name a volatile function
	QueryRole string              // entered with "set local role" for ranking queries; empty: none
	SQL       func(string) string // puts the schema's name into a statement; nil: the schema is getwork
	Channel   string              // of NOTIFY

	Records  *records.Records // shared with the API and the feed; nil: the engine's own
	Announce *notify.Announcer
	Audit    *audit.Writer   // of what managers do; nil: nothing is audited
	Trace    *tracing.Tracer // makes spans of runs and of answered requests; nil: off
	Log      *slog.Logger

	LookEvery time.Duration // how often the rescuer checks, ± 40 %, and five times as often while a run is under way; default 2 s

	// Steps, if set, is called at the named steps of a round, so that tests can hold sessions in step.
	Steps func(ctx context.Context, step Step)
}

// Step names a moment between two statements of a round.
type Step string

// These are the moments at which tests can hold a round.
const (
	StepLocked    Step = "locked"     // has the run lock, has read nothing
	StepQueried   Step = "queried"    // the query is over, the assign lock not yet taken
	StepRead      Step = "read"       // has read the waiting requests, has written nothing
	StepWritten   Step = "written"    // has written, not yet committed
	StepCommitted Step = "committed"  // has committed, not yet looked again
	StepRecorded  Step = "recorded"   // clicks are committed, their task not yet woken
	StepBusy      Step = "busy"       // another session has the lock
	StepJudged    Step = "judged"     // a disposition fits its task's codes, and has closed nothing yet
	StepNothing   Step = "nothing"    // has the run lock, and has read that there is nothing to do
	StepRunBegins Step = "run begins" // the run row is written, the query not yet sent
)

// Engine hands out work: it records requests, runs ranking queries for them, and assigns items. Every node has one. It keeps
// nothing that another node needs to know: the database is the only memory.
type Engine struct {
	Config
	Counts
	DB   pg.Router // of API and Own
	runs *pgxpool.Pool

	starts sync.Mutex // see starting

	slots       *runSlots
	asks        askSlot
	clientWatch pg.ClientWatch
	Ranker      *ranking.Ranker // executes user SQL: ranking queries, previews, rechecks

	// A full channel means that the news is pending already, so senders drop theirs.
	leases chan struct{} // work with a brief lease was given: the sweep may be due earlier
	began  chan struct{} // a run has begun somewhere: the rescuer checks often, since its node may die

	running chan struct{} // closed when Run has begun

	endedAt atomic.Pointer[time.Time] // when this node last heard that a log-in has ended

	// What was so when clicks last met their task. Their next round reads accordingly; if that is wrong by then, it reads again.
	nexts  atomic.Bool // requests over several tasks waited
	counts atomic.Bool // what users hold bounded what they got

	lastNotify atomic.Int64 // when a round of this node announced itself, though it answered only its own clicks, or another node was heard; in ns

	logLimit pg.LogLimiter

	// mu guards what follows, and the fields of serve loops, dispatchers, refreshes and run slots. No statement is executed under
	// it: while the database is slow, clicks of all tasks would wait for it.
	readingMenu sync.Mutex // taken before mu

	mu         sync.Mutex
	base       context.Context        // ends when the context of Run does; nil before
	loops      map[int64]*serveLoop   // by task
	dispatches map[string]*dispatcher // by the task's name; absent while no click is being recorded
	nextMenu   *menu                  // for clicks over several tasks; nil: nobody waits for one
	clicked    map[string]clicksTask  // tasks that clicks found ready to serve, by name
	timers     map[int64]*time.Timer  // by task: see wakeAfter
	refreshes  map[int64]*refresh     // by task
	working    sync.WaitGroup         // what Run waits for at its end; added to only under mu, while base has not ended
}

// New returns an engine that does nothing until Run. Until then it refuses what it would have to begin, such as clicks and
// previews, with [assign.Unavailable].
func New(c Config) *Engine {
	c.MaxRuns = max(c.MaxRuns, 1)
	c.LookEvery = cmp.Or(c.LookEvery, 2*time.Second)
	if c.SQL == nil {
		c.SQL = func(s string) string { return s }
	}
	if c.Records == nil {
		c.Records = records.New(pg.Router{Calls: c.API, Own: c.Own}, c.SQL)
	}
	if c.Steps == nil {
		c.Steps = func(context.Context, Step) {}
	}
	e := &Engine{
		Config:     c,
		DB:         pg.Router{Calls: c.API, Own: c.Own},
		runs:       c.Runs,
		leases:     make(chan struct{}, 1),
		began:      make(chan struct{}, 1),
		running:    make(chan struct{}),
		loops:      map[int64]*serveLoop{},
		dispatches: map[string]*dispatcher{},
		clicked:    map[string]clicksTask{},
		timers:     map[int64]*time.Timer{},
		refreshes:  map[int64]*refresh{},
		asks:       askSlot{last: map[string]int{}},
	}
	e.makeCounters()
	e.slots = &runSlots{Engine: e, free: c.MaxRuns, parked: map[int64]bool{}}
	e.clientWatch.DB, e.clientWatch.Log = e.DB, c.Log
	e.Ranker = ranking.New(ranking.Config{DB: e.DB, Records: c.Records, Runs: c.Runs, Queries: c.Queries, SQL: c.SQL, Watch: &e.clientWatch,
		Confined: c.Confined, QueryRole: c.QueryRole, Channel: c.Channel, RunSlot: e.slots.withRunSlot, AskSlot: e.withAskSlot, Previewing: e.auditing("task.preview"), Comparing: e.auditing("task.compare")})
	return e
}

// errEnding is the answer to clicks while the node drains.
var errEnding = assign.Refuse(assign.Unavailable, "this node is shutting down; ask again, another will answer")

// Run serves until ctx ends, and then until everything that it began is over: rounds commit or are given up, queries are
// cancelled, and another node takes over the waiting requests. It returns nil.
func (e *Engine) Run(ctx context.Context) error {
	g, base := errgroup.WithContext(pg.AsOwn(ctx))
	e.mu.Lock()
	e.base = base
	e.mu.Unlock()
	close(e.running)
	g.Go(func() error { return newRescuer(e).run(base) })
	g.Go(func() error { return e.sweepLeases(base) })
	err := g.Wait()
	e.mu.Lock()
	for _, t := range e.timers {
		t.Stop()
	}
	for _, r := range e.refreshes {
		if r.timer != nil {
			r.timer.Stop()
		}
	}
	e.mu.Unlock()
	e.working.Wait()
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

// Started returns when Run has begun. A click before that would be refused.
func (e *Engine) Started() { <-e.running }

// Wait returns when the engine, whose Run's context has ended, has ended everything that it began, or when ctx ends.
func (e *Engine) Wait(ctx context.Context) {
	_ = e.Running() // takes e.mu: what spawn begins is counted by now, and nothing begins after
	done := make(chan struct{})
	go func() {
		defer close(done)
		e.working.Wait()
	}()
	select {
	case <-done:
	case <-ctx.Done():
	}
}

// spawn runs f with a context that ends with the engine. It reports false if the engine has ended or not begun. e.mu must be
// held.
func (e *Engine) spawn(f func(ctx context.Context)) bool {
	if e.base == nil || e.base.Err() != nil {
		return false
	}
	ctx := e.base
	e.working.Go(func() { f(ctx) })
	return true
}

// Running reports whether Run has begun and its context has not ended.
func (e *Engine) Running() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.base != nil && e.base.Err() == nil
}

// Heard takes a message of NOTIFY, and wakes what it concerns on this node. It does not block. For this node's own messages it wakes
// no task: a changed one was woken already, and a waiting one has found no run slot here.
func (e *Engine) Heard(m notify.Message) {
	if m.Node != e.Node {
		e.lastNotify.Store(time.Now().UnixNano())
	}
	for _, c := range m.Changes {
		if c.Settings {
			e.forgetTask(c.Task)
		}
		if c.Settings || len(c.Requests) > 0 || c.Many {
			e.Poke(c.Task)
		}
		if len(c.Runs) > 0 {
			e.rescueSoon()
		}
		if (c.Settings || c.Waiting) && m.Node != e.Node {
			e.Wake(c.Task)
		}
	}
}
