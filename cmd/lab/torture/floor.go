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
	r.proveAll(own)
	if r.Messages["request"]+r.Messages["work"] == 0 {
		own.add("nothing to judge", "no live channel was told of a request or of work; they brought %d messages", total(r.Messages))
	}
}

// What a run of everything shows, as [checker.Report] calls it: ofAll within a minute, unlessSet unless the clock is set, and rare things
// within five minutes. Whether a web hook is told soon is judged in quiet moments only, of which a busy machine may have none.
var (
	ofAll = []string{"holdings", "certain holdings", "attempts", "closed leases", "returns of an item", "items under four eyes",
		"work of an inbox", "pushed items", "served requests that might have overtaken", "sights of ended requests", "sights of closed work", "reasons of none",
		"events for web hooks", "events delivered, or due", "events of an item, and the one before", "events that a receiver accepted",
		"reasons where one is required", "items that several complete", "items that nobody completes twice"}
	unlessSet = []string{"ages of what was handed out", "items given, and whether they were the best"}
	rare      = []string{"users with a limit", "completions, and whether they went on", "work put aside, or taken up again",
		"leases of whose end a socket was to warn", "what an item needs, and who was given it"}
)

// proveAll adds a finding for each rule that had nothing to judge in a run of everything: it may look for something that is
// called otherwise by now.
func (r *Report) proveAll(own *findings) {
	const enough = 300
	if r.Options.Scenario != Defaults.Scenario || r.Options.For < time.Minute || total(r.Work) < enough {
		return
	}
	expected := slices.Clone(ofAll)
	if r.Judged["jumps of the database's clock"] == 0 {
		expected = append(expected, unlessSet...)
		if r.Options.For >= 5*time.Minute {
			expected = append(expected, rare...)
		}
	}
	for _, what := range expected {
		if r.Judged[what] == 0 {
			own.add("nothing to judge", "none of %q was judged", what)
		}
	}
}

// clicks reports whether anybody clicks: the rest of all acts.
func (h habits) clicks() bool { return h.claim+h.read < 100 }
