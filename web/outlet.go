package web

import (
	"net/http"
	"sync"
	"time"

	"getwork/assign/rights"
)

const (
	takesWithin = 15 * time.Second // a client of an event stream that takes nothing for so long is given up
	partsWithin = time.Second      // the same when its user's rights have ended
)

// outlet writes an event stream to a client, which may be slow, until the stream is cut from elsewhere: its user may not see what
// comes then, also if it was taken from the stream before. A write that waits for the client ends soon after.
type outlet struct {
	w       http.ResponseWriter
	control *http.ResponseController
	over    chan rights.End // gets why the stream was cut

	mu     sync.Mutex
	until  time.Time // when writes end; zero: it is not cut
	closed bool      // the answer is over: its connection may serve another call
}

// send writes and flushes.
func (o *outlet) send(text string) bool {
	o.mu.Lock()
	until := o.until
	if until.IsZero() {
		until = time.Now().Add(takesWithin)
	}
	_ = o.control.SetWriteDeadline(until)
	o.mu.Unlock()
	if _, err := o.w.Write([]byte(text)); err != nil {
		return false
	}
	return o.control.Flush() == nil
}

// cut ends the stream. It may be called at any time, and once.
func (o *outlet) cut(why rights.End) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.over <- why
	if o.until = time.Now().Add(partsWithin); !o.closed {
		_ = o.control.SetWriteDeadline(o.until)
	}
}

func (o *outlet) isCut() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return !o.until.IsZero()
}

// close ends cut's hold on the connection.
func (o *outlet) close() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.closed = true
}
