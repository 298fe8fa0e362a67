package torture

import "sync"

// Violation is something that must not be: what rule it breaks, and what shows it.
type Violation struct {
	Rule string
	Text string
}

// findings gathers what the harness itself finds; the checker's come to it later.
type findings struct {
	mu  sync.Mutex
	all []Violation
}

func (f *findings) add(rule, text string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.all = append(f.all, Violation{Rule: rule, Text: text})
}

func (f *findings) list() []Violation {
	f.mu.Lock()
	defer f.mu.Unlock()
	return append([]Violation(nil), f.all...)
}
