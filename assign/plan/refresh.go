package plan

// ShelfLife is a task's shelf as its next run is timed by it. All times are in seconds.
type ShelfLife struct {
	FreshFor float64  // how long the leftovers of a run are fresh
	Expires  float64  // until the shelf expires; negative: it has expired
	UsedUp   *float64 // until it is used up at the present pace; nil: it holds all that there is, or nobody takes from it
	Longest  float64  // how long the longest of the recent runs took; 0: none was measured
	Beside   bool     // one of those ran beside clicks, as the next one will
	SlotWait float64  // how long a refresh has lately had to wait for a run slot
}

// RefreshIn returns the seconds until the shelf's next run should begin; 0 or less: now.
//
// The run begins when what remains is under twice the longest recent run, because it runs while clicks are served, which may
// make it slower, and as long again as it may wait for a slot. It does not begin before half of the shelf's time is over,
// unless a run a quarter longer than the longest needs that; otherwise one run would follow another. If no recent run ran
// beside clicks, their times are those of an idle machine and foretell nothing: beside 256 users on two cores a run has taken
// three times as long. The first such run begins while five sixths of the shelf's time remain.
func RefreshIn(s ShelfLife) float64 {
	const margin = 0.1 // for the commit, and for timers that are late
	lead := min(2*s.Longest, max(1.25*s.Longest, s.FreshFor/2)) + s.SlotWait + margin
	first := lead
	if !s.Beside {
		first = max(lead, s.FreshFor*5/6)
	}
	in := s.Expires - first
	if s.UsedUp != nil {
		in = min(in, *s.UsedUp-lead)
	}
	return in
}
