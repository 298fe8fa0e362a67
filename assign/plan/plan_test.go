package plan

import (
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestAssign(t *testing.T) {
	type want = []Answer
	tests := map[string]struct {
		requests []Request
		supply   Supply
		want     Plan
	}{
		"nobody waits": {
			supply: Supply{Source: Run, Items: 3},
			want:   Plan{Answers: want{}},
		},
		"best first, first come first served": {
			requests: []Request{{ID: 7, Wanted: 2}, {ID: 9, Wanted: 1}},
			supply:   Supply{Source: Run, Items: 5},
			want:     Plan{Answers: want{{7, Assigned, 0, 2}, {9, Assigned, 2, 1}}, Used: 3},
		},
		"the last gets what is left, the next nothing": {
			requests: []Request{{ID: 1, Wanted: 2}, {ID: 2, Wanted: 3}, {ID: 3, Wanted: 1}},
			supply:   Supply{Source: Run, Items: 3},
			want:     Plan{Answers: want{{1, Assigned, 0, 2}, {2, Partial, 2, 1}, {3, None, 3, 0}}, Used: 3},
		},
		"who lingers stays when there is nothing": {
			requests: []Request{{ID: 1, Wanted: 2, Lingers: true}, {ID: 2, Wanted: 2}},
			supply:   Supply{Source: Run},
			want:     Plan{Answers: want{{1, Linger, 0, 0}, {2, None, 0, 0}}},
		},
		"who lingers takes a part when there is one": {
			requests: []Request{{ID: 1, Wanted: 2, Lingers: true}},
			supply:   Supply{Source: Shelf, Items: 1},
			want:     Plan{Answers: want{{1, Partial, 0, 1}}, Used: 1},
		},
		"a whole shelf answers everybody": {
			requests: []Request{{ID: 1, Wanted: 2}, {ID: 2, Wanted: 1}},
			supply:   Supply{Source: Shelf, Items: 1},
			want:     Plan{Answers: want{{1, Partial, 0, 1}, {2, None, 1, 0}}, Used: 1},
		},
		"a cut shelf that is too short ends, and nobody overtakes": {
			requests: []Request{{ID: 1, Wanted: 1}, {ID: 2, Wanted: 2}, {ID: 3, Wanted: 1}},
			supply:   Supply{Source: Shelf, Items: 2, Cut: true},
			want:     Plan{Answers: want{{1, Assigned, 0, 1}, {2, Wait, 1, 0}, {3, Wait, 1, 0}}, Used: 1, Spent: true},
		},
		"a cut run in its own round gives parts, and only who finds nothing waits": {
			requests: []Request{{ID: 1, Wanted: 2}, {ID: 2, Wanted: 2}, {ID: 3, Wanted: 1, Lingers: true}, {ID: 4, Wanted: 1}},
			supply:   Supply{Source: Run, Items: 3, Cut: true},
			want: Plan{Answers: want{{1, Assigned, 0, 2}, {2, Partial, 2, 1}, {3, Wait, 3, 0}, {4, Wait, 3, 0}},
				Used: 3},
		},
		"a cut shelf that fits exactly goes on": {
			requests: []Request{{ID: 1, Wanted: 2}},
			supply:   Supply{Source: Shelf, Items: 2, Cut: true},
			want:     Plan{Answers: want{{1, Assigned, 0, 2}}, Used: 2},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, Assign(tt.requests, tt.supply)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// naive hands out one item after another, asking of each request again what it is still owed. It shares no
// arithmetic with Assign.
func naive(requests []Request, supply Supply) (got map[int64][]int, waits, lingers map[int64]bool) {
	got, waits, lingers = map[int64][]int{}, map[int64]bool{}, map[int64]bool{}
	var items []int
	for i := range supply.Items {
		items = append(items, i)
	}
	blocked := false
	for _, r := range requests {
		if supply.Source == Shelf && supply.Cut && len(items) < r.Wanted {
			blocked = true
		}
		if blocked {
			waits[r.ID] = true
			continue
		}
		for len(got[r.ID]) < r.Wanted && len(items) > 0 {
			got[r.ID] = append(got[r.ID], items[0])
			items = items[1:]
		}
		if len(got[r.ID]) == 0 && supply.Cut {
			waits[r.ID] = true
		} else if len(got[r.ID]) == 0 && r.Lingers {
			lingers[r.ID] = true
		}
	}
	return got, waits, lingers
}

func check(t *testing.T, requests []Request, supply Supply) {
	t.Helper()
	plan := Assign(requests, supply)
	got, waits, lingers := naive(requests, supply)
	if len(plan.Answers) != len(requests) {
		t.Fatalf("%d answers for %d requests", len(plan.Answers), len(requests))
	}
	next := 0
	for i, a := range plan.Answers {
		r := requests[i]
		if a.Request != r.ID {
			t.Fatalf("answer %d is for request %d, want %d", i, a.Request, r.ID)
		}
		if a.From != next || a.From+a.Count > supply.Items {
			t.Fatalf("request %d gets items %d+%d of %d, want from %d", r.ID, a.From, a.Count, supply.Items, next)
		}
		next += a.Count
		if a.Count != len(got[r.ID]) || a.Count > 0 && a.From != got[r.ID][0] {
			t.Fatalf("request %d gets %d+%d, the naive twin gives %v", r.ID, a.From, a.Count, got[r.ID])
		}
		want := None
		switch {
		case waits[r.ID]:
			want = Wait
		case lingers[r.ID]:
			want = Linger
		case a.Count == r.Wanted:
			want = Assigned
		case a.Count > 0:
			want = Partial
		}
		if a.Outcome != want {
			t.Fatalf("request %d ends as %d, the naive twin says %d", r.ID, a.Outcome, want)
		}
		if plan.Spent && supply.Source == Run {
			t.Fatal("a run's own result was declared spent")
		}
	}
	if plan.Used != next {
		t.Fatalf("%d items used, %d handed out", plan.Used, next)
	}
}

func TestAssignAgainstANaiveTwin(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for range 50_000 {
		requests := make([]Request, random.IntN(8))
		id := int64(0)
		for i := range requests {
			id += 1 + random.Int64N(3)
			requests[i] = Request{ID: id, Wanted: 1 + random.IntN(5), Lingers: random.IntN(3) == 0}
		}
		check(t, requests, Supply{Source: Source(random.IntN(2)), Items: random.IntN(20), Cut: random.IntN(2) == 0})
	}
}

func FuzzAssign(f *testing.F) {
	f.Add([]byte{3, 1, 5, 2}, 4, true, true)
	f.Add([]byte{}, 0, false, false)
	f.Add([]byte{1, 1, 129}, 2, true, false)
	f.Fuzz(func(t *testing.T, wants []byte, items int, cut, shelf bool) {
		if items < 0 || items > 10_000 || len(wants) > 1000 {
			t.Skip("outside of what a round holds")
		}
		var requests []Request
		for i, w := range wants {
			requests = append(requests, Request{ID: int64(i + 1), Wanted: int(w&0x7f) + 1, Lingers: w&0x80 != 0})
		}
		source := Run
		if shelf {
			source = Shelf
		}
		check(t, requests, Supply{Source: source, Items: items, Cut: cut})
	})
}
