package engine

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A task says how many places an item has, and a row of its query may say otherwise. A holder gets the lowest free place, and
// when all are taken nobody gets one.
func TestPlaces(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "jobs", `select * from (values ('two', null), ('three', 3)) j (item, slots)`, func(s *assign.Settings) {
		s.Slots, s.FreshFor = 2, assign.Duration(time.Hour)
	})
	var got []string
	held := map[string]assign.Work{}
	for i := range 5 {
		w := n.take(t, "jobs", fmt.Sprint("user ", i))
		held[fmt.Sprint(w.Item, w.Slot)] = w
		got = append(got, fmt.Sprint(w.Item, w.Slot))
	}
	if fmt.Sprint(got) != "[two1 two2 three1 three2 three3]" {
		t.Errorf("places %v", got)
	}
	if r := n.endedRequest(t, n.click(t, "jobs", "late", 1).ID); why(r) != assign.AllHeld {
		t.Errorf("when all are taken: %s %v", r.State, why(r))
	}
	for _, place := range []string{"three3", "three1", "two1"} {
		n.let(t, held[place], giveBack(0))
	}
	got = nil
	for i := range 3 {
		w := n.take(t, "jobs", fmt.Sprint("next ", i))
		got = append(got, fmt.Sprint(w.Item, w.Slot))
	}
	if fmt.Sprint(got) != "[two1 three1 three3]" {
		t.Errorf("places %v", got)
	}
}

// Nobody has two places of one item: not by asking for many, not by asking again, not by claiming.
func TestOnePlaceEach(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "jobs", func(s *assign.Settings) { s.Slots = 5 })
	n.push(t, "jobs", "a")
	if r := n.click(t, "jobs", "ann", 5); r.State != assign.Partial || r.Assigned != 1 {
		t.Errorf("asking for five: %s, %v", r.State, items(r))
	}
	if r := n.click(t, "jobs", "ann", 1); why(r) != assign.Rules {
		t.Errorf("asking again: %s %v", r.State, why(r))
	}
	if _, claimed, err := n.Claim(t.Context(), "jobs", "a", who("ann")); claimed || err != nil {
		t.Errorf("claiming: %v, %v", claimed, err)
	}
	if r := n.click(t, "jobs", "bob", 1); r.State != assign.Assigned || r.Work[0].Slot != 2 {
		t.Errorf("bob: %s, %+v", r.State, r.Work)
	}
	// Copies of an agent are separate holders.
	for i := range 3 {
		r, err := n.GetWork(t.Context(), "jobs", assign.Click{Holder: assign.Holder{User: "bot", Instance: fmt.Sprint(i)}, Count: 1})
		if err != nil || r.State != assign.Assigned {
			t.Errorf("copy %d: %s %v", i, r.State, err)
		}
	}
}

// When a task's places become fewer, no work is taken away, and none is given until fewer are held.
func TestFewerPlaces(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, kind := range []string{"inbox", "query"} {
		t.Run(kind, func(t *testing.T) {
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			sql := "select 'a' as item"
			if kind == "inbox" {
				sql = ""
			}
			newTask(t, n, "jobs", sql, func(s *assign.Settings) { s.Slots = 4 })
			if kind == "inbox" {
				n.push(t, "jobs", "a")
			}
			var held []assign.Work
			for i := range 4 {
				held = append(held, n.take(t, "jobs", fmt.Sprint("user ", i)))
			}
			change := func(version, slots int) {
				t.Helper()
				if _, err := n.UpdateTask(t.Context(), "jobs", version, "boss", func(s *assign.Settings) error { s.Slots = slots; return nil }); err != nil {
					t.Fatal(err)
				}
			}
			none := func(user string) {
				t.Helper()
				if r := n.endedRequest(t, n.click(t, "jobs", user, 1).ID); why(r) != assign.AllHeld {
					t.Errorf("%s: %s %v", user, r.State, why(r))
				}
			}
			change(1, 2)
			none("early")
			n.let(t, held[0], giveBack(0))
			none("early")
			n.let(t, held[1], giveBack(0))
			none("early")
			n.let(t, held[2], giveBack(0)) // place 4 is held, though there are fewer places now
			if w := n.take(t, "jobs", "in time"); w.Slot != 1 {
				t.Errorf("place %d, want 1", w.Slot)
			}
			change(2, 1)
			none("late")
			n.let(t, held[3], giveBack(0))
			none("late")
			change(3, 3)
			if w := n.take(t, "jobs", "late"); w.Slot != 2 {
				t.Errorf("place %d, want 2", w.Slot)
			}
		})
	}
}

