package feed

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/notify"
)

// Config is what a Feed needs.
type Config struct {
	Node    string // names this process
	DB      pg.Router
	SQL     func(string) string // puts the schema's name into a statement; nil: it is getwork
	Records *records.Records
	Log     *slog.Logger
}

// Counts are what the live channels of this node did since it started.
type Counts struct {
	Reconnects atomic.Int64 // how often the listener came up again
	Sent       atomic.Int64 // events that live channels took
	Dropped    atomic.Int64 // events lost to live channels that were cut off because they were too slow
	Slow       atomic.Int64 // those live channels
}

// Feed is the node's one reader of what happened. NOTIFY names what changed; the feed reads it from the tables,
// once for all who follow it on this node, and hands each his own. Its one loop reads, then delivers, then reads
// again, so a later event is never older than an earlier one.
type Feed struct {
	Counts
	config Config
	limit  pg.LogLimiter
	wake   chan struct{}

	mu      sync.Mutex
	holders map[assign.Holder][]*Subscription
	topics  map[string]*topic // the tasks that somebody follows, by name
	all     int
	news    news
	state   assign.NodeState // Lagging, or Live; empty before the listener first said
	deaf    bool             // there is no listener: look at everything every few seconds
	list    string           // of tasks, as it was when it was last read; empty before
	later   *time.Timer
	due     time.Time       // when later wakes the reader
	debts   map[string]debt // by node: it may have committed what it will not name

	// The loop's alone.
	readTasks time.Time // when tasks were last read
	toldTasks time.Time // when all who follow were last told of them
	toldList  time.Time // when everybody was last told that there is another list of tasks
	manyAfter time.Time // until then everybody is not read again because of many changes

	snapshots records.Batcher[assign.Holder, assign.Pipeline]
	tasks     records.Batcher[[]string, map[string]followed]
}

// Subscription is one follower: a socket, an event stream, or a held answer.
type Subscription struct {
	feed    *Feed
	holder  assign.Holder
	deliver func(...assign.Event)
	who     assign.Who // who follows tasks
	quiet   bool       // it wants request events only
}

// topic is a task that somebody follows.
type topic struct {
	last      *assign.Event                   // what it was when it was last read
	followers map[*Subscription]*assign.Event // and what each was last told; nil: nothing
}

// news is what was heard and not yet read.
type news struct {
	rounds               map[int64]int // how many requests each answered, at most
	requests, work, runs map[int64]bool
	tasks                map[int64]bool
	newcomers            map[int64]bool // tasks that somebody began to follow
	list                 bool           // a task is new, changed or deleted
	many                 bool           // more was changed than was named
	gap                  bool           // all that happened in a while may have been missed
}

func newNews() news {
	return news{map[int64]int{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, false, false, false}
}

// New makes a feed that delivers nothing until Run.
func New(c Config) *Feed {
	if c.SQL == nil {
		c.SQL = func(statement string) string { return statement }
	}
	f := &Feed{config: c, wake: make(chan struct{}, 1), holders: map[assign.Holder][]*Subscription{}, topics: map[string]*topic{}, debts: map[string]debt{}}
	f.snapshots.Read, f.tasks.Read = c.Records.Snapshots, f.toFollow
	return f
}

// Subscribe delivers to a holder what concerns him, until the returned function is called. deliver must not block, and
// not keep the slice that it is given. Whoever shows state should subscribe first and read it then, so that nothing
// falls between.
func (f *Feed) Subscribe(holder assign.Holder, deliver func(...assign.Event)) (*Subscription, func()) {
	s := &Subscription{feed: f, holder: holder, deliver: deliver}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.holders[holder] = append(f.holders[holder], s)
	f.all++
	if f.all == 1 {
		f.hear(func(*news) {}) // the loop stands still while there is nobody
	}
	return s, s.leave
}

// leave ends it; it may be called again.
func (s *Subscription) leave() {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	subs := f.holders[s.holder]
	i := slices.Index(subs, s)
	if i < 0 {
		return
	}
	f.all--
	if f.holders[s.holder] = slices.Delete(subs, i, i+1); len(subs) == 1 {
		delete(f.holders, s.holder)
	}
	for name := range f.topics {
		s.unfollow(name)
	}
}

// followed is a task as who follows it has to know it.
type followed struct {
	id     int64
	name   string
	groups []string
}

const selectToFollow = `
select s.task_id, s.name, v.groups
from getwork.task_state s join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where s.name = any($1::text[]) and s.deleted_at is null`

// toFollow reads tasks for several who each name some; all get all of them.
func (f *Feed) toFollow(ctx context.Context, asked [][]string) ([]map[string]followed, error) {
	names := slices.Concat(asked...)
	slices.Sort(names)
	rows, err := f.config.DB.Query(ctx, f.config.SQL(selectToFollow), slices.Compact(names))
	if err != nil {
		return nil, fmt.Errorf("read tasks to follow: %w", err)
	}
	tasks := map[string]followed{}
	_, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (t followed, err error) {
		err = row.Scan(&t.id, &t.name, &t.groups)
		tasks[t.name] = t
		return t, err
	})
	if err != nil {
		return nil, fmt.Errorf("read tasks to follow: %w", err)
	}
	return slices.Repeat([]map[string]followed{tasks}, len(asked)), nil
}

