package web

import (
	"net/netip"
	"sync"
	"time"
)

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
