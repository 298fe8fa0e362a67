// Package checker judges a torture run: from what its clients saw, and from what the tables say in the end, it finds whatever
// must never be. It is independent of the code that it judges, and imports nothing of it: it knows the public contract, and
// what the comments on the tables' columns say.
//
// Two kinds of evidence are kept apart. The tables tell by the database's clock who held what, from when to when; but a
// database that has lost something says nothing of it. The clients know, by their own clock, what they were told and when;
// from that follows what must have been so in between, whatever the tables say.
//
// A false alarm is as bad as a miss. Where several explanations are left the checker takes the innocent one: an answer that
// was never read may or may not have had its effect, at any time after it was asked for; a request that a rule of its
// task may have passed over was not overtaken.
package checker

import (
	"fmt"
	"slices"
	"time"

	"getwork/cmd/internal/torture/history"
)

// Rule is what a violation is a violation of.
type Rule string

// The rules, after section 6 of the contract.
const (
	HeldOnce    Rule = "held by one"  // nobody held what another held
	HeldInTurn  Rule = "held in turn" // nor did he by the times in the tables, which the assign lock keeps in order, and an index does not
	OneRun      Rule = "one run at a time"
	EndsOnce    Rule = "every request ends, once"
	InOrder     Rule = "first come, first served"
	Kept        Rule = "what was answered is kept"
	NotBefore   Rule = "nothing before its time"
	ToldTheSame Rule = "push and poll tell the same"
	Limits      Rule = "attempts and limits"
	Best        Rule = "the best that is free"
	Reasons     Rule = "the right reason"
	DoneIsDone  Rule = "nothing that is done"
	OnceAKey    Rule = "one request for a key"
	Warned      Rule = "warned before a lease's end"
	Fair        Rule = "fair between tasks"
	ToldStill   Rule = "told, whoever dies" // of what another node wrote, which may be gone
	Prompt      Rule = "answered in time"
)

// Rules are all of them.
var Rules = []Rule{HeldOnce, HeldInTurn, OneRun, EndsOnce, InOrder, Kept, NotBefore, ToldTheSame, Limits, Best, Reasons, DoneIsDone, OnceAKey, Warned, Fair, ToldStill, Prompt}

// Violation is something that must never be.
type Violation struct {
	Rule    Rule
	Kind    string // one of the ways to break the rule: the text, without what differs from case to case
	Text    string
	Entries []int // of the history, that show it; none: the tables do
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s %v", v.Rule, v.Text, v.Entries) }

// Config is how patient the checker is. The zero value is what a run with faults needs.
type Config struct {
	// PushWithin is how long after a request's end its holder's sockets must have told of it, where nothing is broken that
	// could keep them from it; 0: [PushWithin].
	PushWithin time.Duration
	// Recovery is how long after the end of what was broken they must have; 0: [Recovery].
	Recovery time.Duration
	// Linearize bounds the time for the search for an order of each item's holders, all together; 0: 10 s. What it leaves
	// undecided is no violation, and is counted in the report.
	Linearize time.Duration
	// Most is how many violations of each kind are told in words; 0: 5. A flood of one kind hides no other.
	Most int
}

// The bounds where a config has none. A run that has its sockets stay for so long after its last fault has all of them judged.
const (
	PushWithin = 10 * time.Second
	Recovery   = 20 * time.Second
)

// Kind is a rule, and one of the ways to break it.
type Kind struct {
	Rule Rule
	Text string
}

// Report is what came of it.
type Report struct {
	Violations []Violation
	Found      map[Rule]int   // how many there were of each rule, also those that are not told in words
	Kinds      map[Kind]int   // and of each kind
	Judged     map[string]int // how often each thing was looked at: what was never looked at was not judged
	Undecided  int            // items for which the search for an order was given up
}

// Check judges a history.
func Check(h history.History) []Violation { return Judge(h, Config{}).Violations }

// Judge judges a history, and says how much of it there was to judge.
func Judge(h history.History, c Config) Report {
	t := newTrial(h, c)
	for _, judge := range []func(*trial){
		(*trial).judgeHeldRows, (*trial).judgeCertain, (*trial).judgeOwnership,
		(*trial).judgeRuns,
		(*trial).judgeRequests, (*trial).judgeSightsOfRequests,
		(*trial).judgeRounds, (*trial).judgeOvertaking,
		(*trial).judgeSightsOfWork, (*trial).judgeAnswers, (*trial).judgePushes, (*trial).judgeCounts, (*trial).judgePipelines,
		(*trial).judgeReturns, (*trial).judgeLeases, (*trial).judgeInbox, (*trial).judgeParked,
		(*trial).judgeTold,
		(*trial).judgeAttempts, (*trial).judgeOpen, (*trial).judgeFourEyes,
		(*trial).judgeBest, (*trial).judgeReasons, (*trial).judgeDone, (*trial).judgeKeys, (*trial).judgeWarnings,
		(*trial).judgeFairness, (*trial).judgePrompt,
	} {
		judge(t)
	}
	slices.SortStableFunc(t.report.Violations, func(a, b Violation) int {
		return slices.Index(Rules, a.Rule) - slices.Index(Rules, b.Rule)
	})
	return t.report
}

// broken notes a violation. Its kind is the text before anything is put into it.
func (t *trial) broken(rule Rule, entries []int, text string, args ...any) {
	kind := Kind{rule, text}
	t.report.Found[rule]++
	t.report.Kinds[kind]++
	if t.report.Kinds[kind] > t.Most {
		return
	}
	entries = slices.DeleteFunc(entries, func(i int) bool { return i < 0 })
	t.report.Violations = append(t.report.Violations, Violation{Rule: rule, Kind: text, Text: fmt.Sprintf(text, args...), Entries: entries})
}

// judged counts what was looked at.
func (t *trial) judged(what string) { t.report.Judged[what]++ }
