package manage_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

var complete = assign.Disposition{Outcome: "complete"}

// newPeople makes an inbox whose items three people complete.
func newPeople(t *testing.T, n *enginetest.Node, name string, change func(*assign.Settings)) {
	t.Helper()
	enginetest.NewTask(t, n, name, "", func(s *assign.Settings) {
		s.DoneBy = 3
		if change != nil {
			change(s)
		}
	})
}

// gotNothing fails unless a click of the user gets nothing.
func gotNothing(t *testing.T, n *enginetest.Node, task, user string) assign.Request {
	t.Helper()
	r := n.EndedRequest(t, n.Click(t, task, user, 1).ID)
	if r.Assigned != 0 {
		t.Errorf("%s got %v", user, r.Work)
	}
	return r
}

// An item is done when three people have completed it. As many hold it as are missing, nobody has it twice, and what is not a
// completion counts nothing.
func TestDoneBySeveralPeople(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	newPeople(t, n, "label", nil)
	n.PushKeys(t, "label", "a")
	ann, bob, cid := n.Take(t, "label", "ann"), n.Take(t, "label", "bob"), n.Take(t, "label", "cid")
	if r := gotNothing(t, n, "label", "dan"); enginetest.Why(r) != assign.AllHeld {
		t.Errorf("all three places are taken: %v", enginetest.Why(r))
	}
	n.Let(t, ann, complete)
	if r := gotNothing(t, n, "label", "ann"); enginetest.Why(r) != assign.AllHeld {
		t.Errorf("two are missing, and hold it: %v", enginetest.Why(r))
	}
	if gotNothing(t, n, "label", "dan"); enginetest.Query[bool](t, db, `select done_at is not null from getwork.item`) {
		t.Error("it is done after the first")
	}
	n.Let(t, bob, assign.Disposition{Outcome: "fail"})
	n.Let(t, cid, assign.Disposition{Outcome: "return", After: enginetest.Lasting(0)})
	if r := gotNothing(t, n, "label", "ann"); enginetest.Why(r) != assign.Rules {
		t.Errorf("ann has completed it: %v", enginetest.Why(r))
	}
	_, _, err := n.Claim(t.Context(), "label", "a", enginetest.Who("ann"))
	enginetest.WantKind(t, err, assign.NotAvailable)
	if !strings.Contains(fmt.Sprint(err), "ann has completed item") {
		t.Error(err)
	}
	dan := n.Take(t, "label", "dan")
	_, err = n.Reassign(t.Context(), dan.ID, assign.Reassignment{User: "ann"}, "max")
	enginetest.WantKind(t, err, assign.NotAvailable)
	eve, err := n.Reassign(t.Context(), dan.ID, assign.Reassignment{User: "eve", Force: true}, "max")
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = n.Claim(t.Context(), "label", "a", assign.Who{Holder: assign.Holder{User: "eve", Instance: "two"}, Program: true})
	enginetest.WantKind(t, err, assign.NotAvailable) // not even with another instance
	n.Let(t, eve, complete)
	n.Let(t, n.Take(t, "label", "cid"), complete)
	if got := enginetest.Query[string](t, db, `select array_to_string(completed_by, ' ') || ' ' || (done_at is not null) from getwork.item`); got != "ann eve cid true" {
		t.Error(got)
	}
	if p := n.PushItems(t, "label", assign.NewItem{Item: "a"}); p.Accepted != 1 { // anew, for the same people
		t.Error(p)
	}
	n.Let(t, n.Take(t, "label", "ann"), complete)
}

