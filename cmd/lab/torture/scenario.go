package torture

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"
)

// Scenario is what users do, and how often.
type Scenario struct {
	Name string
	Help string

	tasks    []string      // the tasks that are worked on, each as often as it is named
	turn     time.Duration // if not 0: instead, each turn has a task of its own, which is then left alone
	deaf     time.Duration // if not 0: how long a listener is frozen
	jobs     func(Options) []job
	flags    []string // further flags of getwork serve
	encoding string   // the database's; empty: UTF-8
	habits   habits

	production bool // queries have a login of their own, and web hooks get everything

	logsIn  bool                                      // people log in at a provider, and the nodes believe no names; the last node has no LISTEN
	prompt  time.Duration                             // if not 0: how long a click may take if nothing is broken
	prepare func(*stage, context.Context) error       // called before the nodes start
	open    func(*stage, context.Context) error       // called when the tasks exist and nobody works yet
	close   func(*stage, context.Context) error       // called before the tables are read
	beside  func(*storm, context.Context, *rand.Rand) // called again and again, beside the faults
	rest    time.Duration                             // the pause before each call of beside
}

// habits are percentages, unless the field says otherwise.
type habits struct {
	claim   int     // of a user's acts: claim an item
	read    int     // read the pipeline
	next    int     // of clicks: over all tasks
	double  int     // of clicks: from two tabs at once
	linger  int     // of clicks: linger
	patient int     // of programs' clicks: linger
	lease   int     // of programs' clicks: with a lease
	hold    int     // of clicks: have the answer held
	key     int     // of clicks: with an Idempotency-Key
	again   int     // of those clicks: repeated after their answer, at another node
	cancel  int     // of waiting requests: cancel
	late    int     // of work with a lease: let go of just after its end
	forget  int     // of work: never let go of
	extend  int     // of work with a lease: extend it first
	many    int     // of dispositions and extensions: with all else that they hold, in one call
	never   int     // of dispositions
	fail    int     // of dispositions
	back    int     // of dispositions: return
	holdFor float64 // mean seconds for which work is held
	due     int     // of pushed items: with a deadline
	narrow  int     // how many items are claimed; 0: all
	calm    bool    // managers do nothing
	away    bool    // they enter people's absences
	aside   int     // of people's work: put aside for some time
}

var mixed = habits{claim: 8, read: 6, double: 8, linger: 25, patient: 70, lease: 50, hold: 20, key: 50, again: 40, cancel: 12, late: 15, forget: 2, extend: 25, many: 25,
	never: 2, fail: 10, back: 25, due: 30, holdFor: 1.2, away: true, aside: 6}

func (h habits) with(change func(*habits)) habits {
	change(&h)
	return h
}

