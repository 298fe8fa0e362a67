package serve

import (
	"sync"
	"time"
)

// probes remembers who asks whether the node is ready: what stands before several nodes asks all along, and sends new
// connections here until it has heard "no", often enough for it. To close the listening socket before that refuses some of
// them.
type probes struct {
	mu           sync.Mutex
	last, before time.Time // the last two that were asked
}

// probedWithin: somebody watches if it asked twice within this time.
const probedWithin = 30 * time.Second

// asked notes that somebody asked.
func (p *probes) asked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.before = time.Now(), p.last
}

// watched reports whether somebody asks regularly. How many do, and how often each must hear it, is not known.
func (p *probes) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.before) < probedWithin
}