// The number is the item's, the task's, or one; an item with a group or several places is refused beside it.
func TestItemsOwnDoneBy(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := enginetest.Start(t, schematest.URL(t), enginetest.Options{})
	newPeople(t, n, "label", nil)
	one, two, group := 1, 2, "g"
	n.PushItems(t, "label", assign.NewItem{Item: "one", Priority: 2, DoneBy: &one}, assign.NewItem{Item: "two", Priority: 1, DoneBy: &two},
		assign.NewItem{Item: "alone", DoneBy: &one, Exclusive: &group})
	for _, want := range []string{"ann one", "bob two", "cid two", "dan alone"} {
		user, item, _ := strings.Cut(want, " ")
		if w := n.Take(t, "label", user); w.Item != item {
			t.Errorf("%s got %s, want %s", user, w.Item, item)
		} else {
			n.Let(t, w, complete)
		}
	}
	gotNothing(t, n, "label", "eve")
	for _, bad := range []assign.NewItem{{Item: "x", Exclusive: &group}, {Item: "x", Slots: &two}, {Item: "x", DoneBy: new(int)}, {Item: "x", DoneBy: &two, Exclusive: &group}} {
		_, err := n.Push(t.Context(), "label", []assign.NewItem{bad}, enginetest.Who("max"))
		enginetest.WantKind(t, err, assign.Invalid)
	}
}

// A lower number finishes what as many have completed; whoever holds it meanwhile completes what is done. A change from or to one
// is refused while work is held.
func TestDoneByIsLowered(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	newPeople(t, n, "label", nil)
	n.PushKeys(t, "label", "a", "b")
	n.Let(t, n.Take(t, "label", "ann"), complete)
	n.Let(t, n.Take(t, "label", "bob"), complete)
	cid := n.Take(t, "label", "cid")
	to := func(doneBy int) error {
		task, err := n.Records.Task(t.Context(), "label")
		if err == nil {
			_, err = n.UpdateTask(t.Context(), "label", task.Version, "max", func(s *assign.Settings) error { s.DoneBy = doneBy; return nil })
		}
		return err
	}
	enginetest.WantKind(t, to(1), assign.InUse)
	if err := to(2); err != nil {
		t.Fatal(err)
	}
	open := func() string {
		return enginetest.Query[string](t, db, `select coalesce(string_agg(item, ' ' order by item), '') from getwork.item where done_at is null`)
	}
	if got := open(); got != "b" {
		t.Errorf("open: %s", got)
	}
	n.Let(t, cid, complete)
	n.Let(t, n.Take(t, "label", "ann"), complete)
	if err := to(1); err != nil {
		t.Fatal(err)
	}
	if got := open(); got != "" {
		t.Errorf("open: %s", got)
	}
	n.PushKeys(t, "label", "c") // one is enough now: it is parked, and back when it is put off
	n.Let(t, n.Take(t, "label", "ann"), assign.Disposition{Outcome: "return", After: enginetest.Lasting(time.Hour)})
	gotNothing(t, n, "label", "bob")
	if err := to(2); err != nil {
		t.Fatal(err)
	}
	n.Let(t, n.Take(t, "label", "bob"), complete) // ann alone has put it off
	gotNothing(t, n, "label", "ann")
	for _, bad := range []int{0, 101} {
		enginetest.WantKind(t, to(bad), assign.Invalid)
	}
}

