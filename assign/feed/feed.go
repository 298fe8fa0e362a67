package feed

import (
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/tracing"
)

// Config is what a Feed needs.
type Config struct {
	Node    string // names this process
	DB      pg.Router
	SQL     func(string) string // puts the schema's name into a statement; nil: the schema is getwork
	Records *records.Records
	Trace   *tracing.Tracer // makes a span of each result that is pushed; nil: off
	Log     *slog.Logger
}

// Counts are what the live channels of this node did since it started.
type Counts struct {
	Reconnects atomic.Int64 // how often the listener came back
	Sent       atomic.Int64 // events that live channels took
	Dropped    atomic.Int64 // events lost to live channels that were cut off because they were too slow
	Slow       atomic.Int64 // live channels that were cut off
}

// Feed is the node's one reader of changes. NOTIFY names what changed; the feed reads it from the tables once for all
// followers on this node, and delivers to each holder their own part. Its one loop reads, then delivers, then reads again, so
// a later event is never older than an earlier one.
type Feed struct {
	Counts
	Room assign.Room // for large answers of this node, those of calls and those that live channels have not taken yet

	config Config
	limit  pg.LogLimiter
	wake   chan struct{} // holds one value while there may be something to deliver
	every  time.Duration // rereadEvery, except in tests

	mu      sync.Mutex // held while subscribers are called, so what they lock must never be held when the feed is called
	holders map[assign.Holder][]*Subscription
	topics  map[string]*topic // the tasks that somebody follows, by name
	all     int               // subscriptions
	news    news              // empty, with nil maps, when the loop has taken it
	state   assign.NodeState  // Lagging or Live; empty before the listener's first report
	deaf    bool              // there is no listener: everything is read every few seconds
	list    string            // stands for the list of tasks as it was last read; empty before
	later   *time.Timer       // wakes the reader for what was put off; nil: nothing was
	due     time.Time         // when later wakes the reader
	debts   map[string]debt   // by node: it may have committed changes that it will not name

	// Only the loop uses these.
	readTasks time.Time         // when tasks were last read
	toldTasks time.Time         // when all followers last got them
	toldList  time.Time         // when all users last heard that the list of tasks has changed
	counts    map[int64]counted // of long inboxes, by the task's id
	manyAfter time.Time         // until then many changes are no reason to read all users again

	snapshots records.Batcher[assign.Holder, assign.Pipeline]
	tasks     records.Batcher[[]string, map[string]followed]
}

// New returns a feed that delivers nothing until Run.
func New(c Config) *Feed {
	if c.SQL == nil {
		c.SQL = func(statement string) string { return statement }
	}
	f := &Feed{config: c, wake: make(chan struct{}, 1), every: rereadEvery, holders: map[assign.Holder][]*Subscription{}, topics: map[string]*topic{}, debts: map[string]debt{}, counts: map[int64]counted{}}
	f.snapshots.Read, f.tasks.Read = c.Records.Snapshots, f.toFollow
	return f
}

// Connected reports that the listener has its connection (again). The feed reads all users again, and then sends them
// that the node is live.
func (f *Feed) Connected() { f.listening(assign.Live) }

// Disconnected reports that the listener has lost its connection.
func (f *Feed) Disconnected() { f.listening(assign.Lagging) }

// Deaf reports that there is no listener, so that it reads all users again every two seconds.
func (f *Feed) Deaf() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = true
}

// Listening reports whether the node hears of changes at once.
func (f *Feed) Listening() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == assign.Live && !f.deaf
}

func (f *Feed) lagging() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == assign.Lagging && !f.deaf
}

func (f *Feed) listening(state assign.NodeState) {
	f.mu.Lock()
	first := f.state == ""
	changed := f.state != state
	if changed && !first && state == assign.Live {
		f.Reconnects.Add(1)
	}
	f.state = state
	if state == assign.Live {
		f.hear(func(n *news) { n.gap, n.list = true, true })
		f.borrowed(unknownNode)
	}
	f.mu.Unlock()
	if changed && state == assign.Lagging && !first {
		f.Broadcast(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Lagging}})
	}
}

// Broadcast delivers an event to all live channels of the node, and to no held answer.
func (f *Feed) Broadcast(e assign.Event) {
	e = e.Shared()
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for _, s := range subs {
			if !s.quiet {
				s.deliver(e)
			}
		}
	}
}

func (f *Feed) anybody() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all > 0
}

// here returns the holders who follow on this node.
func (f *Feed) here() []assign.Holder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.holders))
}

// Live returns the users who may hold work and have a live channel on this node, sorted.
func (f *Feed) Live() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	users := map[string]bool{}
	for h, subs := range f.holders {
		if slices.ContainsFunc(subs, func(s *Subscription) bool { return s.works }) {
			users[h.User] = true
		}
	}
	return slices.Sorted(maps.Keys(users))
}

// to delivers to one holder's subscriptions, and reports whether a live channel is among them. Subscriptions that want only requests
// get nothing else.
func (f *Feed) to(h assign.Holder, events ...assign.Event) (live bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	subs := f.holders[h]
	if len(subs) > 1 {
		for i := range events {
			events[i] = events[i].Shared()
		}
	}
	for _, s := range subs {
		if !s.quiet {
			live = true
			s.deliver(events...)
			continue
		}
		for _, e := range events {
			if e.Request != nil {
				s.deliver(e)
			}
		}
	}
	return live
}
