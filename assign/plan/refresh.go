package plan

// ShelfLife is what decides when the next run of a task's shelf begins. All times are in seconds.
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
// The run begins when the time that remains is twice the longest recent run, plus what a refresh has lately waited for a slot.
// Twice, because the clicks that are served meanwhile may slow the run down. It does not begin before half of the shelf's time is
// over, unless 1.25 times the longest run needs more; otherwise runs would follow each other without a pause. If no recent run ran
// beside clicks, their times are those of an idle machine, and too short: beside 256 users on two cores a run has taken three
// times as long. The first run beside clicks begins while five sixths of the shelf's time remain.
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
