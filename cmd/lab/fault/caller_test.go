package fault

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
)

// caller is a user with one kept connection: thousands of callers cost the test little.
type caller struct {
	user string
	conn net.Conn
	in   *bufio.Reader
}

func newCaller(ctx context.Context, node *cluster.Node, user string) (*caller, error) {
	return callerBy(ctx, net.Dialer{Timeout: time.Minute}, node, user)
}

func callerBy(ctx context.Context, d net.Dialer, node *cluster.Node, user string) (*caller, error) {
	conn, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(node.URL, "http://"))
	if err != nil {
		return nil, err
	}
	return &caller{user, conn, bufio.NewReaderSize(conn, 1<<10)}, nil
}

// send sends a request; header has whole lines.
func (c *caller) send(method, path, body string, header ...string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s HTTP/1.1\r\nHost: localhost\r\nX-Getwork-User: %s\r\n", method, path, c.user)
	for _, h := range header {
		b.WriteString(h + "\r\n")
	}
	if body != "" {
		fmt.Fprintf(&b, "Content-Type: application/json\r\nContent-Length: %d\r\n", len(body))
	}
	_, err := io.WriteString(c.conn, b.String()+"\r\n"+body)
	return err
}

// receive reads an answer.
func (c *caller) receive(within time.Duration) (cluster.Answer, error) {
	_ = c.conn.SetReadDeadline(time.Now().Add(within))
	defer func() { _ = c.conn.SetReadDeadline(time.Time{}) }()
	response, err := http.ReadResponse(c.in, nil)
	if err != nil {
		return cluster.Answer{}, err
	}
	defer response.Body.Close()
	a := cluster.Answer{Status: response.StatusCode, Header: response.Header}
	if a.Status == http.StatusSwitchingProtocols {
		return a, nil
	}
	if a.Body, err = io.ReadAll(response.Body); a.Status >= 400 && err == nil {
		err = json.Unmarshal(a.Body, &a.Problem)
	}
	return a, err
}

// do makes a call, and waits for the answer.
func (c *caller) do(within time.Duration, method, path, body string, header ...string) (cluster.Answer, error) {
	began := time.Now()
	if err := c.send(method, path, body, header...); err != nil {
		return cluster.Answer{}, err
	}
	a, err := c.receive(within)
	a.Took = time.Since(began)
	return a, err
}

// click asks for work on verify.
func (c *caller) click(within time.Duration, count int, header ...string) (cluster.Answer, error) {
	return c.do(within, "POST", "/api/v1/tasks/verify/requests", fmt.Sprintf(`{"count":%d}`, count), header...)
}

// upgrade makes the connection a live channel.
func (c *caller) upgrade(within time.Duration) (cluster.Answer, error) {
	return c.do(within, "GET", "/api/v1/ws", "", "Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13",
		"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", "Sec-WebSocket-Protocol: getwork.v1")
}

// frame reads a frame of the live channel.
func (c *caller) frame() (kind byte, payload []byte, err error) {
	var head [10]byte
	if _, err = io.ReadFull(c.in, head[:2]); err != nil {
		return 0, nil, err
	}
	size, longer := int(head[1]), 0
	switch size {
	case 126:
		longer = 2
	case 127:
		longer = 8
	}
	if longer > 0 {
		if _, err = io.ReadFull(c.in, head[2:2+longer]); err != nil {
			return 0, nil, err
		}
		size = 0
		for _, b := range head[2 : 2+longer] {
			size = size<<8 | int(b)
		}
	}
	payload = make([]byte, size)
	_, err = io.ReadFull(c.in, payload)
	return head[0] & 0xf, payload, err
}

const (
	closeFrame = 8
	pingFrame  = 9
	pongFrame  = 10
)

// until reads the live channel until a text message contains part, and answers pings. If the channel is closed it
// returns an error with the code.
func (c *caller) until(part string) error {
	for {
		kind, payload, err := c.frame()
		switch {
		case err != nil:
			return err
		case kind == closeFrame && len(payload) >= 2:
			return closedWith(int(payload[0])<<8 | int(payload[1]))
		case kind == pingFrame:
			if _, err := c.conn.Write(append([]byte{0x80 | pongFrame, 0x80 | byte(len(payload)), 0, 0, 0, 0}, payload...)); err != nil {
				return err
			}
		case bytes.Contains(payload, []byte(part)):
			return nil
		}
	}
}

// closedWith returns the code with which a live channel was closed.
type closedWith int

func (c closedWith) Error() string { return "closed with " + strconv.Itoa(int(c)) }

// refusedFor checks that a refusal is due to overload: it says so, and when to come back.
func refusedFor(a cluster.Answer) error {
	want := map[int]string{429: "/problems/busy", 503: "/problems/unavailable"}[a.Status]
	after, err := strconv.Atoi(a.Header.Get("Retry-After"))
	switch {
	case want == "":
		return fmt.Errorf("%d %s", a.Status, a.Body)
	case a.Problem.Type != want || a.Header.Get("Content-Type") != "application/problem+json" || a.Problem.Detail == "":
		return fmt.Errorf("%d is no problem of type %s: %s", a.Status, want, a.Body)
	case err != nil || after < 1 || after > 20:
		return fmt.Errorf("%d with Retry-After %q", a.Status, a.Header.Get("Retry-After"))
	}
	return nil
}

// resident returns a node's resident memory, in MiB, or 0 if it can't be read.
func resident(t *testing.T, node *cluster.Node) int {
	t.Helper()
	return memory(t, node, "VmRSS")
}

// memory returns one of the figures that Linux has of a node's memory, such as VmHWM, the most that was resident.
func memory(t *testing.T, node *cluster.Node, figure string) int {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", node.PID()))
	if errors.Is(err, os.ErrNotExist) {
		return 0
	}
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(text), figure+":")
	kb, err := strconv.Atoi(strings.Fields(rest)[0])
	if err != nil {
		t.Fatal(err)
	}
	return kb >> 10
}

// openFiles returns how many connections the test and a node may each have open, at most want.
func openFiles(t *testing.T, want int) int {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if most := int(min(limit.Cur, 1<<20)) - 1000; most < want {
		t.Logf("%d connections and not %d: no more files may be open here (ulimit -n %d)", most, want, limit.Cur)
		if most < 100 {
			t.Skip("too few")
		}
		return most
	}
	return want
}

// shelf creates the task verify with a fresh shelf of that many items, with details of that size.
func (s *site) shelf(items, carry int) {
	s.T.Helper()
	err := s.As("mary", 0).CreateTask(s.T.Context(), map[string]any{"name": "verify", "fresh_for": "1h", "max_candidates": items, "max_request": 100,
		"query": fmt.Sprintf(`select i as item, repeat('x', %d) as pad from generate_series(1, %d) i order by i`, carry, items)})
	if err != nil {
		s.T.Fatal(err)
	}
	if r, a, err := s.As("first", 0).GetWork(s.T.Context(), "verify", 1, "Prefer", "wait=60"); err != nil || r.State != assign.Assigned {
		s.T.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
}
