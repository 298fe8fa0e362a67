package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// One named item: from the inbox, from the shelf without a run, or by the query's own condition.
func TestClaim(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1})
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	n.pushItems(t, "inbox", assign.NewItem{Item: "a", Details: []byte(`{"z": 1, "a": 2}`)}, assign.NewItem{Item: "b"})
	newTask(t, n, "query", numbers, nil)
	newTask(t, n, "shelf", `select i as item, 10 * i as ten from generate_series(1, 20) i order by i`, func(s *assign.Settings) {
		s.FreshFor, s.MaxCandidates = assign.Duration(time.Hour), 5
	})
	n.take(t, "shelf", "somebody")
	for _, test := range []struct{ task, item, details string }{
		{"inbox", "a", `{"z":1,"a":2}`}, {"query", "7", ""}, {"shelf", "4", `{"ten":40}`}, {"shelf", "19", `{"ten":190}`},
	} {
		w, claimed, err := n.Claim(t.Context(), test.task, test.item, who("ann"))
		if err != nil || !claimed || w.Item != test.item || w.User != "ann" || w.State != "held" {
			t.Fatalf("%s of %s: %+v, %v, %v", test.item, test.task, w, claimed, err)
		}
		if test.details != "" && compact(w) != test.details {
			t.Errorf("%s of %s: details %s, want %s", test.item, test.task, compact(w), test.details)
		}
		again, claimed, err := n.Claim(t.Context(), test.task, test.item, who("ann"))
		if err != nil || claimed || again.ID != w.ID {
			t.Errorf("%s of %s again: %d, %v, %v", test.item, test.task, again.ID, claimed, err)
		}
		_, _, err = n.Claim(t.Context(), test.task, test.item, who("bob"))
		wantKind(t, err, assign.NoSlot)
	}
	for _, test := range []struct{ task, item string }{
		{"inbox", "nothing"}, {"query", "1000000"}, {"query", "no number"}, {"shelf", "21"}, {"nowhere", "a"},
		{"inbox", ""}, {"inbox", strings.Repeat("x", 201)}, {"inbox", "\x00"}, {"inbox", "\xff"},
	} {
		_, _, err := n.Claim(t.Context(), test.task, test.item, who("ann"))
		wantKind(t, err, assign.NotFound)
	}
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, want 1: a claim's query is not a run", got)
	}
	// A round does not hand out a claimed item again, neither here nor from the shelf.
	if r := n.click(t, "inbox", "bob", 5); fmt.Sprint(items(r)) != "[b]" {
		t.Errorf("bob got %v", items(r))
	}
	if r := n.click(t, "shelf", "bob", 3); fmt.Sprint(items(r)) != "[2 3 5]" {
		t.Errorf("bob got %v", items(r))
	}
}

