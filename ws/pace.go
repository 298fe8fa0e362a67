package ws

import "time"

const (
	messagesPerSecond = 20  // allowed for a client; the page sends one for each view that is opened
	messageBurst      = 100 // allowed at once
)

// pace bounds how fast one client's messages are read. Each may read the database, so otherwise one socket could keep
// the database busy.
//
// A client that is too fast waits; its socket is not closed: it would come back and do the same, for ever. Its pongs wait
// behind its messages, so the page and [getwork/ws/client] subscribe to up to 50 tasks by one message. If one of these tasks is
// missing, they repeat the message without it.
type pace struct {
	since time.Time // when a burst was last allowed in full, moved on by each message
}

// next returns how long to wait before the next message is read.
func (p *pace) next(now time.Time) time.Duration {
	const each = time.Second / messagesPerSecond
	if oldest := now.Add(-messageBurst * each); p.since.Before(oldest) {
		p.since = oldest
	}
	p.since = p.since.Add(each)
	return max(0, p.since.Sub(now))
}
