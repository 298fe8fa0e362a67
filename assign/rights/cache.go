package rights

import (
	"context"
	"sync"
	"time"
)

const (
	keptFor   = time.Second            // how long after it was read something counts
	cacheFor  = 500 * time.Millisecond // a generation; what was read is in memory for three, since a generation may end late
	cacheMost = 25_000                 // entries of a generation: more would let strangers fill a node's memory with credentials that don't exist
	askMost   = 50                     // credentials that don't exist that are looked up in a second
)

// cache keeps what was read of a credential for at most a second, so that a busy client costs one read, and an end that
// commits now is obeyed by every call a second later.
type cache struct {
	mu         sync.Mutex
	now, older map[string]found
	since      time.Time
	known      map[string]struct{} // credentials that existed once: they are looked up however many unknown ones come
}

// get returns what was read of a credential at most keptFor ago.
func (c *cache) get(key string) (f found, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	if f, ok = c.now[key]; !ok {
		f, ok = c.older[key]
	}
	if !ok || time.Since(f.at) > keptFor {
		return found{}, false
	}
	return f, true
}

// put keeps what was read, also that a credential does not exist. f.at must be a time before the read began.
func (c *cache) put(key string, f found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	if len(c.now) >= cacheMost {
		c.now, c.older, c.since = map[string]found{}, c.now, time.Now()
	}
	c.now[key] = f
	if !f.exists {
		return
	}
	if c.known == nil || len(c.known) >= 2*cacheMost {
		c.known = map[string]struct{}{}
	}
	c.known[key] = struct{}{}
}

// turn begins a generation when the last one is old enough.
func (c *cache) turn() {
	switch age := time.Since(c.since); {
	case age >= 2*cacheFor:
		c.now, c.older, c.since = map[string]found{}, nil, time.Now()
	case age >= cacheFor:
		c.now, c.older, c.since = map[string]found{}, c.now, time.Now()
	}
}

// clear forgets everything, because something has ended or changed. A read that is under way may still put what it saw before the
// change; that is believed for a second after the read began, and no longer.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.older = map[string]found{}, nil
}

// existed reports whether this node has read that a credential exists, even if that is long ago.
func (c *cache) existed(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.known[key]
	return ok
}

// pace bounds how many credentials that don't exist are looked up in a second. Until it is looked up, a good credential that this
// node has not seen looks like them: it may have to wait for others, and takes nothing from the bound. So everybody can come back at
// once to a node that has just started.
type pace struct {
	mu    sync.Mutex
	since time.Time
	none  int           // how many did not exist, since then
	asked int           // how many are being looked up
	left  chan struct{} // closed when one of these is through; nil: nobody waits
}

// patience is how long a look-up may wait for others.
const patience = time.Second

// enter begins to look up a credential, and reports whether that is allowed. If so, leave must follow.
func (p *pace) enter(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		left, ok := p.tryEnter()
		if left == nil {
			return ok
		}
		select {
		case <-left:
		case <-ctx.Done():
			return false
		}
	}
}

// tryEnter is enter, or returns a channel to wait for before the next try.
func (p *pace) tryEnter() (left <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.since) >= time.Second {
		p.since, p.none = time.Now(), 0
	}
	switch {
	case p.none >= askMost:
		return nil, false
	case p.none+p.asked < askMost:
		p.asked++
		return nil, true
	}
	if p.left == nil {
		p.left = make(chan struct{})
	}
	return p.left, false
}

// leave says whether the credential exists; if that could not be read, it counts as one that does.
func (p *pace) leave(exists bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked--
	if !exists {
		p.none++
	}
	if p.left != nil {
		close(p.left)
		p.left = nil
	}
}