// A query that fails when it is asked for one item is refused, so that a manager corrects it.
func TestClaimByAQueryThatFails(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "task", `select 1 / (i - 3) as item from generate_series(1, 5) i`, nil)
	newTask(t, n, "slow", `select 'a' as item from pg_sleep(10)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(50 * time.Millisecond) })
	for _, task := range []string{"task", "slow"} {
		_, _, err := n.Claim(t.Context(), task, "a", who("ann"))
		wantKind(t, err, assign.QueryRefused)
	}
}

// If another tab closes the work as soon as it is claimed, the claim is still answered, with the work's new state.
func TestClaimIsAnsweredThoughItWasClosedAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	g := newGate(StepCommitted)
	n, tab := startNode(t, url, nodeOptions{Steps: g.hold}), startNode(t, url, nodeOptions{})
	newInbox(t, tab, "inbox", nil)
	tab.push(t, "inbox", "a")
	var w assign.Work
	var claimed bool
	answered := make(chan error, 1)
	go func() {
		var err error
		w, claimed, err = n.Claim(t.Context(), "inbox", "a", who("ann"))
		answered <- err
	}()
	<-g.reached
	held, err := tab.Pipeline(t.Context(), assign.Holder{User: "ann"})
	if err != nil || len(held.Work) != 1 {
		t.Fatalf("she holds %+v, %v", held.Work, err)
	}
	tab.let(t, held.Work[0], assign.Disposition{Outcome: "complete"})
	close(g.open)
	if err := <-answered; err != nil || !claimed || w.ID != held.Work[0].ID || w.State != "completed" {
		t.Errorf("the claim was answered %+v, %v, %v", w, claimed, err)
	}
}

// While a claim waits for the assign lock, its item is completed and pushed anew, into a group. The claim is of the new one, so no other
// item of the group is handed out.
func TestClaimOfWhatWasPushedAnew(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, other := still(t, url), still(t, url)
	db := pool(t, url)
	task := newInbox(t, n, "inbox", func(s *assign.Settings) { s.Slots = 3 })
	n.push(t, "inbox", "a")
	w := n.serve(t, "inbox", "ann", 1).Work[0]
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), `select from getwork.task_state where task_id = $1 for no key update`, task.ID); err != nil {
		t.Fatal(err)
	}
	claimed := make(chan assign.Work, 1)
	go func() {
		w, _, err := other.Claim(t.Context(), "inbox", "a", who("bob"))
		if err != nil {
			t.Error(err)
		}
		claimed <- w
	}()
	await(t, "the claim waits for the assign lock", func() bool { return schematest.LockWaits(t, db) == 1 })
	n.let(t, w, assign.Disposition{Outcome: "complete"})
	n.pushItems(t, "inbox", assign.NewItem{Item: "a", Exclusive: new("g"), Details: []byte(`{"v":2}`)}, assign.NewItem{Item: "b", Exclusive: new("g")})
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if w := <-claimed; compact(w) != `{"v":2}` {
		t.Errorf("bob holds %s of the item, want what was pushed last", compact(w))
	}
	if r := n.serve(t, "inbox", "cleo", 1); why(r) != assign.AllHeld {
		t.Errorf("cleo's: %s %v %v", r.State, why(r), items(r))
	}
}

// Two holders want the same place at the same time, one by a claim and the other by a click, or both by claims. The assign
// lock is taken first, and the places are counted after that. The second holder waits, counts after the first has committed,
// and is refused.
func TestTwoForOnePlace(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, url string) {
		db := pool(t, url)
		a, b := still(t, url), still(t, url)
		newInbox(t, a, "inbox", func(s *assign.Settings) { s.Slots = 2 })
		newTask(t, a, "shelf", numbers, func(s *assign.Settings) { s.Slots, s.FreshFor = 2, assign.Duration(time.Hour) })
		execute(t, db, `with r as (
				insert into getwork.run (task_id, version, node, state, finished_at, snapshot, given, blocked, passed_over, candidates, cut)
				select task_id, 1, 'test', 'finished', clock_timestamp(), pg_current_snapshot(), 1, 0, 0, 1, false from getwork.task_state where name = 'shelf'
				returning id, task_id
			), s as (update getwork.task_state s set shelf_run = r.id, fresh_until = clock_timestamp() + interval '1 day' from r where s.task_id = r.task_id)
			insert into getwork.candidate (run_id, rank, item, details, slots) select id, 1, '1', '{}', 2 from r`)
		l := newLatch(t, db)
		for _, task := range []string{"inbox", "shelf"} {
			for _, test := range []struct{ first, second string }{{"claim", "claim"}, {"claim", "click"}, {"click", "claim"}, {"click", "click"}} {
				t.Run(task+": "+test.first+" against "+test.second, func(t *testing.T) {
					if task == "inbox" {
						a.push(t, task, "1")
					}
					a.serve(t, task, "there already", 1)
					act := func(n *node, how, user string) func() error {
						return func() error {
							if how == "claim" {
								_, _, err := n.Claim(t.Context(), task, "1", who(user))
								return err
							}
							r, err := n.tryServe(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: 1})
							if err == nil && r.State != assign.Assigned {
								err = assign.Refuse(assign.NoSlot, "%s %v", r.State, why(r))
							}
							return err
						}
					}
					one, two := l.race(t, act(a, test.first, "first"), act(b, test.second, "second"), nil)
					if one != nil {
						t.Errorf("the first: %v", one)
					}
					wantKind(t, two, assign.NoSlot)
					if got := query[string](t, db, `select string_agg(user_name || ' ' || slot, ', ' order by slot) from getwork.work where state = 'held'`); got != "there already 1, first 2" {
						t.Errorf("held by %s", got)
					}
					execute(t, db, `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id() where state = 'held'`)
					execute(t, db, `update getwork.item set done_at = clock_timestamp() where done_at is null`)
				})
			}
		}
	})
}
