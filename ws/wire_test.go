package ws

import (
	"crypto/tls"
	"errors"
	"net"
	"net/http/httptest"
	"os"
	"testing"
	"time"
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

// Over TLS a write of a hub's writer is left to a goroutine that may wait, a write that takes too long is an error, and
// closing waits for nobody.
func TestWireOverTLS(t *testing.T) {
	t.Parallel()
	here, there := net.Pipe() // has no buffers: each write waits for a read
	defer there.Close()
	secure := httptest.NewUnstartedServer(nil)
	secure.StartTLS() // for its certificate
	defer secure.Close()
	server := tls.Server(here, &tls.Config{Certificates: secure.TLS.Certificates, SessionTicketsDisabled: true})
	shaken := make(chan error, 1)
	go func() {
		shaken <- tls.Client(there, &tls.Config{InsecureSkipVerify: true}).Handshake()
	}()
	if err := errors.Join(server.Handshake(), <-shaken); err != nil {
		t.Fatal(err)
	}
	w := &wire{Conn: server}
	if all, err := w.send([]byte{finalText, 0}, patience); all || !errors.Is(err, errBusy) {
		t.Errorf("sent in a hurry: %v, %v", all, err)
	}
	if all, err := w.send([]byte{finalText, 0}, 2*patience); all || !errors.Is(err, os.ErrDeadlineExceeded) || len(w.rest) > 0 {
		t.Errorf("sent to somebody who reads nothing: %v, %v, %d bytes are kept", all, err, len(w.rest))
	}
	closed := make(chan error, 1)
	go func() { closed <- w.Close() }()
	select {
	case <-closed:
	case <-time.After(4 * time.Second): // TLS itself would wait for five
		t.Error("closing waits for the client")
		there.Close()
		<-closed
	}
}
