package agent

import (
	"testing"
	"testing/synctest"
	"time"
)

// The live channel rests while quick work is handed out without waiting, and is open again as soon as it is needed.
func TestChannelRests(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := &session{Agent: Agent{Concurrency: 2, Lease: time.Minute}, channel: newChannel(), quick: 2}
		ctx := t.Context()
		for range 3 {
			following := s.channel.open(ctx)
			s.channel.set(func() { s.channel.live = true })
			for range restAfter - 1 {
				s.answered(true)
			}
			s.answered(false)
			s.quick = 0 // one took longer
			for range restAfter {
				s.answered(true)
			}
			s.quick = 2
			for range restAfter - 1 {
				s.answered(true)
			}
			if following.Err() != nil {
				t.Fatal("it rests too early")
			}
			s.answered(true)
			if following.Err() == nil || s.channel.live {
				t.Fatal("it does not rest")
			}
			again := make(chan struct{})
			go func() {
				defer close(again)
				s.channel.open(ctx)
			}()
			synctest.Wait()
			select {
			case <-again:
				t.Fatal("it is open")
			default:
			}
			s.needsChannel()
			s.needsChannel() // needs nobody who hears it
			<-again
		}
	})
}
