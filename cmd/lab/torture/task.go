package torture

import (
	"fmt"
	"maps"
	"time"

	"getwork/cmd/lab/torture/history"
)

// job is a task that the run works on.
type job struct {
	name     string
	settings map[string]any // the body of POST /tasks
	keys     string         // the prefix of its items' names
	items    int            // how many items its query returns, numbered from 1; an inbox: 0
	nap      nap            // how long its query takes
	lease    time.Duration  // 0: none
	whole    bool           // its query always returns all of its items, each with one place, and all may be handed out
	books    bool           // its query no longer returns an item that is finished in the books; see books.go
	coded    bool           // it requires reasons; see reasons.go
	several  int            // how many complete an item; 0: one
	onward   bool           // what others complete goes on to it, and nobody pushes to it
}

func (j job) inbox() bool { return j.settings["query"] == nil }

// item returns the key of the n-th item of a query task.
func (j job) item(n int) string { return fmt.Sprintf("%s-%03d", j.keys, n) }

// mark is part of each ranking query, so that its executions are found in pg_stat_activity.
const mark = "torture: "

// ranking returns the order in which a query returns its items, or nil if the order varies.
func (j job) ranking() *history.Ranking {
	if !j.whole {
		return nil
	}
	r := &history.Ranking{Task: j.name, Items: []string{}}
	for n := range j.items {
		r.Items = append(r.Items, j.item(n+1))
	}
	_, r.Cut = j.settings["max_candidates"]
	return r
}

// recheck is the shelf's recheck: at any time a tenth of the items does not match.
const recheck = `select item from unnest($1::text[]) item where abs(hashtext(item) + extract(epoch from clock_timestamp())::bigint / 10) % 10 > 0`

// leaseOfInbox is how long items of an inbox may be held.
const leaseOfInbox = 4 * time.Second

// jobs returns the tasks. Each stands for one path through the rounds. Tasks that others refer to come first.
func jobs(o Options) []job {
	naps := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	return []job{
		all(ranked("quick", "quick", 400, naps(0.005, 0.03), nil)),
		ranked("shelf", "loan", 300, naps(0.2, 0.5), map[string]any{"fresh_for": "2s", "recheck": recheck}),
		all(ranked("plain", "loan", 300, naps(0.2, 0.8), map[string]any{"conflicts_with": []string{"shelf"}})), // four eyes
		all(ranked("cut", "cut", 200, naps(0.1, 0.4), map[string]any{"fresh_for": "1s", "max_candidates": 12})),
		ranked("places", "place", 40, naps(0.05, 0.3), map[string]any{"slots": 3, "max_open": 6, "on_away": "to"}),
		leased(all(ranked("leased", "lease", 200, naps(0.05, 0.4), map[string]any{"max_attempts": 6, "backoff": "1s", "on_away": "release"})), "1s", time.Second),
		// The query takes longer than the shelf is fresh, so that its refreshes run while the expired shelf is handed
		// out. There are so few items that often too few are left, though a run under a query login leaves out what was
		// closed within the five seconds before it.
		all(ranked("expired", "old", 80, naps(0.3, 0.8), map[string]any{"fresh_for": "200ms", "stale_for": "5s"})),
		leased(all(ranked("watched", "watch", 200, naps(0.05, 0.2), map[string]any{"fresh_for": "1s", "on_away": "to"})), "8s", 8*time.Second), // long enough to warn
		all(job{name: "nothing", keys: "nothing", nap: naps(0.02, 0.1)}.asked("select null as item where false")),
		fromBooks(naps(0.4, 0.9)),
		all(deep(naps(0.02, 0.1))),
		leased(job{name: "inbox", keys: "in", settings: map[string]any{"name": "inbox", "max_attempts": 3, "backoff": "1s"}}, "4s", leaseOfInbox),
	}
}

func ranked(name, keys string, items int, n nap, settings map[string]any) job {
	j := job{name: name, keys: keys, items: items, nap: n}
	j = j.asked(fmt.Sprintf("select '%s-' || to_char(n, 'FM000') as item, n as place, timestamptz '2026-01-01 09:00Z' + n * interval '1 hour' as deadline from nap, generate_series(1, %d) n order by n", keys, items))
	maps.Copy(j.settings, settings)
	return j
}

// deep returns a job whose query returns so many rows that are no items before most of its items that a node must read more than one chunk
// of rows (1,000) until it has all that may be handed out.
func deep(n nap) job {
	j := job{name: "deep", keys: "deep", items: 40, nap: n}
	const some, rows = 5, 1200
	return j.asked(fmt.Sprintf("select 'deep-' || to_char(case when n <= %d then n when n > %d then n - %d end, 'FM000') as item from nap, generate_series(1, %d) n order by n",
		some, some+rows, rows, rows+j.items))
}

// asked returns the job with a ranking query that naps first.
func (j job) asked(query string) job {
	j.settings = map[string]any{"name": j.name, "query": fmt.Sprintf("-- %s%s\nwith nap as materialized (select %s)\n%s", mark, j.name, j.nap.sql(), query),
		"query_timeout": "20s", "rerun_after": "1s"}
	return j
}

// all returns the job, marked as one whose query always returns all of its items.
func all(j job) job {
	j.whole = true
	return j
}

func leased(j job, lease string, length time.Duration) job {
	j.settings["lease"], j.lease = lease, length
	return j
}
