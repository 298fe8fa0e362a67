package demo

import (
	"errors"
	"slices"
	"testing"
	"time"
)

// With fewer people on the naive side a column says what as many would have seen, and is marked.
func TestComparedProjects(t *testing.T) {
	crowd := func(n int, items func(user int) []string) *half {
		h := &half{queries: n, cpu: time.Duration(n) * time.Second, measured: true}
		for i := range n {
			h.outcomes = append(h.outcomes, outcome{items: items(i), wait: time.Duration(i+1) * time.Second})
		}
		return h
	}
	same := func(int) []string { return []string{"1", "2"} }
	own := func(user int) []string { return []string{string(rune('a' + user))} }
	if got := compared(crowd(4, same), nil); got != nil {
		t.Errorf("one half alone is compared: %v", got)
	}
	if got := compared(crowd(4, same), crowd(4, own)); got.Projected != 0 || len(got.Heads) != 2 || !slices.Equal(got.Rows[3], []string{"duplicate assignments", "6", "0"}) {
		t.Errorf("equal halves: %+v", got)
	}
	few := crowd(4, same)
	few.outcomes[0] = outcome{err: errors.New("gave up")}
	got := compared(few, crowd(10, own))
	want := [][]string{
		{"people", "4", "10", "10"},
		{"queries run", "4", "≈ 10", "10"},
		{"assignments", "6", "≈ 15", "10"},
		{"duplicate assignments", "4", "≈ 10", "0"},
		{"wait of the median user", "3.0 s", "≈ 7.5 s", "6.0 s"},
		{"longest wait", "4.0 s", "≈ 10.0 s", "10.0 s"},
		{"users not served", "1", "≈ 3", "0"},
		{"CPU time of PostgreSQL", "4.0 s", "≈ 10.0 s", "10.0 s"},
	}
	if got.Projected != 2 || got.Heads[1] != "Projected" || !slices.EqualFunc(got.Rows, want, slices.Equal) {
		t.Errorf("projected: %+v", got)
	}
}
