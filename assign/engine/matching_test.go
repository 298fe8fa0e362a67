package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// rechecking makes a task of open loans, with a recheck that asks whether they still are.
func recheckedTask(t *testing.T, n *node, db *pgxpool.Pool, loans int, change func(*assign.Settings)) {
	t.Helper()
	execute(t, db, `create table loan as select i as id, true as open from generate_series(1, $1::integer) i`, loans)
	newTask(t, n, "task", `select id as item from loan where open order by id`, func(s *assign.Settings) {
		s.FreshFor, s.Recheck = assign.Duration(time.Hour), `select id as item from loan where open and id = any($1::integer[])`
		if change != nil {
			change(s)
		}
	})
}

// A candidate that no longer matches when it would be handed out is left out, and handed out when it matches again.
func TestRecheckOnTheShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 6, nil)
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update loan set open = false where id in (2, 4)`)
	if r := n.click(t, "task", "bob", 2); fmt.Sprint(r.State, items(r)) != "assigned[3 5]" {
		t.Errorf("bob got %s %v, want [3 5]", r.State, items(r))
	}
	execute(t, db, `update loan set open = true where id = 2`)
	if r := n.click(t, "task", "cyd", 3); fmt.Sprint(r.State, items(r)) != "partial[2 6]" {
		t.Errorf("cyd got %s %v, want [2 6]", r.State, items(r))
	}
	if r := n.click(t, "task", "dee", 1); r.State != assign.None || why(r) != assign.AllHeld {
		t.Errorf("dee got %s %v, want all_held", r.State, why(r))
	}
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
}

// If nothing was handed out, and nothing matches any more, the reason is no_match and not all_held.
func TestNothingMatchesAnyMore(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 3, nil)
	lingering, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	w := n.endedRequest(t, lingering.ID).Work[0]
	execute(t, db, `update loan set open = false`)
	if r := n.click(t, "task", "bob", 1); why(r) != assign.AllHeld {
		t.Errorf("while %s is held: %s %s, want all_held", w.Item, r.State, why(r))
	}
	execute(t, db, `update getwork.task_state set shelf_left = 3`) // as if a refresh had filled it
	execute(t, db, `update getwork.run set candidates = 3`)
	if r := n.click(t, "task", "bob", 1); why(r) != assign.NoMatch {
		t.Errorf("while nothing is: %s %s, want no_match", r.State, why(r))
	}
}

// However many candidates no longer match, the round goes on until it finds some that do.
func TestRecheckOfMany(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t) // on a busy machine a recheck takes more than 2 s, and the click waits for it as for a run
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 5000, func(s *assign.Settings) { s.MaxCandidates = 10_000 })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update loan set open = false where id < 3000`)
	if r := n.endedRequest(t, n.click(t, "task", "bob", 3).ID); fmt.Sprint(r.State, items(r)) != "assigned[3000 3001 3002]" {
		t.Errorf("bob got %s %v", r.State, items(r))
	}
	// The matching ones are held, and the next ones that do not match were not rechecked at first.
	execute(t, db, `insert into getwork.work (task_id, item, user_name) select 1, i::text, 'somebody' from generate_series(3003, 3400) i`)
	if r := n.endedRequest(t, n.click(t, "task", "cyd", 1).ID); fmt.Sprint(r.State, items(r)) != "assigned[3401]" {
		t.Errorf("cyd got %s %v", r.State, items(r))
	}
}

// The query takes its time; its result is rechecked before it is handed out.
func TestRecheckAfterTheQuery(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 4, func(s *assign.Settings) {
		s.Query, s.FreshFor = `select id as item from loan, (select pg_advisory_lock_shared(1)) wait where open order by id`, 0
	})
	holding, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer holding.Release()
	if _, err := holding.Exec(t.Context(), `select pg_advisory_lock(1)`); err != nil {
		t.Fatal(err)
	}
	r := n.click(t, "task", "ann", 2)
	await(t, "the query waits", func() bool {
		return query[bool](t, db, `select exists (select from pg_locks where database = (select oid from pg_database where datname = current_database()) and locktype = 'advisory' and not granted)`)
	})
	execute(t, db, `update loan set open = false where id in (1, 3)`)
	if _, err := holding.Exec(t.Context(), `select pg_advisory_unlock(1)`); err != nil {
		t.Fatal(err)
	}
	if r = n.endedRequest(t, r.ID); fmt.Sprint(r.State, items(r)) != "assigned[2 4]" {
		t.Errorf("ann got %s %v, want [2 4]", r.State, items(r))
	}
}