// Two last completions at once, each with its transaction written and not committed: the one that waits reads the other's.
func TestTwoLastCompletions(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	newPeople(t, n, "label", func(s *assign.Settings) { s.DoneBy = 2 })
	rounds := 50
	if schematest.Also(t.Name()) {
		rounds = 1000
	}
	for i := range rounds {
		n.PushKeys(t, "label", fmt.Sprint(i))
		works := []assign.Work{n.Take(t, "label", "ann"), n.Take(t, "label", "bob")}
		var both sync.WaitGroup
		for j, w := range works {
			both.Go(func() {
				var err error
				if i%3 == 0 || i%3 == 1 && j == 0 {
					_, err = n.DisposeMany(t.Context(), []assign.Disposal{{ID: w.ID, Disposition: complete}}, w.Holder(), i%2 == 0, true)
				} else {
					_, err = n.Dispose(t.Context(), w.ID, complete, w.Holder(), false)
				}
				if err != nil {
					t.Error(err)
				}
			})
		}
		both.Wait()
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.item where done_at is null or cardinality(completed_by) <> 2`); got > 0 {
		t.Errorf("%d of %d items are not done", got, rounds)
	}
}

// A manager completes an item for several holders in one call.
func TestCompletedForSeveral(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	newPeople(t, n, "label", nil)
	n.PushKeys(t, "label", "a")
	var all []assign.Disposal
	for _, user := range []string{"ann", "bob", "cid"} {
		all = append(all, assign.Disposal{ID: n.Take(t, "label", user).ID, Disposition: complete})
	}
	if _, err := n.DisposeMany(t.Context(), all, assign.Holder{User: "max"}, true, true); err != nil {
		t.Fatal(err)
	}
	if got := enginetest.Query[string](t, enginetest.Pool(t, url), `select array_to_string(completed_by, ' ') || ' ' || (done_at is not null) from getwork.item`); got != "ann bob cid true" {
		t.Error(got)
	}
}

// With once, nobody gets an item again that they completed, although the query returns it, and nobody holds it twice.
func TestOnce(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := enginetest.Start(t, schematest.URL(t), enginetest.Options{})
	enginetest.NewTask(t, n, "label", `select 'a' as item`, func(s *assign.Settings) { s.Once, s.Slots = true, 2 })
	n.Let(t, n.Take(t, "label", "ann"), complete)
	if r := gotNothing(t, n, "label", "ann"); enginetest.Why(r) != assign.Rules {
		t.Errorf("%v", enginetest.Why(r))
	}
	_, _, err := n.Claim(t.Context(), "label", "a", enginetest.Who("ann"))
	enginetest.WantKind(t, err, assign.NotAvailable)
	bob := n.Take(t, "label", "bob")
	_, _, err = n.Claim(t.Context(), "label", "a", assign.Who{Holder: assign.Holder{User: "bob", Instance: "two"}, Program: true})
	enginetest.WantKind(t, err, assign.NotAvailable)
	_, err = n.Reassign(t.Context(), bob.ID, assign.Reassignment{User: "ann"}, "max")
	enginetest.WantKind(t, err, assign.NotAvailable)
	n.Let(t, bob, assign.Disposition{Outcome: "return", After: enginetest.Lasting(0)})
	n.Let(t, n.Take(t, "label", "bob"), complete)
	for change, field := range map[*assign.Settings]string{{DoneBy: 2}: "done_by", {Once: true}: "once"} {
		s := assign.DefaultSettings()
		s.Name, s.DoneBy, s.Once = "other", max(1, change.DoneBy), change.Once
		if s.DoneBy > 1 {
			s.Query = "select 1 as item"
		}
		_, err := n.CreateTask(t.Context(), s, "max")
		if enginetest.WantKind(t, err, assign.Invalid); !strings.Contains(fmt.Sprint(err), field+":") {
			t.Error(err)
		}
	}
}

// A share of what is completed goes on to another inbox in the same transaction, drawn by the id of the work.
func TestCompletionsGoOn(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewTask(t, n, "review", "", nil)
	on := assign.OnComplete{Task: "review", Share: 0.3}
	enginetest.NewTask(t, n, "label", `select i::text as item, i * 2 as twice from generate_series(1, 40) i order by i`, func(s *assign.Settings) {
		s.OnComplete, s.ConflictsWith, s.MaxRequest = &on, []string{"review"}, 40
	})
	waiting := n.Linger(t, "review", "bob", 1) // wakes
	r := n.EndedRequest(t, n.Click(t, "label", "ann", 40).ID)
	drawn := map[string]bool{}
	for i, w := range r.Work {
		if drawn[w.Item] = on.Draws(w.ID); i%2 == 0 {
			n.Let(t, w, complete)
		}
	}
	var rest []assign.Disposal
	for i, w := range r.Work {
		if i%2 == 1 {
			rest = append(rest, assign.Disposal{ID: w.ID, Disposition: complete})
		}
	}
	if _, err := n.DisposeMany(t.Context(), rest, assign.Holder{User: "ann"}, false, true); err != nil {
		t.Fatal(err)
	}
	for item, is := range drawn {
		if has := enginetest.Query[bool](t, db, `select exists (select from getwork.item where item = $1)`, item); has != is {
			t.Errorf("%s went on: %t, want %t", item, has, is)
		}
	}
	got := n.EndedRequest(t, waiting.ID)
	if got.Assigned != 1 {
		t.Fatalf("bob waits, and got %v", got.Work)
	}
	w := got.Work[0]
	if from := enginetest.Query[string](t, db, `select w.id::text from getwork.work w where w.item = $1 and w.user_name = 'ann'`, w.Item); !strings.HasSuffix(string(w.Details), `"from" : "`+from+`" }`) || fmt.Sprint(w.From) != from {
		t.Errorf("%s %d, want from %s", w.Details, w.From, from)
	}
	gotNothing(t, n, "review", "ann") // four eyes
}

// Of what is completed with other codes, or with none, nothing goes on; a version that has no such code is refused.
func TestCompletionsGoOnByCode(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewTask(t, n, "review", "", nil)
	coded := func(code string) assign.Disposition { return assign.Disposition{Code: &code} }
	enginetest.NewTask(t, n, "label", `select i::text as item from generate_series(1, 5) i order by i`, func(s *assign.Settings) {
		s.Outcomes = []assign.Outcome{{Code: "sure", Label: "Sure", Do: "complete"}, {Code: "doubtful", Label: "Doubtful", Do: "complete"}, {Code: "spam", Label: "Spam", Do: "never"}}
		s.OnComplete = &assign.OnComplete{Task: "review", Share: 1, When: &assign.OnCompleteWhen{Code: []string{"doubtful"}}}
	})
	work := n.EndedRequest(t, n.Click(t, "label", "ann", 5).ID).Work
	n.Let(t, work[0], coded("sure"))
	n.Let(t, work[1], complete)
	n.Let(t, work[2], coded("doubtful"))
	all := []assign.Disposal{{ID: work[3].ID, Disposition: coded("sure")}, {ID: work[4].ID, Disposition: coded("doubtful")}}
	if _, err := n.DisposeMany(t.Context(), all, assign.Holder{User: "ann"}, false, true); err != nil {
		t.Fatal(err)
	}
	items := enginetest.Query[string](t, enginetest.Pool(t, url), `select string_agg(item, ' ' order by id) from getwork.item`)
	if want := work[2].Item + " " + work[4].Item; items != want {
		t.Errorf("%s went on, want %s", items, want)
	}
	task, err := n.Records.Task(t.Context(), "label")
	if err != nil || task.OnComplete == nil || task.OnComplete.When == nil || len(task.OnComplete.When.Code) != 1 {
		t.Fatalf("it is kept as %+v, %v", task.OnComplete, err)
	}
	for says, change := range map[string]func(*assign.Settings){
		`no outcome of this task has the code "doubtful"`: func(s *assign.Settings) { s.Outcomes = s.Outcomes[:1] },
		`no outcome of this task has the code "spam"`: func(s *assign.Settings) {
			s.OnComplete.When = &assign.OnCompleteWhen{Code: []string{"doubtful", "spam"}}
		},
		`"doubtful" stands there twice`: func(s *assign.Settings) {
			s.OnComplete.When = &assign.OnCompleteWhen{Code: []string{"doubtful", "doubtful"}}
		},
		`when.code lists codes`: func(s *assign.Settings) { s.OnComplete.When = &assign.OnCompleteWhen{} },
	} {
		s := task.Settings
		on := *s.OnComplete
		s.OnComplete = &on
		change(&s)
		if err := s.Check(); !assign.IsRefusal(err, assign.Invalid) || !strings.Contains(fmt.Sprint(err), says) {
			t.Errorf("%v, want %s", err, says)
		}
	}
}

// The item of several people goes on once, with the completion that finishes it.
func TestWhatSeveralCompleteGoesOnOnce(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewTask(t, n, "review", "", nil)
	newPeople(t, n, "label", func(s *assign.Settings) { s.OnComplete = &assign.OnComplete{Task: "review", Share: 1} })
	n.PushKeys(t, "label", "a")
	n.Let(t, n.Take(t, "label", "ann"), complete)
	n.Let(t, n.Take(t, "label", "bob"), complete)
	gotNothing(t, n, "review", "max")
	last := n.Take(t, "label", "cid")
	n.Let(t, last, complete)
	w := n.Take(t, "review", "max")
	if w.Item != "a" || w.From != last.ID {
		t.Errorf("%s from %d, want %d", w.Item, w.From, last.ID)
	}
	told := n.WorkEvents(t, assign.Holder{User: "cid"}) // whoever completed it hears what the reviewer writes
	note := "look at the second page"
	n.Let(t, w, assign.Disposition{Outcome: "complete", Note: &note})
	heard := enginetest.Hear(t, told, "the review", func(w assign.Work) bool { return w.ID == last.ID && len(w.Earlier) == 1 })
	if e := heard.Earlier[0]; heard.State != assign.WorkCompleted || e.ID != w.ID || e.User != "max" || *e.Note != note {
		t.Errorf("%+v", heard)
	}
	if _, err := n.Change(t, "review", func(s *assign.Settings) { s.Notes = "managers" }); err != nil {
		t.Fatal(err)
	}
	for manages, want := range map[bool]int{false: 0, true: 1} {
		if linked, err := n.Records.Linked(t.Context(), last, manages); err != nil || len(linked) != want {
			t.Errorf("%+v %v, want %d", linked, err, want)
		}
	}
}

// Completions go on to inboxes, never in a circle, and a task that they go on to is not deleted.
func TestWhereCompletionsMayGoOn(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := enginetest.Start(t, schematest.URL(t), enginetest.Options{})
	for _, name := range []string{"a", "b", "c"} {
		enginetest.NewTask(t, n, name, "", nil)
	}
	enginetest.NewTask(t, n, "query", `select 1 as item`, nil)
	to := func(task, other string, share float64) error {
		before, err := n.Records.Task(t.Context(), task)
		if err == nil {
			_, err = n.UpdateTask(t.Context(), task, before.Version, "max", func(s *assign.Settings) error {
				if s.OnComplete = nil; share != 0 {
					s.OnComplete = &assign.OnComplete{Task: other, Share: share}
				}
				return nil
			})
		}
		return err
	}
	for _, bad := range []struct {
		to    string
		share float64
	}{{"a", 1}, {"query", 1}, {"nobody", 1}, {"b", -1}, {"b", 1.1}, {"B!", 1}} {
		enginetest.WantKind(t, to("a", bad.to, bad.share), assign.Invalid)
	}
	for _, good := range []string{"a b", "b c", "query a"} {
		task, other, _ := strings.Cut(good, " ")
		if err := to(task, other, 1); err != nil {
			t.Fatal(err)
		}
	}
	enginetest.WantKind(t, to("c", "a", 1), assign.Invalid)
	enginetest.WantKind(t, n.DeleteTask(t.Context(), "b", 0), assign.InUse)
	if _, err := n.Change(t, "b", func(s *assign.Settings) { s.Name = "renamed" }); err != nil {
		t.Fatal(err)
	}
	if a, err := n.Records.Task(t.Context(), "a"); err != nil || a.OnComplete == nil || a.OnComplete.Task != "renamed" {
		t.Errorf("%+v %v", a.OnComplete, err)
	}
	n.PushKeys(t, "a", "x")
	n.Let(t, n.Take(t, "a", "ann"), complete)
	n.Let(t, n.Take(t, "renamed", "bob"), complete)
	n.Let(t, n.Take(t, "c", "cid"), complete)
	if err := to("a", "", 0); err != nil {
		t.Fatal(err)
	}
	if err := n.DeleteTask(t.Context(), "renamed", 0); err != nil {
		t.Fatal(err)
	}
	restored, err := n.Restore(t.Context(), "a", 2, 0, "max", nil)
	if err != nil || restored.OnComplete != nil {
		t.Errorf("restored %+v %v", restored.OnComplete, err)
	}
	var both sync.WaitGroup // a circle of two, closed from both sides at once
	results := make([]error, 2)
	for i, pair := range []string{"a c", "c a"} {
		task, other, _ := strings.Cut(pair, " ")
		both.Go(func() { results[i] = to(task, other, 1) })
	}
	both.Wait()
	if (results[0] == nil) == (results[1] == nil) {
		t.Errorf("one of both is refused: %v", results)
	}
}
