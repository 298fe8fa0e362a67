package assign

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"getwork/notify"
)

// Feed is the node's one reader of what happened. NOTIFY names what changed; the feed reads it from the tables,
// once for all who follow it on this node, and hands each his own. Its one loop reads, then delivers, then reads
// again, so a later event is never older than an earlier one.
type Feed struct {
	engine *Engine
	wake   chan struct{}

	mu      sync.Mutex
	holders map[Holder]map[*Subscription]bool
	all     int
	news    news
	state   NodeState // Lagging, or Live; empty before the listener first said
	deaf    bool      // there is no listener: look at everything every few seconds
	later   *time.Timer

	told time.Time // when tasks were last told; the loop's alone
}

// Subscription is one follower: a socket, an event stream, or a held answer.
type Subscription struct {
	feed    *Feed
	holder  Holder
	deliver func(Event)
	who     Who             // who follows them
	tasks   map[string]bool // whose task and run events it follows
	quiet   bool            // it wants request events only
}

// news is what was heard and not yet read.
type news struct {
	rounds, requests, work, runs map[int64]bool
	tasks                        map[int64]bool
	resync                       bool
}

func newNews() news {
	return news{map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, map[int64]bool{}, false}
}

// Subscribe delivers to a holder what concerns him, until the returned function is called. deliver must not block.
// Whoever shows state should subscribe first and read it then, so that nothing falls between.
func (f *Feed) Subscribe(holder Holder, deliver func(Event)) (*Subscription, func()) {
	s := &Subscription{feed: f, holder: holder, deliver: deliver, tasks: map[string]bool{}}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.holders[holder] == nil {
		f.holders[holder] = map[*Subscription]bool{}
	}
	f.holders[holder][s] = true
	f.all++
	return s, func() {
		f.mu.Lock()
		defer f.mu.Unlock()
		if !f.holders[holder][s] {
			return
		}
		delete(f.holders[holder], s)
		if len(f.holders[holder]) == 0 {
			delete(f.holders, holder)
		}
		f.all--
	}
}

// Follow adds tasks whose task and run events are delivered, too, while they are open to who follows; their present
// state comes at once.
func (s *Subscription) Follow(who Who, tasks ...Task) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.who = who
	for _, t := range tasks {
		s.tasks[t.Name] = true
		s.feed.hear(func(n *news) { n.tasks[t.ID] = true })
	}
}

// Unfollow ends that; names that are not followed are left out.
func (s *Subscription) Unfollow(tasks ...string) {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	for _, name := range tasks {
		delete(s.tasks, name)
	}
}

// RequestsOnly spares a subscription all but request events.
func (s *Subscription) RequestsOnly() *Subscription {
	s.feed.mu.Lock()
	defer s.feed.mu.Unlock()
	s.quiet = true
	return s
}

// heard notes what a NOTIFY said.
func (f *Feed) heard(m notify.Message) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.all == 0 {
		return // who subscribes later reads the tables first
	}
	f.hear(func(n *news) {
		if m.Round != nil {
			n.rounds[m.Round.ID] = true
			n.tasks[m.Round.Task] = true
			if m.Round.Run != 0 {
				n.runs[m.Round.Run] = true
			}
		}
		for _, c := range m.Changes {
			n.tasks[c.Task] = true
			n.resync = n.resync || c.Many
			for ids, into := range map[*[]int64]map[int64]bool{&c.Rounds: n.rounds, &c.Requests: n.requests, &c.Work: n.work, &c.Runs: n.runs} {
				for _, id := range *ids {
					into[id] = true
				}
			}
		}
		n.resync = n.resync || m.All
	})
}

// hear changes what is to be read, and wakes the reader; f.mu is held.
func (f *Feed) hear(change func(*news)) {
	if f.news.rounds == nil {
		f.news = newNews()
	}
	change(&f.news)
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Connected tells the feed that the listener has its connection (back): everybody is read again, and told that
// the node is live when that is done.
func (f *Feed) Connected() { f.listening(Live) }

// Disconnected tells the feed that nothing is heard any more.
func (f *Feed) Disconnected() { f.listening(Lagging) }

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
	return f.state == Live && !f.deaf
}

func (f *Feed) lagging() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.state == Lagging && !f.deaf
}

func (f *Feed) listening(state NodeState) {
	f.mu.Lock()
	first := f.state == ""
	changed := f.state != state
	f.state = state
	if state == Live {
		f.hear(func(n *news) { n.resync = true })
	}
	f.mu.Unlock()
	if changed && state == Lagging && !first {
		f.Broadcast(Event{Type: "node", Body: NodeEvent{Lagging}})
	}
}

// Broadcast delivers to everybody.
func (f *Feed) Broadcast(e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, subs := range f.holders {
		for s := range subs {
			if !s.quiet {
				s.deliver(e)
			}
		}
	}
}

const (
	mergeFor    = 250 * time.Millisecond // the least time between two events of one task
	rereadEvery = 10 * time.Second       // an announcement may be lost with its node: tasks that are followed are read anyway
	deafEvery   = 2 * time.Second
)

// run reads and delivers until ctx ends.
func (f *Feed) run(ctx context.Context) error {
	again := time.NewTicker(deafEvery)
	defer again.Stop()
	reread := time.Now()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-f.wake:
		case <-again.C:
			f.mu.Lock()
			if f.all > 0 && (f.deaf || f.state != Live) {
				f.hear(func(n *news) { n.resync = true })
			}
			f.mu.Unlock()
			if time.Since(reread) < rereadEvery {
				continue
			}
			reread = time.Now()
			f.followed(ctx)
		}
		if err := f.catchUp(ctx); err != nil && ctx.Err() == nil {
			f.engine.Log.Warn("tell what happened; it is tried again", "error", err)
			f.mu.Lock()
			f.hear(func(n *news) { n.resync = true })
			f.mu.Unlock()
			select {
			case <-ctx.Done():
			case <-time.After(time.Second):
			}
		}
	}
}

// followed marks every task that somebody follows as news.
func (f *Feed) followed(ctx context.Context) {
	f.mu.Lock()
	names := map[string]bool{}
	for _, subs := range f.holders {
		for s := range subs {
			maps.Copy(names, s.tasks)
		}
	}
	f.mu.Unlock()
	if len(names) == 0 {
		return
	}
	tasks, err := f.engine.Tasks(ctx)
	if err != nil {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range tasks {
		if names[t.Name] {
			f.hear(func(n *news) { n.tasks[t.ID] = true })
		}
	}
}

// catchUp reads all that was heard, and delivers it.
func (f *Feed) catchUp(ctx context.Context) error {
	f.mu.Lock()
	n := f.news
	f.news = news{}
	live := f.state == Live
	nobody := f.all == 0
	f.mu.Unlock()
	if nobody || n.rounds == nil {
		return nil
	}
	if n.resync {
		if err := f.resync(ctx); err != nil {
			return err
		}
		if live {
			f.Broadcast(Event{Type: "node", Body: NodeEvent{Live}})
		}
	}
	for _, tell := range []func(context.Context, news) error{f.tellRequests, f.tellWork, f.tellRuns, f.tellTasks} {
		if err := tell(ctx, n); err != nil {
			return err
		}
	}
	return nil
}

// here are the holders who follow on this node.
func (f *Feed) here() []Holder {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.holders))
}

// to delivers to one holder's subscriptions.
func (f *Feed) to(h Holder, e Event) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for s := range f.holders[h] {
		if !s.quiet || e.Request != nil {
			s.deliver(e)
		}
	}
}
