package web

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// Calls whose bodies never come in full take no place: a node with one place serves others meanwhile. In the end it answers
// them, and closes their connections.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{limit: 1})
	n.newInbox(t, "inbox", "")
	begin := func(length int, body string) net.Conn {
		conn, err := net.Dial("tcp", n.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		if _, err := fmt.Fprintf(conn, "POST /api/v1/tasks/inbox/requests HTTP/1.1\r\nHost: %s\r\nX-Getwork-User: slow\r\nContent-Length: %d\r\n\r\n%s", n.Listener.Addr(), length, body); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	slow := map[int]net.Conn{
		http.StatusRequestTimeout:        begin(100, "{"),
		http.StatusRequestEntityTooLarge: begin(maxBody+100, strings.Repeat(" ", maxBody+1)),
	}
	n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200)
	for status, conn := range slow {
		if err := conn.SetReadDeadline(time.Now().Add(timeout.Scale(30 * time.Second))); err != nil {
			t.Fatal(err)
		}
		in := bufio.NewReader(conn)
		response, err := http.ReadResponse(in, nil)
		if err != nil {
			t.Errorf("instead of status %d came %v", status, err)
			continue
		}
		defer response.Body.Close()
		if response.StatusCode != status {
			t.Errorf("status %d, want %d", response.StatusCode, status)
		}
		if _, err := io.Copy(io.Discard, response.Body); err != nil {
			t.Error(err)
		}
		if _, err := in.ReadByte(); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("after status %d the connection stays: %v", status, err)
		}
	}
}

// A field must be sent once, and by its exact name.
func TestFieldsAreExact(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newInbox(t, "inbox", "")
	for body, field := range map[string]string{`{"count":1,"count":2}`: "count", `{"Count":1}`: "Count"} {
		n.call(t, "POST", "/api/v1/tasks/inbox/requests", as("oliver"), body).refused(400, "invalid", field)
	}
	n.call(t, "POST", "/api/v1/tasks/inbox/items", manager(), `[{"item":"1","details":{"a":{"b":1,"b":2}}}]`).refused(400, "invalid", "[0].b")
}
