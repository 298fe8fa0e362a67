package client

import (
	"cmp"
	"context"
	"maps"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"getwork/ws"
)

// Live follows the live channel, and reconnects whenever a connection ends. Client and Handle are required.
type Live struct {
	Client *Client

	// Handle is called with one event after the other: hello and a snapshot for each connection, then changes. Changes
	// between two connections are in the snapshot, or have to be read. Nothing is read while Handle runs, so if it takes
	// more than a few seconds, the connection is lost.
	Handle func(Event)

	// Lost, if not nil, is called when a connection has ended or failed, before the next attempt.
	Lost func(error)

	mu      sync.Mutex
	tasks   map[string]bool // subscribed to
	socket  *Socket         // the present one, or nil
	batches []batch         // what was sent on it, oldest first, and may still be refused

	pingEvery time.Duration // 0: 25 s
}

// batch is the tasks that one message subscribes to. If the node refuses one of them, it follows none of them.
type batch struct {
	tasks []string
	sent  time.Time
}

const (
	inMessage    = 50          // tasks at most: a node reads 20 messages a second, and pongs only behind them
	answeredSoon = time.Minute // a message that is not read within this time costs the connection, because pings come behind it
)

const (
	firstRedial   = 500 * time.Millisecond
	longestRedial = 30 * time.Second
	steadyAfter   = 10 * time.Second // after a connection that lasted this long, the next attempt comes soon
	dialWithin    = 10 * time.Second
	usualPing     = 25 * time.Second // only a ping distinguishes a dead connection from an idle one
	pongWithin    = 5 * time.Second
)

// Run keeps the channel open until ctx ends, and then returns the cause. It returns earlier if another attempt would not help:
// the server does not know or admit the caller (a [Problem] with status 401 or 403), or rejects a message; or no call can be made
// with the client's URL or identity. Run may be called again, and keeps its subscriptions.
func (l *Live) Run(ctx context.Context) error {
	if err := l.Client.check(); err != nil {
		return err
	}
	wait := firstRedial
	for {
		began, err := l.follow(ctx)
		switch status := ws.CloseStatus(err); {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case status == ws.Unsupported, status == ws.TooBig, StatusOf(err) == http.StatusUnauthorized, StatusOf(err) == http.StatusForbidden:
			return err
		}
		if l.Lost != nil {
			l.Lost(err)
		}
		if !began.IsZero() && time.Since(began) > steadyAfter {
			wait = firstRedial
		}
		pause := time.NewTimer(max(wait/2+rand.N(wait/2), retryAfterOf(err)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return context.Cause(ctx)
		}
		wait = min(2*wait, longestRedial)
	}
}

// follow reads one connection to its end. It returns when the connection began, or the zero time if it could not be made: a
// dial that takes long to fail must not count as a connection that lasted.
func (l *Live) follow(ctx context.Context) (began time.Time, err error) {
	dialing, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	s, err := l.Client.Socket(dialing)
	if err != nil {
		return began, err
	}
	began = time.Now()
	defer s.Close()
	subscribed := l.use(s)
	defer l.use(nil)
	l.Handle(Event{Type: "hello", Hello: &s.Hello})
	l.Handle(Event{Type: "snapshot", Snapshot: &s.Snapshot})
	l.mu.Lock()
	l.follows(subscribed, inMessage)
	l.mu.Unlock()
	probing, end := context.WithCancel(ctx)
	var probe sync.WaitGroup
	probe.Go(func() { s.probe(probing, cmp.Or(l.pingEvery, usualPing)) })
	defer probe.Wait()
	defer end()
	for {
		e, err := s.Next(ctx)
		if err != nil {
			return began, err
		}
		l.Handle(e)
		if e.Error != nil && e.Error.Status == http.StatusNotFound {
			l.refused(e.Error.Detail)
		}
		if e.Error != nil && (e.Error.Status == http.StatusServiceUnavailable || e.Error.Status == http.StatusTooManyRequests) {
			return began, &Problem{Problem: *e.Error} // a subscription was not carried out; the next connection repeats all
		}
	}
}

// probe closes a connection whose other end does not answer.
func (s *Socket) probe(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		answer, cancel := context.WithTimeout(ctx, pongWithin)
		err := s.Ping(answer)
		cancel()
		if err != nil {
			s.Close()
			return
		}
	}
}

// use makes a connection the present one, and returns the tasks to subscribe to.
func (l *Live) use(s *Socket) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.socket, l.batches = s, nil
	return slices.Sorted(maps.Keys(l.tasks))
}

// Subscribe follows tasks by name, on each connection from now on: their task and run events come. If the node can't do so
// for the moment (an error event with status 503 or 429), another connection repeats it.
func (l *Live) Subscribe(tasks ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.tasks == nil {
		l.tasks = map[string]bool{}
	}
	for _, task := range tasks {
		l.tasks[task] = true
	}
	l.follows(tasks, inMessage)
}

// follows subscribes to those tasks that the caller has not unsubscribed from meanwhile; l.mu must be held.
func (l *Live) follows(tasks []string, each int) {
	tasks = slices.DeleteFunc(slices.Clone(tasks), func(task string) bool { return !l.tasks[task] })
	l.batches = slices.DeleteFunc(l.batches, func(b batch) bool { return time.Since(b.sent) > answeredSoon })
	for part := range slices.Chunk(tasks, each) {
		l.batches = append(l.batches, batch{part, time.Now()})
	}
	l.tell((*Socket).Subscribe, tasks, each)
}

// refused is called when the node has refused a batch because of the task that detail names. It subscribes to the others.
func (l *Live) refused(detail string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	is := func(task string) bool { return strings.Contains(detail, strconv.Quote(task)) }
	for i, b := range slices.Backward(l.batches) { // an earlier one was taken while the task was there
		if slices.ContainsFunc(b.tasks, is) {
			l.batches = slices.Delete(l.batches, i, i+1)
			l.follows(slices.DeleteFunc(b.tasks, is), inMessage)
			return
		}
	}
	var others []string // the node says it in other words; one by one, only the missing task is refused
	for _, b := range l.batches {
		if len(b.tasks) > 1 {
			others = append(others, b.tasks...)
		}
	}
	l.batches = nil
	l.follows(others, 1)
}

// Unsubscribe ends a subscription.
func (l *Live) Unsubscribe(tasks ...string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, task := range tasks {
		delete(l.tasks, task)
	}
	l.tell((*Socket).Unsubscribe, tasks, inMessage)
}

// tell sends subscriptions to the node, each message with that many tasks; l.mu must be held. If that fails, it ends the
// connection, and the next one sends all.
func (l *Live) tell(say func(*Socket, context.Context, ...string) error, tasks []string, each int) {
	if l.socket == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), pongWithin)
	defer cancel()
	for part := range slices.Chunk(tasks, each) {
		if err := say(l.socket, ctx, part...); err != nil {
			l.socket.Close()
			return
		}
	}
}

// Reconnect replaces the present connection, for example if it did not report an expected change.
func (l *Live) Reconnect() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.socket != nil {
		l.socket.Close()
	}
}
