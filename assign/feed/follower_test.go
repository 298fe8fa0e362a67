package feed

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest/timeout"
)

// follower gathers what a stream delivers.
type follower struct {
	*Stream
	t     *testing.T
	ready chan struct{}
	seen  []assign.Event
}

func follow(t *testing.T, n *Node, user string) *follower {
	t.Helper()
	f := &follower{t: t, ready: make(chan struct{}, 1)}
	f.Stream = n.Feed.Open(assign.Who{Holder: assign.Holder{User: user}}, func() {
		select {
		case f.ready <- struct{}{}:
		default:
		}
	})
	t.Cleanup(f.Close)
	return f
}

// next returns the next event that matches.
func (f *follower) next(what string, match func(assign.Event) bool) assign.Event {
	f.t.Helper()
	deadline := time.NewTimer(timeout.Scale(20 * time.Second))
	defer deadline.Stop()
	for {
		for i, e := range f.seen {
			if match(e) {
				f.seen = f.seen[i+1:]
				return e
			}
		}
		f.seen = nil
		select {
		case <-f.ready:
			f.seen, _ = f.Take()
		case <-deadline.C:
			f.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func ofType(kind string) func(assign.Event) bool {
	return func(e assign.Event) bool { return e.Type == kind }
}

// listed waits for the next event that says that the list of tasks has changed. It names no task.
func (f *follower) listed(what string) {
	f.t.Helper()
	e := f.next("another list of tasks: "+what, ofType("tasks"))
	if b, err := e.AppendMessage(nil); err != nil || string(b) != `{"type":"tasks","tasks":{}}` {
		f.t.Errorf("%s (%v)", b, err)
	}
}

// join follows, and reads hello and the snapshot.
func join(t *testing.T, n *Node, user string) *follower {
	t.Helper()
	f := follow(t, n, user)
	if err := f.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	f.next("the snapshot", ofType("snapshot"))
	return f
}

// eventsOf returns a holder's events.
func (n *Node) eventsOf(t testing.TB, user string) <-chan assign.Event {
	t.Helper()
	told := make(chan assign.Event, 1000)
	_, end := n.Feed.Subscribe(assign.Holder{User: user}, func(events ...assign.Event) {
		for _, e := range events {
			told <- e
		}
	})
	t.Cleanup(end)
	return told
}

// heard waits for an event that matches.
func heard(t testing.TB, told <-chan assign.Event, what string, so func(assign.Event) bool) {
	t.Helper()
	late := time.NewTimer(timeout.Scale(time.Minute))
	defer late.Stop()
	for {
		select {
		case e := <-told:
			if so(e) {
				return
			}
		case <-late.C:
			t.Fatalf("not told that %s", what)
		}
	}
}

func workIs(id int64, state string) func(assign.Event) bool {
	return func(e assign.Event) bool {
		w, ok := e.Body.(*assign.Work)
		return ok && w.ID == id && string(w.State) == state
	}
}
