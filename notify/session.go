package notify

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgxlisten"
)

var (
	errSilent = errors.New("echoes were sent and nothing was heard")
	errSlow   = errors.New("connect and LISTEN took too long")
)

// proveEvery is the longest time between two echoes until the first has come back. One Send may well fail, on a pooled
// connection that a restart of the server has broken; that should not delay Up by EchoEvery.
const proveEvery = time.Second

// session is one connection of the listener, from connecting to its end. Two goroutines work on it: Run's, which reads,
// and the watch, which sends echoes and judges the connection.
type session struct {
	cfg                   Listener
	down, echoes, garbled *outage // down and garbled are the reader's, echoes is the watch's
	pulse                 pulse
	listens               int           // channels on which LISTEN is active; the reader's
	stands                chan struct{} // closed when it is active on both
	patience              time.Duration // limit for LISTEN, once connected
	connected             atomic.Bool
	proven                atomic.Bool // the first echo came back
}

// run reads the connection until it fails, is judged dead, or ctx ends, and returns why.
//
// Only its context ends a connection: pgx waits for the peer neither when a read is cancelled, nor when it closes with a
// context that has ended. So a frozen peer delays nothing.
func (s *session) run(ctx context.Context) error {
	ctx, end := context.WithCancelCause(ctx)
	reader := pgxlisten.Listener{
		Connect:        s.connect,
		LogError:       func(_ context.Context, err error) { end(err) }, // the first error ends the session
		ReconnectDelay: -1,                                              // the pause between two sessions is Run's
	}
	reader.Handle(s.cfg.Channel, handler{s, s.message})
	reader.Handle(echoChannel(s.cfg.Channel, s.cfg.Node), handler{s, s.echo})

	var watch sync.WaitGroup
	watch.Go(func() { end(s.watch(ctx)) })
	err := reader.Listen(ctx)
	end(err)
	watch.Wait()
	return context.Cause(ctx)
}

func (s *session) connect(ctx context.Context) (*pgx.Conn, error) {
	conn, err := s.cfg.Connect(ctx)
	s.connected.Store(err == nil)
	return conn, err
}

// mostPatience bounds how long LISTEN may take.
const mostPatience = 4 * time.Minute

// nextPatience returns how long LISTEN may take in the next session. LISTEN reads the server's whole queue, of all channels,
// which takes long if the queue is long. If the listener gave up and began again each time, the queue would never be
// emptied, because the server goes on with each abandoned LISTEN, and each one begins at the queue's end.
func (s *session) nextPatience(err error) time.Duration {
	if errors.Is(err, errSlow) && s.connected.Load() {
		return min(2*s.patience, max(mostPatience, s.cfg.SilentAfter))
	}
	return s.cfg.SilentAfter
}

// trimQueue makes the server drop notifications that every listener has read. The server does so by itself when
// notifications come, but none come while its queue is full.
const trimQueue = `select pg_notification_queue_usage()`

// handler receives one channel's notifications for pgxlisten. An error that it returns ends the session.
type handler struct {
	s      *session
	handle func(ctx context.Context, payload string)
}

// HandleBacklog is called as soon as LISTEN is active on the channel. pgxlisten listens in any order, so it counts them.
func (h handler) HandleBacklog(ctx context.Context, _ string, conn *pgx.Conn) error {
	h.s.listens++
	if h.s.listens == 2 {
		if _, err := conn.Exec(ctx, trimQueue); err != nil {
			return fmt.Errorf("trim the queue of notifications: %w", err)
		}
		h.s.pulse.hear(time.Now())
		close(h.s.stands)
	}
	return nil
}

// HandleNotification counts every notification as a sign of life before it reads it.
func (h handler) HandleNotification(ctx context.Context, n *pgconn.Notification, _ *pgx.Conn) error {
	h.s.pulse.hear(time.Now())
	h.handle(ctx, n.Payload)
	return nil
}

func (s *session) message(ctx context.Context, payload string) {
	m, err := Decode(payload)
	if err != nil {
		s.garbled.failed(ctx, err)
		return
	}
	s.cfg.Handle(m)
}

func (s *session) echo(ctx context.Context, _ string) {
	if s.proven.Swap(true) {
		return
	}
	s.down.over(ctx)
	s.cfg.Up()
}

// watch sends the echoes, and returns when the connection must be given up.
func (s *session) watch(ctx context.Context) error {
	slow, slower := time.NewTimer(s.cfg.SilentAfter), time.NewTimer(s.patience)
	defer slow.Stop()
	defer slower.Stop()
	for standing := false; !standing; {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-slow.C:
			if !s.connected.Load() {
				return fmt.Errorf("%w: more than %s", errSlow, s.cfg.SilentAfter)
			}
		case <-slower.C:
			return fmt.Errorf("%w: more than %s", errSlow, s.patience)
		case <-s.stands:
			standing = true
		}
	}
	for {
		next := time.Now().Add(s.cfg.EchoEvery)
		if !s.proven.Load() {
			next = time.Now().Add(min(s.cfg.EchoEvery, proveEvery))
		}
		s.send(ctx)
		if err := s.listenUntil(ctx, next); err != nil {
			return err
		}
	}
}

// send sends one echo. It takes at most EchoEvery, and ends when the connection must be judged, so that a Send that
// hangs does not delay the judgement.
func (s *session) send(ctx context.Context) {
	start := time.Now()
	until := start.Add(s.cfg.EchoEvery)
	if dead, owed := s.pulse.deadline(s.cfg.SilentAfter, s.cfg.EchoEvery); owed && dead.Before(until) {
		until = dead
	}
	bounded, cancel := context.WithDeadline(ctx, until)
	defer cancel()
	err := s.cfg.Send(bounded, echoChannel(s.cfg.Channel, s.cfg.Node), "")
	switch {
	case err == nil:
		s.pulse.sent(start, time.Now())
		s.echoes.over(ctx)
	case ctx.Err() == nil:
		s.echoes.failed(ctx, err)
	}
}

// listenUntil waits until the given time. It returns an error earlier if ctx ends or the connection has been silent for
// too long.
func (s *session) listenUntil(ctx context.Context, next time.Time) error {
	for {
		wake := next
		dead, owed := s.pulse.deadline(s.cfg.SilentAfter, s.cfg.EchoEvery)
		switch now := time.Now(); {
		case ctx.Err() != nil:
			return ctx.Err()
		case owed && !now.Before(dead):
			return fmt.Errorf("%w for %s", errSilent, s.cfg.SilentAfter)
		case !now.Before(next):
			return nil
		case owed && dead.Before(next):
			wake = dead
		}
		pause(ctx, time.Until(wake))
	}
}
