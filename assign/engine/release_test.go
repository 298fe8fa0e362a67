package engine

import (
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A release returns exactly what its dry run counted, or nothing.
func TestRelease(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	for _, task := range []string{"one", "two"} {
		newInbox(t, n, task, nil)
		n.push(t, task, "a", "b", "c", "d")
		for _, user := range []string{"ann", "bob"} {
			if r := n.click(t, task, user, 2); len(r.Work) != 2 {
				t.Fatal(r.State)
			}
		}
	}
	dry := func(what assign.Release, want int) assign.Release {
		t.Helper()
		what.DryRun = true
		got, err := n.Release(t.Context(), what, "boss")
		if err != nil || got.Count != want || got.Token == "" {
			t.Fatalf("%+v: %+v, %v, want %d", what, got, err, want)
		}
		what.DryRun, what.Token = false, got.Token
		return what
	}
	for _, bad := range []assign.Release{{}, {DryRun: true}, {User: "ann"}, {Task: "one"}, {User: "a\nb", DryRun: true}} {
		_, err := n.Release(t.Context(), bad, "boss")
		wantKind(t, err, assign.Invalid)
	}
	_, err := n.Release(t.Context(), assign.Release{Task: "nowhere", DryRun: true}, "boss")
	wantKind(t, err, assign.NotFound)
	dry(assign.Release{User: "nobody"}, 0)
	dry(assign.Release{Task: "one"}, 4)
	both := dry(assign.Release{User: "ann", Task: "two"}, 2)
	ann := dry(assign.Release{User: "ann"}, 4)

	told := n.workEvents(t, assign.Holder{User: "ann"})
	waiting := n.linger(t, "two", "cyd", 2)
	if got, err := n.Release(t.Context(), both, "boss"); err != nil || got.Count != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	hear(t, told, "it was released", func(w assign.Work) bool { return w.State == "returned" && w.Task == "two" })
	if r := n.endedRequest(t, waiting.ID); fmt.Sprint(items(r)) != "[a b]" || r.Work[0].Attempt != 1 {
		t.Errorf("cyd got %v", items(r))
	}
	for _, stale := range []assign.Release{ann, both} {
		_, err = n.Release(t.Context(), stale, "boss")
		wantKind(t, err, assign.ChangedSet)
	}
	if got := query[string](t, db, `select string_agg(user_name || ' ' || closed_by || ' ' || after, ', ' order by id) from getwork.work where state = 'returned'`); got != "ann boss 00:00:00, ann boss 00:00:00" {
		t.Errorf("released: %s", got)
	}
	if got, err := n.Release(t.Context(), dry(assign.Release{User: "ann"}, 2), "boss"); err != nil || got.Count != 2 {
		t.Errorf("the rest: %+v, %v", got, err)
	}
	if got := query[int](t, db, `select count(*) from getwork.work where user_name = 'ann' and state = 'held'`); got != 0 {
		t.Errorf("ann holds %d", got)
	}
	if got := query[int](t, db, `select count(*) from getwork.work where user_name = 'bob' and state = 'held'`); got != 4 {
		t.Errorf("bob holds %d", got)
	}
}

// The same number, but other work: the token stands for the set.
func TestReleaseOfAnotherSet(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a", "b")
	first := n.serve(t, "inbox", "ann", 1)
	d, err := n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	n.let(t, first.Work[0], giveBack(0))
	if again := n.serve(t, "inbox", "ann", 1); again.Work[0].Item != "a" {
		t.Fatal(items(again))
	}
	_, err = n.Release(t.Context(), assign.Release{User: "ann", Token: d.Token}, "boss")
	wantKind(t, err, assign.ChangedSet)
}

// Reassigned work begins anew with its new holder, in the same place, and both holders are told.
func TestReassign(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	group, one := "g", 1
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Lease, s.Slots, s.MaxOpen = lasting(time.Hour), 3, &one })
	n.push(t, "inbox", "a")
	for _, user := range []string{"first", "ann", "last"} {
		n.take(t, "inbox", user)
	}
	p, err := n.UserPipeline(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	w := p.Work[0]
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() + interval '10 minutes', attempt = 4 where id = $1`, w.ID)
	from, to := n.workEvents(t, assign.Holder{User: "ann"}), n.workEvents(t, assign.Holder{User: "bob"})
	x, err := n.Reassign(t.Context(), w.ID, "bob", "boss")
	if err != nil {
		t.Fatal(err)
	}
	if x.ID == w.ID || x.User != "bob" || x.State != "held" || x.Slot != w.Slot || x.Attempt != 4 || time.Until(*x.LeaseExpiresAt) < 50*time.Minute {
		t.Errorf("bob's: %+v", x)
	}
	hear(t, from, "it was taken away", func(w assign.Work) bool { return w.State == "reassigned" })
	hear(t, to, "it was given to the new holder", func(w assign.Work) bool { return w.State == "held" && w.ID == x.ID })
	if again, err := n.Reassign(t.Context(), x.ID, "bob", "boss"); err != nil || again.ID != x.ID {
		t.Errorf("to its own holder: %d, %v", again.ID, err)
	}
	_, err = n.Reassign(t.Context(), x.ID, "last", "boss")
	wantKind(t, err, assign.NotAvailable) // bob holds a place of it
	_, err = n.Reassign(t.Context(), w.ID, "cyd", "boss")
	wantKind(t, err, assign.AlreadyClosed)
	_, err = n.Reassign(t.Context(), 99999, "cyd", "boss")
	wantKind(t, err, assign.NotFound)
	_, err = n.Reassign(t.Context(), x.ID, "", "boss")
	wantKind(t, err, assign.Invalid)
	n.push(t, "inbox", "b")
	n.take(t, "inbox", "dan")
	_, err = n.Reassign(t.Context(), x.ID, "dan", "boss")
	wantKind(t, err, assign.NotAvailable) // the new holder has as much as one may
	if _, err = n.Extend(t.Context(), w.ID, w.Holder()); !assign.IsRefusal(err, assign.LeaseLost) {
		t.Errorf("ann extends: %v", err)
	}
	// A member of a group stays the group's held one.
	newInbox(t, n, "groups", nil)
	n.pushItems(t, "groups", assign.NewItem{Item: "1", Exclusive: &group}, assign.NewItem{Item: "2", Exclusive: &group})
	g := n.take(t, "groups", "ann")
	if _, err := n.Reassign(t.Context(), g.ID, "bob", "boss"); err != nil {
		t.Fatal(err)
	}
	if r := n.click(t, "groups", "cyd", 1); why(r) != assign.AllHeld {
		t.Errorf("cyd: %s %v", r.State, why(r))
	}
	// An item that a query found is passed on without asking the query again.
	newTask(t, n, "query", numbers, nil)
	q := n.take(t, "query", "ann")
	if q, err = n.Reassign(t.Context(), q.ID, "bob", "boss"); err != nil || q.Item != "1" {
		t.Errorf("%+v, %v", q, err)
	}
	n.let(t, q, assign.Disposition{Outcome: "complete"})
}

// Work whose lease has run out is the sweep's, even before it has come: neither release nor reassign takes it for held.
func TestReleaseLeavesExpiredWork(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "inbox", leased(time.Hour))
	n.push(t, "inbox", "a", "b")
	late := n.serve(t, "inbox", "ann", 2).Work[0]
	d, err := n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
	if err != nil || d.Count != 2 {
		t.Fatalf("%+v, %v", d, err)
	}
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, late.ID)
	_, err = n.Release(t.Context(), assign.Release{User: "ann", Token: d.Token}, "boss")
	wantKind(t, err, assign.ChangedSet)
	d, err = n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
	if err != nil || d.Count != 1 {
		t.Fatalf("%+v, %v", d, err)
	}
	if got, err := n.Release(t.Context(), assign.Release{User: "ann", Token: d.Token}, "boss"); err != nil || got.Count != 1 {
		t.Fatalf("%+v, %v", got, err)
	}
	for _, to := range []string{"ann", "bob"} {
		_, err = n.Reassign(t.Context(), late.ID, to, "boss")
		wantKind(t, err, assign.AlreadyClosed)
	}
	if _, err := (sweeper{n.Engine}).sweep(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := query[string](t, db, `select string_agg(item || ' ' || state, ', ' order by id) from getwork.work`); got != "a expired, b returned" {
		t.Error(got)
	}
}
