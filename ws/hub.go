package ws

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"getwork/assign"
)

// Config is what a Hub needs. Open, Caller, Problem, Refuse and Log are required.
type Config struct {
	Open   func(who assign.Who, ready func()) Stream         // a socket's events; ready never blocks, and says that there is something to Take
	Caller func(*http.Request) (who assign.Who, role string) // the authenticated caller of a request
	Log    *slog.Logger

	// Follow watches the rights of the request's caller. When they end or change, it calls end with the status that closes the
	// socket. The hub calls release when the socket has ended. A nil Follow means that rights never end.
	Follow func(r *http.Request, end func(status Status, reason string)) (release func())

	MaxSockets int // how many may be open at once, and an eighth of that for one user; 0 for no limit
	// Problem is what a client is shown of an error, and whether that belongs in the log.
	Problem func(error) (p assign.Problem, logged bool)
	// Refuse answers a request that is no proper handshake, or that exceeds MaxSockets.
	Refuse func(w http.ResponseWriter, r *http.Request, err error)

	PingEvery time.Duration // default 20 s: proxies cut connections that are silent for 30 to 60
	PongAfter time.Duration // how long a client may take to answer; default 20 s
	WriteFor  time.Duration // how long one write may take; default 10 s
}

// Stream is where the events of one socket come from.
type Stream interface {
	Start(ctx context.Context, role string) error // hello and a snapshot come first
	Take() (events []assign.Event, slow bool)     // nothing before Start; slow: events were lost, and the socket must be closed
	Written()                                     // all that was taken has been written
	Put(events ...assign.Event)                   // queues behind what has come
	Follow(ctx context.Context, tasks []string, who assign.Who) error
	Unfollow(tasks []string)
	Close() // may be called more than once, and at any time
}

// Hub holds a node's sockets.
type Hub struct {
	Config

	mu      sync.Mutex
	sockets map[*socket]bool
	users   map[string]int // sockets by user, including unfinished handshakes
	taken   int            // the same for all users
	closing bool

	writers writers
	working sync.WaitGroup // sockets, and goroutines that write for them
}

// NewHub returns a hub.
func NewHub(c Config) *Hub {
	h := &Hub{Config: c, sockets: map[*socket]bool{}, users: map[string]int{}}
	for d, absent := range map[*time.Duration]time.Duration{&h.PingEvery: 20 * time.Second, &h.PongAfter: 20 * time.Second, &h.WriteFor: 10 * time.Second} {
		if *d == 0 {
			*d = absent
		}
	}
	return h
}

// Count returns how many sockets are open.
func (h *Hub) Count() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.sockets)
}

// ServeHTTP upgrades the request and returns; the socket lives on without the request's memory.
func (h *Hub) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	who, role := h.Caller(r)
	if err := checkHandshake(r); err != nil {
		h.Refuse(w, r, err)
		return
	}
	if err := h.take(who.Holder.User); err != nil {
		h.Refuse(w, r, err)
		return
	}
	c, err := accept(w, r)
	if err != nil {
		h.give(who.Holder.User)
		h.Log.Info("socket refused", "user", who.Holder.User, "error", err)
		return // the library has answered
	}
	s := newSocket(h, c, who)
	if !h.add(s) {
		h.give(who.Holder.User)
		s.stream.Close()
		c.close(GoingAway, "this node is shutting down")
		return
	}
	if h.Follow != nil {
		s.release = h.Follow(r, s.cut)
	}
	go s.live(role)
}

func (h *Hub) add(s *socket) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closing {
		return false
	}
	h.sockets[s] = true
	h.working.Add(1)
	return true
}

func (h *Hub) remove(s *socket) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.sockets, s)
	h.free(s.who.Holder.User)
	h.working.Done()
}

// Close closes every socket with 1001, spread over that time, so that their clients do not all reconnect elsewhere at
// once. It returns when they are closed; if ctx ends first, it drops them. It complements http.Server.Shutdown, which
// does not know hijacked connections.
func (h *Hub) Close(ctx context.Context, over time.Duration) {
	h.mu.Lock()
	h.closing = true
	for s := range h.sockets {
		s.stream.Put(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Draining}})
		wait := time.Duration(0)
		if over > 0 && len(h.sockets) > 1 {
			wait = rand.N(over)
		}
		time.AfterFunc(wait, func() { s.end(GoingAway, "this node is shutting down") })
	}
	h.mu.Unlock()
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		h.working.Wait()
	}()
	select {
	case <-closed:
		return
	case <-ctx.Done():
	}
	h.mu.Lock()
	for s := range h.sockets {
		s.conn.drop()
	}
	h.mu.Unlock()
	<-closed
}
