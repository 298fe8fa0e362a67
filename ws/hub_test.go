package ws

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/manage"
	"getwork/schema/schematest"
)

// Every client learns the node's state.
func TestNodeEvents(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	clients := []*client{n.open(t, "oliver"), n.open(t, "oliver"), n.open(t, "tracy")}
	n.feed.Disconnected()
	for _, c := range clients {
		for body := c.next("node"); body["state"] != "lagging"; body = c.next("node") {
		}
	}
	n.feed.Connected()
	for _, c := range clients {
		c.next("snapshot") // what may have been missed
		if body := c.next("node"); body["state"] != "live" {
			t.Errorf("node %v", body)
		}
	}
}

// A client that does not read is closed with 1013 when its queue is full; meanwhile all others get everything at once.
func TestSlowClient(t *testing.T) {
	schematest.Long(t)
	overBoth(t, Config{WriteFor: 5 * time.Minute}, func(t *testing.T, n *station) {
		fast, slow := n.open(t, "oliver"), n.openRaw(t, "tracy")
		n.awaitCount(t, 2)
		long := strings.Repeat("x", 64<<10)
		for i := range 500 { // more than the system's buffers and the queue can hold
			text := fmt.Sprint(i, long)
			n.mark(text)
			if got := fast.next("mark")["text"]; got != text {
				t.Fatalf("mark %d is another", i)
			}
		}
		if code, _ := slow.closed(); code != TryAgain {
			t.Errorf("closed with %d, want 1013", code)
		}
		slow.Close()
		n.awaitCount(t, 1)
		n.mark("still there")
		fast.next("mark")
	})
}

// A client that reads nothing at all is dropped when one write has taken too long.
func TestStuckClient(t *testing.T) {
	t.Parallel()
	overBoth(t, Config{WriteFor: 200 * time.Millisecond}, func(t *testing.T, n *station) {
		n.openRaw(t, "tracy")
		long := strings.Repeat("x", 1<<20)
		await(t, "it is dropped", func() bool {
			n.mark(long)
			return n.hub.Count() == 0
		})
	})
}

// A client that answers no ping is dropped; others stay.
func TestPing(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	// Long enough for a client that answers, even if the machine stalls for seconds.
	n := start(t, Config{PingEvery: 20 * time.Millisecond, PongAfter: 8 * time.Second})
	marked := make(chan error, 1)
	lively := n.open(t, "oliver")
	go func() {
		for {
			if kind, _, err := lively.message(); err != nil || kind == "mark" {
				marked <- err
				return
			}
		}
	}()
	if code, pings := n.openRaw(t, "tracy").closed(); code != -1 || pings != 1 {
		t.Errorf("closed with %d after %d pings", code, pings)
	}
	n.awaitCount(t, 1)
	n.mark("still there")
	if err := <-marked; err != nil {
		t.Error(err)
	}
}

// A node that shuts down announces that and closes with 1001, spread over time.
func TestClose(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, Config{})
	const many = 20
	ended := make(chan time.Time, many)
	for range many {
		c := n.open(t, "oliver")
		go func() {
			drained := false
			for {
				kind, body, err := c.message()
				if err != nil {
					if code := CloseStatus(err); code != GoingAway || !drained {
						t.Errorf("closed with %d; told before: %v", code, drained)
					}
					ended <- time.Now()
					return
				}
				drained = drained || kind == "node" && body["state"] == string(assign.Draining)
			}
		}()
	}
	const spread = 8 * time.Second // longer than a machine stalls: closings after a stall are spread, too
	n.hub.Close(t.Context(), spread)
	if n.hub.Count() != 0 {
		t.Errorf("%d sockets are left", n.hub.Count())
	}
	var times []time.Time
	for range many {
		times = append(times, <-ended)
	}
	slices.SortFunc(times, time.Time.Compare)
	if over := times[many-1].Sub(times[0]); over < 100*time.Millisecond || over > spread+10*time.Second {
		t.Errorf("all ended within %v", over)
	}
	if code := n.dial(t, "late").closed(); code != GoingAway {
		t.Errorf("a late one is closed with %d", code)
	}
}

