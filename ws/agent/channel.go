package agent

import (
	"context"
	"sync"
	"time"

	"getwork/assign"
	"getwork/ws/client"
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

// listen keeps the live channel open until ctx ends. That it is away is said once, and once that it is back; not when it
// comes back at once, as after a node's restart, nor when the whole server is away, of which is spoken elsewhere.
func (s *session) listen(ctx context.Context) {
	failures, told := 0, false
	lost := func(err error) {
		s.channel.set(func() { s.channel.live = false })
		if failures++; failures > 1 && !told && !s.server.isAway() {
			s.Log.Warn("the live channel is away; asking every few seconds instead", "error", err)
			told = true
		}
	}
	live := &client.Live{Client: s.server.Client, Lost: lost, Handle: func(e client.Event) {
		if e.Snapshot != nil {
			if told {
				s.Log.Info("the live channel is back")
			}
			failures, told = 0, false
		}
		s.hear(e)
	}}
	s.channel.set(func() { s.channel.drop = live.Reconnect })
	for {
		err := live.Run(ctx)
		if ctx.Err() != nil {
			return
		}
		lost(err) // for good, as it seems; what is asked for meanwhile tells whether it is
		pause := time.NewTimer(redialRefused)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// redialRefused is when the live channel is tried again for an agent that was refused.
const redialRefused = 30 * time.Second

// hear takes in what a node says.
func (s *session) hear(e client.Event) {
	switch {
	case e.Snapshot != nil:
		waiting, held := map[int64]bool{}, map[int64]bool{}
		for _, r := range e.Snapshot.Requests {
			waiting[r.ID] = true
		}
		for _, w := range e.Snapshot.Work {
			held[w.ID] = true
		}
		s.channel.set(func() { s.channel.live, s.channel.missed = true, waiting })
		s.checkAllBut(held)
	case e.Node != nil && e.Node.State == assign.Lagging:
		s.channel.set(func() { s.channel.live = false })
	case e.Node != nil && e.Node.State == assign.Live:
		s.channel.set(func() { s.channel.live = true })
	case e.Request != nil && e.Request.Task == s.Task && e.Request.State != assign.Pending:
		s.channel.set(func() { s.channel.ended = *e.Request })
	case e.Work != nil:
		s.workChanged(e.Work)
	}
}
