package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// busier is how many times longer than usual a call may take beyond its limit, since the machine has other things to
// do, too.
const busier = 15

// unlocked is after how long PostgreSQL takes its locks from a node that stands still. Until then clicks on the same task wait.
const unlocked = 5 * time.Second

// stops are the kinds of faults in which a node stands still, or does for the database.
var stops = []string{"freeze", "freeze-run", "proxy-freeze"}

// stoodStill reports whether a node stood still during a call.
func stoodStill(faults []*history.Fault, c *history.Call) bool {
	return slices.ContainsFunc(faults, func(f *history.Fault) bool {
		return slices.Contains(stops, f.Kind) && f.Began < c.Ended && f.Ended > c.Began
	})
}

// judgePrompt: a call with a time limit is answered within it, unless its node or the database was broken during the
// call or just before. A migration breaks nothing, and a node that is replaced breaks no other; one that stands still may keep its locks
// for a while.
func (t *trial) judgePrompt() {
	var promised []int
	var took []history.Clock
	for _, i := range t.calls {
		c := t.entries[i].Call
		if c.Within == 0 || t.undisturbed(c.Ended, t.Recovery, c.Began-t.Recovery, c.Node) != c.Ended {
			continue
		}
		promised, took = append(promised, i), append(took, c.Ended-c.Began)
		t.judged("clicks, and whether they were answered in time")
	}
	if len(took) == 0 {
		return
	}
	slices.Sort(took)
	usual := took[len(took)/2]
	for _, i := range promised {
		c := t.entries[i].Call
		most := c.Within + busier*usual
		if stoodStill(t.faults, c) {
			most += unlocked
		}
		if c.Ended-c.Began > most {
			t.broken(Prompt, []int{i}, "a %s of %s at node %d took %s, from %s on: more than %s", c.Kind, c.Who.User, c.Node,
				seconds(c.Ended-c.Began), seconds(c.Began), seconds(most))
		}
	}
}
