package stage

import (
	"bytes"
	"context"
	"time"

	"getwork/ws"
)

// The time-outs: far longer than these steps take.
const (
	OpenWithin   = 2 * time.Minute
	ServedWithin = 2 * time.Minute
)

// Socket opens a user's socket, and returns after its snapshot: from then on the user hears of everything.
func (s *Stage) Socket(ctx context.Context, node int, user string) (*ws.Client, error) {
	ctx, cancel := context.WithTimeout(ctx, OpenWithin)
	defer cancel()
	shown, err := s.Show(ctx, user, "worker")
	if err != nil {
		return nil, err
	}
	c, err := ws.Dial(ctx, nil, s.Nodes[node].URL+"/api/v1/ws", shown)
	for message := []byte(nil); err == nil && !bytes.Contains(message, []byte(`"type":"snapshot"`)); {
		message, err = c.Read(ctx)
	}
	if err != nil && c != nil {
		c.Close()
	}
	return c, err
}

// endsRequest reports whether a message is about a request that is not pending any more.
func endsRequest(message []byte) bool {
	return bytes.Contains(message, []byte(`"type":"request"`)) && !bytes.Contains(message, []byte(`"state":"pending"`))
}

// ReadEnded reads a socket until it reports a request that is not pending any more.
func ReadEnded(ctx context.Context, socket *ws.Client) ([]byte, error) {
	for {
		message, err := socket.Read(ctx)
		if err != nil || endsRequest(message) {
			return message, err
		}
	}
}
