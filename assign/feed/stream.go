package feed

import (
	"context"
	"slices"
	"sync"

	"getwork/assign"
)

// Stream is the live channel of one connection, whatever carries it: hello, snapshot, then events in order. Its queue is
// bounded, and nobody waits for it. A client that takes events too slowly is cut off, and reconnects to a new snapshot.
type Stream struct {
	feed   *Feed
	holder assign.Holder
	reads  bool     // queries, and why they failed
	tasks  []string // only events of these tasks are for the connection; nil: all
	ready  func()
	sub    *Subscription

	lagging bool // whether the node was lagging when the stream was opened

	mu    sync.Mutex // locked under the feed's lock, too, so the feed must not be called under it
	queue []assign.Event
	live  bool // the snapshot is in the queue; events that come before go behind it
	slow  bool // more events came than may wait; from then on nothing is queued

	// Bytes of the feed's Room: of what is queued, and of what was taken and is being written.
	queued, taken int
	closed        bool // nothing is counted any more
}

// streamLimit is the most events that wait for a connection, besides one for each task that it follows. These come all at once when
// it begins to follow, so otherwise a client that is fast enough would be cut off, and again each time that it comes back. Only
// tasks that exist can be followed, and all followers share a task's event, so memory stays bounded.
const streamLimit = 256

// Open registers a connection; nothing is delivered before Start. ready is called when there is something to Take, often under the
// feed's lock; it must neither block nor call the stream. The caller must Close the stream.
func (f *Feed) Open(who assign.Who, ready func()) *Stream {
	s := &Stream{feed: f, holder: who.Holder, reads: who.MayReadQueries(), tasks: who.Tasks, ready: ready}
	s.sub = &Subscription{feed: f, holder: who.Holder, deliver: s.Put}
	s.sub.enter()
	s.lagging = f.lagging() // read after subscribing, so that the end of lagging is not missed
	return s
}

// Start puts hello and a snapshot before the events that have come since the stream was opened, and goes live. After an error
// nothing is delivered.
func (s *Stream) Start(ctx context.Context, role string) error {
	p, err := s.feed.snapshots.Ask(ctx, s.holder)
	if err != nil {
		return err
	}
	first := []assign.Event{
		{Type: "hello", Body: assign.Hello{Node: s.feed.config.Node, User: s.holder.User, Role: role, ServerTime: p.At.UTC()}},
		{Type: "snapshot", Body: p},
	}
	if s.lagging {
		first = append(first, assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Lagging}})
	}
	if role != "" && role != string(assign.RoleObserver) {
		s.feed.mu.Lock()
		s.sub.works = true
		s.feed.mu.Unlock()
	}
	s.mu.Lock()
	first[1] = s.fit(first[1])
	s.queue = append(first, s.queue...)
	s.live = true
	s.mu.Unlock()
	s.ready()
	return nil
}

// Put queues events. One too many cuts the stream off.
func (s *Stream) Put(events ...assign.Event) {
	s.mu.Lock()
	if n := len(s.queue) + len(events); s.slow || n > streamLimit+int(s.sub.follows.Load()) {
		if !s.slow {
			s.feed.Slow.Add(1)
		}
		s.slow, s.queue = true, nil
		s.give(&s.queued)
		s.feed.Dropped.Add(int64(n))
	}
	if !s.slow {
		for _, e := range events {
			s.queue = append(s.queue, s.fit(e))
		}
	}
	live := s.live
	s.mu.Unlock()
	if live {
		s.ready()
	}
}

// fit makes room for an event, whose details are left out if there is none: a connection that was closed instead would come back at
// once, for a snapshot. s.mu must be held.
func (s *Stream) fit(e assign.Event) assign.Event {
	if s.closed {
		return e
	}
	e, counted := s.feed.Room.Fit(s.holder.User, e)
	s.queued += counted
	return e
}

// give gives back what was counted; s.mu must be held.
func (s *Stream) give(counted *int) {
	s.feed.Room.Give(s.holder.User, *counted)
	*counted = 0
}

// Take removes and returns the queued events. If slow is set, events were lost, and the connection must be closed. Their room is
// taken until Written.
func (s *Stream) Take() (events []assign.Event, slow bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.live {
		s.taken, s.queued = s.taken+s.queued, 0
		events, s.queue = s.queue, nil
		s.feed.Sent.Add(int64(len(events)))
	}
	if s.tasks != nil {
		events = slices.DeleteFunc(events, func(e assign.Event) bool { _, theirs := e.Of(s.tasks); return !theirs })
		for i := range events {
			events[i], _ = events[i].Of(s.tasks)
		}
	}
	if !s.reads {
		for i := range events {
			events[i] = events[i].Withheld()
		}
	}
	return events, s.slow
}

// Written gives back the room of the events that were taken.
func (s *Stream) Written() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.give(&s.taken)
}

// Cut ends the stream with that event as its last: what waits in the queue is not delivered.
func (s *Stream) Cut(last ...assign.Event) {
	s.sub.leave()
	s.mu.Lock()
	s.give(&s.queued)
	s.queue, s.live = last, true
	s.mu.Unlock()
	s.ready()
}

// Follow adds tasks by name. [assign.NotFound] names the first that does not exist or that who may not see; then none is
// added.
func (s *Stream) Follow(ctx context.Context, names []string, who assign.Who) error {
	for _, name := range names {
		if !assign.IsTaskName(name) || s.tasks != nil && !slices.Contains(s.tasks, name) {
			return noTopic(name)
		}
	}
	tasks, err := s.feed.tasks.Ask(ctx, names)
	if err != nil {
		return err
	}
	follow := make([]followed, len(names))
	for i, name := range names {
		t, found := tasks[name]
		if !found || !who.May(t.groups) {
			return noTopic(name)
		}
		follow[i] = t
	}
	s.sub.follow(who, follow)
	return nil
}

func noTopic(name string) error {
	return assign.Refuse(assign.NotFound, "no task %q to subscribe to", name)
}

// Unfollow removes tasks.
func (s *Stream) Unfollow(names []string) { s.sub.Unfollow(names...) }

// Close ends the stream. It may be called more than once.
func (s *Stream) Close() {
	s.sub.leave()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	s.give(&s.queued)
	s.give(&s.taken)
}
