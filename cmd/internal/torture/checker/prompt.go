package checker

import (
	"slices"

	"getwork/cmd/internal/torture/history"
)

// busier is how many times as long as usual a call may take beyond what was promised: the machine has other things to do, too.
const busier = 15

// judgePrompt: a call for which a time was promised is answered by then, unless its node or the database was broken meanwhile,
// or a moment before. A migration breaks nothing, nor does a node that is replaced break others.
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
		if most := c.Within + busier*usual; c.Ended-c.Began > most {
			t.broken(Prompt, []int{i}, "a %s of %s at node %d took %s, from %s on: more than %s", c.Kind, c.Who.User, c.Node,
				seconds(c.Ended-c.Began), seconds(c.Began), seconds(most))
		}
	}
}
