package torture

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"getwork/schema/schematest/clock"
)

// Options are the settings of a run. A zero field takes its value from [Defaults], except Seed.
type Options struct {
	Seed      uint64        // decides the faults and the users' intentions
	For       time.Duration // how long faults come; users then work on undisturbed for some time before the check
	Nodes     int
	Users     int
	Agents    int           // number of programs, as instances of a few names
	Every     time.Duration // mean time between faults
	Faults    []string      // names of [Kinds]; nil: all; only "none": no faults
	Without   []string      // if Faults is nil: all kinds except these
	Scenario  string        // a name of [Scenarios]
	Think     time.Duration // mean time between two acts of a user
	Settle    time.Duration // how long requests may wait after everything is healed
	Recovery  time.Duration // how long sockets may take after that to report everything; 0: the checker's default
	Isolation string        // the server's default_transaction_isolation
	Binary    string        // the getwork to run; empty: it is built
	Former    string        // the getwork that is upgraded, in the scenario upgrade; empty: Binary is, to one with another migration
	Race      bool          // build the binary with the race detector
	DataDir   string        // folder in which PostgreSQL's data is created; empty: in memory, if there is room
	Out       string        // folder for the history and the nodes' logs; empty: they are kept only after a violation or an error
	Flags     []string      // further flags of `getwork serve`
	Log       func(format string, args ...any)
}

// Defaults are the values of options that are not set.
var Defaults = Options{
	For: time.Minute, Nodes: 3, Users: 200, Agents: 20, Every: time.Second, Scenario: "mixed", Think: time.Second,
	Settle: 45 * time.Second, Log: func(string, ...any) {},
}

// kinds returns the names of the faults that fit the scenario. Where people log in, the clock is not set: their sessions would end.
func (o Options) kinds() []string {
	scenario, _ := scenarioOf(cmp.Or(o.Scenario, Defaults.Scenario))
	return names(slices.DeleteFunc(slices.Clone(Kinds), func(k Kind) bool {
		return k.rights && !scenario.logsIn || k.hooks && !scenario.production || k.Name == jumps && scenario.logsIn
	}), func(k Kind) string { return k.Name })
}

// None is the only kind of fault of a run in which nothing is to be broken.
const None = "none"

// Complete checks the options, and returns them with defaults filled in. Its error says which flag is wrong.
func (o Options) Complete() (Options, error) {
	fill(&o.For, Defaults.For)
	fill(&o.Nodes, Defaults.Nodes)
	fill(&o.Users, Defaults.Users)
	fill(&o.Every, Defaults.Every)
	fill(&o.Scenario, Defaults.Scenario)
	fill(&o.Think, Defaults.Think)
	fill(&o.Settle, Defaults.Settle)
	if o.Log == nil {
		o.Log = Defaults.Log
	}
	known := o.kinds()
	for _, f := range o.Without {
		if !slices.Contains(known, f) || len(o.Faults) > 0 {
			return o, fmt.Errorf("--without must name some of %s, without --faults; not %q", strings.Join(known, ", "), f)
		}
	}
	if len(o.Faults) == 0 {
		o.Faults = slices.DeleteFunc(slices.Clone(known), func(f string) bool { return slices.Contains(o.Without, f) })
		o.Without = nil
		if err := clock.Available(); err != nil && o.jumps() {
			o.Faults = slices.DeleteFunc(o.Faults, func(name string) bool { return name == jumps })
			o.Log("no faults of the kind %s: %v", jumps, err)
		}
		if len(o.Faults) == 0 {
			o.Faults = []string{None}
		}
	}
	switch {
	case o.Nodes < 2 || o.Nodes > 20:
		return o, fmt.Errorf("--nodes must be from 2 to 20, not %d", o.Nodes)
	case o.Users < 1 || o.Users > 10_000 || o.Agents < 0 || o.Agents > 10_000:
		return o, fmt.Errorf("--users must be from 1 to 10000, and --agents 0 or more")
	case o.For < time.Second || o.Every < 10*time.Millisecond || o.Think < time.Millisecond || o.Settle < time.Second:
		return o, fmt.Errorf("--for and --settle must be at least 1s, --every at least 10ms, --think at least 1ms")
	case o.Binary != "" && o.Race:
		return o, fmt.Errorf("--binary is not built here, so --race has no effect on it; leave it out")
	case o.Former != "" && o.Scenario != "upgrade":
		return o, fmt.Errorf("--former is upgraded, which only --scenario upgrade does")
	case !slices.Contains([]string{"", "read committed", "repeatable read", "serializable"}, o.Isolation):
		return o, fmt.Errorf(`--isolation must be "read committed", "repeatable read" or "serializable", not %q`, o.Isolation)
	}
	if _, ok := scenarioOf(o.Scenario); !ok {
		return o, fmt.Errorf("--scenario must be one of %s, not %q", strings.Join(names(Scenarios, func(s Scenario) string { return s.Name }), ", "), o.Scenario)
	}
	if slices.Equal(o.Faults, []string{None}) {
		return o, nil
	}
	for _, f := range o.Faults {
		if !slices.Contains(known, f) {
			return o, fmt.Errorf("--faults must name some of %s, or %s alone; not %q", strings.Join(known, ", "), None, f)
		}
	}
	if o.jumps() {
		return o, clock.Available()
	}
	return o, nil
}

func fill[T comparable](v *T, value T) {
	var zero T
	if *v == zero {
		*v = value
	}
}

func names[T any](of []T, name func(T) string) (all []string) {
	for _, one := range of {
		all = append(all, name(one))
	}
	return all
}

// faults reports whether anything is broken at all.
func (o Options) faults() bool { return !slices.Equal(o.Faults, []string{None}) }

// disturbed reports whether anything happens that getwork has to recover from, including what the scenario does.
func (o Options) disturbed() bool {
	scenario, _ := scenarioOf(o.Scenario)
	return o.faults() || scenario.beside != nil
}

// Command returns the command line that repeats a run: the same faults, and the same intentions. It leaves out the
// binary and its limits.
func (o Options) Command() string {
	args := []string{"getwork-torture", fmt.Sprintf("--seed %d --scenario %s --for %v --every %v --nodes %d --users %d --agents %d --think %v",
		o.Seed, o.Scenario, o.For, o.Every, o.Nodes, o.Users, o.Agents, o.Think)}
	if !slices.Equal(o.Faults, o.kinds()) {
		args = append(args, "--faults "+strings.Join(o.Faults, ","))
	}
	if o.Isolation != "" {
		args = append(args, fmt.Sprintf("--isolation '%s'", o.Isolation))
	}
	if o.Former != "" {
		args = append(args, "--former "+o.Former)
	}
	for _, f := range o.Flags {
		args = append(args, fmt.Sprintf("--serve='%s'", f))
	}
	return strings.Join(args, " ")
}

// jumps reports whether the database's clock is set.
func (o Options) jumps() bool { return slices.Contains(o.Faults, jumps) }
