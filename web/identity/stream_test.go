package identity

import (
	"net/http"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// slowClient takes one event, and then nothing more until it is asked to; a write that waits ends at its deadline.
type slowClient struct {
	header http.Header
	taken  chan struct{} // closed after the first event
	goes   chan struct{} // closed: it takes the rest

	mu       sync.Mutex
	text     strings.Builder
	at       time.Time // the deadline
	deadline *time.Timer
	late     chan struct{} // closed at the deadline
}

func newSlowClient() *slowClient {
	return &slowClient{header: http.Header{}, taken: make(chan struct{}), goes: make(chan struct{}), late: make(chan struct{})}
}

func (c *slowClient) Header() http.Header { return c.header }
func (c *slowClient) WriteHeader(int)     {}
func (c *slowClient) Flush()              {}

func (c *slowClient) SetWriteDeadline(at time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.deadline != nil {
		c.deadline.Stop()
	}
	c.at = at
	c.deadline = time.AfterFunc(time.Until(at), func() { close(c.late) })
	return nil
}

func (c *slowClient) Write(b []byte) (int, error) {
	c.mu.Lock()
	c.text.Write(b)
	first := c.text.Len() == len(b)
	c.mu.Unlock()
	if first {
		close(c.taken)
	}
	select {
	case <-c.goes:
		return len(b), nil
	case <-c.late:
		return 0, os.ErrDeadlineExceeded
	}
}

func (c *slowClient) String() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text.String()
}

// A client that takes its events slowly gets nothing of what it has not taken when its rights end, and its stream does not
// outlive them for long.
func TestSlowStreamEndsWithItsRights(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, takes := range []bool{true, false} {
		t.Run(map[bool]string{true: "that goes on", false: "that takes nothing more"}[takes], func(t *testing.T) {
			t.Parallel()
			n := start(t)
			token, id := n.service(t, "robot", assign.RoleManager)
			r, err := http.NewRequestWithContext(t.Context(), "GET", "/api/v1/events", nil)
			if err != nil {
				t.Fatal(err)
			}
			r.Header.Set("Authorization", "Bearer "+token)
			r.RemoteAddr = "127.0.0.1:1"
			client, done := newSlowClient(), make(chan struct{})
			go func() {
				defer close(done)
				n.Config.Handler.ServeHTTP(client, r)
			}()
			<-client.taken // hello; the snapshot is taken from the stream, and not written yet
			other := listen(t, n, token)
			began := time.Now()
			if err := n.rights.EndToken(t.Context(), id, "ada", 0); err != nil {
				t.Fatal(err)
			}
			<-other // has heard of the end
			if takes {
				timeout.Await(t, "the end here", client.ends)
				close(client.goes)
			}
			<-done
			if took := time.Since(began); took > timeout.Scale(4*time.Second) {
				t.Errorf("it went on for %s", took)
			}
			if text := client.String(); strings.Contains(text, "snapshot") || takes && !strings.Contains(text, "/problems/unauthenticated") {
				t.Errorf("it was told:\n%s", text)
			}
		})
	}
}

// ends reports whether the write that waits has less time left than a client usually gets.
func (c *slowClient) ends() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at.Before(time.Now().Add(5 * time.Second))
}
