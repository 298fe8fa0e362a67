package node

import (
	"bytes"
	"strings"
	"sync"
)

// announced precedes the address in the line that a node prints when it starts to serve.
const announced = "listening on "

// output keeps a node's output, and finds the node's address in it.
type output struct {
	mu   sync.Mutex
	text bytes.Buffer
	seen bool
	url  chan string // receives the address, once
}

func newOutput() *output { return &output{url: make(chan string, 1)} }

// Write is called by a single goroutine, which reads the node's output.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(p)
	if o.seen {
		return len(p), nil
	}
	for line := range strings.Lines(o.text.String()) {
		if url, ok := strings.CutPrefix(strings.TrimSpace(line), announced); ok && strings.HasSuffix(line, "\n") {
			o.seen = true
			o.url <- url
			break
		}
	}
	return len(p), nil
}

// String returns all output so far.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}
