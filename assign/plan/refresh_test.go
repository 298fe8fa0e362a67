package plan_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"getwork/assign/plan"
)

func TestRefreshIn(t *testing.T) {
	soon := func(s float64) *float64 { return &s }
	for _, c := range []struct {
		name  string
		shelf plan.ShelfLife
		want  float64
	}{
		{"twice the longest run before the end", plan.ShelfLife{FreshFor: 100, Expires: 100, Longest: 10, Beside: true}, 79.9},
		{"and as much earlier as a slot lets it wait", plan.ShelfLife{FreshFor: 100, Expires: 100, Longest: 10, Beside: true, SlotWait: 7}, 72.9},
		{"four runs fit: half of the time is enough", plan.ShelfLife{FreshFor: 100, Expires: 100, Longest: 25, Beside: true}, 49.9},
		{"three do: not before half of it is over", plan.ShelfLife{FreshFor: 100, Expires: 100, Longest: 33, Beside: true}, 49.9},
		{"one does: a quarter longer than the longest", plan.ShelfLife{FreshFor: 100, Expires: 100, Longest: 60, Beside: true}, 24.9},
		{"none does: at once", plan.ShelfLife{FreshFor: 100, Expires: 100, Longest: 90, Beside: true}, -12.6},
		{"runs of an idle machine foretell nothing", plan.ShelfLife{FreshFor: 90, Expires: 90, Longest: 1}, 15},
		{"nor does no run", plan.ShelfLife{FreshFor: 90, Expires: 90}, 15},
		{"unless they are long even so", plan.ShelfLife{FreshFor: 90, Expires: 90, Longest: 60}, 14.9},
		{"a shelf that runs low", plan.ShelfLife{FreshFor: 1000, Expires: 900, UsedUp: soon(30), Longest: 10, Beside: true}, 9.9},
		{"one that runs low on an idle machine", plan.ShelfLife{FreshFor: 1000, Expires: 900, UsedUp: soon(30), Longest: 10}, 9.9},
		{"one that runs low after it expires", plan.ShelfLife{FreshFor: 100, Expires: 50, UsedUp: soon(90), Longest: 10, Beside: true}, 29.9},
		{"it has expired", plan.ShelfLife{FreshFor: 100, Expires: -5, Longest: 10, Beside: true}, -25.1},
	} {
		if got := plan.RefreshIn(c.shelf); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

// RefreshIn names the first moment at which the rule, read at that moment, says that the run is due. It leaves a run of twice
// the usual length its time wherever the shelf is fresh for four runs or more.
func TestRefreshInIsTheFirstMoment(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 5))
	for range 50_000 {
		s := plan.ShelfLife{FreshFor: r.Float64() * 100, Longest: r.Float64() * 60 * float64(r.IntN(2)), Beside: r.IntN(2) == 0, SlotWait: r.Float64() * 10 * float64(r.IntN(2))}
		s.Expires = s.FreshFor * (r.Float64()*1.2 - 0.2)
		if r.IntN(2) == 0 {
			up := r.Float64() * 100
			s.UsedUp = &up
		}
		in := plan.RefreshIn(s)
		if !naivelyDue(later(s, in+0.001)) || naivelyDue(later(s, in-0.001)) {
			t.Fatalf("%+v: %v is not the first moment", s, in)
		}
		if s.UsedUp == nil && s.FreshFor >= 4*s.Longest && s.Expires-in < 2*s.Longest+s.SlotWait {
			t.Fatalf("%+v: begun in %v, two runs and a wait don't fit", s, in)
		}
	}
}

// naivelyDue says whether a run of the shelf is due, clause by clause.
func naivelyDue(s plan.ShelfLife) bool {
	needs := 2 * s.Longest
	if half := s.FreshFor / 2; needs > half {
		needs = half
		if 1.25*s.Longest > half {
			needs = 1.25 * s.Longest
		}
	}
	needs += s.SlotWait + 0.1
	switch {
	case s.Expires <= needs:
		return true
	case s.UsedUp != nil && *s.UsedUp <= needs:
		return true
	}
	return !s.Beside && s.Expires <= s.FreshFor*5/6
}

// later is the shelf after some seconds.
func later(s plan.ShelfLife, seconds float64) plan.ShelfLife {
	s.Expires -= seconds
	if s.UsedUp != nil {
		up := *s.UsedUp - seconds
		s.UsedUp = &up
	}
	return s
}