// Returning an item gives its place back at once, and that alone serves the request that has waited longest for it: the
// rescuer is off, and nothing runs.
func TestLeavingServesTheOldest(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	other := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "jobs", `select 'a' as item, 2 as slots`, fresh(time.Hour))
	ann, bob := n.take(t, "jobs", "ann"), n.take(t, "jobs", "bob")
	cyd, dan := n.linger(t, "jobs", "cyd", 1), other.linger(t, "jobs", "dan", 1)
	other.let(t, ann, giveBack(time.Hour)) // binds ann alone
	if r := n.endedRequest(t, cyd.ID); r.State != assign.Assigned || r.Work[0].Slot != 1 {
		t.Errorf("cyd: %s, %+v", r.State, r.Work)
	}
	if r, err := n.Request(t.Context(), dan.ID, dan.Holder(), false); err != nil || r.State != assign.Pending {
		t.Errorf("dan: %s, %v", r.State, err)
	}
	n.let(t, bob, assign.Disposition{Outcome: "complete"})
	if r := n.endedRequest(t, dan.ID); r.State != assign.Assigned || r.Work[0].Slot != 2 {
		t.Errorf("dan: %s, %+v", r.State, r.Work)
	}
	if got := runs(t, db); got != 1 {
		t.Errorf("%d runs, want 1", got)
	}
}

// Without a shelf the next run serves the request, and lingering requests start one by themselves.
func TestLeavingIsFoundByTheNextRun(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "jobs", `select 'a' as item`, func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Second) })
	ann := n.take(t, "jobs", "ann")
	bob := n.linger(t, "jobs", "bob", 1)
	await(t, "a run found nothing for bob", func() bool { return runs(t, db) >= 2 })
	n.let(t, ann, giveBack(0))
	r := n.endedRequest(t, bob.ID)
	if r.State != assign.Assigned {
		t.Errorf("bob: %s %v", r.State, why(r))
	}
	if got, most := runs(t, db), 3+int(r.CompletedAt.Sub(r.CreatedAt)/time.Second); got > most {
		t.Errorf("%d runs, want at most %d", got, most)
	}
}

// A user holds at most max_open of a task, in however many tabs, programs and nodes they ask at once, and by whatever call.
func TestMaxOpen(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, kind := range []string{"inbox", "query", "shelf"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			a, b := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
			db := pool(t, url)
			limit := 3
			sql := numbers
			if kind == "inbox" {
				sql = ""
			}
			newTask(t, a, "jobs", sql, func(s *assign.Settings) {
				s.MaxOpen = &limit
				if kind == "shelf" {
					s.FreshFor = assign.Duration(time.Hour)
				}
			})
			if kind == "inbox" {
				a.push(t, "jobs", "1", "2", "3", "4", "5", "6", "7", "8", "9")
			}
			if kind == "shelf" {
				a.take(t, "jobs", "somebody")
			}
			var all sync.WaitGroup
			for i := range 8 {
				n := []*node{a, b}[i%2]
				all.Go(func() {
					if i%4 == 3 {
						_, _, err := n.Claim(t.Context(), "jobs", fmt.Sprint(i), who("ann"))
						if err != nil && !assign.IsRefusal(err, assign.NotAvailable) && !assign.IsRefusal(err, assign.NoSlot) {
							t.Error(err)
						}
						return
					}
					h := assign.Holder{User: "ann", Instance: []string{"", "x", "y"}[i%3]}
					r, err := n.GetWork(t.Context(), "jobs", assign.Click{Holder: h, Count: 1 + i%2})
					if err != nil {
						t.Error(err)
						return
					}
					if r = n.endedRequest(t, r.ID); r.State != assign.Assigned && why(r) != assign.AtLimit { // there are always more than ann may have
						t.Errorf("%s %v", r.State, why(r))
					}
				})
			}
			all.Wait()
			if got := query[int](t, db, `select count(*) from getwork.work where user_name = 'ann' and state = 'held'`); got != limit {
				t.Errorf("ann holds %d, want %d", got, limit)
			}
			before := runs(t, db)
			if r := a.linger(t, "jobs", "ann", 1); r.State != assign.None || why(r) != assign.AtLimit {
				t.Errorf("at the limit: %s %v", r.State, why(r))
			}
			if got := runs(t, db); got != before {
				t.Errorf("%d runs for a user who is at the limit", got-before)
			}
			_, _, err := a.Claim(t.Context(), "jobs", "9", who("ann"))
			wantKind(t, err, assign.NotAvailable)
			p, err := a.UserPipeline(t.Context(), "ann")
			if err != nil {
				t.Fatal(err)
			}
			a.let(t, p.Work[0], assign.Disposition{Outcome: "complete"})
			if r := a.endedRequest(t, a.click(t, "jobs", "ann", 3).ID); r.State != assign.Partial || r.Assigned != 1 {
				t.Errorf("with room for one of three: %s, %d", r.State, r.Assigned)
			}
		})
	}
}
