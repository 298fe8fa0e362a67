package engine

import (
	"fmt"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A query whose rows are larger than a node can keep fails, and says why; the node goes on with other tasks.
func TestMoreDetailsThanANodeKeeps(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id, repeat('x', 60000) as scan from generate_series(1, 200) i`)
	for name, o := range map[string]nodeOptions{"here": {MaxRuns: 1}, "elsewhere": {MaxRuns: 1, Queries: reader(t, url, "loan")}} {
		n := startNode(t, url, o)
		n.Ranker.MaxDetails = 5 << 20
		newTask(t, n, name, `select id as item, scan from loan order by id`, nil)
		r := n.endedRequest(t, n.click(t, name, "ann", 1).ID)
		if r.State != assign.Failed || r.Error == nil || !strings.Contains(*r.Error, "more than 5 MiB for the first 87 items; return fewer or smaller columns") {
			t.Errorf("%s: the request is %s, %v", name, r.State, r.Error)
		}
		_, err := n.Ranker.Preview(t.Context(), name, nil, 100)
		wantKind(t, err, assign.QueryRefused)
		newTask(t, n, name+"-small", `select id as item, left(scan, 10) as scan from loan order by id`, nil)
		if r := n.endedRequest(t, n.click(t, name+"-small", "ann", 1).ID); r.State != assign.Assigned {
			t.Errorf("%s: the next is %s, %v", name, r.State, r.Error)
		}
	}
}

// Only what is kept counts: of items whose group is busy no more than fit beside the free ones, and no row behind the cut. So busy
// items don't keep free ones from being found, on a query database either.
func TestDetailsThatAreNotKept(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t) // of its own: any node may run a task's query
			db := pool(t, url)
			execute(t, db, `create table loan as select i as id, case when i > 1000 then 'free ' || i else 'busy' end as team, repeat('x', 50000) as scan from generate_series(1, 1100) i`)
			o := nodeOptions{MaxRuns: 1}
			if where == "elsewhere" {
				o.Queries = reader(t, url, "loan")
			}
			n := startNode(t, url, o)
			n.Ranker.MaxDetails = 1 << 20
			newTask(t, n, "cut", `select id as item, scan from loan order by id`, func(s *assign.Settings) { s.MaxCandidates = 10 })
			if r := n.endedRequest(t, n.click(t, "cut", "ann", 2).ID); fmt.Sprint(items(r)) != "[1 2]" {
				t.Errorf("ann got %q, %s, %v", items(r), r.State, r.Error)
			}
			if p, err := n.Ranker.Preview(t.Context(), "cut", nil, 5); err != nil || len(p.Rows) != 5 {
				t.Errorf("a preview has %d rows, %v", len(p.Rows), err)
			}

			for name, c := range map[string]struct{ column, held string }{
				"teams": {`team as exclusive`, `insert into getwork.work (task_id, item, user_name, exclusive) values ($1, 'other', 'eve', 'busy')`},
				"places": {`case when id > 1000 then 3 else 2 end as slots`, `insert into getwork.work (task_id, item, user_name, slot)
					select $1, item, 'eve ' || slot, slot from generate_series(1, 1000) item, generate_series(1, 2) slot`},
			} {
				task := newTask(t, n, name, `select id as item, scan, `+c.column+` from loan order by id`, func(s *assign.Settings) { s.MaxCandidates = 15 })
				execute(t, db, c.held, task.ID)
				if r := n.endedRequest(t, n.click(t, name, "bob", 2).ID); fmt.Sprint(items(r)) != "[1001 1002]" {
					t.Errorf("%s: bob got %q, %s, %v", name, items(r), r.State, r.Error)
				}
			}
		})
	}
}

// PostgreSQL quotes the value that an error is about. What is kept of that text for the run, the task and each request is bounded,
// also if the error is not the query's own fault, and what a manager reads.
func TestLongErrors(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan as select 1 as id;
		create function conflicts(text) returns text language plpgsql as $$ begin
			raise exception '%', $1 using errcode = 'serialization_failure', hint = $1; end $$`)
	n := startNode(t, url, nodeOptions{})
	const long = `repeat('ä' || id, 100000)`
	for name, q := range map[string]string{"quotes": `select (` + long + `)::int as item from loan`, "conflicts": `select conflicts(` + long + `) as item from loan`} {
		task := newTask(t, n, name, q, nil)
		if name == "conflicts" { // as if it had been repeated for long
			execute(t, db, `update getwork.task_state set retries = 1, retry_since = clock_timestamp() - interval '1 hour', retry_at = clock_timestamp() where task_id = $1`, task.ID)
		}
		failsWith(t, n, name, "…")
		execute(t, db, `update getwork.task_state set failed_until = clock_timestamp() + interval '1 minute' where task_id = $1`, task.ID) // longer than a click takes on any machine
		if r := n.click(t, name, "bob", 1); r.State != assign.Failed {
			t.Errorf("%s: a click during the back-off is %s", name, r.State)
		}
		for where, bytes := range map[string]string{
			"run":            `select octet_length(error) from getwork.run where task_id = $1`,
			"task_state":     `select octet_length(last_error) from getwork.task_state where task_id = $1`,
			"work_requested": `select max(octet_length(error)) from getwork.work_requested where task_id = $1`,
		} {
			if got := query[int](t, db, bytes, task.ID); got < 1000 || got > 5000 {
				t.Errorf("%s: %s has an error of %d bytes", name, where, got)
			}
		}
	}
	for _, q := range []string{`select (` + long + `)::int as item from loan`, `select '` + strings.Repeat("ä", 100000) + `'::int as item`} { // executed, planned
		_, err := n.Ranker.Preview(t.Context(), "quotes", asked(q), 1)
		wantKind(t, err, assign.QueryRefused)
		if got := len(err.Error()); got > 5000 || !strings.Contains(err.Error(), "…") {
			t.Errorf("a preview is refused with %d bytes: %.100s", got, err)
		}
	}
}

