package feed

import (
	"sync/atomic"
	"testing"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
)

// countsEncoding counts how often it is encoded.
type countsEncoding struct{ times *atomic.Int32 }

func (c countsEncoding) MarshalJSON() ([]byte, error) {
	c.times.Add(1)
	return []byte(`"text"`), nil
}

// A user with several sockets gets one message, encoded once.
func TestEncodedOnce(t *testing.T) {
	t.Parallel()
	f := New(Config{Records: records.New(pg.Router{}, nil)})
	var got [][]byte
	for range 3 {
		_, end := f.Subscribe(assign.Holder{User: "ann"}, func(events ...assign.Event) {
			for _, e := range events {
				b, err := e.AppendMessage(nil)
				if err != nil {
					t.Error(err)
				}
				got = append(got, b)
			}
		})
		defer end()
	}
	var times atomic.Int32
	f.to(assign.Holder{User: "ann"}, assign.Event{Type: "mark", Body: countsEncoding{&times}})
	f.Broadcast(assign.Event{Type: "mark", Body: countsEncoding{&times}})
	if len(got) != 6 || times.Load() != 2 {
		t.Errorf("%d messages of two events, encoded %d times", len(got), times.Load())
	}
	for _, b := range got {
		if string(b) != `{"type":"mark","mark":"text"}` {
			t.Errorf("got %s", b)
		}
	}
}
