package web

import (
	"context"
	"errors"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"getwork/assign"
)

const (
	maxCalls   = 1024   // the default of Config.MaxCalls
	maxWaiting = 20_000 // the default of Config.MaxWaiting

	// maxLooking bounds calls that wait for the slot for asking. They have a bound of their own, so that calls which wait for a query
	// don't keep out calls which only close work.
	maxLooking = 256

	// gatePatience is how long a call waits at the gate.
	gatePatience = 2 * time.Second

	// callWithin is how long a call may take after the gate, if it waits for no query. It is shorter than the time-outs of clients
	// and proxies, so that they get an answer that says what is wrong.
	callWithin = 15 * time.Second

	// releaseWithin is the same for a release, which may be of very much, in several transactions.
	releaseWithin = 2 * time.Minute
)

// gate bounds the calls under way: in all, and an eighth of that for each user, so that one user can't keep the others out.
// A call without a place waits in line for up to patience, because a client that is refused at once and asks again at once
// costs more than one that waits. At most eight times as many calls wait as there are places, and an eighth of those for a
// user.
type gate struct {
	most, each int
	patience   time.Duration
	places     chan struct{} // holds one value for each taken place; waiting senders are served first come, first served

	mu    sync.Mutex
	lines int // calls that wait
	users map[string]*share

	full, tooMany atomic.Int64 // refused calls, by reason
}

// share is one user's part of a gate.
type share struct {
	places chan struct{}
	known  int // calls that are in or wait
}

func newGate(most int, patience time.Duration) *gate {
	return &gate{most: most, each: max(most/8, min(most, 32)), patience: patience, places: make(chan struct{}, most), users: map[string]*share{}}
}

// The reasons of a gate's refusal.
var (
	errFull    = errors.New("too many are in")
	errTooMany = errors.New("too many of one user are in")
)

// enter lets a call of the user in until leave is called, which may be called repeatedly. The error is errTooMany or errFull, also
// if ctx has ended. A waiting call has one of its user's places already, so that no user takes more than a share of the line.
func (g *gate) enter(ctx context.Context, user string) (leave func(), err error) {
	g.mu.Lock()
	s := g.users[user]
	if s == nil {
		s = &share{places: make(chan struct{}, g.each)}
		g.users[user] = s
	}
	if s.known >= g.each+g.most {
		g.mu.Unlock()
		return nil, g.refused(ctx, errTooMany)
	}
	s.known++
	g.mu.Unlock()
	gone := func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		if s.known--; s.known == 0 {
			delete(g.users, user)
		}
	}
	client := ctx
	ctx, cancel := context.WithTimeout(ctx, g.patience)
	defer cancel()
	if !g.take(ctx, s.places) {
		gone()
		return nil, g.refused(client, errTooMany)
	}
	if !g.take(ctx, g.places) {
		<-s.places
		gone()
		return nil, g.refused(client, errFull)
	}
	return sync.OnceFunc(func() {
		<-g.places
		<-s.places
		gone()
	}), nil
}

// refused counts a call that was not let in, unless its client has gone.
func (g *gate) refused(client context.Context, why error) error {
	switch {
	case client.Err() != nil:
	case errors.Is(why, errFull):
		g.full.Add(1)
	default:
		g.tooMany.Add(1)
	}
	return why
}

// inLine returns how many calls wait for a place.
func (g *gate) inLine() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.lines
}

// take takes a place, and waits for one in line while ctx lasts.
func (g *gate) take(ctx context.Context, places chan struct{}) bool {
	select {
	case places <- struct{}{}:
		return true
	default:
	}
	if g.patience == 0 || !g.queue(1) {
		return false
	}
	defer g.queue(-1)
	select {
	case places <- struct{}{}:
		return true
	case <-ctx.Done():
		return false
	}
}

// queue adds a call to the line (1), if the line is not too long, or removes it (-1).
func (g *gate) queue(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > 0 && g.lines >= 8*g.most {
		return false
	}
	g.lines += n
	return true
}

// identityHolds is how long a call may take to arrive and to get its place before its caller is identified again. Otherwise a
// body that is sent slowly would keep rights in use that have ended meanwhile.
const identityHolds = 100 * time.Millisecond

// underWay is a call that passed its gate.
type underWay struct {
	client context.Context // ends when the client goes, not when the call takes too long
	leave  func()
	room   int // of the feed's Room, until the call ends
}

type underWayKey struct{}

// limited bounds the calls that need the database, and ends those that take too long. Live channels and held answers have
// bounds of their own (see stay), so that thousands that wait take no place from clicks.
func (s *server) limited(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		c := CallerOf(r)
		path, api := strings.CutPrefix(r.URL.Path, "/api/v1/")
		if c == nil || !api || path == "ws" || path == "events" {
			next.ServeHTTP(w, r)
			return nil
		}
		begun := time.Now()
		g, within := s.calls, callWithin
		switch {
		case looksAtQuery(path):
			g, within = s.looking, 0
		case path == "work/release":
			within = releaseWithin
		}
		if wait, asked := prefersWait(r); asked && within > 0 {
			within += wait
		}
		if err := receive(w, r, maxBody); err != nil {
			return err
		}
		leave, err := g.enter(r.Context(), c.Holder.User)
		switch {
		case err == nil:
		case r.Context().Err() != nil:
			return r.Context().Err()
		case errors.Is(err, errTooMany):
			return assign.Refuse(assign.Busy, "you have %d calls under way at once; wait for some of them to be answered", g.each)
		default:
			return assign.Refuse(assign.Busy, "this node is overloaded; try again in a moment")
		}
		defer leave()
		if time.Since(begun) > identityHolds {
			if c, err = s.Identify(r); err != nil {
				return err
			}
			r = withCaller(r, c)
		}
		u := &underWay{client: r.Context(), leave: leave}
		defer func() { s.Feed.Room.Give(c.Holder.User, u.room) }()
		ctx := context.WithValue(r.Context(), underWayKey{}, u)
		if within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
}