// Scenarios are the workloads to choose from. All except the first rely on one defence each.
var Scenarios = []Scenario{
	{Name: "mixed", Help: "everything, all tasks, as in production: queries have a login of their own, and there are web hooks",
		tasks: []string{"quick", "quick", "plain", "plain", "shelf", "cut", "expired", "expired", "places", "leased", "watched", "nothing", "books", "deep", "inbox", "inbox",
			"coded", "coded", "thrice", "thrice", "second", "skilled"},
		jobs:       everything,
		habits:     mixed,
		production: true,
		prepare:    (*stage).openProduction, open: both((*stage).makeHooks, (*stage).teach)},
	{Name: "day", Help: "a desk's days, in which a minute is an hour: nine tasks, two of them slow, limits, absences and clicks over all tasks; with --users 50 --agents 0 --for 20m --without clock",
		tasks:  []string{"verify", "verify", "income", "fraud", "calls", "calls", "places", "inbox", "inbox", "thrice", "thrice", "second", "skilled"},
		jobs:   aDay,
		habits: mixed.with(func(h *habits) { h.next, h.holdFor, h.lease, h.forget, h.fail, h.late = 40, 4, 0, 1, 4, 5 }),
		open:   both((*stage).limit, (*stage).teach),
		beside: (*storm).relimit, rest: 30 * time.Second},
	{Name: "clicks", Help: "many users click at once on a short query, and then nobody: the last click",
		turn: 100 * time.Millisecond,
		// Anything that later frees an item or comes back would wake the task again.
		habits: habits{key: 30, hold: 10, forget: 100, calm: true}},
	{Name: "owners", Help: "rounds and claims on few items: two users for one item",
		tasks: []string{"inbox", "inbox", "quick", "shelf"},
		habits: mixed.with(func(h *habits) {
			h.claim, h.narrow, h.double, h.holdFor, h.back, h.never = 40, 8, 30, 0.3, 60, 0
		})},
	{Name: "cancels", Help: "users cancel while the round serves them",
		tasks:  []string{"quick", "leased", "plain", "inbox"},
		habits: mixed.with(func(h *habits) { h.cancel, h.linger, h.hold, h.claim, h.holdFor = 80, 50, 0, 0, 0.2 })},
	{Name: "leases", Help: "work is let go of just as its lease runs out",
		tasks:  []string{"leased", "leased", "inbox", "watched"},
		habits: mixed.with(func(h *habits) { h.late, h.extend, h.claim = 90, 40, 0 })},
	{Name: "places", Help: "items with several places, and a limit for each user: concurrent counting",
		tasks:  []string{"places"},
		habits: mixed.with(func(h *habits) { h.claim, h.narrow, h.double, h.holdFor, h.back = 50, 6, 40, 0.4, 60 })},
	{Name: "limits", Help: "a limit over all tasks, which is raised and lowered: seats that rounds of several tasks give at a time",
		tasks:  []string{"quick", "quick", "plain", "shelf", "leased", "inbox", "inbox"},
		habits: mixed.with(func(h *habits) { h.claim, h.double, h.linger, h.holdFor, h.back = 15, 20, 10, 0.6, 60 }),
		open:   (*stage).limit,
		beside: (*storm).relimit, rest: time.Second},
	{Name: "claims", Help: "only claims, of items that are soon put off again: stale snapshots",
		turn:   600 * time.Millisecond,
		habits: habits{claim: 100, narrow: 3, back: 100, holdFor: 0.4, calm: true}},
	{Name: "books", Help: "finishing an item changes the query's result while it runs",
		tasks:  []string{"books"},
		habits: mixed.with(func(h *habits) { h.claim, h.holdFor, h.back, h.fail, h.never, h.forget = 25, 0.3, 5, 0, 0, 0 })},
	{Name: "queries", Help: "the same, where queries have a login of their own",
		tasks:      []string{"books"},
		habits:     mixed.with(func(h *habits) { h.claim, h.holdFor, h.back, h.fail, h.never, h.forget = 25, 0.3, 5, 0, 0, 0 }),
		production: true,
		prepare:    (*stage).openProduction, open: (*stage).makeHooks},
	{Name: "keys", Help: "clicks are repeated with their keys, after their answer, at other nodes",
		tasks:  []string{"quick", "inbox", "shelf"},
		habits: mixed.with(func(h *habits) { h.key, h.again, h.holdFor = 100, 80, 0.4 })},
	{Name: "few", Help: "rounds for a single waiting request: it must get the best item",
		tasks:  []string{"quick", "leased", "cut", "inbox", "nothing"},
		habits: mixed.with(func(h *habits) { h.claim, h.double, h.linger, h.holdFor = 0, 0, 0, 0.5 })},
	{Name: "unequal", Help: "five busy tasks and one with few clicks, with one run slot on each node",
		tasks:  slices.Concat(slices.Repeat(busy, 5), []string{"rare"}),
		jobs:   unequal,
		flags:  []string{"--max-runs", "1"},
		habits: habits{key: 30, hold: 10, holdFor: 0.5, calm: true}},
	{Name: "encodings", Help: "a database whose encoding is Latin-1, and items that are not ASCII",
		tasks:    []string{"quick", "quick", "shelf", "inbox"},
		jobs:     umlauts,
		encoding: "LATIN1",
		habits:   mixed.with(func(h *habits) { h.claim, h.narrow, h.holdFor = 20, 40, 0.5 })},
	{Name: "restore", Help: "the database is dumped and restored into another cluster, whose transaction ids are lower",
		tasks:  []string{"books", "shelf", "shelf", "quick", "quick", "quick", "quick", "inbox", "inbox"}, // few books, so that some stay on the shelf
		jobs:   shelved,
		habits: mixed.with(func(h *habits) { h.claim, h.holdFor, h.back, h.fail = 60, 0.3, 5, 0 }),
		beside: (*storm).restore, rest: 8 * time.Second},
	{Name: "upgrade", Help: "nodes are replaced by newer ones, one after the other, while a migration runs beside a query of 20 seconds, and back",
		tasks:   []string{"long", "quick", "quick", "shelf", "shelf", "inbox", "inbox"},
		jobs:    oneLong,
		habits:  mixed.with(func(h *habits) { h.cancel, h.many, h.due, h.away, h.aside = 4, 0, 0, false, 0 }), // the older ones may not know such calls, or deadlines
		prompt:  time.Second,
		prepare: (*stage).findVersions, close: (*stage).migrateLast,
		beside: (*storm).upgrade, rest: 5 * time.Second},
	{Name: "history", Help: "items that were handed out and let go of 100,000 times before the run",
		tasks:  []string{"quick", "shelf", "leased", "inbox"},
		habits: mixed.with(func(h *habits) { h.claim, h.narrow, h.holdFor, h.back = 20, 3, 0.4, 50 }),
		prompt: time.Second,
		open:   (*stage).insertPast, close: (*stage).deletePast},
	{Name: "grants", Help: "a right is revoked from the nodes' login for some seconds, again and again",
		tasks:   []string{"quick", "plain", "shelf", "leased", "inbox", "inbox"},
		habits:  mixed,
		prepare: (*stage).logInAsWorker,
		beside:  (*storm).revoke, rest: 3 * time.Second},
	{Name: "rights", Help: "people log in; sessions and tokens end, users are blocked, groups change, the provider goes away",
		tasks:   []string{"quick", "quick", "plain", "shelf", "leased", "watched", "nothing", "nothing", "inbox", "inbox", "desk", "desk"},
		jobs:    withDesk,
		habits:  mixed.with(func(h *habits) { h.linger, h.hold, h.claim, h.cancel, h.holdFor = 60, 50, 10, 5, 0.8 }),
		logsIn:  true,
		prepare: (*stage).openLogIns, open: (*stage).logAllIn},
	{Name: "next", Help: "most clicks are over all tasks, and some on one: nobody waits for what is free",
		tasks:  []string{"quick", "plain", "nothing", "leased", "inbox", "inbox"},
		habits: mixed.with(func(h *habits) { h.next, h.linger, h.double, h.claim, h.holdFor = 70, 50, 0, 4, 0.5 })},
	{Name: "live", Help: "what is pushed, and when; a frozen listener stays frozen to the end, for two minutes at most",
		tasks:  []string{"quick", "inbox", "plain"},
		deaf:   2 * time.Minute,
		habits: mixed.with(func(h *habits) { h.linger, h.cancel, h.claim, h.hold = 40, 5, 4, 0 })},
}

