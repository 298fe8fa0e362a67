package assign

import (
	"context"
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"getwork/schema/schematest"
)

// follower gathers what a stream delivers.
type follower struct {
	*Stream
	t     *testing.T
	ready chan struct{}
	seen  []Event
}

func follow(t *testing.T, n *node, user string) *follower {
	t.Helper()
	f := &follower{t: t, ready: make(chan struct{}, 1)}
	f.Stream = n.OpenStream(Holder{User: user}, func() {
		select {
		case f.ready <- struct{}{}:
		default:
		}
	})
	t.Cleanup(f.Close)
	return f
}

// next is the next event that matches.
func (f *follower) next(what string, match func(Event) bool) Event {
	f.t.Helper()
	deadline := time.NewTimer(20 * time.Second)
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

func ofType(kind string) func(Event) bool { return func(e Event) bool { return e.Type == kind } }

// A round on one node is pushed on another, to its owner alone, with the work in it; runs and tasks are told to who
// waits or follows.
func TestPushedOnAnotherNode(t *testing.T) {
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	a := startNode(t, url, nodeOptions{steps: queried.hold})
	b := startNode(t, url, nodeOptions{steps: queried.hold})
	newTask(t, a, "task", numbers, nil)
	ann, eve := follow(t, b, "ann"), follow(t, b, "eve")
	for _, f := range []*follower{ann, eve} {
		if err := f.Start(t.Context(), "worker"); err != nil {
			t.Fatal(err)
		}
		f.next("hello", ofType("hello"))
		f.next("snapshot", ofType("snapshot"))
	}
	if err := eve.Follow(t.Context(), []string{"task"}, Who{Anything: true}); err != nil {
		t.Fatal(err)
	}
	if e := eve.next("the task as it is", ofType("task")); e.Body.(*Task).Waiting != 0 {
		t.Errorf("%d wait", e.Body.(*Task).Waiting)
	}
	r := a.click(t, "task", "ann", 2)
	<-queried.reached
	ann.next("a pending request", func(e Event) bool { return e.Type == "request" && e.Request.State == Pending })
	ann.next("a run that started", func(e Event) bool { return e.Type == "run" && e.Body.(RunEvent).Phase == "started" })
	close(queried.open)
	e := ann.next("her result", func(e Event) bool { return e.Type == "request" && e.Request.State == Assigned })
	if e.Request.ID != r.ID || fmt.Sprint(items(*e.Request)) != "[1 2]" {
		t.Errorf("request %d with %v", e.Request.ID, items(*e.Request))
	}
	eve.next("a run that finished", func(e Event) bool {
		return e.Type == "run" && e.Body.(RunEvent).Phase == "finished" && *e.Body.(RunEvent).Candidates == 1000
	})
	eve.next("the task with two held", func(e Event) bool {
		if e.Type == "request" || e.Type == "work" {
			t.Errorf("eve is told of ann's %s", e.Type)
		}
		return e.Type == "task" && e.Body.(*Task).Held == 2
	})
	if _, err := a.Dispose(t.Context(), e.Request.Work[0].ID, Disposition{Outcome: "complete"}, Holder{User: "ann"}, false); err != nil {
		t.Fatal(err)
	}
	ann.next("her work closed", func(e Event) bool { return e.Type == "work" && e.Body.(*Work).State == "completed" })
}

// Nothing falls between the snapshot and the events after it: what commits while the snapshot is read comes behind it.
func TestNothingBetweenSnapshotAndEvents(t *testing.T) {
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "task", numbers, nil)
	ann := follow(t, n, "ann")
	r := n.click(t, "task", "ann", 1) // registered, no snapshot yet
	n.endedRequest(t, r.ID)
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("hello first", ofType("hello"))
	snapshot := ann.next("snapshot second", ofType("snapshot")).Body.(Pipeline)
	if len(snapshot.Work) != 1 {
		t.Errorf("the snapshot has %d items", len(snapshot.Work))
	}
	ann.next("the result, behind the snapshot", func(e Event) bool { return e.Type == "request" && e.Request.State == Assigned })
}

