package engine

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Four eyes: a user who holds or completed an item under one of two tasks does not get it under the other, whichever of them
// names the other. A user who put it off or failed with it does.
func TestFourEyes(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	newInbox(t, n, "check", nil)
	newInbox(t, n, "approve", func(s *assign.Settings) { s.ConflictsWith = []string{"check"} })
	newInbox(t, n, "apart", nil)
	for _, pair := range [][2]string{{"check", "approve"}, {"approve", "check"}} {
		one, other := pair[0], pair[1]
		keys := []string{one + " held", one + " done", one + " put off", one + " failed", one + " never"}
		for _, task := range []string{"check", "approve", "apart"} {
			n.push(t, task, keys...)
		}
		for i, d := range []assign.Disposition{{}, {Outcome: "complete"}, giveBack(time.Hour), {Outcome: "fail"}, {Outcome: "never"}} {
			w, _, err := n.Claim(t.Context(), one, keys[i], who("ann"))
			if err != nil {
				t.Fatal(err)
			}
			if d.Outcome != "" {
				n.let(t, w, d)
			}
		}
		ann := n.serve(t, other, "ann", 5)
		if got, want := fmt.Sprint(items(ann)), fmt.Sprint(keys[2:]); got != want {
			t.Errorf("%s after %s: ann got %s, want %s", other, one, got, want)
		}
		if r := n.serve(t, other, "ann", 1); why(r) != assign.Rules {
			t.Errorf("then: %s %v, want none by rules", r.State, why(r))
		}
		if r := n.serve(t, "apart", "ann", 5); len(r.Work) != 5 {
			t.Errorf("a third task: %v", items(r))
		}
		bob := n.serve(t, other, "bob", 5)
		if got, want := fmt.Sprint(items(bob)), fmt.Sprint(keys[:2]); got != want {
			t.Errorf("bob got %s, want %s", got, want)
		}
		// Giving it by hand is refused, too.
		_, err := n.Reassign(t.Context(), bob.Work[0].ID, "ann", "boss")
		wantKind(t, err, assign.NotAvailable)
		for _, r := range []assign.Request{ann, bob} {
			for _, w := range r.Work {
				n.let(t, w, assign.Disposition{Outcome: "complete"})
			}
		}
	}
}

// Each of two nodes reads the other task's work before it gives an item to the same user. Side by side, each would see
// nothing. The locks of both tasks are taken first, so the second node waits, and sees.
func TestNoWriteSkew(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	atEachLevel(t, func(t *testing.T, url string) {
		db := pool(t, url)
		a, b := still(t, url), still(t, url)
		ra, rb := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
		const only = `select 1 as item`
		for _, s := range []string{"a", "b"} {
			newInbox(t, a, "inbox-"+s, nil)
			newTask(t, a, "shelf-"+s, only, fresh(time.Hour))
			newTask(t, a, "run-"+s, only, nil)
		}
		for _, one := range []string{"inbox", "shelf", "run"} {
			for _, other := range []string{"inbox", "shelf", "run"} {
				if _, err := a.change(t, one+"-a", func(s *assign.Settings) { s.ConflictsWith = append(s.ConflictsWith, other+"-b") }); err != nil {
					t.Fatal(err)
				}
			}
		}
		for _, s := range []string{"a", "b"} { // another user's run makes a shelf
			w := ra.take(t, "shelf-"+s, "before "+s)
			execute(t, db, `delete from getwork.work where id = $1`, w.ID)
			execute(t, db, `update getwork.task_state set shelf_from = 1 where name = $1`, "shelf-"+s)
		}
		l := newLatch(t, db)
		click := func(n, running *node, how, task string) func() error {
			return func() error {
				switch how {
				case "claim":
					_, _, err := n.Claim(t.Context(), task, "1", who("ann"))
					return err
				case "run":
					r, err := running.GetWork(t.Context(), task, oneFor("ann"))
					if err == nil {
						r = running.endedRequest(t, r.ID)
					}
					return got1(r, err)
				}
				return got1(n.tryServe(t.Context(), task, oneFor("ann")))
			}
		}
		for _, ways := range [][2]string{{"inbox", "inbox"}, {"shelf", "shelf"}, {"run", "run"}, {"claim", "claim"}, {"inbox", "run"}, {"run", "shelf"}, {"shelf", "claim"}, {"claim", "inbox"}} {
			t.Run(ways[0]+" and "+ways[1], func(t *testing.T) {
				for _, s := range []string{"a", "b"} {
					a.push(t, "inbox-"+s, "1")
				}
				task := func(how, s string) string {
					if how == "claim" {
						how = "inbox"
					}
					return how + "-" + s
				}
				one, two := l.race(t, click(a, ra, ways[0], task(ways[0], "a")), click(b, rb, ways[1], task(ways[1], "b")), nil)
				if one != nil {
					t.Errorf("the first: %v", one)
				}
				wantKind(t, two, assign.NotAvailable)
				if got := query[int](t, db, `select count(*) from getwork.work where state = 'held'`); got != 1 {
					t.Errorf("ann holds it %d times", got)
				}
				execute(t, db, `delete from getwork.work`)
				execute(t, db, `delete from getwork.item`)
				execute(t, db, `update getwork.task_state set shelf_from = 1`)
			})
		}
	})
}

