package bench

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"testing"
)

func TestWire(t *testing.T) {
	answers := []string{
		"HTTP/1.1 201 Created\r\nDate: now\r\ncontent-length: 5\r\n\r\nhello",
		// Two at once: the second must not be taken for a part of the first.
		"HTTP/1.1 404 Not Found\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n" +
			"HTTP/1.1 204 No Content\r\n\r\n",
	}
	here, there := net.Pipe()
	defer here.Close()
	go func() {
		defer there.Close()
		for _, answer := range answers {
			if _, err := there.Read(make([]byte, 100)); err != nil {
				return
			}
			if _, err := io.WriteString(there, answer); err != nil {
				return
			}
		}
	}()
	w := &wire{conn: here, in: bufio.NewReader(here)}
	status, body, err := w.do([]byte("first"))
	if status != 201 || string(body) != "hello" || err != nil {
		t.Fatalf("the first answer is read as %d %q, %v", status, body, err)
	}
	status, body, err = w.do([]byte("second"))
	if status != 404 || string(body) != "abc0123456789" || err != nil {
		t.Fatalf("the answer in chunks is read as %d %q, %v", status, body, err)
	}
	if status, length, err := readHead(w.in); status != 204 || length != 0 || err != nil {
		t.Fatalf("the one behind it is read as %d, %d bytes, %v", status, length, err)
	}
}

func TestReadMessage(t *testing.T) {
	long := strings.Repeat("x", 70_000)
	var sent bytes.Buffer
	sent.Write([]byte{0x80 | pingFrame, 2, 'h', 'i'})
	sent.Write(append([]byte{0x80 | textFrame, 5}, "hello"...))
	sent.Write(append([]byte{0x80 | textFrame, 126, 1, 0}, long[:256]...))
	sent.Write(append([]byte{0x80 | textFrame, 127, 0, 0, 0, 0, 0, 1, 0x11, 0x70}, long...))
	sent.Write(append([]byte{0x80 | closeFrame, 5, 3, 0xf5}, "bye"...))
	here, there := net.Pipe()
	defer here.Close()
	pong := make(chan []byte, 1)
	go func() {
		b := make([]byte, 8)
		_, _ = io.ReadFull(there, b)
		pong <- b
	}()
	in := bufio.NewReader(&sent)
	var buffer []byte
	for _, want := range []string{"hello", long[:256], long} {
		var err error
		if buffer, err = readMessage(here, in, buffer); err != nil || string(buffer) != want {
			t.Fatalf("a message of %d bytes is read as %.20q, %v", len(want), buffer, err)
		}
	}
	if got := <-pong; !bytes.Equal(got, []byte{0x80 | pongFrame, 0x82, 0, 0, 0, 0, 'h', 'i'}) {
		t.Errorf("a ping is answered with %x", got)
	}
	if _, err := readMessage(here, in, buffer); !errors.Is(err, errClosed) || !strings.Contains(err.Error(), "bye") {
		t.Errorf("a close is read as %v", err)
	}
}

func TestTakeItems(t *testing.T) {
	before := []int64{7}
	const good = `{"id":"5","state":"assigned","work":[{"item":"8","details":{}},{"item":"9","details":{}}]}`
	if items, err := takeItems(before, 201, []byte(good), 2); err != nil || !slices.Equal(items, []int64{7, 8, 9}) {
		t.Errorf("a good answer is read as %v, %v", items, err)
	}
	for name, c := range map[string]struct {
		status int
		body   string
	}{
		"another status":  {200, good},
		"another state":   {201, strings.ReplaceAll(good, "assigned", "partial")},
		"too few":         {201, strings.Replace(good, `{"item":"8","details":{}},`, "", 1)},
		"one item twice":  {201, strings.Replace(good, `"8"`, `"9"`, 1)},
		"an unknown item": {201, strings.Replace(good, `"8"`, `"eight"`, 1)},
	} {
		if _, err := takeItems(before, c.status, []byte(c.body), 2); err == nil {
			t.Errorf("%s: it is taken for a good answer", name)
		}
	}
}
