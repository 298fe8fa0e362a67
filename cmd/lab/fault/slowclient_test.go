package fault

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// Clients that stop while sending are cut off: in their headers after 10 seconds, in a body after 30. Meanwhile their
// cost is bounded, and nobody else notices.
func TestSlowSenders(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const each = 300
	s := newSite(t, 1, "")
	s.shelf(1000, 10)
	callers := s.crowd(2*each, 0)
	before := resident(t, s.Nodes[0])
	still := s.Standstill()
	for i, c := range callers {
		begins := "POST /api/v1/tasks/verify/requests HTTP/1.1\r\nHost: localhost\r\nX-Getwork-User: " + c.user + "\r\n"
		if i < each {
			begins += "Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n{\"count\":"
		}
		if _, err := io.WriteString(c.conn, begins); err != nil {
			t.Fatal(err)
		}
	}
	var g errgroup.Group
	began := time.Now()
	for i, c := range callers {
		within := 15 * time.Second
		if i < each {
			within = 40 * time.Second
		}
		g.Go(func() error {
			_ = c.conn.SetReadDeadline(began.Add(within + time.Minute))
			_, err := io.Copy(io.Discard, c.in) // perhaps an answer, and then the end
			var late net.Error
			if errors.As(err, &late) && late.Timeout() {
				return fmt.Errorf("connection %d is still open", i)
			}
			if took := time.Since(began) - still(); took > within {
				return fmt.Errorf("connection %d was cut off only after %v", i, took)
			}
			return nil
		})
	}
	for i := range 20 {
		still := s.Standstill()
		if _, a, err := s.As("quick-"+strconv.Itoa(i), 0).GetWork(t.Context(), "verify", 1); err != nil || a.Status != 201 || a.Took-still() > 5*time.Second {
			t.Errorf("meanwhile: %d %s after %v, %v", a.Status, a.Body, a.Took, err)
		}
	}
	if grown := resident(t, s.Nodes[0]) - before; grown > 100 {
		t.Errorf("the node takes %d MiB more", grown)
	}
	if err := g.Wait(); err != nil {
		t.Error(err)
	}
}

// A user reads none of 1,000 events, 20 MB in all, on many live channels of both kinds: the channels are cut off, the
// node's memory does not grow, and users who read miss nothing.
func TestSlowReaders(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const events, count, carry, slow = 1000, 5, 4000, 10
	s := newSite(t, 1, "")
	s.shelf(events*count+100, carry)
	var sockets, streams [slow]*caller
	for i := range slow {
		sockets[i], streams[i] = s.narrow("mary"), s.narrow("mary")
		if a, err := sockets[i].upgrade(callBound); err != nil || a.Status != http.StatusSwitchingProtocols {
			t.Fatalf("%d %s, %v", a.Status, a.Body, err)
		}
		if err := streams[i].send("GET", "/api/v1/events", ""); err != nil {
			t.Fatal(err)
		}
	}
	reader := s.crowd(1, 0)[0]
	reader.user = "mary"
	if a, err := reader.upgrade(callBound); err != nil || a.Status != http.StatusSwitchingProtocols {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	told := make(chan error, 1)
	go func() {
		for range events {
			if err := reader.until(`"state":"assigned"`); err != nil {
				told <- err
				return
			}
		}
		told <- nil
	}()
	before, most := resident(t, s.Nodes[0]), 0
	clicker := s.crowd(1, 0)[0]
	clicker.user = "mary"
	for i := range events {
		if a, err := clicker.click(callBound, count); err != nil || a.Status != 201 {
			t.Fatalf("click %d: %d %.200s, %v", i, a.Status, a.Body, err)
		}
		if i%100 == 0 {
			most = max(most, resident(t, s.Nodes[0]))
		}
	}
	t.Logf("%d MiB before, at most %d", before, most)
	bound := 320 // if the node kept the events for every slow reader they would be 400 MB, beside what waits for the collector
	if cluster.Race() {
		bound *= 3
	}
	if before > 0 && most-before > bound {
		t.Errorf("the node takes %d MiB more", most-before)
	}
	if err := <-told; err != nil {
		t.Errorf("a user who reads: %v", err)
	}
	for i := range slow {
		_ = sockets[i].conn.SetReadDeadline(time.Now().Add(callBound))
		var code closedWith
		switch err := sockets[i].until("never said"); {
		case errors.As(err, &code) && code != 1013:
			t.Errorf("socket %d was %v", i, err)
		case isLate(err):
			t.Errorf("socket %d is still open", i)
		}
		_ = streams[i].conn.SetReadDeadline(time.Now().Add(callBound))
		response, err := http.ReadResponse(streams[i].in, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, response.Body); isLate(err) {
			t.Errorf("event stream %d is still open", i)
		}
		_ = response.Body.Close()
	}
	s.noDuplicates()
}

// narrow returns a caller for whom the system buffers little of the input that it does not read.
func (s *site) narrow(user string) *caller {
	s.T.Helper()
	d := net.Dialer{Control: func(_, _ string, c syscall.RawConn) (err error) {
		failed := c.Control(func(fd uintptr) { err = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 64<<10) })
		return errors.Join(err, failed)
	}}
	c, err := callerBy(s.T.Context(), d, s.Nodes[0], user)
	if err != nil {
		s.T.Fatal(err)
	}
	s.T.Cleanup(func() { _ = c.conn.Close() })
	return c
}

func isLate(err error) bool {
	var late net.Error
	return errors.As(err, &late) && late.Timeout()
}