// A follower that does not take its events is cut off; nobody waits for it.
func TestSlowFollower(t *testing.T) {
	n := startNode(t, schematest.URL(t), nodeOptions{})
	slow := follow(t, n, "slow")
	if err := slow.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	for range streamLimit + 1 {
		n.Feed.Broadcast(Event{Type: "node", Body: NodeEvent{Live}})
	}
	if events, cut := slow.Take(); !cut || len(events) > 0 {
		t.Errorf("%d events, cut off: %v", len(events), cut)
	}
}

// After the listener was away everybody is read again, and told.
func TestSnapshotAfterAGap(t *testing.T) {
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	ann := follow(t, n, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("the first snapshot", ofType("snapshot"))
	execute(t, db, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query like 'listen%'`)
	ann.next("lagging", func(e Event) bool { return e.Type == "node" && e.Body.(NodeEvent).State == Lagging })
	ann.next("a new snapshot", ofType("snapshot"))
	ann.next("live", func(e Event) bool { return e.Type == "node" && e.Body.(NodeEvent).State == Live })
}

// A node that does not listen finds by looking what others hear.
func TestDeafNode(t *testing.T) {
	url := schematest.URL(t)
	a, deaf := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{deaf: true})
	newTask(t, a, "task", numbers, nil)
	ann := follow(t, deaf, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("the first snapshot", ofType("snapshot"))
	r := a.click(t, "task", "ann", 1)
	if r := deaf.endedRequest(t, r.ID); r.State != Assigned {
		t.Errorf("asked of the deaf node, the request is %s", r.State)
	}
	ann.next("a snapshot with the work", func(e Event) bool {
		p, ok := e.Body.(Pipeline)
		return ok && len(p.Work) == 1
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "task", numbers, func(s *Settings) { s.Paused = true })
	r, err := n.GetWork(t.Context(), "task", Click{Holder: Holder{User: "ann"}, Count: 1, Linger: Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if r, err := n.AwaitRequest(ctx, r.ID, r.Holder(), false, func(r *Request) bool { return r.State != Pending }); err != nil || r.State != Pending {
		t.Errorf("%s, %v", r.State, err)
	}
}

func TestEventsAreEncodedAsTheContractHasThem(t *testing.T) {
	b, err := json.Marshal(Event{Type: "node", Body: NodeEvent{Lagging}})
	if err != nil || string(b) != `{"node":{"state":"lagging"},"type":"node"}` {
		t.Errorf("%s, %v", b, err)
	}
	for d, want := range map[time.Duration]string{0: "0s", 90 * time.Second: "90s", 2 * time.Minute: "2m", 24 * time.Hour: "24h", 1500 * time.Millisecond: "1500ms"} {
		if got := Duration(d).String(); got != want {
			t.Errorf("%d is written %s, want %s", d, got, want)
		}
	}
}

// A node whose listener never comes up, as behind a transaction pooler, finds by looking what others hear.
func TestListenerThatNeverComesUp(t *testing.T) {
	url := schematest.URL(t)
	a, mute := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{mute: true})
	newTask(t, a, "task", numbers, nil)
	ann := follow(t, mute, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	a.endedRequest(t, a.click(t, "task", "ann", 1).ID)
	ann.next("a snapshot with the work", func(e Event) bool {
		p, ok := e.Body.(Pipeline)
		return ok && len(p.Work) == 1
	})
}

// Who connects while the node is lagging is told so, behind the snapshot: the change itself was before his time.
func TestConnectedWhileLagging(t *testing.T) {
	n := startNode(t, schematest.URL(t), nodeOptions{mute: true})
	n.Feed.Disconnected()
	ann := follow(t, n, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("the snapshot", ofType("snapshot"))
	ann.next("lagging", func(e Event) bool { return e.Type == "node" && e.Body.(NodeEvent).State == Lagging })
}
