package bench

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// wire is a kept connection that speaks just enough HTTP/1.1 to a node. net/http's client costs as much CPU for a call as
// the node does for its part, and the load must not be what is measured.
type wire struct {
	conn net.Conn
	in   *bufio.Reader
	body []byte
}

// address is a node's, such as 127.0.0.1:41234.
func address(url string) string { return strings.TrimPrefix(url, "http://") }

func dialWire(ctx context.Context, url string) (*wire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address(url))
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}, nil
}

func (w *wire) close() { _ = w.conn.Close() }

// do sends a request and reads its answer. The body is valid until the next call.
func (w *wire) do(request []byte) (status int, body []byte, err error) {
	if _, err := w.conn.Write(request); err != nil {
		return 0, nil, err
	}
	status, length, err := readHead(w.in)
	if err != nil {
		return 0, nil, err
	}
	if length >= 0 {
		w.body = append(w.body[:0], make([]byte, length)...)
		_, err = io.ReadFull(w.in, w.body)
		return status, w.body, err
	}
	w.body, err = readChunks(w.in, w.body[:0])
	return status, w.body, err
}

// readHead reads an answer's status line and headers; length is -1 if the body comes in chunks.
func readHead(in *bufio.Reader) (status, length int, err error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return 0, 0, err
	}
	if len(line) < 12 || !bytes.HasPrefix(line, []byte("HTTP/1.1 ")) {
		return 0, 0, fmt.Errorf("the node speaks something else than HTTP/1.1: %q", line)
	}
	if status, err = strconv.Atoi(string(line[9:12])); err != nil {
		return 0, 0, fmt.Errorf("the node's status line is %q", line)
	}
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return 0, 0, err
		}
		name, value, named := bytes.Cut(bytes.TrimRight(line, "\r\n"), []byte(": "))
		switch {
		case len(name) == 0:
			return status, length, nil
		case named && bytes.EqualFold(name, []byte("Content-Length")):
			if length, err = strconv.Atoi(string(value)); err != nil {
				return 0, 0, fmt.Errorf("the node's Content-Length is %q", value)
			}
		case named && bytes.EqualFold(name, []byte("Transfer-Encoding")):
			length = -1
		}
	}
}

func readChunks(in *bufio.Reader, body []byte) ([]byte, error) {
	for {
		line, err := in.ReadSlice('\n')
		if err != nil {
			return nil, err
		}
		size, err := strconv.ParseUint(string(bytes.TrimSpace(line)), 16, 31)
		if err != nil {
			return nil, fmt.Errorf("the node's chunk begins with %q", line)
		}
		from := len(body)
		body = append(body, make([]byte, size)...)
		if _, err := io.ReadFull(in, body[from:]); err != nil {
			return nil, err
		}
		if _, err := in.Discard(2); err != nil { // the line's end behind it
			return nil, err
		}
		if size == 0 {
			return body, nil
		}
	}
}

// request is a whole call, to be sent as it is any number of times.
func request(method, path, user, body string, headers ...string) []byte {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nX-Getwork-User: %s\r\n", method, path, user)
	for _, h := range headers {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	return []byte(b.String() + "\r\n" + body)
}

// upgrade makes a connection a WebSocket of somebody's.
func upgrade(conn net.Conn, in *bufio.Reader, user string) error {
	call := request("GET", "/api/v1/ws", user, "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: getwork.v1")
	if _, err := conn.Write(call); err != nil {
		return err
	}
	status, length, err := readHead(in)
	if err != nil {
		return err
	}
	if status != 101 {
		body := make([]byte, max(length, 0))
		_, _ = io.ReadFull(in, body)
		return fmt.Errorf("the node answers %d to a WebSocket: %s", status, body)
	}
	return nil
}

// The kinds of frames that a server sends.
const (
	textFrame  = 1
	closeFrame = 8
	pingFrame  = 9
	pongFrame  = 10
)

var errClosed = errors.New("the node closed the socket")

// readMessage reads the next text message of a WebSocket into buffer, which grows as needed, and answers pings.
// A server's frames are not masked, and getwork sends each message as one.
func readMessage(conn net.Conn, in *bufio.Reader, buffer []byte) ([]byte, error) {
	for {
		kind, payload, err := readFrame(in, buffer)
		switch {
		case err != nil:
			return nil, err
		case kind == textFrame:
			return payload, nil
		case kind == closeFrame:
			return nil, fmt.Errorf("%w: %q", errClosed, payload)
		case kind == pingFrame:
			// A client's frames are masked; a mask of zeros leaves them as they are.
			frame := append([]byte{0x80 | pongFrame, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)
			if _, err := conn.Write(frame); err != nil {
				return nil, err
			}
		}
	}
}

func readFrame(in *bufio.Reader, buffer []byte) (kind byte, payload []byte, err error) {
	var head [8]byte
	if _, err := io.ReadFull(in, head[:2]); err != nil {
		return 0, nil, err
	}
	kind = head[0] & 0x0f
	if head[0]&0x80 == 0 || head[1]&0x80 != 0 {
		return 0, nil, fmt.Errorf("the node's frame begins with %x: not one whole message without a mask", head[:2])
	}
	size, longer := int(head[1]), 0
	switch size {
	case 126:
		size, longer = 0, 2
	case 127:
		size, longer = 0, 8
	}
	if _, err := io.ReadFull(in, head[:longer]); err != nil {
		return 0, nil, err
	}
	for _, b := range head[:longer] {
		size = size<<8 | int(b)
	}
	if cap(buffer) < size {
		buffer = make([]byte, size)
	}
	payload = buffer[:size]
	_, err = io.ReadFull(in, payload)
	return kind, payload, err
}

// socketWire is one WebSocket to a node.
type socketWire struct {
	conn   net.Conn
	in     *bufio.Reader
	buffer []byte
}

// dialSocket opens a WebSocket of somebody's, and returns when his snapshot has come: from then on he is told all.
func dialSocket(ctx context.Context, url, user string) (*socketWire, error) {
	var d net.Dialer
	conn, err := d.DialContext(ctx, "tcp", address(url))
	if err != nil {
		return nil, err
	}
	s := &socketWire{conn: conn, in: bufio.NewReaderSize(conn, 4<<10)}
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	err = upgrade(conn, s.in, user)
	for err == nil && !bytes.Contains(s.buffer, snapshotEvent) {
		_, err = s.read()
	}
	if err != nil {
		s.close()
		return nil, fmt.Errorf("open a WebSocket: %w", err)
	}
	_ = conn.SetDeadline(time.Time{})
	return s, nil
}

// read reads the next message, which is valid until the call after.
func (s *socketWire) read() (message []byte, err error) {
	s.buffer, err = readMessage(s.conn, s.in, s.buffer)
	return s.buffer, err
}

func (s *socketWire) close() { _ = s.conn.Close() }
