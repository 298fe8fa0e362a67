package notify

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest/logs"
	"getwork/schema/schematest/timeout"
)

// patience is how long a test waits for an event before it fails.
var patience = timeout.Scale(20 * time.Second)

// station is a running listener with its callbacks and log.
type station struct {
	*Listener
	api *pgxpool.Pool // a pool, because a Send that is cut off takes its connection with it

	pid      atomic.Uint32 // the backend of the last connection
	up       chan struct{}
	down     chan error
	messages chan Message
	logged   *logs.Buffer
	stop     func() // ends Run and waits until it has returned
}

// tune starts a listener on the database, quick enough for a test, yet a machine that stalls for seconds does not make it
// give up its connection. change, which may be nil, alters it before it runs.
func tune(t *testing.T, url string, change func(*station, *pgx.ConnConfig)) *station {
	t.Helper()
	config, err := pgx.ParseConfig(url)
	if err != nil {
		t.Fatal(err)
	}
	api, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	s := &station{
		api:      api,
		up:       make(chan struct{}, 1000),
		down:     make(chan error, 1000),
		messages: make(chan Message, 1000),
		logged:   &logs.Buffer{},
	}
	s.Listener = &Listener{
		Connect: func(ctx context.Context) (*pgx.Conn, error) {
			conn, err := pgx.ConnectConfig(ctx, config)
			if err == nil {
				s.pid.Store(conn.PgConn().PID())
			}
			return conn, err
		},
		Send:        s.send,
		Channel:     "getwork",
		Node:        "n1",
		Handle:      func(m Message) { s.messages <- m },
		Up:          func() { s.up <- struct{}{} },
		Down:        func(err error) { s.down <- err },
		EchoEvery:   time.Second,
		SilentAfter: 15 * time.Second,
		MinBackoff:  time.Millisecond,
		MaxBackoff:  50 * time.Millisecond,
		Log:         slog.New(slog.NewTextHandler(s.logged, nil)),
	}
	if change != nil {
		change(s, config)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	s.stop = sync.OnceFunc(func() {
		cancel()
		if err := await(t, ended, "Run to return"); err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	t.Cleanup(s.stop)
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("the listener logged:\n%s", s.logged)
		}
	})
	return s
}

func (s *station) send(ctx context.Context, channel, payload string) error {
	_, err := s.api.Exec(ctx, NotifySQL, channel, payload)
	return err
}

func connect(t *testing.T, url string) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// say sends a message on a connection of its own.
func say(t *testing.T, conn *pgx.Conn, payload string) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), NotifySQL, "getwork", payload); err != nil {
		t.Fatal(err)
	}
}

func await[T any](t *testing.T, c <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(patience):
		t.Fatalf("waited %s for %s", patience, what)
		panic("unreachable")
	}
}

// hears checks that a message sent now arrives.
func (s *station) hears(t *testing.T, conn *pgx.Conn, id int64) {
	t.Helper()
	want := Message{Node: "n2", Round: &Round{Task: 1, ID: id, Requests: 1}}
	say(t, conn, want.Encode())
	if diff := cmp.Diff(want, await(t, s.messages, "a message")); diff != "" {
		t.Fatalf("message (-want +got):\n%s", diff)
	}
}
