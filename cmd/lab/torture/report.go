package torture

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"getwork/cmd/lab/torture/checker"
	"getwork/cmd/lab/torture/history"
)

// Report has the figures of a run and the violations that were found. Of a run that ended in an error it has only these.
type Report struct {
	Options Options
	Began   time.Time
	Took    time.Duration

	Calls        map[history.Kind]map[int]int // by kind and status; 0: no answer
	Faults       map[string]int               // by kind
	Skipped      int                          // faults that found nothing to break
	Sockets      map[int]int                  // by close code; -1: broken, or closed here
	Streams      int                          // how many of them were event streams
	Messages     map[string]int               // what sockets brought, by type
	Deliveries   map[int]int                  // what came from web hooks, by the status of the answer; 0: the receiver hung up
	States       map[string]int               // of requests
	Work         map[string]int               // its states
	Runs         map[string]int               // their states
	Rounds       int
	Rescued      int  // requests that only the sweep found
	RescuedKnown bool // the nodes report Rescued
	Judged       map[string]int
	Undecided    int
	Violations   []Violation    // some of each kind
	Kinds        map[string]int // the number of violations of each kind
	Out          string         // the folder with history and logs; empty: none
}

// judge fills in the figures of the history and the checker's verdict.
func (r *Report) judge(h history.History, verdict checker.Report, own *findings) {
	r.Calls, r.Sockets, r.Messages, r.Deliveries = map[history.Kind]map[int]int{}, map[int]int{}, map[string]int{}, map[int]int{}
	for _, e := range h.Entries {
		switch {
		case e.Call != nil:
			if r.Calls[e.Call.Kind] == nil {
				r.Calls[e.Call.Kind] = map[int]int{}
			}
			r.Calls[e.Call.Kind][e.Call.Status]++
		case e.Socket != nil:
			r.Sockets[e.Socket.Status]++
			if e.Socket.Stream {
				r.Streams++
			}
		case e.Told != nil:
			r.Messages[e.Told.Type]++
		case e.Delivery != nil:
			r.Deliveries[e.Delivery.Status]++
		}
	}
	r.States, r.Work, r.Runs = map[string]int{}, map[string]int{}, map[string]int{}
	rounds := map[int64]bool{}
	for _, row := range h.Tables.Requests {
		r.States[row.State]++
		if row.Round != nil {
			rounds[*row.Round] = true
		}
	}
	r.Rounds = len(rounds)
	for _, row := range h.Tables.Work {
		r.Work[row.State]++
	}
	for _, row := range h.Tables.Runs {
		r.Runs[row.State]++
	}
	r.Judged, r.Undecided = verdict.Judged, verdict.Undecided
	r.prove(own)
	r.Violations, r.Kinds = own.list()
	for _, v := range verdict.Violations {
		r.Violations = append(r.Violations, Violation{Rule: string(v.Rule), Text: v.Text + shown(h, v.Entries)})
	}
	for kind, n := range verdict.Kinds {
		r.Kinds[kindOf(string(kind.Rule), kind.Text)] += n
	}
}

// Found returns the number of violations of all kinds.
func (r Report) Found() int { return total(r.Kinds) }

const shownEntries, shownBytes = 6, 700

// shown returns the entries that show a violation, a line for each.
func shown(h history.History, entries []int) string {
	var b strings.Builder
	for _, i := range entries[:min(len(entries), shownEntries)] {
		text, err := json.Marshal(h.Entries[i])
		if err != nil {
			text = []byte(err.Error())
		}
		if len(text) > shownBytes {
			text = append(text[:shownBytes], "…"...)
		}
		fmt.Fprintf(&b, "\n    line %d: %s", i+1, text)
	}
	return b.String()
}

// Text writes the report for people.
func (r Report) Text(w io.Writer) error {
	var b strings.Builder
	line := lines(&b)
	if r.Options.Seed != 0 {
		r.circumstances(line)
	}
	all := 0
	for _, byStatus := range r.Calls {
		all += total(byStatus)
	}
	line("calls", "%d", all)
	for _, kind := range slices.Sorted(maps.Keys(r.Calls)) {
		line("", "%-9s %6d: %s", kind, total(r.Calls[kind]), counts(r.Calls[kind]))
	}
	line("sockets", "%d: %s; %d were event streams", total(r.Sockets), counts(r.Sockets), r.Streams)
	line("messages", "%d: %s", total(r.Messages), counts(r.Messages))
	line("deliveries", "%d: %s", total(r.Deliveries), counts(r.Deliveries))
	line("requests", "%d: %s", total(r.States), counts(r.States))
	line("work", "%d: %s", total(r.Work), counts(r.Work))
	line("runs", "%d: %s", total(r.Runs), counts(r.Runs))
	line("rounds", "%d that answered somebody", r.Rounds)
	line("judged", "%s; %d undecided", counts(r.Judged), r.Undecided)
	b.WriteString(r.found())
	_, err := io.WriteString(w, b.String())
	return err
}

// Unjudged writes what is known of a run that ended in an error: what the harness itself has found, and where the logs are.
func (r Report) Unjudged(w io.Writer) error {
	if r.Out == "" {
		return nil
	}
	_, err := io.WriteString(w, r.found())
	return err
}

// found returns the lines about violations, and the folder.
func (r Report) found() string {
	var b strings.Builder
	line := lines(&b)
	line("violations", "%d", r.Found())
	for _, kind := range slices.Sorted(maps.Keys(r.Kinds)) {
		line("", "%6d of %s", r.Kinds[kind], kind)
	}
	for _, v := range r.Violations {
		fmt.Fprintf(&b, "  %s: %s\n", v.Rule, v.Text)
	}
	if r.Out != "" {
		line("kept in", "%s", r.Out)
	}
	return b.String()
}

// lines returns a function that adds a line with a name before it.
func lines(b *strings.Builder) func(name, format string, args ...any) {
	return func(name, format string, args ...any) {
		fmt.Fprintf(b, "%-12s %s\n", name, fmt.Sprintf(format, args...))
	}
}

// circumstances writes what a history does not contain.
func (r Report) circumstances(line func(name, format string, args ...any)) {
	line("seed", "%d, scenario %s, %d nodes, %d users, %d programs, %v, in all %v", r.Options.Seed, r.Options.Scenario, r.Options.Nodes,
		r.Options.Users, r.Options.Agents, r.Options.For, r.Took.Round(time.Second))
	line("again", "%s", r.Options.Command())
	line("faults", "%d: %s; %d found nothing to break", total(r.Faults), counts(r.Faults), r.Skipped)
	if r.RescuedKnown {
		line("rescued", "%d requests that only the sweep found", r.Rescued)
	}
}

// write writes the report to a file.
func (r Report) write(name string) error {
	f, err := os.Create(name)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	return errors.Join(r.Text(f), f.Close())
}

func total[K comparable](counts map[K]int) (n int) {
	for _, one := range counts {
		n += one
	}
	return n
}

// counts lists numbers of things by name.
func counts[K cmp.Ordered](of map[K]int) string {
	var all []string
	for _, k := range slices.Sorted(maps.Keys(of)) {
		all = append(all, fmt.Sprintf("%v %d", k, of[k]))
	}
	if len(all) == 0 {
		return "none"
	}
	return strings.Join(all, ", ")
}
