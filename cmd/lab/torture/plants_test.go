package torture_test

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"getwork/cmd/internal/node"
	"getwork/cmd/lab/torture"
	"getwork/cmd/lab/torture/checker"
)

// plant is a mistake that somebody could make.
type plant struct {
	name    string
	rule    checker.Rule // the rule that it breaks
	edit    edit
	options torture.Options
}

// plants has at least one mistake for each rule: a rule that finds none proves nothing.
var plants = []plant{
	{"an item has a place more than it has", checker.HeldOnce,
		edit{"assign/plan", "return it.Slots - len(it.Taken)", "return it.Slots + 1 - len(it.Taken)"},
		torture.Options{Scenario: "owners"}},
	{"closings are stamped later than they are", checker.HeldInTurn,
		edit{"assign", "closed_at = least(clock_timestamp(), w.lease_expires_at)", "closed_at = least(clock_timestamp() + interval '2 seconds', w.lease_expires_at)"},
		torture.Options{Scenario: "owners"}},
	{"the run lock is read, and not taken", checker.OneRun,
		edit{"assign", "where id = $1 for no key update skip locked`", "where id = $1`"},
		torture.Options{Scenario: "cancels"}},
	{"a cancel undoes the end of a request", checker.EndsOnce,
		edit{"assign", "where id = $1 and state = 'pending'`", "where id = $1`"},
		torture.Options{Scenario: "cancels"}},
	{"who came last is served first", checker.InOrder,
		edit{"assign", "order by id\nfor update`", "order by id desc\nfor update`"},
		torture.Options{}},
	{"what is answered is not on the disk yet", checker.Kept,
		edit{"assign", "[settingsLeft] = []string{idleLimit}", "[settingsLeft] = []string{idleLimit, `set local synchronous_commit = off`}"},
		torture.Options{Faults: []string{"crash"}, Every: time.Second, Recovery: 5 * time.Second}},
	{"what is put off comes back in half the time", checker.NotBefore,
		edit{"assign", "when $2 = 'returned' then clock_timestamp() + $4 * interval '1 microsecond'", "when $2 = 'returned' then clock_timestamp() + $4 * interval '1 microsecond' / 2"},
		torture.Options{Scenario: "owners"}},
	{"a request keeps its ETag when it changes", checker.ToldTheSame,
		edit{"web", "	body = shown.AppendJSON(make([]byte, 0, assign.SizeOf(shown.Work, 1)))\n",
			"	body = shown.AppendJSON(make([]byte, 0, assign.SizeOf(shown.Work, 1)))\n	if id := shown.ID; id > 0 {\n		return tagOf([]byte(strconv.FormatInt(id, 10))), body\n	}\n"},
		torture.Options{}},
	{"nobody counts what a user holds", checker.Limits,
		edit{"assign", "if r.state.MaxOpen != nil {", "if false {"},
		torture.Options{Scenario: "places"}},
	{"rounds of two tasks give one seat", checker.Limits,
		edit{"schema", "create unique index concurrently work_seat", "create index concurrently work_seat"},
		torture.Options{Scenario: "limits"}},
	{"closings are not compared with the run's snapshot", checker.DoneIsDone,
		edit{"assign", "not pg_visible_in_snapshot(last.closed_xid, u.snapshot)", "false"},
		torture.Options{Scenario: "books"}},
	{"a lone waiter is given the second-best item", checker.Best,
		edit{"assign/plan", "found, left := s.pick(r, room)\n", `found, left := s.pick(r, room)
			if more, _ := s.pick(r, room+1); len(requests) == 1 && len(more) > room {
				found = more[1:]
			}
`},
		torture.Options{Scenario: "few", Users: 12, Agents: 4}},
	{"nobody is warned of a lease's end", checker.Warned,
		edit{"assign", "range []string{expireWork, warnHolders}", "range []string{expireWork}"},
		torture.Options{Scenario: "leases", For: 20 * time.Second}},
	{"no_match and all_held are swapped", checker.Reasons,
		edit{"assign", "plan.NoMatch: assign.NoMatch, plan.AllHeld: assign.AllHeld", "plan.NoMatch: assign.AllHeld, plan.AllHeld: assign.NoMatch"},
		torture.Options{Scenario: "few"}},
	{"the Idempotency-Key is dropped", checker.OnceAKey,
		edit{"web", "Key: key, Groups: c.Groups", "Groups: c.Groups"},
		torture.Options{Scenario: "keys"}},
	{"nobody misses what a dead node had still to tell", checker.ToldStill,
		edit{"assign", "f.owes(m)", ""},
		torture.Options{Scenario: "live", Faults: []string{"kill-told"}, Every: 2 * time.Second, For: 40 * time.Second, Recovery: 10 * time.Second}},
	{"places for runs go to the same tasks again", checker.Fair,
		edit{"assign", "order by greatest(due.at, last.finished_at), s.task_id", "order by s.task_id"},
		torture.Options{Scenario: "unequal", For: 20 * time.Second}},
	{"a shelf of another life of the cluster is fresh", checker.DoneIsDone,
		edit{"assign", `u.cluster = getwork.cluster()
    and coalesce(pg_snapshot_xmax(u.snapshot) <= pg_snapshot_xmax(pg_current_snapshot()), true), false)`, `true, false)`},
		torture.Options{Scenario: "restore", For: 20 * time.Second}},
	{"a click waits for its task's query", checker.Prompt,
		edit{"assign", "where id = $1 for no key update skip locked`", "where id = $1 for update skip locked`"},
		torture.Options{Scenario: "upgrade", For: 40 * time.Second, Users: 20, Agents: 4}},
	{"an expired shelf answers with a part", checker.Expired,
		edit{"assign/plan", "	case supply.Stale:\n		return Wait, NoReason\n", ""},
		torture.Options{For: 20 * time.Second}},
	{"no credential has ended", checker.Served,
		edit{"schema", "    end) is not true\n", "    end) is not true and false\n"},
		torture.Options{Scenario: "rights", Faults: ending, Every: 40 * time.Millisecond}},
	{"a live channel stays open when its session has ended", checker.EndsSoon,
		edit{"assign/rights", "case f.why != \"\":\n\t\t\t\treturn EndOver\n\t\t\tcase c[0] == 'j'", "case c[0] == 'j'"},
		torture.Options{Scenario: "rights", Faults: ending, Every: 100 * time.Millisecond}},
	{"a session is found that has ended", checker.EndsSoon,
		edit{"assign/rights", "    when s.ended_at is not null then 'ended'\n", ""},
		torture.Options{Scenario: "rights", Faults: ending, Every: 100 * time.Millisecond}},
	{"nobody may ask for a lease", checker.Accepted,
		edit{"web", "if body.Lease != nil && c.Role != Agent && c.Role != Manager {", "if body.Lease != nil {"},
		torture.Options{}},
	{"closings are not compared with what a run elsewhere has seen", checker.DoneIsDone,
		edit{"assign", "not pg_visible_in_snapshot(last.closed_xid, u.snapshot) and last.closed_xid < pg_snapshot_xmax(pg_current_snapshot())\n      or last.closed_at > u.seen_until", "false"},
		torture.Options{Scenario: "queries"}},
	{"a run elsewhere ends with its first chunk, if that is as much as it may keep", checker.Best,
		edit{"assign", "more && !r.found.Cut; {", "more && !r.found.Cut && (r.found.Given == 0 || s.MaxCandidates != chunkRows); {"},
		torture.Options{}},
	{"what was taken together with a failed delivery is forgotten", checker.Told,
		edit{"assign", "\t\t\tf.hear(func(n *news) { n.gap = true })\n", ""},
		torture.Options{Scenario: "live", Faults: []string{"refuse"}, Every: 3 * time.Second, For: 20 * time.Second, Recovery: 10 * time.Second}},
	{"a node looks for events of web hooks twice a minute", checker.Told,
		edit{"assign", "pollEvery = time.Second", "pollEvery = 30 * time.Second"},
		torture.Options{Scenario: "queries", For: 40 * time.Second}},
	{"web hooks are not told what expires", checker.Recorded,
		edit{"schema", "'code', new.code, 'available_at', getwork.json_time(new.available_at))))\n  from getwork.hook h join getwork.task_state s on s.task_id = new.task_id\n  where ", "'code', new.code, 'available_at', getwork.json_time(new.available_at))))\n  from getwork.hook h join getwork.task_state s on s.task_id = new.task_id\n  where kind <> 'work.expired' and "},
		torture.Options{}},
	{"whatever a receiver answers, it has accepted the event", checker.Due,
		edit{"assign", "if got.status/100 == 2 {", "if got.status > 0 {"},
		torture.Options{Faults: failing, Every: 500 * time.Millisecond}},
	{"an item's events don't wait for each other", checker.HooksOrder,
		edit{"assign", "o.ended_at is null and o.id < e.id", "o.ended_at is null and o.id < 0"},
		torture.Options{Faults: failing, Every: 500 * time.Millisecond}},
	{"an event is due while it is sent", checker.Once,
		edit{"assign", "next_at = clock_timestamp() + $4::bigint * interval '1 microsecond'\nfrom due d", "next_at = clock_timestamp() + $4::bigint * interval '0'\nfrom due d"},
		torture.Options{}},
	{"whoever is away is served", checker.Absent,
		edit{"assign", "requests[i].Limit(0, plan.Away)", "requests[i].Limit(plan.NoLimit, plan.Away)"},
		torture.Options{Scenario: "leases", For: 30 * time.Second, Faults: []string{"kill"}, Every: 5 * time.Second}},
	{"nobody who is away lets go of anything", checker.Absent,
		edit{"assign", "if r.state.OnAway == assign.KeepAway {", "if true {"},
		torture.Options{Scenario: "places", For: 45 * time.Second, Faults: []string{"kill"}, Every: 5 * time.Second}},
	{"an extension shortens the lease of what is put aside", checker.NotBefore,
		edit{"assign", "set lease_expires_at = greatest(clock_timestamp(), later_until) + lease, ", "set lease_expires_at = clock_timestamp() + lease, "},
		torture.Options{Scenario: "leases", For: 20 * time.Second}},
	{"what expires has no reason", checker.Coded,
		edit{"assign", "closed_xid = pg_current_xact_id(), code = '` + assign.CodeExpired + `'", "closed_xid = pg_current_xact_id()"},
		torture.Options{For: 20 * time.Second}},
	{"as many hold an item as if nobody had completed it", checker.Several,
		edit{"assign", "	it.Slots -= len(completed)\n", ""},
		torture.Options{For: 20 * time.Second}},
	{"everything that is completed goes on", checker.Onward,
		edit{"assign", "on != nil && on.Draws(w.ID) {", "on != nil {"},
		torture.Options{For: 20 * time.Second}},
	{"nobody needs anything", checker.Able,
		edit{"assign/plan", "if len(it.Needs) > 0 && len(r.Lacks(it.Needs)) > 0 {", "if false {"},
		torture.Options{For: 20 * time.Second}},
	{"needs end before their time", checker.Able,
		edit{"assign", "n.needs_until <= (select clock_timestamp())", "n.needs_until is not null"},
		torture.Options{For: 20 * time.Second}},
	{"a round takes its own task's lock first", deadlock,
		edit{"assign", "where c.task_id = $1)\norder by s.task_id\nfor no key update`", "where c.task_id = $1)\norder by s.task_id <> $1::bigint, s.task_id\nfor no key update`"},
		torture.Options{Scenario: "limits"}},
}

