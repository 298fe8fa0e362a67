// Package checker judges a torture run: it looks for what must never happen in what the run's clients saw and in the
// final tables. It is independent of the code that it judges, and imports none of it. It knows only the public contract
// and the comments on the tables' columns.
//
// Two kinds of evidence are kept apart. The tables show, by the database's clock, who held what and when; but a
// database that has lost something does not show it. The clients know, by their own clock, what they heard and
// when. From that follows what must have been true in between, whatever the tables say.
//
// A false alarm is as bad as a miss. If several explanations are possible the checker takes the innocent one: a call
// whose answer was lost may or may not have had its effect, at any time after it began; and a request that a rule of
// its task may have passed over was not overtaken.
package checker

import (
	"fmt"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// Rule is a rule that a violation breaks.
type Rule string

// The rules, after section 6 of the contract.
const (
	HeldOnce    Rule = "held by one"  // no two holders had the same place at the same time
	HeldInTurn  Rule = "held in turn" // the same by the times in the tables, which the assign lock keeps in order and an index does not
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
	ToldStill   Rule = "told, whoever dies" // another node's writes are reported, even if that node is gone
	Prompt      Rule = "answered in time"
	Expired     Rule = "an expired shelf hands out all or nothing, and not for long"
	Served      Rule = "nobody is served after their rights ended"
	EndsSoon    Rule = "rights end within two seconds"
	Accepted    Rule = "what is valid is not refused"
	Told        Rule = "told within ten seconds"
	Recorded    Rule = "web hooks have an event for each that happened"
	Due         Rule = "an event is delivered, or due"
	HooksOrder  Rule = "an item's events come in their order"
	Once        Rule = "what was accepted does not come again"
	Absent      Rule = "whoever is away gets nothing, and keeps nothing that goes back"
	Coded       Rule = "a reason where one is required"
	Several     Rule = "as many different people as are to complete it"
	Onward      Rule = "what is drawn goes on, and nothing else"
	Able        Rule = "only to those who can do it"
)

// Rules are all rules.
var Rules = []Rule{HeldOnce, HeldInTurn, OneRun, EndsOnce, InOrder, Kept, NotBefore, ToldTheSame, Limits, Best, Reasons, DoneIsDone, OnceAKey, Warned, Fair, ToldStill, Prompt, Expired, Served, EndsSoon, Accepted,
	Told, Recorded, Due, HooksOrder, Once, Absent, Coded, Several, Onward, Able}

// Violation is something that must never happen.
type Violation struct {
	Rule    Rule
	Kind    string // one of the ways to break the rule: the format of the text
	Text    string
	Entries []int // the entries of the history that show it; none: the tables show it
}

func (v Violation) String() string { return fmt.Sprintf("%s: %s %v", v.Rule, v.Text, v.Entries) }

// Config sets how patient the checker is. The zero value fits a run with faults.
type Config struct {
	// PushWithin is how long after a request's end its holder's sockets must have reported it, if nothing is broken
	// that could prevent that; 0: [PushWithin]. On a busy machine it may take longer, as all calls do.
	PushWithin time.Duration
	// Recovery is how long after a fault's end they must have reported it; 0: [Recovery].
	Recovery time.Duration
	// Linearize bounds the total time of the search for an order of each item's holders; 0: 10 s. Items left undecided
	// are no violation, and are counted in the report.
	Linearize time.Duration
	// Most is how many violations of each kind are reported with their text; 0: 5. A flood of one kind hides no other.
	Most int
}

// The bounds that a zero config stands for. If sockets stay open for this long after a run's last fault, all of them
// are judged.
const (
	PushWithin = 10 * time.Second
	Recovery   = 20 * time.Second
)

// ToldWithin returns how long after an end sockets may report it, by how busy the machine is in these entries. Sockets that close
// before that prove nothing of it.
func ToldWithin(entries []history.Entry) time.Duration { return PushWithin + busier*usual(entries) }

// Kind is a rule and one of the ways to break it.
type Kind struct {
	Rule Rule
	Text string
}

// Report is the result of judging a history.
type Report struct {
	Violations []Violation
	Found      map[Rule]int   // the number of violations of each rule, including those without text
	Kinds      map[Kind]int   // the same for each kind
	Judged     map[string]int // how often each thing was judged; a thing that is missing here was never judged
	Undecided  int            // items for which the search for an order was given up
}

// Check judges a history and returns the violations.
func Check(h history.History) []Violation { return Judge(h, Config{}).Violations }

// Judge judges a history, and reports how much of it there was to judge.
func Judge(h history.History, c Config) Report {
	t := newTrial(h, c)
	t.judgeHeldRows()
	t.judgeCertain()
	t.judgeOwnership()
	t.judgeRuns()
	requestJudge{t}.judgeRequests()
	requestJudge{t}.judgeSightsOfRequests()
	orderJudge{t}.judgeRounds()
	orderJudge{t}.judgeOvertaking()
	t.judgeSightsOfWork()
	answerJudge{t}.judgeAnswers()
	t.judgePushes()
	t.judgeCounts()
	t.judgePipelines()
	laterJudge{t}.judgeReturns()
	laterJudge{t}.judgeLeases()
	laterJudge{t}.judgeInbox()
	laterJudge{t}.judgeParked()
	pushJudge{t}.judgeTold()
	t.judgeAttempts()
	t.judgeOpen()
	t.judgeOverAll()
	t.judgeFourEyes()
	bestJudge{t}.judgeBest()
	t.judgeReasons()
	t.judgeDone()
	keyJudge{t}.judgeKeys()
	t.judgeWarnings()
	t.judgeFairness()
	t.judgePrompt()
	validJudge{t}.judgeValid()
	ageJudge{t}.judgeAges()
	newRightsJudge(t).judgeRights()
	newHookJudge(t).judgeHooks()
	t.judgeAbsences()
	laterJudge{t}.judgeAside()
	t.judgeCodes()
	t.judgeSeveral()
	t.judgeOnward()
	t.judgeNeeds()
	slices.SortStableFunc(t.report.Violations, func(a, b Violation) int {
		return slices.Index(Rules, a.Rule) - slices.Index(Rules, b.Rule)
	})
	return t.report
}

// broken records a violation. Its kind is the format.
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

// judged counts a thing that was judged.
func (t *trial) judged(what string) { t.report.Judged[what]++ }
