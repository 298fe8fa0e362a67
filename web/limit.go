package web

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"getwork/assign"
)

const (
	maxCalls   = 1024   // where the configuration says nothing
	maxWaiting = 20_000 // the same

	// maxLooking bounds calls that wait for a place among the ranking queries. They get a bound of their own, so that those
	// who wait for a query don't keep out those who only want to let go of work.
	maxLooking = 256

	// gatePatience is how long a call waits to be let through.
	gatePatience = 2 * time.Second

	// callWithin is how long a call may take then, if it waits for no query: less than what clients and proxies wait for, so that
	// they are told what is wrong.
	callWithin = 15 * time.Second
)

// gate bounds what is under way at once: altogether, and an eighth of that for each user, so that one of them can't
// keep the others out. Who finds no place waits for one, in line, as long as patience: a client that is refused at once,
// and asks again at once, costs more than one that waits. Not more wait than eight times the places, and an eighth of those
// for a user.
type gate struct {
	most, each int
	patience   time.Duration
	places     chan struct{} // holds one for each that is taken; who waits to put one in is let in as he came

	mu    sync.Mutex
	lines int // how many wait
	users map[string]*share

	full, tooMany atomic.Int64 // how many were not let in, by why
}

// share is one user's part of a gate.
type share struct {
	places chan struct{}
	known  int // who are in, and who wait
}

func newGate(most int, patience time.Duration) *gate {
	return &gate{most: most, each: max(most/8, min(most, 32)), patience: patience, places: make(chan struct{}, most), users: map[string]*share{}}
}

// Why somebody was not let in.
var (
	errFull    = errors.New("too many are in")
	errTooMany = errors.New("too many of one user are in")
)

// enter lets somebody in, until leave is called, which may be called again. Who waits for a place has one of his user's
// already, so that no user takes more than his share of the line.
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

// refused counts somebody who was not let in, unless he has gone by himself.
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

// inLine is how many wait for a place.
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

// queue puts somebody in line, if it is not too long, or takes him out.
func (g *gate) queue(n int) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if n > 0 && g.lines >= 8*g.most {
		return false
	}
	g.lines += n
	return true
}

// underWay is a call that passed its gate.
type underWay struct {
	client context.Context // ends when the client goes, not when the call takes too long
	leave  func()
}

type underWayKey struct{}

// limited lets calls that need the database through as long as there are not too many, and ends those that take too
// long. The live channels and held answers are bounded by themselves (see stay), so that thousands who wait take nothing
// from those who click.
func (s *server) limited(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		c := CallerOf(r)
		path, api := strings.CutPrefix(r.URL.Path, "/api/v1/")
		if c == nil || !api || path == "ws" || path == "events" {
			next.ServeHTTP(w, r)
			return nil
		}
		g, within := s.calls, callWithin
		if looksAtQuery(path) {
			g, within = s.looking, 0
		}
		if wait, asked := prefersWait(r); asked && within > 0 {
			within += wait
		}
		if err := receive(w, r); err != nil {
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
			return assign.Refuse(assign.Busy, "this node has more to do than it can; try again in a moment")
		}
		defer leave()
		ctx := context.WithValue(r.Context(), underWayKey{}, &underWay{client: r.Context(), leave: leave})
		if within > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, within)
			defer cancel()
		}
		next.ServeHTTP(w, r.WithContext(ctx))
		return nil
	})
}

// looksAtQuery reports whether a call may have to wait for a place among the ranking queries, and for its query:
// preview, explain and claim. They are bounded by those places and by the query's time-out.
func looksAtQuery(path string) bool {
	task, isTask := strings.CutPrefix(path, "tasks/")
	return path == "preview" || isTask && (strings.HasSuffix(task, "/preview") || strings.Contains(task, "/items/"))
}

// clientOf is the context that ends when the client goes.
func clientOf(r *http.Request) context.Context {
	if u, ok := r.Context().Value(underWayKey{}).(*underWay); ok {
		return u.client
	}
	return r.Context()
}

// stay is for who waits on the node without keeping it busy: it gives the call's place back, and takes one among those
// who wait.
func (s *server) stay(r *http.Request) (leave func(), err error) {
	leave, err = s.waiting.enter(r.Context(), CallerOf(r).Holder.User)
	if leave != nil {
		if u, ok := r.Context().Value(underWayKey{}).(*underWay); ok {
			u.leave()
		}
	}
	return leave, err
}
