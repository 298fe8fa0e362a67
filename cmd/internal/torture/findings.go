package torture

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Violation is something that must not be: what rule it breaks, and what shows it.
type Violation struct {
	Rule string
	Text string
}

var verbs = regexp.MustCompile(`%[#+.\d]*[a-z]`)

// kindOf names a kind of violation for people.
func kindOf(rule, text string) string {
	first, _, _ := strings.Cut(text, "\n")
	return rule + ": " + verbs.ReplaceAllString(first, "…")
}

// findings gathers what the harness itself finds; the checker's come to it later. Of each kind some are told, and all counted.
type findings struct {
	mu    sync.Mutex
	all   []Violation
	kinds map[string]int
}

// mostTold is how many findings of a kind are told in words.
const mostTold = 5

// add notes one. Its kind is the text before anything is put into it.
func (f *findings) add(rule, text string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.kinds == nil {
		f.kinds = map[string]int{}
	}
	if f.kinds[kindOf(rule, text)]++; f.kinds[kindOf(rule, text)] <= mostTold {
		f.all = append(f.all, Violation{Rule: rule, Text: fmt.Sprintf(text, args...)})
	}
}

// list are those that are told in words, and how many there were of each kind.
func (f *findings) list() (told []Violation, kinds map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kinds = map[string]int{}
	maps.Copy(kinds, f.kinds)
	return slices.Clone(f.all), kinds
}