// follow adds tasks whose task and run events are delivered, too, while they are open to who follows; their present
// state comes at once.
func (s *Subscription) follow(who assign.Who, tasks []followed) {
	f := s.feed
	f.mu.Lock()
	defer f.mu.Unlock()
	if !slices.Contains(f.holders[s.holder], s) {
		return // it has left meanwhile
	}
	s.who = who
	for _, t := range tasks {
		if f.topics[t.name] == nil {
			f.topics[t.name] = &topic{followers: map[*Subscription]*assign.Event{}}
		}
		f.topics[t.name].followers[s] = nil
		f.hear(func(n *news) { n.newcomers[t.id] = true })
	}
}

// Unfollow ends that; names that are not followed are left out.
func (s *Subscription) Unfollow(tasks ...string) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, name := range tasks {
		s.unfollow(name)
	}
}

func (s *Subscription) unfollow(name string) {
	t := s.feed.topics[name]
	if t == nil {
		return
	}
	if delete(t.followers, s); len(t.followers) == 0 {
		delete(s.feed.topics, name)
	}
}

// RequestsOnly spares a subscription all but request events.
func (s *Subscription) RequestsOnly() *Subscription {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.quiet = true
	return s
}

// Heard is told what NOTIFY said. It does not block.
func (f *Feed) Heard(m notify.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.owes(m)
	if f.all == 0 {
		return // who subscribes later reads the tables first
	}
	f.hear(func(n *news) {
		if m.Round != nil {
			if m.Round.Requests > 0 {
				n.rounds[m.Round.ID] = m.Round.Requests
			}
			n.tasks[m.Round.Task] = true
			if m.Round.Run != 0 {
				n.runs[m.Round.Run] = true
			}
		}
		for _, c := range m.Changes {
			n.tasks[c.Task] = true
			n.list = n.list || c.Settings
			n.many = n.many || c.Many
			for _, id := range c.Rounds {
				n.rounds[id] = notify.MaxQuickRound // or less
			}
			note(n.requests, c.Requests)
			note(n.work, c.Work)
			note(n.runs, c.Runs)
		}
		n.list, n.many = n.list || m.All, n.many || m.All
	})
}

func note(into map[int64]bool, ids []int64) {
	for _, id := range ids {
		into[id] = true
	}
}

// hear changes what is to be read, and wakes the reader; f.mu is held.
func (f *Feed) hear(change func(*news)) {
	f.change(change)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

func (f *Feed) change(change func(*news)) {
	if f.news.rounds == nil {
		f.news = newNews()
	}
	change(&f.news)
}

// putOff changes what is to be read in a while.
func (f *Feed) putOff(wait time.Duration, change func(*news)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(change)
	due := time.Now().Add(wait)
	switch {
	case f.later == nil:
		f.later = time.AfterFunc(wait, func() {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.later = nil
			f.hear(func(*news) {})
		})
	case due.Before(f.due):
		f.later.Reset(wait)
	default:
		return
	}
	f.due = due
}

// Connected tells the feed that the listener has its connection (back): everybody is read again, and told that
// the node is live when that is done.
func (f *Feed) Connected() { f.listening(assign.Live) }

// Disconnected tells the feed that nothing is heard any more.
func (f *Feed) Disconnected() { f.listening(assign.Lagging) }

// Deaf tells the feed that there is no listener, so that it looks for itself.
func (f *Feed) Deaf() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.deaf = true
}

