// Package logs has a log that tests read while others write it.
package logs

import (
	"bytes"
	"strings"
	"sync"
)

// Buffer is an [io.Writer] that keeps all that is written, and can be used by several goroutines. The zero Buffer is empty.
type Buffer struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (b *Buffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.Write(p)
}

// String returns all that was written, since the last Take.
func (b *Buffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.text.String()
}

// Count returns how often a text stands in it.
func (b *Buffer) Count(text string) int { return strings.Count(b.String(), text) }

// Take returns what was written since it was last called, and forgets it.
func (b *Buffer) Take() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	defer b.text.Reset()
	return b.text.String()
}