// A cut shelf of which nothing matches any more ends, and a run is made.
func TestRecheckOfACutShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1})
	db := pool(t, url)
	recheckedTask(t, n, db, 9, func(s *assign.Settings) { s.MaxCandidates = 4 })
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update loan set open = false where id < 6`)
	r := n.click(t, "task", "bob", 2)
	if r = n.endedRequest(t, r.ID); fmt.Sprint(r.State, items(r)) != "assigned[6 7]" {
		t.Errorf("bob got %s %v, want [6 7]", r.State, items(r))
	}
	if got := runs(t, db); got != 2 {
		t.Errorf("%d runs, want 2", got)
	}
}

// If a recheck fails, nothing is handed out: its requests fail with PostgreSQL's message, and so do those of a run.
func TestRecheckThatFails(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table divisor as select 1 as d`)
	recheckedTask(t, n, db, 4, func(s *assign.Settings) {
		s.Recheck = `select loan.id as item from loan, divisor where open and 1 / d = 1 and id = any($1::integer[])`
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `update divisor set d = 0`)
	failed := func(r assign.Request) {
		t.Helper()
		r = n.endedRequest(t, r.ID)
		if r.State != assign.Failed || !strings.Contains(*r.Error, "the task's recheck: division by zero") {
			t.Errorf("%s %v", r.State, r.Error)
		}
	}
	failed(n.click(t, "task", "bob", 1))
	n.idle(t)
	execute(t, db, `update getwork.task_state set fresh_until = now(), failures = 0, failed_until = null, last_error = null`)
	failed(n.click(t, "task", "bob", 1))
	execute(t, db, `update divisor set d = 1`)
	execute(t, db, `update getwork.task_state set failures = 0, failed_until = null, last_error = null`)
	if r := n.endedRequest(t, n.click(t, "task", "bob", 1).ID); fmt.Sprint(items(r)) != "[2]" {
		t.Errorf("bob got %v", items(r))
	}
}

// A recheck takes a run slot; if there is none, its clicks wait for one.
func TestRecheckWaitsForAPlace(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1})
	db := pool(t, url)
	recheckedTask(t, n, db, 4, nil)
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	n.idle(t)
	n.slots.takeFreeSlot(t.Context())
	r := n.click(t, "task", "bob", 1)
	if r.State != assign.Pending {
		t.Errorf("bob's request is %s while all slots are taken", r.State)
	}
	n.slots.giveSlot()
	if r = n.endedRequest(t, r.ID); fmt.Sprint(items(r)) != "[2]" {
		t.Errorf("bob got %v", items(r))
	}
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
}

