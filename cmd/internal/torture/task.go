package torture

import (
	"fmt"
	"maps"
	"time"
)

// job is a task that the run works on.
type job struct {
	name     string
	settings map[string]any // of POST /tasks
	keys     string         // its items' names begin with it
	items    int            // how many its query returns, numbered from 1; an inbox: 0
	nap      nap            // of its query
	lease    time.Duration  // 0: none
}

func (j job) inbox() bool { return j.items == 0 }

// item is the key of the n-th item of a query task.
func (j job) item(n int) string { return fmt.Sprintf("%s-%03d", j.keys, n) }

// mark stands in each ranking query, so that its executions are found among the server's activities.
const mark = "torture: "

// ranking is a query that naps, and then returns all items of a job in their order.
func ranking(name, keys string, items int, n nap) string {
	return fmt.Sprintf(`-- %s%s
with nap as materialized (select %s)
select '%s-' || to_char(n, 'FM000') as item, n as place
from nap, generate_series(1, %d) n
order by n`, mark, name, n.sql(), keys, items)
}

// recheck is what a shelf asks before it hands out: at any time a tenth of the items does not match.
const recheck = `select item from unnest($1::text[]) item where abs(hashtext(item) + extract(epoch from clock_timestamp())::bigint / 10) % 10 > 0`

// jobs are the tasks. Each stands for one way through the rounds. The tasks that others refer to come first.
func jobs(o Options) []job {
	naps := func(least, most float64) nap { return nap{least, most, o.jumps()} }
	return []job{
		ranked("quick", "quick", 400, naps(0.005, 0.03), nil),
		ranked("shelf", "loan", 300, naps(0.2, 0.5), map[string]any{"fresh_for": "2s", "recheck": recheck}),
		ranked("plain", "loan", 300, naps(0.2, 0.8), map[string]any{"conflicts_with": []string{"shelf"}}), // four eyes
		ranked("cut", "cut", 200, naps(0.1, 0.4), map[string]any{"fresh_for": "1s", "max_candidates": 12}),
		ranked("places", "place", 40, naps(0.05, 0.3), map[string]any{"slots": 3, "max_open": 6}),
		leased(ranked("leased", "lease", 200, naps(0.05, 0.4), map[string]any{"max_attempts": 6, "backoff": "1s"}), "1s", time.Second),
		leased(job{name: "inbox", settings: map[string]any{"name": "inbox", "max_attempts": 3, "backoff": "1s"}}, "4s", 4*time.Second),
	}
}

func ranked(name, keys string, items int, n nap, settings map[string]any) job {
	all := map[string]any{"name": name, "query": ranking(name, keys, items, n), "query_timeout": "20s", "rerun_after": "1s"}
	maps.Copy(all, settings)
	return job{name: name, keys: keys, items: items, settings: all, nap: n}
}

func leased(j job, lease string, length time.Duration) job {
	j.settings["lease"], j.lease = lease, length
	return j
}
