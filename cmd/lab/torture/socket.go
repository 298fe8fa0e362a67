package torture

import (
	"context"
	"encoding/json"
	"errors"
	"math/rand/v2"
	"net/http"
	"time"

	"getwork/cmd/lab/torture/history"
	"getwork/ws"
)

// message is one message of a live channel.
type message struct {
	kind string
	body json.RawMessage
}

// hear handles a message of the person's socket. After late nobody lets go of anything any more.
func (p *person) hear(ctx context.Context, m message, late bool) {
	switch m.kind {
	case "snapshot":
		var all pipeline
		if json.Unmarshal(m.body, &all) == nil && !late {
			p.takeAll(ctx, all)
		}
	case "work":
		var w held
		if json.Unmarshal(m.body, &w) == nil && !late {
			p.take(ctx, []held{w})
		}
	case "request":
		var r answered
		if json.Unmarshal(m.body, &r) != nil || r.State == "pending" {
			return
		}
		if p.waiting[r.ID] && p.chance(30) {
			p.agenda.ask(0, func() { p.poll(ctx, r.ID) }) // checks that a poll says the same
			return
		}
		delete(p.waiting, r.ID)
		if !late {
			p.take(ctx, r.Work)
		}
	}
}

// manner is how a client treats its live channels while things are broken.
type manner struct {
	slow   time.Duration // mean time between two messages that it reads; 0: it reads at once
	vanish time.Duration // mean time after which it closes without a close message; 0: never
}

// listener is the goroutine that keeps a live channel open for a person, from node to node: a socket, or an event
// stream.
type listener struct {
	caller
	manner manner
	calm   context.Context // see crowd
	told   chan<- message
}

// channel is a socket or an event stream.
type channel interface {
	Read(ctx context.Context) ([]byte, error)
	Close()
}

// loggedOut is the close code that says: log in again.
const loggedOut = 4401

// streams is the percentage of channels that are event streams.
const streams = 40

func (l *listener) dial(ctx context.Context, m *member, stream bool, with badge) (channel, error) {
	dial, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if stream {
		return openStream(ctx, dial, l.stage.to(), m.node.URL, l.identity(with))
	}
	return ws.Dial(dial, &http.Client{Transport: l.stage.to()}, m.node.URL+"/api/v1/ws", l.identity(with))
}

func (l *listener) run(ctx context.Context) {
	for ctx.Err() == nil {
		l.connect(ctx)
		select {
		case <-time.After(100*time.Millisecond + time.Duration(l.rng.IntN(900))*time.Millisecond):
		case <-ctx.Done():
		}
	}
}

// connect opens one channel and reads it to its end. It records the channel if it went live.
func (l *listener) connect(ctx context.Context) {
	ctx, gone := context.WithCancel(ctx)
	defer gone()
	manner := l.manner
	if l.calm.Err() != nil {
		manner.slow, manner.vanish = 0, 0
	} else if manner.slow > 0 || manner.vanish > 0 {
		defer context.AfterFunc(l.calm, gone)()
	}
	m, stream := l.node(), l.rng.IntN(100) < streams
	with := l.show(ctx, nil)
	c, err := l.dial(ctx, m, stream, with)
	defer func() {
		if errors.Is(err, errNoStream) {
			l.stage.findings.add("socket", "%v", err)
		}
	}()
	if err != nil {
		return
	}
	defer c.Close()
	if manner.vanish > 0 {
		defer time.AfterFunc(time.Duration(l.rng.ExpFloat64()*float64(manner.vanish)), gone).Stop()
	}
	s := &history.Socket{ID: l.stage.sockets.Add(1), Who: l.who, By: with.name, Node: m.number, Stream: stream, Live: -1, Slow: manner.slow > 0}
	err = l.read(ctx, c, s)
	s.Ended, s.Status = l.stage.rec.Now(), int(ws.CloseStatus(err))
	if s.Live >= 0 {
		l.stage.rec.Add(history.Entry{Socket: s})
	}
	if s.Status == loggedOut {
		l.pass.spoilt(with)
	}
}

// read records messages until the socket ends.
func (l *listener) read(ctx context.Context, c channel, s *history.Socket) error {
	for {
		b, err := c.Read(ctx)
		at := l.stage.rec.Now()
		if err != nil {
			return err
		}
		var fields map[string]json.RawMessage
		var kind string
		if err = json.Unmarshal(b, &fields); err == nil {
			err = json.Unmarshal(fields["type"], &kind)
		}
		if err != nil || fields[kind] == nil {
			l.stage.findings.add("socket", "an invalid message: %s", b)
			continue
		}
		if kind == "snapshot" && s.Live < 0 {
			s.Live = at
		}
		l.stage.rec.Add(history.Entry{Told: &history.Told{Socket: s.ID, At: at, Type: kind, Body: fields[kind]}})
		select {
		case l.told <- message{kind, fields[kind]}:
		default: // the person is busy, and will read their pipeline later
		}
		if s.Slow && !doze(ctx, l.rng, l.manner.slow) {
			return ctx.Err()
		}
	}
}

// doze waits for a random time. It returns false if the context ends first.
func doze(ctx context.Context, rng *rand.Rand, mean time.Duration) bool {
	timer := time.NewTimer(time.Duration(rng.ExpFloat64() * float64(mean)))
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
