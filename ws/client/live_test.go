package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
	"getwork/ws"
)

// line is a TCP proxy whose connections can be cut, or go silent.
type line struct {
	net.Listener
	to string

	mu     sync.Mutex
	conns  []net.Conn
	silent chan struct{} // closed when the present connections go silent
	copied sync.WaitGroup
}

func newLine(t *testing.T, to string) *line {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	l := &line{Listener: listener, to: strings.TrimPrefix(to, "http://"), silent: make(chan struct{})}
	l.copied.Go(l.accept)
	t.Cleanup(func() {
		_ = l.Close()
		l.hush()
		l.cut()
		l.copied.Wait()
	})
	return l
}

func (l *line) accept() {
	for {
		in, err := l.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", l.to)
		if err != nil {
			_ = in.Close()
			continue
		}
		l.mu.Lock()
		l.conns = append(l.conns, in, out)
		silent := l.silent
		l.mu.Unlock()
		l.copied.Go(func() { pass(in, out, answers(), silent) })
		l.copied.Go(func() { pass(out, in, piece, silent) })
	}
}

// pass copies one piece after another, each in one write.
func pass(to, from net.Conn, next func(*bufio.Reader) ([]byte, error), silent chan struct{}) {
	r := bufio.NewReader(from)
	for {
		b, err := next(r)
		if err != nil {
			_ = to.Close()
			return
		}
		select {
		case <-silent:
			_, _ = io.Copy(io.Discard, from)
			return
		default:
		}
		if _, err := to.Write(b); err != nil {
			return
		}
	}
}

// piece reads whatever comes.
func piece(r *bufio.Reader) ([]byte, error) {
	if _, err := r.Peek(1); err != nil {
		return nil, err
	}
	b := make([]byte, r.Buffered())
	_, err := io.ReadFull(r, b)
	return b, err
}

// answers reads what a node sends: the head that begins a WebSocket, and then frames. One write for each keeps what say sends from
// getting into the middle of one.
func answers() func(*bufio.Reader) ([]byte, error) {
	begun := false
	return func(r *bufio.Reader) (b []byte, err error) {
		for !begun {
			line, err := r.ReadBytes('\n')
			if b = append(b, line...); err != nil || len(line) == len("\r\n") {
				begun = true
				return b, err
			}
		}
		return frame(r)
	}
}

func frame(r *bufio.Reader) ([]byte, error) {
	head, err := r.Peek(2)
	if err != nil {
		return nil, err
	}
	more := map[byte]int{126: 2, 127: 8}[head[1]] // bytes of a length that doesn't fit in seven bits
	if head, err = r.Peek(2 + more); err != nil {
		return nil, err
	}
	size := uint64(head[1])
	if more > 0 {
		size = 0
		for _, b := range head[2:] {
			size = size<<8 | uint64(b)
		}
	}
	b := make([]byte, uint64(len(head))+size)
	_, err = io.ReadFull(r, b)
	return b, err
}

func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.conns {
		_ = c.Close()
	}
	l.conns = nil
}

// say sends a message of the node's to the clients.
func (l *line) say(message string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for i := 0; i < len(l.conns); i += 2 { // some are closed
		_, _ = l.conns[i].Write(append([]byte{0x81, 126, byte(len(message) >> 8), byte(len(message))}, message...))
	}
}

func (l *line) hush() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.silent)
	l.silent = make(chan struct{})
}

// follower runs a Live, and passes its events on.
type follower struct {
	*Live
	t      *testing.T
	events chan Event
	lost   chan error
	ended  chan error
}

