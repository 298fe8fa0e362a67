package ws

import (
	"testing"
	"time"
)

// A burst is read at once, and later messages at the pace; after a rest another burst is allowed.
func TestPace(t *testing.T) {
	t.Parallel()
	now := time.Now()
	p := pace{since: now.Add(-time.Hour)}
	for range messageBurst {
		if wait := p.next(now); wait != 0 {
			t.Fatalf("within the burst a message waits %v", wait)
		}
	}
	for i := range 3 {
		if wait, want := p.next(now), time.Duration(i+1)*time.Second/messagesPerSecond; wait != want {
			t.Errorf("message %d behind it waits %v, want %v", i+1, wait, want)
		}
	}
	if wait := p.next(now.Add(time.Hour)); wait != 0 {
		t.Errorf("an hour later a message waits %v", wait)
	}
}
