package torture

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
)

// stream is a live channel as text/event-stream.
type stream struct {
	body  io.ReadCloser
	lines *bufio.Reader
}

// errNoStream is the error of a 200 answer that is no event stream, or of an event whose name is not its type.
var errNoStream = errors.New("not a valid event stream")

// openStream opens a stream that lasts until ctx ends; dial bounds the time until it is answered.
func openStream(ctx, dial context.Context, to http.RoundTripper, url string, header http.Header) (*stream, error) {
	ctx, cancel := context.WithCancel(ctx)
	late := context.AfterFunc(dial, cancel)
	sent, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/api/v1/events", nil)
	if err != nil {
		cancel()
		return nil, err
	}
	sent.Header = header
	sent.Header.Set("Accept", "text/event-stream")
	response, err := to.RoundTrip(sent)
	if err != nil {
		cancel()
		return nil, err
	}
	late()
	s := &stream{body: closing{response.Body, cancel}, lines: bufio.NewReader(response.Body)}
	kind := response.Header.Get("Content-Type")
	switch {
	case response.StatusCode != http.StatusOK:
		err = fmt.Errorf("the event stream was answered %d", response.StatusCode)
	case kind != "text/event-stream":
		err = fmt.Errorf("%w: its type is %q", errNoStream, kind)
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// closing is a body whose close also ends its request.
type closing struct {
	io.ReadCloser
	cancel context.CancelFunc
}

func (c closing) Close() error {
	c.cancel()
	return c.ReadCloser.Close()
}

// Read waits for the next event's data. Only the context that the stream was opened with ends it.
func (s *stream) Read(context.Context) ([]byte, error) {
	name, data := "", ""
	for {
		line, err := s.lines.ReadString('\n')
		if err != nil {
			return nil, err
		}
		line = strings.TrimSuffix(line, "\n")
		field, value, _ := strings.Cut(line, ": ")
		switch {
		case line == "" && data != "":
			var event struct{ Type string }
			if json.Unmarshal([]byte(data), &event) != nil || event.Type != name {
				return nil, fmt.Errorf("%w: event %q has the data %s", errNoStream, name, data)
			}
			return []byte(data), nil
		case field == "event":
			name = value
		case field == "data":
			data += value
		}
	}
}

// Close ends the stream; it may be called again.
func (s *stream) Close() { _ = s.body.Close() }
