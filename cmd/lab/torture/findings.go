package torture

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"sync"
)

// Violation is something that must never happen: the rule that it breaks, and the evidence.
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

// findings gathers what the harness itself finds; the checker's violations are added later. It keeps the text of some
// of each kind, and counts all.
type findings struct {
	mu    sync.Mutex
	all   []Violation
	kinds map[string]int
}

// mostTold is how many findings of a kind are kept as text.
const mostTold = 5

// add records a finding. Its kind is the format.
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

// list returns the findings kept as text, and the number of each kind.
func (f *findings) list() (told []Violation, kinds map[string]int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	kinds = map[string]int{}
	maps.Copy(kinds, f.kinds)
	return slices.Clone(f.all), kinds
}