// looksAtQuery reports whether a call may have to wait for others' queries, and for its own: preview, compare, explain and claim. The
// slot for asking and the query's time-out bound them.
func looksAtQuery(path string) bool {
	task, isTask := strings.CutPrefix(path, "tasks/")
	return path == "preview" || isTask && (strings.HasSuffix(task, "/preview") || strings.HasSuffix(task, "/compare") || strings.Contains(task, "/items/"))
}

// clientOf returns the context that ends when the client goes.
func clientOf(r *http.Request) context.Context {
	if u, ok := r.Context().Value(underWayKey{}).(*underWay); ok {
		return u.client
	}
	return r.Context()
}

// fits makes room for an answer of about so many bytes, until the call ends.
func (s *server) fits(r *http.Request, size int) bool {
	u, ok := r.Context().Value(underWayKey{}).(*underWay)
	if !ok {
		return true
	}
	counted, ok := s.Feed.Room.Take(CallerOf(r).Holder.User, size)
	u.room += counted
	return ok
}

// fit is fits for an answer that can be asked for again. Of one that says what has been done, the details are left out instead.
func (s *server) fit(r *http.Request, size int) error {
	if s.fits(r, size) {
		return nil
	}
	return assign.Refuse(assign.Busy, "this node makes too many large answers just now, to you (16 MiB) or to all (64 MiB); wait for some of them, or ask for less at a time")
}

// answerWork writes work that something was done with: without its details, if there is no room for them.
func (s *server) answerWork(w http.ResponseWriter, r *http.Request, status int, work assign.Work) error {
	if !s.fits(r, assign.SizeOf([]assign.Work{work}, 0)) {
		work.LeaveOut()
	}
	return answer(w, status, work)
}

// stay is for a call that waits without work for the node: it releases the call's place, and takes one for waiting calls.
func (s *server) stay(r *http.Request) (leave func(), err error) {
	leave, err = s.waiting.enter(r.Context(), CallerOf(r).Holder.User)
	if leave != nil {
		if u, ok := r.Context().Value(underWayKey{}).(*underWay); ok {
			u.leave()
		}
	}
	return leave, err
}

// maxAddresses is how many addresses an AddressLimit remembers at most.
const maxAddresses = 100_000

// AddressLimit bounds how often something may come from each client address, such as credentials that are no good. Each
// address has a bucket of tokens, which starts full. A network of IPv6 addresses (/64) counts as one, because one
// machine has all of them.
//
// It remembers up to 100,000 addresses, in two halves: when the newer half is full, it becomes the older one, and what was in
// the older one is forgotten. An attacker gains nothing by it: to have one address
// forgotten they need tens of thousands of others, each with a full bucket of its own.
type AddressLimit struct {
	each  time.Duration // in which a bucket gains one token
	burst time.Duration // in which an empty bucket gets full
	half  int
	since func() time.Duration // the time, which only ever grows

	mu         sync.Mutex
	newer, old map[netip.Addr]time.Duration // when the address's bucket will be full
}

// NewAddressLimit returns a limit of so many a minute for each address, all of which may come at once.
func NewAddressLimit(perMinute int) *AddressLimit {
	began := time.Now()
	return &AddressLimit{each: time.Minute / time.Duration(perMinute), burst: time.Minute, half: maxAddresses / 2,
		since: func() time.Duration { return time.Since(began) }, newer: map[netip.Addr]time.Duration{}}
}

// Allow takes n tokens from the address's bucket. If it has fewer, Allow takes none, and returns how long it will be until
// it has them. With n = 0 it only asks whether the next one would be allowed.
func (l *AddressLimit) Allow(a netip.Addr, n int) (allowed bool, after time.Duration) {
	a = Network(a)
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.since()
	full, known := l.newer[a]
	if !known {
		full = l.old[a]
	}
	full = max(full, now)
	if wait := full + time.Duration(max(n, 1))*l.each - now - l.burst; wait > 0 {
		return false, wait
	}
	if n > 0 {
		if !known && len(l.newer) >= l.half {
			l.old, l.newer = l.newer, map[netip.Addr]time.Duration{}
		}
		l.newer[a] = full + time.Duration(n)*l.each
	}
	return true, 0
}

// Network returns what counts as one client in limits: an IPv4 address, or a /64 of IPv6.
func Network(a netip.Addr) netip.Addr {
	a = a.Unmap().WithZone("")
	if p, err := a.Prefix(64); err == nil && a.Is6() {
		return p.Addr()
	}
	return a
}
