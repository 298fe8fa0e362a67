package notify

import (
	"sync"
	"time"
)

// pulse judges whether one connection still receives. It needs to know what was received and what was sent: silence
// counts only while an echo that went out is unanswered.
type pulse struct {
	mu         sync.Mutex
	heard      time.Time // the last sign of life; before the first, when LISTEN became active
	unanswered time.Time // when the first echo since then had gone out; zero if none has
}

// hear notes any notification: each one proves the path.
func (p *pulse) hear(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.unanswered = now, time.Time{}
}

// sent notes that an echo begun at the time start has gone out by now. Its answer comes on another connection and may have
// overtaken it; then no echo is unanswered.
func (p *pulse) sent(start, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unanswered.IsZero() && !p.heard.After(start) {
		p.unanswered = now
	}
}

// deadline returns the time at which the connection is dead if nothing is received until then: silentAfter from the last
// sign of life, but at least grace after an echo that was sent late. It returns false while no echo is unanswered.
func (p *pulse) deadline(silentAfter, grace time.Duration) (time.Time, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unanswered.IsZero() {
		return time.Time{}, false
	}
	at, least := p.heard.Add(silentAfter), p.unanswered.Add(grace)
	if at.Before(least) {
		at = least
	}
	return at, true
}