// oneFor is a user's click for one item.
func oneFor(user string) assign.Click {
	return assign.Click{Holder: assign.Holder{User: user}, Count: 1}
}

// got1 returns nil if a request got its one item, and otherwise the refusal that a claim would get.
func got1(r assign.Request, err error) error {
	if err == nil && r.State != assign.Assigned {
		return assign.Refuse(assign.NotAvailable, "%s %v", r.State, why(r))
	}
	return err
}

// change changes a task as it is now.
func (n *node) change(t testing.TB, task string, change func(*assign.Settings)) (assign.Task, error) {
	t.Helper()
	now, err := n.Task(t.Context(), task)
	if err != nil {
		t.Fatal(err)
	}
	return n.UpdateTask(t.Context(), task, now.Version, "boss", func(s *assign.Settings) error { change(s); return nil })
}

// A round obeys a conflict that comes into force while it waits for its lock.
func TestConflictAddedBesideARound(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, named := range []string{"a", "z"} { // the other task's lock comes first, or second
		t.Run(named, func(t *testing.T) {
			url := schematest.URL(t)
			db := pool(t, url)
			n, b := still(t, url), still(t, url)
			first := newInbox(t, n, "m", nil)
			other := newInbox(t, n, "other", nil)
			task, late := other, first
			if named == "z" {
				task, late = first, other
			}
			n.push(t, task.Name, "1")
			n.push(t, late.Name, "1")
			if r := n.serve(t, late.Name, "ann", 1); len(r.Work) != 1 {
				t.Fatal(r.State)
			}
			tx, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := tx.Exec(t.Context(), `select from getwork.task_state where task_id = any($1) order by task_id for no key update`, []int64{task.ID, late.ID}); err != nil {
				t.Fatal(err)
			}
			served := make(chan assign.Request, 1)
			go func() {
				r, err := b.tryServe(t.Context(), task.Name, oneFor("ann"))
				if err != nil {
					t.Error(err)
				}
				served <- r
			}()
			await(t, "the round waits for the lock", func() bool {
				return schematest.LockWaits(t, db) == 1
			})
			if _, err := tx.Exec(t.Context(), `insert into getwork.task_conflict (task_id, other_id) values ($1, $2), ($2, $1)`, task.ID, late.ID); err != nil {
				t.Fatal(err)
			}
			if err := tx.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if r := <-served; why(r) != assign.Rules {
				t.Errorf("ann's: %s %v %v", r.State, why(r), items(r))
			}
		})
	}
}

