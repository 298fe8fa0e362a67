package torture

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"getwork/schema/schematest/clock"
)

// Options say what a run is like. The zero value of a field stands for what [Defaults] has there, but for Seed.
type Options struct {
	Seed      uint64        // decides the faults and what the users do
	For       time.Duration // how long faults come; users work some time longer, undisturbed, and then it is checked
	Nodes     int
	Users     int
	Agents    int           // programs, as instances of a few names
	Every     time.Duration // mean time between faults
	Faults    []string      // names of [Kinds]; nil: all; "none" alone: no faults
	Without   []string      // where no faults are named: all but these
	Scenario  string        // a name of [Scenarios]
	Think     time.Duration // mean time between what one user does
	Settle    time.Duration // how long those who wait may take after everything is healed
	Recovery  time.Duration // and how long sockets may, to have told of everything; 0: as long as the checker has it
	Isolation string        // the server's default_transaction_isolation
	Binary    string        // the getwork to run; empty: it is built
	Race      bool          // build the binary with the race detector
	DataDir   string        // folder below which PostgreSQL's data is made; empty: one in memory, if there is room
	Out       string        // folder for the history and the nodes' logs; empty: they are kept if there is a violation
	Flags     []string      // more flags of `getwork serve`
	Log       func(format string, args ...any)
}

// Defaults are what is used where nothing is said.
var Defaults = Options{
	For: time.Minute, Nodes: 3, Users: 200, Agents: 20, Every: time.Second, Scenario: "mixed", Think: time.Second,
	Settle: 45 * time.Second, Log: func(string, ...any) {},
}

// None is the only kind of fault where nothing is to be broken.
const None = "none"

// Complete checks the options, and fills in what is not said.
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
	known := names(Kinds, func(k Kind) string { return k.Name })
	for _, f := range o.Without {
		if !slices.Contains(known, f) || len(o.Faults) > 0 {
			return o, fmt.Errorf("--without names some of %s, and --faults is left out then; not %q", strings.Join(known, ", "), f)
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
		return o, fmt.Errorf("--nodes is from 2 to 20, not %d", o.Nodes)
	case o.Users < 1 || o.Users > 10_000 || o.Agents < 0 || o.Agents > 10_000:
		return o, fmt.Errorf("--users is from 1 to 10000, and --agents from 0")
	case o.For < time.Second || o.Every < 10*time.Millisecond || o.Think < time.Millisecond || o.Settle < time.Second:
		return o, fmt.Errorf("--for and --settle are at least 1s, --every at least 10ms, --think at least 1ms")
	case o.Binary != "" && o.Race:
		return o, fmt.Errorf("--binary is not built here, so --race has no effect on it; leave it out")
	case !slices.Contains([]string{"", "read committed", "repeatable read", "serializable"}, o.Isolation):
		return o, fmt.Errorf(`--isolation is "read committed", "repeatable read" or "serializable", not %q`, o.Isolation)
	}
	if _, ok := scenarioOf(o.Scenario); !ok {
		return o, fmt.Errorf("--scenario is one of %s; not %q", strings.Join(names(Scenarios, func(s Scenario) string { return s.Name }), ", "), o.Scenario)
	}
	if slices.Equal(o.Faults, []string{None}) {
		return o, nil
	}
	for _, f := range o.Faults {
		if !slices.Contains(known, f) {
			return o, fmt.Errorf("--faults names some of %s, or %s alone; not %q", strings.Join(known, ", "), None, f)
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

// faults tells whether anything is broken at all.
func (o Options) faults() bool { return !slices.Equal(o.Faults, []string{None}) }

// disturbed tells whether anything happens that getwork has to recover from, be it by the scenario.
func (o Options) disturbed() bool {
	scenario, _ := scenarioOf(o.Scenario)
	return o.faults() || scenario.beside != nil
}

// Command is what repeats a run: the same faults, and the same intentions. Its binary and its limits are left out.
func (o Options) Command() string {
	args := []string{"getwork-torture", fmt.Sprintf("--seed %d --scenario %s --for %v --every %v --nodes %d --users %d --agents %d --think %v",
		o.Seed, o.Scenario, o.For, o.Every, o.Nodes, o.Users, o.Agents, o.Think)}
	if all := names(Kinds, func(k Kind) string { return k.Name }); !slices.Equal(o.Faults, all) {
		args = append(args, "--faults "+strings.Join(o.Faults, ","))
	}
	if o.Isolation != "" {
		args = append(args, fmt.Sprintf("--isolation '%s'", o.Isolation))
	}
	for _, f := range o.Flags {
		args = append(args, fmt.Sprintf("--serve='%s'", f))
	}
	return strings.Join(args, " ")
}

// jumps tells whether the database's clock is set.
func (o Options) jumps() bool { return slices.Contains(o.Faults, jumps) }