// A query that returns a row larger than a node reads fails at once, although the connection is closed for it, and with it the run lock
// if the query runs there. So does one whose error is as large. The node goes on with other tasks.
func TestRowThatIsTooLarge(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			execute(t, db, `create table loan as select i as id, repeat(i::text, 100000 * i) as scan from generate_series(1, 5) i`)
			o := nodeOptions{MaxRuns: 1, MaxRow: 400_000}
			if where == "elsewhere" {
				o.Queries = reader(t, url, "loan")
			}
			n := startNode(t, url, o)
			for name, q := range map[string]assign.Query{
				"row":     `select id as item, scan from loan order by id`,
				"error":   `select id as item, scan::int from loan where id = 5`,
				"recheck": `select id as item, id as scan from loan`,
			} {
				task := newTask(t, n, name, string(q), func(s *assign.Settings) {
					if name == "recheck" {
						s.Recheck = `select id as item from loan where id::text = any($1) and scan::int > 0`
						s.Query = `select id as item from loan where id = 5`
					}
				})
				const says = "and a node reads 0.4 MiB at once; leave out large columns"
				failsWith(t, n, name, says)
				if got := query[string](t, db, `select format('%s runs, %s failed, %s failures, %s retries', count(*), count(*) filter (where u.state = 'failed'), max(s.failures), max(s.retries))
					from getwork.run u join getwork.task_state s using (task_id) where task_id = $1`, task.ID); got != "1 runs, 1 failed, 1 failures, 0 retries" {
					t.Errorf("%s: %s", name, got)
				}
				if name == "recheck" {
					continue // a preview does not execute it
				}
				_, err := n.Ranker.Preview(t.Context(), name, nil, 5)
				wantKind(t, err, assign.QueryRefused)
				if !strings.Contains(err.Error(), says) {
					t.Errorf("%s: %v", name, err)
				}
			}
			_, err := n.Ranker.Preview(t.Context(), "row", asked(`select repeat('x', 1000000)::int as item`), 5) // executed to make the plan
			wantKind(t, err, assign.QueryRefused)
			if !strings.Contains(err.Error(), "MiB at once") {
				t.Error(err)
			}
			newTask(t, n, "small", `select id as item, left(scan, 10) as scan from loan order by id`, nil)
			if r := n.endedRequest(t, n.click(t, "small", "ann", 5).ID); r.Assigned != 5 {
				t.Errorf("the next got %d, %v", r.Assigned, r.Error)
			}
		})
	}
}

// The items of rows that can't be handed out are remembered if the query returns their places, and count, too.
func TestMoreItemsThanANodeRemembers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	for name, o := range map[string]nodeOptions{"here": {MaxRuns: 1}, "elsewhere": {MaxRuns: 1, Queries: reader(t, url, "getwork.blocked")}} {
		n := startNode(t, url, o)
		n.Ranker.MaxDetails = 1 << 20
		newTask(t, n, name, `select i as item, 0 as slots from generate_series(1, 50000) i`, nil)
		failsWith(t, n, name, "items that can't be handed out, which take more than 1 MiB with the 0 that can; leave such rows out")
		newTask(t, n, name+"-fewer", `select i as item, case when i < 30000 then 0 else 1 end as slots from generate_series(1, 50000) i order by i`,
			func(s *assign.Settings) { s.MaxCandidates = 1 })
		if r := n.endedRequest(t, n.click(t, name+"-fewer", "ann", 1).ID); fmt.Sprint(items(r)) != "[30000]" {
			t.Errorf("%s: ann got %q, %v", name, items(r), r.Error)
		}
	}
}
