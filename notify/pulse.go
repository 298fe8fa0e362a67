package notify

import (
	"sync"
	"time"
)

// pulse judges whether one connection still hears. It is told what was heard and what was sent, and needs both: silence
// counts only while an echo which did go out is unanswered.
type pulse struct {
	mu         sync.Mutex
	heard      time.Time // the last sign of life; when LISTEN stood, before the first
	unanswered time.Time // when the first echo since then had gone out; zero: none has
}

// hear notes any notification: each one proves the path.
func (p *pulse) hear(now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heard, p.unanswered = now, time.Time{}
}

// sent notes that an echo begun at the time start has gone out by now. Its answer may have overtaken it, being on another
// connection: then nothing is owed.
func (p *pulse) sent(start, now time.Time) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.unanswered.IsZero() && !p.heard.After(start) {
		p.unanswered = now
	}
}

// deadline tells when the connection is to be judged dead if nothing is heard until then: silentAfter from the last sign
// of life, and grace at least for an echo that could only now be sent. It is false while no echo is unanswered.
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
