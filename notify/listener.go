package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// maxChannel is PostgreSQL's limit on a channel's name, in bytes. LISTEN cuts a longer one silently, NOTIFY refuses it.
const maxChannel = 63

const poolerAdvice = "LISTEN does not work through a transaction pooler: " +
	"give a direct connection with --listen-database-url; polling goes on meanwhile"

// Listener keeps one connection listening, for as long as Run runs. Set the fields before Run and leave them alone
// after. Handle, Up and Down are called from Run's own goroutine, never two at a time; while one of them runs nothing is
// heard, so they must not block.
type Listener struct {
	// Connect opens a direct connection for the listener alone: not from a pool, not through a transaction pooler, and
	// with pgx's default way of ending a cancelled call, so that a frozen peer can't delay the closing. The listener
	// closes it. Required.
	Connect func(context.Context) (*pgx.Conn, error)

	// Send executes NotifySQL on another connection, outside a transaction. It must return when ctx ends. Required.
	Send func(ctx context.Context, channel, payload string) error

	Channel string // shared by all nodes; 1-63 bytes
	Node    string // unique per process start: [a-z0-9]+

	// Handle gets every message on Channel, this node's own ones included, in the order of their commits. Required.
	Handle func(Message)

	// Up is called when LISTEN is active and the first echo has proven the path. Earlier messages are lost, so the
	// receiver reads everything again now. Messages may reach Handle shortly before Up.
	Up func()

	// Down is called when the connection was lost or judged dead. It follows an Up, and an Up follows it when the path
	// works again. It isn't called when Run's context ends.
	Down func(error)

	EchoEvery   time.Duration // between two echoes, and the limit for one Send; 5 s when 0
	SilentAfter time.Duration // silence after which a connection is dead, and the limit for connect and LISTEN; 15 s when 0
	MinBackoff  time.Duration // between two attempts: a random part of MinBackoff, doubled each time, 100 ms when 0,
	MaxBackoff  time.Duration // up to MaxBackoff, 10 s when 0. Only an echo that came back resets it
	Log         *slog.Logger  // gets one line per change of state and per minute of failing; nil logs nothing
}

// Run listens until ctx ends, and then returns nil, promptly even when the peer is frozen. It retries for ever if the
// server is away, in recovery, or behind a pooler. It returns an error at once, and only for a field that is missing or
// malformed.
func (l *Listener) Run(ctx context.Context) error {
	cfg, err := l.complete()
	if err != nil {
		return err
	}
	var (
		everUp  bool
		advised bool
		down    = outage{log: cfg.Log, bad: "listener is down, nodes go on by polling", good: "listener is up"}
		echoes  = outage{log: cfg.Log, bad: "listener can't send its echo, silence proves nothing meanwhile", good: "listener sends its echo again"}
		garbled = outage{log: cfg.Log, bad: "dropped a notification that does not decode"}
	)
	patience := cfg.SilentAfter
	for attempt := 0; ctx.Err() == nil; attempt++ {
		s := &session{cfg: cfg, down: &down, echoes: &echoes, garbled: &garbled, stands: make(chan struct{}), patience: patience}
		err := s.run(ctx)
		patience = s.nextPatience(err)
		if ctx.Err() != nil {
			return nil
		}
		if s.proven.Load() {
			everUp, attempt = true, 0
			cfg.Down(err)
		}
		if errors.Is(err, errSilent) && !everUp && !advised {
			advised = true
			cfg.Log.ErrorContext(ctx, poolerAdvice, "error", err)
		}
		down.failed(ctx, err)
		pause(ctx, backoff(attempt, cfg.MinBackoff, cfg.MaxBackoff))
	}
	return nil
}

// complete checks the fields and returns a copy with the defaults filled in.
func (l *Listener) complete() (Listener, error) {
	cfg := *l
	switch {
	case cfg.Connect == nil || cfg.Send == nil || cfg.Handle == nil:
		return cfg, errors.New("listener: Connect, Send and Handle are required")
	case cfg.Channel == "" || len(cfg.Channel) > maxChannel:
		return cfg, fmt.Errorf("listener: channel %q must have 1 to %d bytes", cfg.Channel, maxChannel)
	case cfg.Node == "":
		return cfg, errors.New("listener: Node is required, or this node's echoes would reach others")
	}
	if cfg.Up == nil {
		cfg.Up = func() {}
	}
	if cfg.Down == nil {
		cfg.Down = func(error) {}
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	cfg.EchoEvery = cmp.Or(cfg.EchoEvery, 5*time.Second)
	cfg.SilentAfter = cmp.Or(cfg.SilentAfter, 15*time.Second)
	cfg.MinBackoff = cmp.Or(cfg.MinBackoff, 100*time.Millisecond)
	cfg.MaxBackoff = max(cfg.MinBackoff, cmp.Or(cfg.MaxBackoff, 10*time.Second))
	return cfg, nil
}

// echoChannel names the channel on which a node hears only itself. A name that would be too long becomes a hash.
func echoChannel(channel, node string) string {
	name := channel + "_echo_" + node
	if len(name) <= maxChannel {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return "echo_" + hex.EncodeToString(sum[:20])
}

// backoff returns the pause after the given failed attempt, counting from 0. It is drawn from the whole range, so that
// a dozen nodes that lost the same server don't come back at the same time.
func backoff(attempt int, least, most time.Duration) time.Duration {
	limit := most
	if attempt < 30 && least<<attempt < most {
		limit = max(least<<attempt, least) // a shift may overflow to less
	}
	return rand.N(limit + 1)
}

// pause waits for d, or until ctx ends.
func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
