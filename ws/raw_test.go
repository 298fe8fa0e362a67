package ws

import (
	"bufio"
	"crypto/tls"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"getwork/schema/schematest/timeout"
)

// The frames of RFC 6455 that tests distinguish.
const (
	textFrame   = 0x1
	binaryFrame = 0x2
	closeFrame  = 0x8
	pingFrame   = 0x9
)

// raw is a passive client: it answers no ping and no close, and reads only when the test calls it.
type raw struct {
	net.Conn
	t  *testing.T
	in *bufio.Reader
}

// handshake asks for a socket, and also returns the server's answer.
func (n *station) handshake(t *testing.T, user string, lines ...string) (*raw, *http.Response) {
	t.Helper()
	conn, err := net.Dial("tcp", n.address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.(*net.TCPConn).SetReadBuffer(256 << 10); err != nil { // a small buffer blocks the server soon if the client does not read
		t.Fatal(err)
	}
	if err := conn.SetDeadline(time.Now().Add(timeout.Scale(4 * time.Minute))); err != nil {
		t.Fatal(err)
	}
	if n.TLS != nil {
		conn = tls.Client(conn, &tls.Config{RootCAs: n.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs, ServerName: "example.com"})
	}
	request := "GET / HTTP/1.1\r\nHost: " + n.address() + "\r\nUser: " + user + "\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n" +
		"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
	for _, line := range lines {
		request += line + "\r\n"
	}
	if _, err := io.WriteString(conn, request+"\r\n"); err != nil {
		t.Fatal(err)
	}
	r := &raw{conn, t, bufio.NewReader(conn)}
	response, err := http.ReadResponse(r.in, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	return r, response
}

// openRaw opens a socket.
func (n *station) openRaw(t *testing.T, user string) *raw {
	t.Helper()
	r, response := n.handshake(t, user, "Sec-WebSocket-Protocol: getwork.v1")
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status %d", response.StatusCode)
	}
	return r
}

// send sends one whole frame, masked with zeros.
func (r *raw) send(kind byte, payload string) {
	r.t.Helper()
	head := []byte{0x80 | kind}
	switch length := len(payload); {
	case length < 126:
		head = append(head, 0x80|byte(length))
	default:
		head = binary.BigEndian.AppendUint16(append(head, 0x80|126), uint16(length))
	}
	if _, err := r.Write(append(append(head, 0, 0, 0, 0), payload...)); err != nil {
		r.t.Fatal(err)
	}
}

// frame reads the next one.
func (r *raw) frame() (kind byte, payload []byte, err error) {
	head := make([]byte, 2)
	if _, err := io.ReadFull(r.in, head); err != nil {
		return 0, nil, err
	}
	length := uint64(head[1])
	switch length {
	case 126:
		b := make([]byte, 2)
		_, err = io.ReadFull(r.in, b)
		length = uint64(binary.BigEndian.Uint16(b))
	case 127:
		b := make([]byte, 8)
		_, err = io.ReadFull(r.in, b)
		length = binary.BigEndian.Uint64(b)
	}
	if err != nil || length > 10<<20 {
		return 0, nil, fmt.Errorf("frame of %d bytes: %w", length, err)
	}
	payload = make([]byte, length)
	_, err = io.ReadFull(r.in, payload)
	return head[0] & 0xf, payload, err
}

// closed reads until the server closes, and returns its code, or -1 if the connection ends without one. pings counts the
// unanswered pings.
func (r *raw) closed() (code Status, pings int) {
	for {
		kind, payload, err := r.frame()
		switch {
		case err != nil:
			return -1, pings
		case kind == pingFrame:
			pings++
		case kind == closeFrame && len(payload) >= 2:
			return Status(binary.BigEndian.Uint16(payload)), pings
		}
	}
}
