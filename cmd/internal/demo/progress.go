package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// progress tells what a demo is doing: in one line that changes on a terminal, else in a line for each step.
type progress struct {
	w    io.Writer
	live bool // w is a terminal

	mu   sync.Mutex
	name string // of the step
	text string // what the line shows; empty: there is none
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		p.live = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// step begins one whose end can't be foretold.
func (p *progress) step(name string) { p.part(name, 0, 0) }

// part tells how much of a step is done. A step begins when its name comes for the first time.
func (p *progress) part(name string, done, total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.live {
		if name != p.name {
			_, _ = fmt.Fprintln(p.w, "demo:", name)
		}
		p.name = name
		return
	}
	text := "demo: " + name
	if total > 1 {
		text += fmt.Sprintf(" %d %%", 100*done/total)
	}
	if text != p.text {
		_, _ = fmt.Fprint(p.w, "\r"+text+"\x1b[K")
	}
	p.name, p.text = name, text
}

// end takes the line away, so that something else can be printed.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && p.text != "" {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.name, p.text = "", ""
}
