package command

import (
	"fmt"
	"io"
	"os"
	"sync"
	"time"
)

// Progress is a line on a terminal that is written again and again while a command waits. Elsewhere nothing is written, so
// that logs and pipes get results only. Its methods may be called by several goroutines.
type Progress struct {
	mu    sync.Mutex
	w     io.Writer // nil: no terminal
	shown bool
}

// NewProgress returns a line on the terminal that errors go to. It is empty until the first Show.
func NewProgress(s *Streams) *Progress {
	if f, is := s.RawErrs.(*os.File); is && IsTerminal(f) {
		return &Progress{w: f}
	}
	return &Progress{}
}

// Show replaces the line. The text contains no data: it is not made visible.
func (p *Progress) Show(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.w != nil {
		_, _ = fmt.Fprintf(p.w, "\r\x1b[K"+format, args...)
		p.shown = true
	}
}

// Clear removes the line, so that something else can be printed in its place.
func (p *Progress) Clear() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
		p.shown = false
	}
}

// Count shows a text with the seconds that have passed, "Waiting: 7 s", once a second from the second second on. The result
// ends that and removes the line.
func (p *Progress) Count(text string) (end func()) {
	if p.w == nil {
		return func() {}
	}
	tick := time.NewTicker(time.Second)
	return p.count(text, time.Now(), tick.C, tick.Stop)
}

func (p *Progress) count(text string, since time.Time, ticks <-chan time.Time, stop func()) (end func()) {
	done, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case now := <-ticks:
				if s := int(now.Sub(since).Seconds()); s >= 2 {
					p.Show("%s: %d s", text, s)
				}
			case <-done:
				return
			}
		}
	}()
	return sync.OnceFunc(func() {
		stop()
		close(done)
		<-ended
		p.Clear()
	})
}