// A dead client does not delay the shutdown beyond its time limit.
func TestCloseWithDeadClients(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	overBoth(t, Config{}, func(t *testing.T, n *station) {
		quiet, stuck := n.openRaw(t, "oliver"), n.openRaw(t, "tracy")
		n.awaitCount(t, 2)
		long := strings.Repeat("x", 1<<20)
		for range 20 { // stuck reads nothing, so a write to it is under way
			n.mark(long)
		}
		go func() { _, _ = quiet.closed() }() // and answers no close
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		n.hub.Close(ctx, 0)
		if took := time.Since(began); took > 20*time.Second || n.hub.Count() != 0 {
			t.Errorf("closing took %v, %d sockets are left", took, n.hub.Count())
		}
		stuck.Close()
	})
}

// More clients than writers read nothing for a while. All others get everything at once meanwhile, and those clients get it
// all when they read again, whole and in order, with the pings in between.
func TestPausingClients(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	const pingEvery = 50 * time.Millisecond
	overBoth(t, Config{WriteFor: 5 * time.Minute, PingEvery: pingEvery, PongAfter: 5 * time.Minute}, func(t *testing.T, n *station) {
		pause(t, n, pingEvery)
	})
}

func pause(t *testing.T, n *station, pingEvery time.Duration) {
	t.Helper()
	const marks = 200
	long := strings.Repeat("x", 40<<10)
	fast := n.open(t, "oliver")
	var pausing []*raw
	for range 4*runtime.GOMAXPROCS(0) + 1 {
		pausing = append(pausing, n.openRaw(t, "tracy"))
	}
	n.awaitCount(t, len(pausing)+1)
	began := time.Now()
	for i := 0; i < marks; i++ { // more than the system's buffers can hold
		if i == marks-1 { // pings are due before the last, and a stalled machine is late with some of them, but not with all
			<-time.After(time.Until(began.Add(20 * pingEvery)))
		}
		text := fmt.Sprint(i, long)
		n.mark(text)
		if got := fast.next("mark")["text"]; got != text {
			t.Fatalf("mark %d is another", i)
		}
	}
	if took := time.Since(began); took > 60*time.Second { // no write of theirs is over by then
		t.Errorf("the others delayed this client: %v", took)
	}
	between := 0 // clients whose ping came between the marks
	for _, p := range pausing {
		next, pings := 0, 0
		for next < marks || pings == 0 { // now and then a ping comes after the last mark, since its goroutine did not run before
			kind, payload, err := p.frame()
			if err != nil {
				t.Fatalf("after %d marks and %d pings: %v", next, pings, err)
			}
			switch {
			case kind == pingFrame:
				if pings++; next < marks {
					between++
				}
			case kind == textFrame && strings.HasPrefix(string(payload), `{"type":"mark"`):
				if want := fmt.Sprintf(`{"type":"mark","mark":{"text":"%d%s"}}`, next, long); string(payload) != want {
					t.Fatalf("mark %d is another", next)
				}
				next++
			case kind != textFrame:
				t.Fatalf("a frame of kind %d", kind)
			}
		}
	}
	if between == 0 {
		t.Error("no ping came between")
	}
	if got := n.hub.Count(); got != len(pausing)+1 {
		t.Errorf("%d sockets are left of %d", got, len(pausing)+1)
	}
}

// Every client learns that a task is new, changed or deleted, and not which.
func TestTasksEvent(t *testing.T) {
	t.Parallel()
	n := start(t, Config{})
	clients := []*client{n.open(t, "oliver"), n.open(t, "oliver"), n.open(t, "tracy")}
	told := func() {
		t.Helper()
		for _, c := range clients {
			if body := c.next("tasks"); len(body) > 0 {
				t.Errorf("told of %v", body)
			}
		}
	}
	n.newTask(t, "secret", true)
	told()
	if err := manage.DeleteTask(t.Context(), n.engine, "secret", 0); err != nil {
		t.Fatal(err)
	}
	told()
}
