package rights

import (
	"sync"
	"time"
)

const (
	cacheFor  = 500 * time.Millisecond // a generation; what was read is kept for at most two
	cacheMost = 25_000                 // entries of a generation: more would let strangers fill a node's memory with credentials that don't exist
	askMost   = 50                     // unknown credentials that are looked up in a second
)

// cache keeps what was read of a credential for at most a second, so that a busy client costs one read, and an end that
// commits now is obeyed by every call a second later.
type cache struct {
	mu         sync.Mutex
	now, older map[string]found
	since      time.Time
	known      map[string]struct{} // credentials that existed once: they are looked up however many unknown ones come
}

func (c *cache) get(key string) (f found, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	if f, ok = c.now[key]; !ok {
		f, ok = c.older[key]
	}
	return f, ok
}

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

// clear forgets everything: something has ended or changed.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.older = map[string]found{}, nil
}

func (c *cache) existed(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.known[key]
	return ok
}

// pace allows so many unknown credentials in a second.
type pace struct {
	mu    sync.Mutex
	since time.Time
	n     int
}

func (p *pace) allow() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.since) >= time.Second {
		p.since, p.n = time.Now(), 0
	}
	p.n++
	return p.n <= askMost
}
