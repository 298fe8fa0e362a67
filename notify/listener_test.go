package notify

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/schema/schematest"
	"getwork/schema/schematest/logs"
)

func TestMessagesArriveInOrder(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	s, other := tune(t, url, nil), connect(t, url)
	await(t, s.up, "up")
	const n = 300
	for id := range int64(n) {
		say(t, other, Message{Node: "n2", Round: &Round{Task: 1, ID: id}}.Encode())
	}
	for id := range int64(n) {
		if m := await(t, s.messages, "a message"); m.Round == nil || m.Round.ID != id {
			t.Fatalf("message %d is %+v", id, m)
		}
	}
}

func TestGarbledMessagesAreDroppedAndLogged(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	s, other := tune(t, url, nil), connect(t, url)
	await(t, s.up, "up")
	say(t, other, "come here")
	say(t, other, `{"round":1}`)
	s.hears(t, other, 1)
	if n := s.logged.Count("dropped a notification"); n != 1 {
		t.Errorf("logged %d times, want once a minute", n)
	}
}

// TestLongNamesStillEcho checks that the echo channel's name fits, whatever the shared channel's, and is unique per node.
func TestLongNamesStillEcho(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	long := strings.Repeat("Ünï-", 10) + "abc" // 63 bytes
	rename := func(node string) func(*station, *pgx.ConnConfig) {
		return func(s *station, _ *pgx.ConnConfig) { s.Channel, s.Node = long, node }
	}
	a, b := tune(t, url, rename("a")), tune(t, url, rename("b"))
	await(t, a.up, "up of a")
	await(t, b.up, "up of b")
	if len(long) != maxChannel || echoChannel(long, "a") == echoChannel(long, "b") {
		t.Errorf("%d bytes, echoes on %s and %s", len(long), echoChannel(long, "a"), echoChannel(long, "b"))
	}
}

func TestTerminatedBackendIsReplaced(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	s, other := tune(t, url, nil), connect(t, url)
	for id := range int64(5) {
		await(t, s.up, "up")
		s.hears(t, other, id)
		if _, err := other.Exec(t.Context(), `select pg_terminate_backend($1)`, int(s.pid.Load())); err != nil {
			t.Fatal(err)
		}
		if err := await(t, s.down, "down"); errors.Is(err, errSilent) {
			t.Errorf("a closed connection was noticed only by its silence: %v", err)
		}
	}
	await(t, s.up, "up")
	s.hears(t, other, 5)
}

func TestFrozenConnectionIsNoticedAndReplaced(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.Empty(t)
	p, through := behind(t, url)
	s := tune(t, url, func(s *station, config *pgx.ConnConfig) {
		through(s, config)
		s.SilentAfter = 7 * time.Second // longer than a busy machine stalls: only the freeze may end the connection
	})
	other := connect(t, url)
	await(t, s.up, "up")
	s.hears(t, other, 1)

	thaw := p.freeze(t)
	frozen := time.Now()
	if err := await(t, s.down, "down"); !errors.Is(err, errSilent) {
		t.Errorf("down because of: %v", err)
	}
	if took := time.Since(frozen); took > 4*s.SilentAfter {
		t.Errorf("noticed after %s, want about %s", took, s.SilentAfter)
	}
	thaw()
	await(t, s.up, "up after the thaw")
	s.hears(t, other, 2)
}

func TestFrozenConnectionDoesNotHoldUpTheEnd(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	for _, c := range []struct {
		name   string
		freeze func(t *testing.T, p *proxy, s *station)
	}{
		{"while listening", func(t *testing.T, p *proxy, _ *station) { p.freeze(t) }},
		{"while connecting", func(t *testing.T, p *proxy, s *station) {
			p.freeze(t)
			p.cut()
			await(t, s.down, "down")
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, through := behind(t, url)
			s := tune(t, url, through)
			await(t, s.up, "up")
			c.freeze(t, p, s)
			begin := time.Now()
			s.stop()
			if took := time.Since(begin); took > s.SilentAfter*2/3 { // it waits neither for the peer nor for that
				t.Errorf("Run returned after %s", took)
			}
		})
	}
}

// TestFailingSendDoesNotKillAGoodListener fails the echoes for twice SilentAfter, which is no fault of LISTEN.
func TestFailingSendDoesNotKillAGoodListener(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, c := range []struct {
		name string
		fail func(ctx context.Context) error
	}{
		{"refused", func(context.Context) error { return errors.New("no connection in the pool") }},
		{"hanging", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			url := schematest.Empty(t)
			var failing atomic.Bool
			failed := make(chan struct{}, 1000)
			s := tune(t, url, func(s *station, _ *pgx.ConnConfig) {
				// The echoes before and after the failing ones must be answered in time on any machine.
				s.EchoEvery, s.SilentAfter = 100*time.Millisecond, 6*time.Second
				s.Send = func(ctx context.Context, channel, payload string) error {
					if !failing.Load() {
						return s.send(context.WithoutCancel(ctx), channel, payload) // a slow echo must not fail
					}
					failed <- struct{}{}
					return c.fail(ctx)
				}
			})
			other := connect(t, url)
			await(t, s.up, "up")
			failing.Store(true)
			for begin := time.Now(); time.Since(begin) < 2*s.SilentAfter; {
				await(t, failed, "an echo that fails")
			}
			s.hears(t, other, 1)
			failing.Store(false)
			for s.logged.Count("sends its echo again") == 0 {
				s.hears(t, other, 2)
			}
			if n := s.logged.Count("can't send its echo"); n != 1 {
				t.Errorf("logged %d times that echoes fail, want once", n)
			}
			select {
			case err := <-s.down:
				t.Errorf("a good listener was given up: %v", err)
			default:
			}
		})
	}
}

