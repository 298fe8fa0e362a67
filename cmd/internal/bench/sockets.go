package bench

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
)

// The times within which things must happen, or something is wrong: far more than they take.
const (
	openWithin   = 2 * time.Minute
	clickWithin  = time.Minute
	servedWithin = 2 * time.Minute
)

// wantedEach is how many items everybody asks for.
const wantedEach = 3

// crowd is many users, each with a socket of his own. What a socket brings of a request's end is kept as it came: while
// others are waited for, nothing is decoded.
type crowd struct {
	nodes   *Nodes
	members []*member
	opened  *latch     // everybody has his snapshot
	served  *latch     // everybody's request has ended
	broken  chan error // a socket that ended before its time
	reading sync.WaitGroup
}

// member is one of them.
type member struct {
	user string
	node int
	conn net.Conn

	// His reader's until the crowd is closed, but for what was written before he was counted in opened or served.
	open bool
	told [][]byte // the events of his request's end
	at   time.Time
}

// gather opens a socket for each of n users, in turn on each of the nodes, and returns when all have their snapshots.
// Whoever gathers must close.
func gather(ctx context.Context, nodes *Nodes, n int) (*crowd, error) {
	c := &crowd{nodes: nodes, members: make([]*member, n), opened: newLatch(n), served: newLatch(n), broken: make(chan error, n)}
	for i := range c.members {
		c.members[i] = &member{user: fmt.Sprintf("user-%05d", i), node: i % len(nodes.each)}
	}
	err := dialAll(ctx, n, func(i int) string { return address(nodes.URL(c.members[i].node)) },
		func(_ context.Context, i int, conn net.Conn) error {
			m := c.members[i]
			m.conn = conn
			in := bufio.NewReader(conn)
			_ = conn.SetDeadline(time.Now().Add(openWithin))
			if err := upgrade(conn, in, m.user); err != nil {
				return err
			}
			_ = conn.SetDeadline(time.Time{})
			c.reading.Go(func() {
				if err := m.read(c, in); !errors.Is(err, net.ErrClosed) {
					c.broken <- fmt.Errorf("socket of %s: %w", m.user, err)
				}
			})
			return nil
		})
	if err == nil {
		err = c.opened.wait(ctx, c.broken, openWithin, "given a snapshot")
	}
	if err != nil {
		c.close()
		return nil, fmt.Errorf("open %d sockets: %w", n, err)
	}
	return c, nil
}

func (c *crowd) close() {
	for _, m := range c.members {
		if m.conn != nil {
			_ = m.conn.Close()
		}
	}
	c.reading.Wait()
}

// read reads until the socket ends, and tells why it did.
func (m *member) read(c *crowd, in *bufio.Reader) error {
	var message []byte
	for {
		var err error
		if message, err = readMessage(m.conn, in, message); err != nil {
			return err
		}
		switch {
		case !m.open && bytes.Contains(message, snapshotEvent):
			m.open = true
			c.opened.down()
		case endsRequest(message):
			if m.told = append(m.told, bytes.Clone(message)); len(m.told) == 1 {
				m.at = time.Now()
				c.served.down()
			}
		}
	}
}

var (
	snapshotEvent  = []byte(`"type":"snapshot"`)
	requestEvent   = []byte(`"type":"request"`)
	pendingRequest = []byte(`"state":"pending"`)
)

// endsRequest reports whether a message is of a request that is not pending any more.
func endsRequest(message []byte) bool {
	return bytes.Contains(message, requestEvent) && !bytes.Contains(message, pendingRequest)
}

// clicking is how many clicks of a crowd are under way at the same time.
const clicking = 32

// click has everybody ask for work, each on his own node. All of them must be left waiting.
func (c *crowd) click(ctx context.Context, task string) error {
	var next atomic.Int64
	var g errgroup.Group
	for range clicking {
		g.Go(func() error {
			wires := make([]*wire, len(c.nodes.each))
			defer func() {
				for _, w := range wires {
					if w != nil {
						w.close()
					}
				}
			}()
			for i := next.Add(1) - 1; i < int64(len(c.members)); i = next.Add(1) - 1 {
				m, err := c.members[i], context.Cause(ctx)
				if err != nil {
					return err
				}
				if wires[m.node] == nil {
					if wires[m.node], err = dialWire(ctx, c.nodes.URL(m.node)); err != nil {
						return err
					}
				}
				if err := m.click(wires[m.node], task); err != nil {
					return fmt.Errorf("click of %s: %w", m.user, err)
				}
			}
			return nil
		})
	}
	return g.Wait()
}

func (m *member) click(w *wire, task string) error {
	_ = w.conn.SetDeadline(time.Now().Add(clickWithin))
	status, answer, err := w.do(request("POST", "/api/v1/tasks/"+task+"/requests", m.user, fmt.Sprintf(`{"count":%d}`, wantedEach)))
	if err == nil && status != http.StatusAccepted {
		err = fmt.Errorf("%d is answered where 202 belongs: %s", status, answer)
	}
	return err
}

// told is a request event, as much of it as is checked.
type told struct {
	Request struct {
		ID        int64  `json:"id,string"`
		User      string `json:"user"`
		State     string `json:"state"`
		Wanted    int    `json:"wanted"`
		Requested int    `json:"requested"`
		Assigned  int    `json:"assigned"`
		Work      []struct {
			Item  string `json:"item"`
			State string `json:"state"`
		} `json:"work"`
	} `json:"request"`
}

// answer decodes the one event that told him of his request's end. The crowd is closed.
func (m *member) answer() (t told, err error) {
	if len(m.told) != 1 {
		return t, fmt.Errorf("%s was told %d times of his request's end", m.user, len(m.told))
	}
	if err := json.Unmarshal(m.told[0], &t); err != nil {
		return t, fmt.Errorf("%s was told %q: %w", m.user, m.told[0], err)
	}
	return t, nil
}
