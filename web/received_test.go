package web

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"testing"
	"time"

	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// Calls whose bodies never come take no place: a node with one place serves others meanwhile, and answers them 408 in the end.
func TestBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{limit: 1})
	n.newInbox(t, "inbox", "")
	conn, err := net.Dial("tcp", n.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /api/v1/tasks/inbox/requests HTTP/1.1\r\nHost: %s\r\nX-Getwork-User: slow\r\nContent-Length: 100\r\n\r\n{", n.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200)
	if err := conn.SetReadDeadline(time.Now().Add(timeout.Scale(2 * time.Minute))); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d, want 408", response.StatusCode)
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
	n.call(t, "POST", "/api/v1/tasks/inbox/items", manager(), `[{"item":"1","details":{"a":{"b":1,"b":2}}}]`).refused(400, "invalid", "b")
}