// TestSilentLISTENIsExplained imitates a transaction pooler: LISTEN succeeds, and nothing ever comes.
func TestSilentLISTENIsExplained(t *testing.T) {
	t.Parallel()
	url := schematest.Empty(t)
	attempts := make(chan struct{}, 1000)
	s := tune(t, url, func(s *station, _ *pgx.ConnConfig) {
		s.EchoEvery, s.SilentAfter = 100*time.Millisecond, time.Second
		s.Send = func(context.Context, string, string) error { return nil }
		direct := s.Connect
		s.Connect = func(ctx context.Context) (*pgx.Conn, error) {
			attempts <- struct{}{}
			return direct(ctx)
		}
	})
	for s.logged.Count("--listen-database-url") == 0 { // an attempt that was slow to connect logs no explanation
		await(t, attempts, "another attempt")
	}
	for range 3 {
		await(t, attempts, "another attempt after the explanation")
	}
	s.stop()
	if n := s.logged.Count("--listen-database-url"); n != 1 {
		t.Errorf("the pooler was explained %d times, want once", n)
	}
	if n := s.logged.Count("level=ERROR"); n != 1 {
		t.Errorf("%d errors logged, want one", n)
	}
	if len(s.up)+len(s.down) != 0 {
		t.Error("Up or Down was called for a path that was never proven")
	}
}

// TestStandbyIsTriedWithBackoffAndFewWords spends an hour of fake time with a server that can't listen.
func TestStandbyIsTriedWithBackoffAndFewWords(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var logged logs.Buffer
		attempts := 0
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		l := &Listener{
			Connect: func(context.Context) (*pgx.Conn, error) {
				attempts++
				return nil, &pgconn.PgError{Code: "25006", Message: "cannot execute LISTEN during recovery"}
			},
			Send:    func(context.Context, string, string) error { return nil },
			Handle:  func(Message) {},
			Channel: "getwork",
			Node:    "n1",
			Log:     slog.New(slog.NewTextHandler(&logged, nil)),
		}
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		if attempts < 400 || attempts > 1200 {
			t.Errorf("%d attempts in an hour, want one in about 5 s", attempts)
		}
		if n := logged.Count("listener is down"); n < 50 || n > 60 {
			t.Errorf("%d lines in an hour, want one a minute", n)
		}
	})
}

// TestHangingConnectIsGivenUp checks that SilentAfter ends a connect that never returns by itself.
func TestHangingConnectIsGivenUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		attempts := 0
		l := &Listener{
			Connect: func(ctx context.Context) (*pgx.Conn, error) {
				attempts++
				if attempts == 3 {
					cancel()
				}
				<-ctx.Done()
				return nil, ctx.Err()
			},
			Send:    func(context.Context, string, string) error { return nil },
			Handle:  func(Message) {},
			Channel: "getwork",
			Node:    "n1",
		}
		begin := time.Now()
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(begin); took < 30*time.Second || took > 31*time.Second {
			t.Errorf("two attempts took %s, want 15 s each", took)
		}
	})
}

func TestBackoffStaysInItsRange(t *testing.T) {
	for attempt := range 100 {
		for range 100 {
			d := backoff(attempt, 100*time.Millisecond, 10*time.Second)
			most := 10 * time.Second
			if attempt < 7 {
				most = 100 * time.Millisecond << attempt
			}
			if d < 0 || d > most {
				t.Fatalf("pause %s after attempt %d, want %s at most", d, attempt, most)
			}
		}
	}
}

func TestMissingFieldsAreRefusedAtOnce(t *testing.T) {
	full := Listener{
		Connect: func(context.Context) (*pgx.Conn, error) { return nil, io.EOF },
		Send:    func(context.Context, string, string) error { return nil },
		Handle:  func(Message) {},
		Channel: "getwork",
		Node:    "n1",
	}
	for name, spoil := range map[string]func(*Listener){
		"connect": func(l *Listener) { l.Connect = nil },
		"send":    func(l *Listener) { l.Send = nil },
		"handle":  func(l *Listener) { l.Handle = nil },
		"channel": func(l *Listener) { l.Channel = strings.Repeat("c", 64) },
		"node":    func(l *Listener) { l.Node = "" },
	} {
		t.Run(name, func(t *testing.T) {
			l := full
			spoil(&l)
			if err := l.Run(t.Context()); err == nil {
				t.Error("Run returned nil")
			}
		})
	}
}
