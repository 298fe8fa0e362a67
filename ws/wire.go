package ws

import (
	"crypto/tls"
	"encoding/binary"
	"errors"
	"net"
	"os"
	"slices"
	"sync"
	"time"

	"getwork/assign"
)

// wire is the TCP connection below a WebSocket, or the TLS connection. It frames messages itself: the library would keep
// 4 KiB for each connection to send a message in one piece, and could not continue one that the client was too slow to
// take. Nor can TLS, where a write that timed out is the last. Such a write ends the connection, so over TLS none may
// begin with little patience.
type wire struct {
	net.Conn

	mu     sync.Mutex
	rest   []byte // of sent messages: the client has not taken it yet; nothing over TLS
	closed bool   // a close frame was sent; no message may follow it
}

// errBusy means that a write must have a goroutine of its own, because it may wait for the client.
var errBusy = errors.New("the connection is being written to")

const (
	finalText  = 0x81 // head of a text message's only frame
	closeKind  = 0x8
	controlFor = 5 * time.Second // how long a control frame may take; the library's own limit
)

// Write is for the library, which writes control frames, each in one piece.
func (w *wire) Write(frame []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if all, err := w.write(nil, controlFor); err != nil || !all {
		return 0, errors.Join(err, os.ErrDeadlineExceeded)
	}
	w.closed = w.closed || frame[0]&0xf == closeKind
	_ = w.SetWriteDeadline(time.Now().Add(controlFor))
	return w.Conn.Write(frame)
}

// send writes frames of messages, after the rest of earlier ones. all means that the client took everything within that
// time. Otherwise the rest is kept, and the next call, even an empty one, sends it first; over TLS it is an error. A call with
// no more time than patience gets errBusy, and writes nothing, over TLS or if a control frame waits for the client.
func (w *wire) send(frames []byte, within time.Duration) (all bool, err error) {
	if w.secure() != nil && within <= patience {
		return false, errBusy
	}
	if !w.mu.TryLock() {
		if within <= patience {
			return false, errBusy
		}
		w.mu.Lock()
	}
	defer w.mu.Unlock()
	if w.closed {
		return false, net.ErrClosed
	}
	return w.write(frames, within)
}

func (w *wire) write(frames []byte, within time.Duration) (all bool, err error) {
	if len(w.rest) > 0 {
		frames = append(w.rest, frames...)
		w.rest = nil
	}
	if len(frames) == 0 {
		return true, nil
	}
	_ = w.SetWriteDeadline(time.Now().Add(within)) // fails on a closed connection, and so does the write
	n, err := w.Conn.Write(frames)
	if errors.Is(err, os.ErrDeadlineExceeded) && w.secure() == nil {
		w.rest = slices.Clone(frames[n:])
		return false, nil
	}
	return err == nil, err
}

// secure returns the TLS connection, or nil if there is none.
func (w *wire) secure() *tls.Conn {
	c, _ := w.Conn.(*tls.Conn)
	return c
}

// Close ends the connection at once. TLS would first wait for room to say goodbye, up to five seconds for a client that
// takes nothing; a client that does has had a close frame.
func (w *wire) Close() error {
	if c := w.secure(); c != nil {
		return c.NetConn().Close()
	}
	return w.Conn.Close()
}

// appendFrame appends an event as a frame.
func appendFrame(b []byte, e assign.Event) ([]byte, error) {
	const longest = 10 // head
	at := len(b)
	b, err := e.AppendMessage(append(b, make([]byte, longest)...))
	message := b[at+longest:]
	head := append(b[:at], finalText)
	switch n := len(message); {
	case n < 126:
		head = append(head, byte(n))
	case n < 1<<16:
		head = binary.BigEndian.AppendUint16(append(head, 126), uint16(n))
	default:
		head = binary.BigEndian.AppendUint64(append(head, 127), uint64(n))
	}
	return append(head, message...), err
}