// To others: not to the same user again, but to everybody else at once.
func TestToOthers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a", "b")
	w := n.serve(t, "inbox", "ann", 1).Work[0]
	if w = n.let(t, w, assign.Disposition{Outcome: "return", After: lasting(0), To: new("others")}); !w.ToOthers {
		t.Error("it does not say so")
	}
	if r := n.serve(t, "inbox", "ann", 2); fmt.Sprint(r.State, items(r)) != "partial[b]" {
		t.Errorf("ann: %s %v", r.State, items(r))
	}
	if r := n.serve(t, "inbox", "ann", 1); why(r) != assign.Rules {
		t.Errorf("ann: %s %v", r.State, why(r))
	}
	copy2, err := n.tryServe(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann", Instance: "2"}, Count: 1})
	if err != nil || why(copy2) != assign.Rules {
		t.Errorf("her program: %s %v", copy2.State, why(copy2))
	}
	w = n.serve(t, "inbox", "bob", 1).Work[0]
	if w.Item != "a" {
		t.Errorf("bob has %s", w.Item)
	}
	n.let(t, w, giveBack(0))
	execute(t, db, `update getwork.work set closed_at = closed_at - interval '1 year', available_at = available_at - interval '1 year' where closed_at is not null`)
	if err := n.Retain(t.Context()); err != nil {
		t.Fatal(err)
	}
	if r := n.serve(t, "inbox", "ann", 1); why(r) != assign.Rules {
		t.Errorf("ann after a year: %s %v", r.State, why(r))
	}
}

// A task with groups exists only for their members. A user who left the groups while waiting gets nothing.
func TestGroups(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Groups = []string{"desk", "night"} })
	member := assign.Click{Holder: assign.Holder{User: "ann"}, Groups: []string{"day", "night"}, Count: 1, Linger: assign.Duration(time.Hour)}
	for _, c := range []assign.Click{oneFor("bob"), {Holder: assign.Holder{User: "bob"}, Groups: []string{"day"}, Count: 1}} {
		_, err := n.GetWork(t.Context(), "inbox", c)
		wantKind(t, err, assign.NotFound)
	}
	ann, err := n.GetWork(t.Context(), "inbox", member)
	if err != nil || ann.State != assign.Pending {
		t.Fatalf("ann: %s, %v", ann.State, err)
	}
	manager, err := n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "boss"}, Anything: true, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	n.push(t, "inbox", "a")
	if r := n.endedRequest(t, ann.ID); r.State != assign.Assigned {
		t.Errorf("ann: %s %v", r.State, why(r))
	}
	again := member
	again.Holder.Instance = "2"
	late, err := n.GetWork(t.Context(), "inbox", again)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := n.change(t, "inbox", func(s *assign.Settings) { s.Groups = []string{"desk"} }); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, late.ID); why(r) != assign.Rules {
		t.Errorf("ann's second: %s %v", r.State, why(r))
	}
	n.push(t, "inbox", "b")
	if r := n.endedRequest(t, manager.ID); r.State != assign.Assigned {
		t.Errorf("the manager: %s %v", r.State, why(r))
	}
}

