package serve

import (
	"sync"
	"time"
)

// probes remembers when readiness was asked for. A load balancer asks again and again, and sends new connections here
// until it has heard "no" often enough. If the listening socket closed before that, some of them would be refused.
type probes struct {
	mu           sync.Mutex
	last, before time.Time // the times of the last two probes
}

// probedWithin is the longest time between two probes of a load balancer that watches this node.
const probedWithin = 30 * time.Second

// asked records a probe.
func (p *probes) asked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.before = time.Now(), p.last
}

// watched reports whether probes come regularly. The node can't know how many load balancers probe it, nor how many
// failures each needs to see.
func (p *probes) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.before) < probedWithin
}