// busy are the tasks of unequal that get many clicks.
var busy = []string{"busy-1", "busy-2", "busy-3", "busy-4", "busy-5"}

func unequal(o Options) (all []job) {
	for _, name := range append(slices.Clone(busy), "rare") {
		all = append(all, ranked(name, name, 2000, nap{0.4, 0.7, o.jumps()}, nil))
	}
	return all
}

// withDesk are all tasks, and one that is for a group.
func withDesk(o Options) []job {
	all := append(jobs(o), ranked("desk", "desk", 400, nap{0.005, 0.03, o.jumps()}, map[string]any{"groups": []string{deskGroup}}))
	for _, j := range all {
		if query, is := j.settings["query"].(string); is {
			j.settings["query"] = strings.ReplaceAll(query, "pg_sleep(", "public.torture_nap(")
		}
	}
	return all
}

// aDay are the tasks of a desk. Times are a sixtieth of what they stand for: queries of half a minute, and of five; leases of half an
// hour and of two.
func aDay(o Options) []job {
	n := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	return append(chain("2m", 2*time.Minute),
		ranked("verify", "loan", 300, n(0.4, 0.8), map[string]any{"fresh_for": "15s", "recheck": recheck, "on_away": "to"}),
		all(ranked("income", "loan", 300, n(4, 6), map[string]any{"conflicts_with": []string{"verify"}})), // four eyes, and slow
		all(ranked("fraud", "case", 200, n(3, 5), map[string]any{"fresh_for": "20s", "stale_for": "20s"})),
		coded(leased(all(ranked("calls", "call", 200, n(0.1, 0.3), map[string]any{"max_attempts": 6, "backoff": "1s", "on_away": "release"})), "30s", 30*time.Second)),
		needy(n(0.1, 0.3)),
		ranked("places", "place", 40, n(0.1, 0.4), map[string]any{"slots": 3, "max_open": 6}),
		leased(job{name: "inbox", keys: "in", settings: map[string]any{"name": "inbox", "max_attempts": 3, "backoff": "1s"}}, "2m", 2*time.Minute),
	)
}

// taught reports whether people have skills.
func (s Scenario) taught() bool { return slices.Contains(s.tasks, "skilled") }

// umlauts are tasks whose items are not ASCII.
func umlauts(o Options) []job {
	n := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	return []job{
		all(ranked("quick", "prüfung-ß", 400, n(0.005, 0.03), nil)),
		all(ranked("shelf", "größe", 300, n(0.2, 0.5), map[string]any{"fresh_for": "2s"})),
		leased(job{name: "inbox", keys: "café", settings: map[string]any{"name": "inbox", "max_attempts": 3, "backoff": "1s"}}, "4s", leaseOfInbox),
	}
}

// worked returns the tasks that a scenario works on.
func (s Scenario) worked(o Options) (all []job) {
	switch {
	case s.jobs != nil:
		return s.jobs(o)
	case s.turn == 0:
		return jobs(o)
	}
	for n := range int(o.For/s.turn) + 2 {
		name := fmt.Sprintf("turn-%03d", n)
		all = append(all, ranked(name, name, 2000, nap{0.005, 0.03, o.jumps()}, nil))
	}
	return all
}

func scenarioOf(name string) (Scenario, bool) {
	at := slices.IndexFunc(Scenarios, func(s Scenario) bool { return s.Name == name })
	if at < 0 {
		return Scenario{}, false
	}
	return Scenarios[at], true
}
