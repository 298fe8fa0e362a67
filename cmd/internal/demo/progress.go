package demo

import (
	"fmt"
	"io"
	"os"
	"sync"
)

// progress prints what a demo is doing: on a terminal in one line that changes, otherwise in a line for each step.
type progress struct {
	w    io.Writer
	live bool // w is a terminal

	mu   sync.Mutex
	name string // of the current step
	text string // the text of the line; empty: there is no line
}

func newProgress(w io.Writer) *progress {
	p := &progress{w: w}
	if f, ok := w.(*os.File); ok && os.Getenv("TERM") != "dumb" {
		info, err := f.Stat()
		p.live = err == nil && info.Mode()&os.ModeCharDevice != 0
	}
	return p
}

// step begins a step whose duration is unknown.
func (p *progress) step(name string) { p.part(name, 0, 0) }

// part reports how much of a step is done. A new name begins a new step.
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

// end removes the line, so that something else can be printed.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.live && p.text != "" {
		_, _ = fmt.Fprint(p.w, "\r\x1b[K")
	}
	p.name, p.text = "", ""
}
