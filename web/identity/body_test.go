package identity

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

// A body of a log-in that does not come is waited for as long as a call's, and no longer.
func TestLogInBodyThatNeverComes(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t)
	conn, err := net.Dial("tcp", n.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := fmt.Fprintf(conn, "POST /auth/cli/token HTTP/1.1\r\nHost: %s\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{", n.Listener.Addr()); err != nil {
		t.Fatal(err)
	}
	if err := conn.SetReadDeadline(time.Now().Add(timeout.Scale(20 * time.Second))); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusRequestTimeout {
		t.Errorf("status %d, want %d", response.StatusCode, http.StatusRequestTimeout)
	}
}