func follow(t *testing.T, c *Client, set func(*Live)) *follower {
	t.Helper()
	f := &follower{t: t, events: make(chan Event, 1000), lost: make(chan error, 1000), ended: make(chan error, 1)}
	f.Live = &Live{Client: c, Handle: func(e Event) { f.events <- e }, Lost: func(err error) { f.lost <- err }}
	if set != nil {
		set(f.Live)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	go func() { f.ended <- f.Run(ctx); close(f.ended) }()
	t.Cleanup(func() { cancel(errors.New("the test ends")); <-f.ended })
	return f
}

// until waits for an event.
func (f *follower) until(what string, wanted func(Event) bool) Event {
	f.t.Helper()
	late := time.NewTimer(timeout.Scale(time.Minute))
	defer late.Stop()
	for {
		select {
		case e := <-f.events:
			if wanted(e) {
				return e
			}
		case err := <-f.ended:
			f.t.Fatalf("Run returned %v before %s", err, what)
		case <-late.C:
			f.t.Fatalf("waited in vain for %s", what)
		}
	}
}

func (f *follower) untilType(kind string) Event {
	f.t.Helper()
	return f.until(kind, func(e Event) bool { return e.Type == kind })
}

// Changes come as events. A connection that is cut, given up or silent is replaced, with a new snapshot, and keeps its
// subscriptions.
func TestLive(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	boss, ann, task := as(t, "boss", "manager"), as(t, unused("Lea"), "worker"), unused("live")
	must[assign.Task](t)(boss.CreateTask(t.Context(), map[string]any{"name": task}))
	l := newLine(t, ann.URL)
	f := follow(t, &Client{URL: "http://" + l.Addr().String(), User: ann.User}, func(l *Live) {
		l.Subscribe(task, "there-is-none")
		l.pingEvery = 100 * time.Millisecond
	})
	if e := f.untilType("hello"); e.Hello.User != ann.User {
		t.Errorf("hello %+v", e.Hello)
	}
	f.untilType("snapshot")
	if e := f.untilType("error"); e.Error.Status != 404 {
		t.Errorf("a task that does not exist: %+v", e.Error)
	}
	push := func(item string) {
		t.Helper()
		must[assign.Pushed](t)(boss.PushItems(t.Context(), task, []assign.NewItem{{Item: item}}))
	}
	away := func() { // the database is away as a subscription comes
		l.say(`{"type":"error","error":{"type":"/problems/unavailable","title":"The database is away","status":503}}` + strings.Repeat(" ", 126))
	}
	for i, end := range []func(){nil, l.cut, f.Reconnect, l.hush, away} {
		if end != nil {
			end()
			<-f.lost
			if e := f.untilType("snapshot"); len(e.Snapshot.Work) != i {
				t.Errorf("the snapshot has %d of work, want %d", len(e.Snapshot.Work), i)
			}
		}
		push(string(rune('a' + i)))
		f.until("what was pushed", func(e Event) bool { return e.Type == "task" && e.Task.Name == task && e.Task.Shelf == 1 })
		r := must[assign.Request](t)(ann.GetWork(t.Context(), task, Click{Count: 1}, Wait(time.Minute)))
		f.until("the request", func(e Event) bool { return e.Type == "request" && e.Request.ID == r.ID && len(e.Request.Work) == 1 })
	}
	f.Unsubscribe(task)
	f.Subscribe(task)
	push("z")
	f.until("what was pushed last", func(e Event) bool { return e.Type == "task" && e.Task.Shelf == 1 })
}

// Run ends if another attempt would not help, and can be called again.
func TestLiveEnds(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	nobody := &Live{Client: &Client{URL: as(t, "", "").URL}, Handle: func(Event) {}}
	for range 2 {
		if err := nobody.Run(t.Context()); StatusOf(err) != 401 {
			t.Errorf("for nobody: %v", err)
		}
	}
	f := follow(t, as(t, "Rob", "worker"), nil)
	f.untilType("snapshot")
	f.mu.Lock()
	s := f.socket
	f.mu.Unlock()
	if err := s.conn.Write(t.Context(), []byte("not JSON")); err != nil {
		t.Fatal(err)
	}
	if err := <-f.ended; ws.CloseStatus(err) != ws.Unsupported || len(f.lost) > 0 {
		t.Errorf("after a message that is no JSON: %v, %d lost", err, len(f.lost))
	}
}

// What Handle unsubscribes from when a connection begins is not subscribed to again.
func TestUnsubscribeInHandle(t *testing.T) {
	t.Parallel()
	boss := as(t, "boss", "manager")
	left, kept := unused("left"), unused("kept")
	for _, name := range []string{left, kept} {
		must[assign.Task](t)(boss.CreateTask(t.Context(), map[string]any{"name": name}))
	}
	f := follow(t, as(t, "Ute", "worker"), func(l *Live) {
		l.Subscribe(left, kept)
		handle := l.Handle
		l.Handle = func(e Event) {
			if e.Snapshot != nil {
				l.Unsubscribe(left)
			}
			handle(e)
		}
	})
	f.untilType("snapshot")
	for _, name := range []string{left, kept} {
		must[assign.Task](t)(boss.SetPaused(t.Context(), name, true))
	}
	f.until("the other task is paused", func(e Event) bool {
		if e.Task != nil && e.Task.Name == left {
			t.Errorf("an event of %s", left)
		}
		return e.Task != nil && e.Task.Name == kept && e.Task.Paused
	})
}

// A client with many tasks follows all of them but those that do not exist, and its pings are answered meanwhile, though a node
// reads few messages a second.
func TestManyTasks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	boss, base := as(t, "boss", "manager"), unused("many")
	const many = 250
	names := []string{base + "-120-missing", base + "-121-missing", base + "-200-missing"}
	missing := len(names)
	for i := range many {
		names = append(names, fmt.Sprintf("%s-%03d", base, i))
		must[assign.Task](t)(boss.CreateTask(t.Context(), map[string]any{"name": names[missing+i]}))
	}
	l := newLine(t, boss.URL)
	f := follow(t, &Client{URL: "http://" + l.Addr().String(), User: unused("Eva"), Role: "worker"}, func(l *Live) {
		l.Subscribe(names...)
		l.pingEvery = 100 * time.Millisecond
	})
	told := map[string]int{}
	tell := func(e Event) bool {
		switch {
		case e.Task != nil:
			told[e.Task.Name]++
		case e.Error != nil:
			told[e.Error.Detail]++
		}
		return len(told) == len(names)
	}
	f.until("all were told of", tell)
	for _, name := range names[:missing] {
		if detail := fmt.Sprintf("no task %q to subscribe to", name); told[detail] != 1 {
			t.Errorf("told %d times that there is %s", told[detail], detail)
		}
	}

	// If a node says in other words that it refuses a task, the others are followed one by one.
	f.Unsubscribe(names[missing+10:]...)
	f.Reconnect()
	<-f.lost
	f.untilType("snapshot")
	clear(told)
	f.until("the first ten are told of, and what is missing", func(e Event) bool { tell(e); return len(told) == 10+missing })
	clear(told)
	l.say(`{"type":"error","error":{"type":"/problems/not-found","title":"Not found","status":404,"detail":"there is no such task"}}` + strings.Repeat(" ", 126))
	f.until("they are told of again", func(e Event) bool { tell(e); return len(told) == 10+1 })
	if len(f.lost) > 0 {
		t.Errorf("a connection was lost: %v", <-f.lost)
	}
}

// An address that swallows everything is dialled less and less often, as one that refuses is.
func TestLiveBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dialled := 0
		c := &Client{URL: "http://node", HTTP: &http.Client{Transport: tripper(func(*http.Request) (*http.Response, error) {
			dialled++
			<-time.After(dialWithin + time.Millisecond) // a failure is never noticed exactly in time
			return nil, context.DeadlineExceeded
		})}}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		_ = (&Live{Client: c, Handle: func(Event) {}}).Run(ctx)
		if dialled < 15 || dialled > 30 { // each takes 10 s, and is followed by a pause of 15 to 30 s
			t.Errorf("dialled %d times in ten minutes", dialled)
		}
	})
}

type tripper func(*http.Request) (*http.Response, error)

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) { return t(r) }