// Each reason why nothing is handed out, for each way in which a task hands out.
func TestReasons(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"inbox", "run", "shelf"} {
		t.Run(kind, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			db := pool(t, url)
			execute(t, db, `create table thing (id text)`)
			one := 1
			sql := `select id as item from thing order by id`
			if kind == "inbox" {
				sql = ""
			}
			newInbox(t, n, "other", nil)
			newTask(t, n, "task", sql, func(s *assign.Settings) {
				s.MaxOpen, s.ConflictsWith = &one, []string{"other"}
				if kind == "shelf" {
					s.FreshFor = assign.Duration(time.Hour)
				}
			})
			add := func(key string) {
				if kind == "inbox" {
					n.push(t, "task", key)
					return
				}
				execute(t, db, `insert into thing values ($1)`, key)
				execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp() where fresh_until is not null`)
			}
			none := func(user string, want assign.Reason) {
				t.Helper()
				for range 2 { // with a shelf the first answer is the run's, and the second the shelf's
					if r := n.endedRequest(t, n.click(t, "task", user, 1).ID); r.State != assign.None || why(r) != want {
						t.Errorf("%s: %s %v, want none %s", user, r.State, why(r), want)
					}
				}
			}
			none("ann", assign.NoMatch)
			n.push(t, "other", "a")
			n.take(t, "other", "ann")
			add("a")
			none("ann", assign.Rules)
			n.take(t, "task", "bob")
			none("bob", assign.AtLimit)
			none("cyd", assign.AllHeld)
			none("ann", assign.AllHeld)
			if _, err := n.change(t, "task", func(s *assign.Settings) { s.Paused = true }); err != nil {
				t.Fatal(err)
			}
			none("cyd", assign.Paused)
		})
	}
}

// A request that a rule keeps from everything on a cut shelf waits alone and gets a run. The others are still served, and
// neither makes the query run again and again.
func TestKeptByARuleOnACutShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "other", nil)
	newTask(t, n, "task", `select i as item from generate_series(1, 100) i order by i`, func(s *assign.Settings) {
		s.FreshFor, s.MaxCandidates, s.ConflictsWith = assign.Duration(time.Hour), 5, []string{"other"}
	})
	var seen []string
	for i := range 12 {
		seen = append(seen, fmt.Sprint(i+1))
	}
	n.push(t, "other", seen...)
	for _, k := range seen {
		w, _, err := n.Claim(t.Context(), "other", k, who("ann"))
		if err != nil {
			t.Fatal(err)
		}
		n.let(t, w, assign.Disposition{Outcome: "complete"})
	}
	if w := n.take(t, "task", "first"); w.Item != "1" {
		t.Fatalf("first has %s", w.Item)
	}
	before := runs(t, db)
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if ann.State != assign.None || why(ann) != assign.Rules {
		t.Errorf("ann, of whom the best five are not hers: %s %v %v", ann.State, why(ann), items(ann))
	}
	if got := runs(t, db) - before; got != 1 {
		t.Errorf("%d runs for her, want 1", got)
	}
	// A lingering request: others are served beside it, and when the items that its user may not have are gone, a run finds
	// others.
	linger := n.linger(t, "task", "ann", 1)
	for i := range 11 {
		n.take(t, "task", fmt.Sprint("user ", i))
	}
	if got, most := runs(t, db)-before, 8; got > most {
		t.Errorf("%d runs, want at most %d", got, most)
	}
	r, err := n.Request(t.Context(), linger.ID, linger.Holder(), false)
	if err != nil {
		t.Fatal(err)
	}
	if r.State == assign.Pending {
		n.take(t, "task", "one more")
		execute(t, db, `update getwork.work_requested set look_after = clock_timestamp() where state = 'pending'`)
		n.Wake(r.TaskID)
		r = n.endedRequest(t, linger.ID)
	}
	if r.State != assign.Assigned || len(r.Work) != 1 {
		t.Errorf("ann: %s %v %v", r.State, why(r), items(r))
	}
	if got, most := runs(t, db)-before, 10; got > most {
		t.Errorf("%d runs, want at most %d", got, most)
	}
}

// A request lingers under one task, kept from an item by the work that its user holds under the other. It is served when the
// user finishes that work.
func TestLettingGoServesTheOtherSide(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newTask(t, n, "review", "", nil)
	newTask(t, n, "approve", "", func(s *assign.Settings) {
		s.ConflictsWith = []string{"review"}
		s.RerunAfter = assign.Duration(time.Hour)
	})
	boss := assign.Who{Holder: assign.Holder{User: "boss"}, Anything: true}
	for _, task := range []string{"review", "approve"} {
		if _, err := n.Push(t.Context(), task, []assign.NewItem{{Item: "loan"}}, boss); err != nil {
			t.Fatal(err)
		}
	}
	held := n.click(t, "review", "ann", 1)
	waits, err := n.GetWork(t.Context(), "approve", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil || waits.State != assign.Pending {
		t.Fatalf("ann is %s (%v), want pending", waits.State, err)
	}
	after := assign.Duration(0)
	if _, err := n.Dispose(t.Context(), held.Work[0].ID, assign.Disposition{Outcome: "return", After: &after}, held.Holder(), false); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, waits.ID); r.State != assign.Assigned {
		t.Errorf("ann is %s, want assigned", r.State)
	}
}
