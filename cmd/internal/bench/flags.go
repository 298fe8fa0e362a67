package bench

import (
	"fmt"
	"slices"
	"strings"
)

// Flags are the flags of every command that measures.
type Flags struct {
	DatabaseURL string   `help:"The PostgreSQL to measure, as postgres://…; by default a private one is started." placeholder:"URL" call:""`
	Only        []string `help:"Make only these measurements, listed above." placeholder:"NAME,…"`
	Rounds      *int     `help:"How often each figure is measured; the median is reported. By default 3 times." placeholder:"N"`
	JSON        bool     `name:"json" help:"Print one JSON document: facts and figures."`
}

// Wanted returns the measurements that --only names, or nil without it. It returns an error if a flag is wrong.
func (f Flags) Wanted(all []Measurement) (wanted []Measurement, err error) {
	if f.Rounds != nil && (*f.Rounds < 1 || *f.Rounds > 100) {
		return nil, fmt.Errorf("--rounds must be from 1 to 100, not %d", *f.Rounds)
	}
	var names []string
	for _, m := range all {
		names = append(names, m.Name)
		if slices.Contains(f.Only, m.Name) {
			wanted = append(wanted, m)
		}
	}
	for _, name := range f.Only {
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("--only must name measurements (%s), not %q", strings.Join(names, ", "), name)
		}
	}
	return wanted, nil
}

// List describes measurements for a command's help.
func List(all []Measurement) string {
	var text strings.Builder
	for _, m := range all {
		fmt.Fprintf(&text, "\n  %-12s %s", m.Name, m.Help)
	}
	return text.String()
}
