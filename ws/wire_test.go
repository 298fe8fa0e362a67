package ws

import (
	"errors"
	"net"
	"testing"
)

// A ping waits for a client that takes nothing, but a writer, which serves other clients, too, does not wait behind it.
func TestNobodyWaitsBehindAControlFrame(t *testing.T) {
	t.Parallel()
	client, server := net.Pipe() // has no buffers: each write waits for a read
	defer client.Close()
	w := &wire{Conn: server}
	pinged := make(chan error, 1)
	go func() {
		_, err := w.Write([]byte{0x89, 0})
		pinged <- err
	}()
	for held := false; !held; {
		if held = !w.mu.TryLock(); !held {
			w.mu.Unlock()
		}
	}
	if all, err := w.send([]byte{finalText, 0}, patience); all || !errors.Is(err, errBusy) {
		t.Errorf("sent: %v, %v; want it busy", all, err)
	}
	select {
	case err := <-pinged:
		t.Errorf("the ping is over, with %v, before the message was refused", err)
	default:
	}
	if len(w.rest) > 0 {
		t.Errorf("%d bytes are kept of what was refused", len(w.rest))
	}
	_ = server.Close()
	<-pinged
}