// Listening reports whether what happens is heard at once.
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

// Broadcast delivers to everybody.
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

const (
	rereadEvery = 10 * time.Second // an announcement may be lost: tasks that are followed, and the list of all, are read anyway
	deafEvery   = 2 * time.Second
)

// Run reads and delivers until ctx ends, and returns nil. While nobody follows, nothing wakes it.
func (f *Feed) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	again := time.NewTimer(deafEvery)
	defer again.Stop()
	ticks, reread := true, time.Now()
	_, _, _ = f.listChanged(ctx) // nobody follows yet; if it can't be read now, whoever does then is told
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-again.C:
			ticks = false
			f.missed()
			if f.collect() {
				f.manyAfter = time.Time{}
			}
			if time.Since(reread) > rereadEvery {
				reread = time.Now()
				f.reread(ctx)
			}
		}
		if !ticks && f.anybody() {
			again.Reset(deafEvery)
			ticks = true
		}
		if err := f.drainNews(ctx); err != nil && ctx.Err() == nil {
			if facts := f.limit.About(err); facts != nil {
				f.config.Log.Warn("tell what happened; it is tried again", facts...)
			}
			f.mu.Lock()
			f.hear(func(n *news) { n.gap = true })
			f.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// missed has everybody read again while nothing is heard.
func (f *Feed) missed() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all > 0 && (f.deaf || f.state != assign.Live) {
		f.change(func(n *news) { n.gap = true })
	}
}

// selectList reads the ids of some tasks, and what stands for the list of all: each change is a version.
const selectList = `
select coalesce(array_agg(task_id) filter (where name = any($1::text[])), '{}'),
  md5(coalesce(string_agg(task_id || ' ' || version, ',' order by task_id), ''))
from getwork.task_state
where deleted_at is null`

// reread marks every task that somebody follows as news, and their list if it is not as it was.
func (f *Feed) reread(ctx context.Context) {
	changed, ids, err := f.listChanged(ctx)
	if err != nil {
		if facts := f.limit.Again("look for tasks that have changed", err); facts != nil && ctx.Err() == nil {
			f.config.Log.Warn("look for tasks that have changed; it is tried again", facts...)
		}
		return
	}
	if !changed && len(ids) == 0 {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.change(func(n *news) {
		n.list = n.list || changed
		note(n.tasks, ids)
	})
}

// listChanged reads the list of tasks, and reports whether it is not as it was when it was last read; ids are those of the
// tasks that somebody follows.
func (f *Feed) listChanged(ctx context.Context) (changed bool, ids []int64, err error) {
	f.mu.Lock()
	names := slices.Collect(maps.Keys(f.topics))
	f.mu.Unlock()
	var list string
	if err := f.config.DB.QueryRow(ctx, f.config.SQL(selectList), names).Scan(&ids, &list); err != nil {
		return false, nil, fmt.Errorf("read the list of tasks: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	changed = f.list != list
	f.list = list
	return changed, ids, nil
}

// drainNews reads all that was heard, and delivers it.
func (f *Feed) drainNews(ctx context.Context) error {
	f.mu.Lock()
	n := f.news
	f.news = news{}
	live := f.state == assign.Live
	nobody := f.all == 0
	f.mu.Unlock()
	if nobody || n.rounds == nil {
		return nil
	}
	if n.list {
		f.deliverList(ctx)
	}
	if n.gap {
		if err := f.resync(ctx); err != nil {
			return err
		}
		if live {
			f.Broadcast(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Live}})
		}
	}
	for _, tell := range []func(context.Context, news) error{f.deliverRequests, f.deliverWork, f.deliverTasks, f.deliverMany} {
		if err := tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

func (f *Feed) anybody() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.all > 0
}

// here are the holders who follow on this node.
func (f *Feed) here() []assign.Holder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.holders))
}

// to delivers to one holder's subscriptions, of which those that want requests only get those.
func (f *Feed) to(h assign.Holder, events ...assign.Event) {
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
			s.deliver(events...)
			continue
		}
		for _, e := range events {
			if e.Request != nil {
				s.deliver(e)
			}
		}
	}
}