// bars makes that bob has returned loans 1 to n to others.
const bars = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid, after, available_at, to_others)
	select t.id, i, 'bob', 'returned', clock_timestamp() - interval '1 hour', 'bob', pg_current_xact_id(), '0', clock_timestamp() - interval '1 hour', true
	from getwork.task t, generate_series(1, $1::integer) i`

// endedSoon waits until a request has ended, and fails if that takes more runs than are expected.
func endedSoon(t *testing.T, n *node, db *pgxpool.Pool, id int64, most int) assign.Request {
	t.Helper()
	var r assign.Request
	await(t, "the request has ended, or there are too many runs", func() (over bool) {
		var err error
		if r, err = n.Request(t.Context(), id, assign.Holder{}, true); err != nil {
			t.Fatal(err)
		}
		return r.State != assign.Pending || runs(t, db) > most
	})
	if got := runs(t, db); got > most {
		t.Fatalf("%d runs, want at most %d; %s is %s", got, most, r.User, r.State)
	}
	return r
}

// A user whom a rule keeps from everything that a run has rechecked is answered, or lingers until the rest is rechecked on the shelf,
// and does not wait for another run, which would recheck the same: such a request made the query run for ever.
func TestBarredFromAllThatWasRechecked(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, cut := range map[string]bool{"whole": false, "cut": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			recheckedTask(t, n, db, 1500, func(s *assign.Settings) {
				if s.MaxCandidates = 1500; cut {
					s.MaxCandidates = 1200
				}
			})
			execute(t, db, bars, 1500)
			if r := endedSoon(t, n, db, n.click(t, "task", "bob", 1).ID, 1); r.State != assign.None || why(r) != assign.Rules {
				t.Errorf("a click: %s %s, want none by rules", r.State, why(r))
			}

			bob := n.linger(t, "task", "bob", 1)
			lingers := func() bool {
				return query[bool](t, db, `select look_after > clock_timestamp() + interval '30 seconds' from getwork.work_requested where id = $1`, bob.ID)
			}
			due := func() {
				t.Helper()
				n.idle(t)
				execute(t, db, `update getwork.work_requested set look_after = clock_timestamp() where id = $1`, bob.ID)
				before := runs(t, db)
				n.Wake(bob.TaskID)
				await(t, "it is left lingering, or there are too many runs", func() bool {
					return runs(t, db) > before && query[bool](t, db, `select coalesce(look_after > clock_timestamp() + interval '30 seconds', state <> 'pending') from getwork.work_requested where id = $1`, bob.ID) || runs(t, db) > before+1
				})
				n.idle(t)
				if got := runs(t, db) - before; got != 1 {
					t.Fatalf("%d runs when it fell due, want 1", got)
				}
			}
			await(t, "it lingers", func() bool {
				return query[bool](t, db, `select coalesce(look_after is not null, false) from getwork.work_requested where id = $1`, bob.ID)
			})
			due()
			if !lingers() {
				t.Error("it is due again at once")
			}
			execute(t, db, `delete from getwork.work where item = '1020'`)
			due()
			if r := n.endedRequest(t, bob.ID); fmt.Sprint(items(r)) != "[1020]" {
				t.Errorf("bob got %v, want the one that he may have behind what the run rechecked", items(r))
			}
		})
	}
}

// Nor does it if the shelf ends, or becomes stale, before the rest of it is rechecked.
func TestBarredAndTheShelfEnds(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for name, stale := range map[string]time.Duration{"ended": 0, "stale": time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			recheckedTask(t, n, db, 1500, func(s *assign.Settings) {
				s.MaxCandidates, s.FreshFor, s.StaleFor = 1500, assign.Duration(time.Microsecond), assign.Duration(stale)
			})
			execute(t, db, bars, 1500)
			if r := endedSoon(t, n, db, n.click(t, "task", "bob", 1).ID, 3); r.State != assign.None || why(r) != assign.Rules {
				t.Errorf("a click: %s %s, want none by rules", r.State, why(r))
			}
			if stale > 0 {
				return // a stale shelf of a task in use is renewed again and again
			}
			n.idle(t)
			before := runs(t, db)
			bob := n.linger(t, "task", "bob", 1)
			await(t, "it lingers, or there are too many runs", func() bool {
				return query[bool](t, db, `select coalesce(look_after > clock_timestamp() + interval '30 seconds', false) from getwork.work_requested where id = $1`, bob.ID) || runs(t, db) > before+3
			})
			n.idle(t)
			if got := runs(t, db) - before; got > 3 {
				t.Errorf("%d runs for a request that lingers", got)
			}
		})
	}
}

// A user whom a rule keeps from thousands of candidates that match costs rechecks, and keeps nobody from being served: every round
// comes to the oldest request first, and was given up after some nine thousand candidates.
func TestOneBarredUserStopsNobody(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	recheckedTask(t, n, db, 9600, func(s *assign.Settings) { s.MaxCandidates = 10_000 })
	execute(t, db, bars, 9500)
	if r := endedSoon(t, n, db, n.click(t, "task", "bob", 1).ID, 1); r.State != assign.None || why(r) != assign.Rules {
		t.Errorf("the run's own round: bob is %s with %v", r.State, items(r))
	}
	bob := n.click(t, "task", "bob", 1)
	ann := n.click(t, "task", "ann", 1)
	if r := endedSoon(t, n, db, bob.ID, 1); fmt.Sprint(items(r)) != "[9501]" {
		t.Errorf("bob is %s with %v", r.State, items(r))
	}
	if r := endedSoon(t, n, db, ann.ID, 1); fmt.Sprint(items(r)) != "[1]" {
		t.Errorf("ann is %s with %v", r.State, items(r))
	}
}
