package ws

import "time"

const (
	messagesPerSecond = 20  // that a client may send; it sends one for each view that is opened
	messageBurst      = 100 // that it may send at once
)

// pace bounds how fast one client's messages are read: each may read the database, so that one socket could keep it
// busy.
type pace struct {
	since time.Time // when a burst was last allowed in full, moved on by each message
}

// next is how long to wait before the next message is read.
func (p *pace) next(now time.Time) time.Duration {
	const each = time.Second / messagesPerSecond
	if oldest := now.Add(-messageBurst * each); p.since.Before(oldest) {
		p.since = oldest
	}
	p.since = p.since.Add(each)
	return max(0, p.since.Sub(now))
}
