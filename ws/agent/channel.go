package agent

import (
	"context"
	"sync"
	"time"

	"getwork/assign"
	"getwork/ws/client"
)

// channel is the state of the live channel. The channel only saves time: an agent can ask for everything that it reports.
type channel struct {
	mu     sync.Mutex
	live   bool           // events are pushed at once
	ended  assign.Request // the task's request that ended last
	missed map[int64]bool // the waiting requests of a snapshot, until they are checked; nil without one
	wake   chan struct{}  // holds one value when any of this has changed
	drop   func()         // ends the present connection
	rests  bool           // it is closed, since nobody needs it
	stop   func()         // closes it, so that it rests
	needed chan struct{}  // holds one value when it was needed again
}

func newChannel() *channel {
	return &channel{wake: make(chan struct{}, 1), needed: make(chan struct{}, 1), drop: func() {}, stop: func() {}}
}

// set changes the state, and wakes the goroutine that waits for a change.
func (c *channel) set(change func()) {
	c.mu.Lock()
	change()
	c.mu.Unlock()
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// about returns what is known about a request: it has ended, or it must be read, because it may have ended while nobody
// listened. live means that its changes will be pushed.
func (c *channel) about(id int64) (r assign.Request, ended, look, live bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.missed != nil {
		look = !c.missed[id]
		c.missed = nil
	}
	return c.ended, c.ended.ID == id, look, c.live
}

// asking forgets the last snapshot: the request that the agent is about to make is younger, so the channel reports its end.
func (c *channel) asking() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.missed = nil
}

// deaf drops a connection that did not report what it should have: its other end is gone.
func (c *channel) deaf() {
	c.mu.Lock()
	drop := c.drop
	c.mu.Unlock()
	drop()
}

// restAfter is how many requests in a row are answered at once before the live channel rests.
const restAfter = 10

// answered notes how a request was answered. While quick work is handed out without waiting, the channel rests: it would tell of each
// item what the answers to calls have told already, at a sixth of all that an item costs. If somebody takes back work of that second,
// the agent learns it when the outcome is refused.
func (s *session) answered(all bool) {
	if s.inRow++; !all {
		s.inRow = 0
	}
	if s.inRow != restAfter {
		return
	}
	s.mu.Lock()
	quick := s.isQuick()
	s.mu.Unlock()
	if !quick {
		s.inRow = 0
		return
	}
	s.channel.set(func() {
		s.channel.rests, s.channel.live = true, false
		s.channel.stop()
	})
}

// needsChannel opens the live channel if it rests: a request waits, or work takes longer.
func (s *session) needsChannel() {
	s.inRow = 0
	s.channel.mu.Lock()
	defer s.channel.mu.Unlock()
	s.channel.rests = false
	select {
	case s.channel.needed <- struct{}{}:
	default:
	}
}

// open returns the context of the next connection, when one is needed; nil when ctx ends.
func (c *channel) open(ctx context.Context) context.Context {
	for {
		c.mu.Lock()
		if !c.rests {
			following, stop := context.WithCancel(ctx)
			c.stop = stop
			c.mu.Unlock()
			return following
		}
		c.mu.Unlock()
		select {
		case <-c.needed:
		case <-ctx.Done():
			return nil
		}
	}
}

// listen keeps the live channel open until ctx ends, unless it rests. It logs once that the channel is down, and once that it is back. It logs
// nothing if the channel comes back at once, as after a node's restart, or if the whole server is away, which is logged
// elsewhere.
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
		following := s.channel.open(ctx)
		if following == nil {
			return
		}
		err := live.Run(following)
		if ctx.Err() != nil {
			return
		}
		if following.Err() != nil { // it rests; an event that came meanwhile may have called it live
			s.channel.set(func() { s.channel.live = false })
			continue
		}
		lost(err) // probably for good; the agent's other calls show whether it is
		pause := time.NewTimer(redialRefused)
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
			return
		}
	}
}

// redialRefused is the pause after which the live channel is tried again if it was refused.
const redialRefused = 30 * time.Second

// hear handles an event.
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
	case e.Request != nil && s.asked(e.Request) && e.Request.State != assign.Pending:
		s.channel.set(func() { s.channel.ended = *e.Request })
	case e.Work != nil:
		s.workChanged(e.Work)
	}
}
