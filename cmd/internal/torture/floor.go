package torture

import (
	"slices"
	"time"
)

// A run in which this many people do this much, if nothing breaks, shows something, whatever is drawn.
const (
	floorPeople = 8
	floorActs   = 100
)

// prove adds findings if a run that was long enough shows nothing: then nothing was judged, and the run proves nothing.
func (r *Report) prove(own *findings) {
	people := r.Options.Users + r.Options.Agents
	if people < floorPeople || r.Options.For*time.Duration(people) < floorActs*r.Options.Think {
		return
	}
	scenario, _ := scenarioOf(r.Options.Scenario)
	switch {
	case scenario.habits.clicks() && r.States["assigned"] == 0:
		own.add("nothing to judge", "no request was assigned, of %d", total(r.States))
	case total(r.Work) == 0:
		own.add("nothing to judge", "nobody was given work")
	}
	const slow = "plain" // its query takes some tenths of a second, so that samples show it
	if slices.Contains(scenario.tasks, slow) && r.Runs["finished"] > 0 && r.Judged["samples of executions"] == 0 {
		own.add("nothing to judge", "no query of the %d runs that finished was seen in the server", r.Runs["finished"])
	}
	if r.Messages["request"]+r.Messages["work"] == 0 {
		own.add("nothing to judge", "no live channel was told of a request or of work; they brought %d messages", total(r.Messages))
	}
}

// clicks reports whether anybody clicks: the rest of all acts.
func (h habits) clicks() bool { return h.claim+h.read < 100 }
