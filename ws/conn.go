package ws

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"

	"github.com/coder/websocket"
)

// Status is a close code.
type Status = websocket.StatusCode

// The close codes that the server sends, and how a client should react.
const (
	GoingAway   = websocket.StatusGoingAway       // 1001: the node shuts down; reconnect to another
	Unsupported = websocket.StatusUnsupportedData // 1003: a message was not JSON; the client's fault
	TooBig      = websocket.StatusMessageTooBig   // 1009: a message was too long; the client's fault
	TryAgain    = websocket.StatusTryAgainLater   // 1013: too slow to follow, or the node could not serve; reconnect
	Restart     = websocket.StatusServiceRestart  // 1012: the user's rights have changed; reconnect with the new ones
	LogInAgain  = Status(4401)                    // the credential has ended; log in again
	KeptOut     = Status(4403)                    // the user is blocked, or has no role any more
)

// subprotocol names the protocol of the messages.
const subprotocol = "getwork.v1"

// maxMessage is the longest message that a client may send, in bytes.
const maxMessage = 16 << 10

// conn is one WebSocket. The library does the handshake, reads, and writes control frames; the hub writes messages without
// the library.
type conn struct {
	*wire
	c *websocket.Conn
}

// accept upgrades a request. Compression is off: it would cost each idle connection more memory than everything
// else together. The Origin must be the requested host.
func accept(w http.ResponseWriter, r *http.Request) (conn, error) {
	lean := &leanWriter{ResponseWriter: w}
	c, err := websocket.Accept(lean, r, &websocket.AcceptOptions{
		Subprotocols:    []string{subprotocol},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err != nil {
		return conn{}, err
	}
	c.SetReadLimit(maxMessage)
	return conn{lean.wire, c}, nil
}

// leanWriter lends the library small buffers, where those of net/http would stay with each connection: 4 KiB each way.
type leanWriter struct {
	http.ResponseWriter
	wire *wire
}

const (
	readBuffer    = 256 // clients send little; longer messages bypass it
	controlBuffer = 128 // holds every control frame: 125 bytes, 2 of a head
)

// Hijack implements [http.Hijacker].
func (w *leanWriter) Hijack() (net.Conn, *bufio.ReadWriter, error) {
	c, buffers, err := http.NewResponseController(w.ResponseWriter).Hijack()
	if err != nil {
		return nil, nil, err
	}
	w.wire = &wire{Conn: c}
	in := buffers.Reader
	if in.Buffered() == 0 { // otherwise the client has sent a message already, which is in there
		in = bufio.NewReaderSize(w.wire, readBuffer)
	}
	return w.wire, bufio.NewReadWriter(in, bufio.NewWriterSize(w.wire, controlBuffer)), nil
}

// read returns the client's next message; a binary one is reported as not being text.
func (c conn) read() (message []byte, text bool, err error) {
	kind, b, err := c.c.Read(context.Background()) // no goroutine watches this context; drop ends the read
	return b, kind == websocket.MessageText, err
}

// ping waits for the client's pong, so another goroutine must read meanwhile. A failed ping leaves the connection
// open; the caller must drop it.
func (c conn) ping(ctx context.Context) error { return c.c.Ping(ctx) }

// close sends the reason to the client, and waits a little for its answer.
func (c conn) close(status Status, reason string) {
	done := time.AfterFunc(5*time.Second, c.drop)
	defer done.Stop()
	_ = c.c.Close(status, reason)
}

// drop ends the connection without a close frame.
func (c conn) drop() { _ = c.c.CloseNow() }

// Client is the other end of a WebSocket of this package, for Go programs and tests.
type Client struct{ c *websocket.Conn }

// Refused is the error of a handshake that was not answered with an upgrade.
type Refused struct {
	Response *http.Response // its body is read, and closed
	Body     []byte         // at most 1 KiB of it
	Err      error
}

func (r *Refused) Error() string { return fmt.Sprintf("open the live channel: %v", r.Err) }

// Unwrap returns the library's error.
func (r *Refused) Unwrap() error { return r.Err }

// Dial connects to the live channel at an address such as http://127.0.0.1:8080/api/v1/ws. header identifies the
// caller, and h makes the handshake; nil means a new client. A refusal is a [Refused]. ctx bounds only the handshake. The
// caller must Close the client.
func Dial(ctx context.Context, h *http.Client, url string, header http.Header) (*Client, error) {
	own := &http.Transport{Proxy: http.ProxyFromEnvironment}
	if h == nil {
		h = &http.Client{Transport: own}
	}
	c, response, err := websocket.Dial(ctx, url, &websocket.DialOptions{
		HTTPClient:      h,
		HTTPHeader:      header,
		Subprotocols:    []string{subprotocol},
		CompressionMode: websocket.CompressionDisabled,
	})
	if err == nil {
		c.SetReadLimit(-1) // a snapshot is as long as its pipeline
		return &Client{c}, nil
	}
	defer own.CloseIdleConnections()
	if response == nil {
		return nil, fmt.Errorf("open the live channel: %w", err)
	}
	body, _ := io.ReadAll(response.Body)
	return nil, &Refused{response, body, err}
}

// Read waits for the server's next message. Call it all the time, or pings stay unanswered. If ctx ends, so does the
// connection. [CloseStatus] explains an error.
func (c *Client) Read(ctx context.Context) ([]byte, error) {
	_, b, err := c.c.Read(ctx)
	return b, err
}

// Write sends a message, which is JSON text. If ctx ends, so does the connection.
func (c *Client) Write(ctx context.Context, message []byte) error {
	return c.c.Write(ctx, websocket.MessageText, message)
}

// Ping waits for a sign of life from the server. Another goroutine must read meanwhile.
func (c *Client) Ping(ctx context.Context) error { return c.c.Ping(ctx) }

// Close ends the connection at once. It may be called repeatedly, and during a read.
func (c *Client) Close() { _ = c.c.CloseNow() }

// CloseStatus returns the close code in an error of [Client.Read], or -1 if the connection broke without one.
func CloseStatus(err error) Status { return websocket.CloseStatus(err) }