// deadlock is the rule of what PostgreSQL's log shows, which the checker does not see.
const deadlock checker.Rule = "deadlock"

// failing are the faults that make the receiver of web hooks fail.
var failing = []string{"receiver-fails"}

// ending are the faults that end what people came in with.
var ending = []string{"end-sessions", "end-token", "log-out", "block"}

// Each rule has a plant; TestPlants proves that the rule catches it.
func TestEveryRuleHasAPlant(t *testing.T) {
	for _, rule := range checker.Rules {
		if !slices.ContainsFunc(plants, func(p plant) bool { return p.rule == rule }) {
			t.Errorf("no plant breaks the rule %q: add one to the table, and see it caught by TestPlants", rule)
		}
	}
	for _, p := range plants {
		if !slices.Contains(checker.Rules, p.rule) && p.rule != deadlock {
			t.Errorf("%s: there is no rule %q", p.name, p.rule)
		}
	}
}

// TestPlants proves the rules: each plant is caught by the rule that it breaks.
func TestPlants(t *testing.T) {
	if os.Getenv("GETWORK_TEST_HOLES") == "" {
		t.Skip("takes some minutes, and all of the machine: set GETWORK_TEST_HOLES=1")
	}
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			o := p.complete()
			o.Binary = filepath.Join(t.TempDir(), "getwork")
			if err := node.Build(t.Context(), o.Binary, "-overlay", overlay(t, p.edit)); err != nil {
				t.Fatal(err)
			}
			for range seeds {
				if p.caught(t, o) {
					return
				}
			}
			t.Errorf("%q was not found to be broken, in %d runs", p.rule, seeds)
		})
	}
}

// complete returns the options of a short run, except those that the plant sets.
func (p plant) complete() torture.Options {
	o := p.options
	if o.For == 0 {
		o.For = 12 * time.Second
	}
	if o.Users == 0 {
		o.Users, o.Agents = 60, 12
	}
	if o.Faults == nil {
		o.Faults = []string{torture.None}
	}
	o.Think, o.Settle = 500*time.Millisecond, 15*time.Second
	return o
}

// caught runs the build, and reports whether the rule was found broken.
func (p plant) caught(t *testing.T, o torture.Options) bool {
	o.Out, o.Log = t.TempDir(), t.Logf
	report, err := torture.Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	found := map[string]int{}
	for _, v := range report.Violations {
		if found[v.Rule]++; found[v.Rule] < 3 {
			t.Log(v.Rule, ": ", v.Text)
		}
	}
	t.Logf("%d requests, %d pieces of work; found: %v; judged: %v", total(report.States), total(report.Work), found, report.Judged)
	return found[string(p.rule)] > 0
}
