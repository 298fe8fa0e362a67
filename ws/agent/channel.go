package agent

import (
	"context"
	"encoding/json"
	"sync"
	"time"

	"getwork/assign"
	"getwork/ws"
)

// channel is what the live channel has told so far. It only makes things faster: all that it tells can be asked for.
type channel struct {
	mu     sync.Mutex
	live   bool           // what happens is pushed at once
	ended  assign.Request // the last one of the task that has ended
	missed map[int64]bool // not nil: what waits by a snapshot that nobody has looked at yet
	wake   chan struct{}  // of one place: something of this has changed
	drop   func()         // ends the present connection
}

func newChannel() *channel { return &channel{wake: make(chan struct{}, 1), drop: func() {}} }

// set changes what is known, and wakes who waits for it.
func (c *channel) set(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// about is what is known of a request: it has ended, or it should be looked at, since it may have ended while nobody
// listened. live: whatever happens to it will be told.
func (c *channel) about(id int64) (r assign.Request, ended, look, live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missed != nil {
		look = !c.missed[id]
		c.missed = nil
	}
	return c.ended, c.ended.ID == id, look, c.live
}

// deaf drops a connection that did not tell what it should have: nobody is at its other end.
func (c *channel) deaf() {
	c.mu.Lock()
	drop := c.drop
	c.mu.Unlock()
	drop()
}

// message is what a node says.
type message struct {
	Type     string            `json:"type"`
	Snapshot *assign.Pipeline  `json:"snapshot"`
	Request  *assign.Request   `json:"request"`
	Work     *assign.Work      `json:"work"`
	Node     *assign.NodeEvent `json:"node"`
}

const (
	firstRedial   = 500 * time.Millisecond
	longestRedial = 30 * time.Second
	dialWithin    = 10 * time.Second
)

// listen keeps the live channel open until ctx ends. That it is away is said once, and once that it is back; not when it
// comes back at once, as after a node's restart, nor when the whole server is away, of which is spoken elsewhere.
func (s *session) listen(ctx context.Context) {
	failures, told := 0, false
	for {
		err := s.follow(ctx, func() {
			if told {
				s.Log.Info("the live channel is back")
			}
			failures, told = 0, false
		})
		s.channel.set(func() { s.channel.live = false })
		if failures++; failures > 1 && !told && ctx.Err() == nil && !s.node.isAway() {
			s.Log.Warn("the live channel is away; asking every few seconds instead", "error", err)
			told = true
		}
		pause := time.NewTimer(jitter(min(firstRedial<<min(failures-1, 10), longestRedial)))
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// follow reads one connection to its end; open is called when its snapshot has come.
func (s *session) follow(ctx context.Context, open func()) error {
	dialing, cancel := context.WithTimeout(ctx, dialWithin)
	defer cancel()
	conn, err := ws.Dial(dialing, nil, s.node.base+"/ws", s.node.header)
	if err != nil {
		return err
	}
	defer conn.Close()
	s.channel.set(func() { s.channel.drop = conn.Close })
	for {
		b, err := conn.Read(ctx)
		if err != nil {
			return err
		}
		var m message
		if err := json.Unmarshal(b, &m); err != nil {
			return err
		}
		if m.Snapshot != nil {
			open()
		}
		s.hear(&m)
	}
}

// hear takes in what a node says.
func (s *session) hear(m *message) {
	switch {
	case m.Snapshot != nil:
		waiting, held := map[int64]bool{}, map[int64]bool{}
		for _, r := range m.Snapshot.Requests {
			waiting[r.ID] = true
		}
		for _, w := range m.Snapshot.Work {
			held[w.ID] = true
		}
		s.channel.set(func() { s.channel.live, s.channel.missed = true, waiting })
		s.checkAllBut(held)
	case m.Node != nil && m.Node.State == assign.Lagging:
		s.channel.set(func() { s.channel.live = false })
	case m.Node != nil && m.Node.State == assign.Live:
		s.channel.set(func() { s.channel.live = true })
	case m.Request != nil && m.Request.Task == s.Task && m.Request.State != assign.Pending:
		s.channel.set(func() { s.channel.ended = *m.Request })
	case m.Work != nil:
		s.workChanged(m.Work)
	}
}
