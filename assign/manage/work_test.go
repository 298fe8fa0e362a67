package manage_test

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/assign/manage"
	"getwork/schema/schematest"
)

// A release returns exactly what its dry run counted, or nothing.
func TestRelease(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	for _, task := range []string{"one", "two"} {
		enginetest.NewInbox(t, n, task, nil)
		n.PushKeys(t, task, "a", "b", "c", "d")
		for _, user := range []string{"ann", "bob"} {
			if r := n.Click(t, task, user, 2); len(r.Work) != 2 {
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
		enginetest.WantKind(t, err, assign.Invalid)
	}
	_, err := n.Release(t.Context(), assign.Release{Task: "nowhere", DryRun: true}, "boss")
	enginetest.WantKind(t, err, assign.NotFound)
	dry(assign.Release{User: "nobody"}, 0)
	dry(assign.Release{Task: "one"}, 4)
	both := dry(assign.Release{User: "ann", Task: "two"}, 2)
	ann := dry(assign.Release{User: "ann"}, 4)

	told := n.WorkEvents(t, assign.Holder{User: "ann"})
	waiting := n.Linger(t, "two", "cyd", 2)
	if got, err := n.Release(t.Context(), both, "boss"); err != nil || got.Count != 2 {
		t.Fatalf("%+v, %v", got, err)
	}
	enginetest.Hear(t, told, "it was released", func(w assign.Work) bool { return w.State == "returned" && w.Task == "two" })
	if r := n.EndedRequest(t, waiting.ID); fmt.Sprint(enginetest.Items(r)) != "[a b]" || r.Work[0].Attempt != 1 {
		t.Errorf("cyd got %v", enginetest.Items(r))
	}
	for _, stale := range []assign.Release{ann, both} {
		_, err = n.Release(t.Context(), stale, "boss")
		enginetest.WantKind(t, err, assign.ChangedSet)
	}
	if got := enginetest.Query[string](t, db, `select string_agg(user_name || ' ' || closed_by || ' ' || after, ', ' order by id) from getwork.work where state = 'returned'`); got != "ann boss 00:00:00, ann boss 00:00:00" {
		t.Errorf("released: %s", got)
	}
	if got, err := n.Release(t.Context(), dry(assign.Release{User: "ann"}, 2), "boss"); err != nil || got.Count != 2 {
		t.Errorf("the rest: %+v, %v", got, err)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.work where user_name = 'ann' and state = 'held'`); got != 0 {
		t.Errorf("ann holds %d", got)
	}
	if got := enginetest.Query[int](t, db, `select count(*) from getwork.work where user_name = 'bob' and state = 'held'`); got != 4 {
		t.Errorf("bob holds %d", got)
	}
}

// A call has closed its work and locked the first item when a release returns other work on the same items. The release waits for the
// first item, and has not locked the last one, for which the call would wait.
func TestReleaseBesideManyDispositions(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", func(s *assign.Settings) { s.Slots, s.MaxRequest = 2, 1000 })
	// Found by key, in the table's order, or by bob's work, "a" comes first; but it is the youngest.
	keys := []string{"c", "b", "a"}
	n.PushKeys(t, "inbox", keys...)
	var all []assign.Disposal
	for _, w := range n.Serve(t, "inbox", "ann", 3).Work {
		all = append(all, assign.Disposal{ID: w.ID, Disposition: enginetest.GiveBack(0)})
	}
	for i := range keys {
		enginetest.Execute(t, db, `insert into getwork.work (task_id, item, slot, user_name) select task_id, $1, 2, 'bob' from getwork.task_state`, keys[len(keys)-1-i])
	}
	d, err := n.Release(t.Context(), assign.Release{User: "bob", DryRun: true}, "boss")
	if err != nil || d.Count != len(keys) {
		t.Fatalf("%+v, %v", d, err)
	}
	middle, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer middle.Rollback(t.Context())
	if _, err := middle.Exec(t.Context(), `select from getwork.item where item = 'b' for update`); err != nil {
		t.Fatal(err)
	}
	var both sync.WaitGroup
	both.Go(func() {
		if _, err := n.DisposeMany(t.Context(), all, assign.Holder{User: "ann"}, false, false); err != nil {
			t.Error(err)
		}
	})
	enginetest.Await(t, "the call waits for the middle item", func() bool { return schematest.LockWaits(t, db) == 1 })
	both.Go(func() {
		if got, err := n.Release(t.Context(), assign.Release{User: "bob", Token: d.Token}, "boss"); err != nil || got.Count != len(keys) {
			t.Errorf("%+v, %v", got, err)
		}
	})
	enginetest.Await(t, "the release waits for the first", func() bool { return schematest.LockWaits(t, db) == 2 })
	if err := middle.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	if got := enginetest.Query[int](t, db, `select deadlocks from pg_stat_database where datname = current_database()`); got != 0 {
		t.Errorf("%d deadlocks", got)
	}
}

// The same number, but other work: the token stands for the set.
func TestReleaseOfAnotherSet(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	enginetest.NewInbox(t, n, "inbox", nil)
	n.PushKeys(t, "inbox", "a", "b")
	first := n.Serve(t, "inbox", "ann", 1)
	d, err := n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	n.Let(t, first.Work[0], enginetest.GiveBack(0))
	if again := n.Serve(t, "inbox", "ann", 1); again.Work[0].Item != "a" {
		t.Fatal(enginetest.Items(again))
	}
	_, err = n.Release(t.Context(), assign.Release{User: "ann", Token: d.Token}, "boss")
	enginetest.WantKind(t, err, assign.ChangedSet)
}

// Reassigned work begins anew with its new holder, in the same place, and both holders are told.
func TestReassign(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	group, one := "g", 1
	enginetest.NewInbox(t, n, "inbox", func(s *assign.Settings) { s.Lease, s.Slots, s.MaxOpen = enginetest.Lasting(time.Hour), 3, &one })
	n.PushKeys(t, "inbox", "a")
	for _, user := range []string{"first", "ann", "last"} {
		n.Take(t, "inbox", user)
	}
	p, err := n.UserPipeline(t.Context(), "ann")
	if err != nil {
		t.Fatal(err)
	}
	w := p.Work[0]
	enginetest.Execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() + interval '10 minutes', attempt = 4 where id = $1`, w.ID)
	from, to := n.WorkEvents(t, assign.Holder{User: "ann"}), n.WorkEvents(t, assign.Holder{User: "bob"})
	x, err := n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "bob", Force: true}, "boss")
	if err != nil {
		t.Fatal(err)
	}
	if x.ID == w.ID || x.User != "bob" || x.State != "held" || x.Slot != w.Slot || x.Attempt != 4 || time.Until(*x.LeaseExpiresAt) < 50*time.Minute {
		t.Errorf("bob's: %+v", x)
	}
	enginetest.Hear(t, from, "it was taken away", func(w assign.Work) bool { return w.State == "reassigned" })
	enginetest.Hear(t, to, "it was given to the new holder", func(w assign.Work) bool { return w.State == "held" && w.ID == x.ID })
	if again, err := n.Reassign(t.Context(), x.ID, assign.Reassignment{User: "bob", Force: true}, "boss"); err != nil || again.ID != x.ID {
		t.Errorf("to its own holder: %d, %v", again.ID, err)
	}
	_, err = n.Reassign(t.Context(), x.ID, assign.Reassignment{User: "last"}, "boss")
	enginetest.WantKind(t, err, assign.NotAvailable) // bob holds a place of it
	_, err = n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "cyd", Force: true}, "boss")
	enginetest.WantKind(t, err, assign.AlreadyClosed)
	_, err = n.Reassign(t.Context(), 99999, assign.Reassignment{User: "cyd", Force: true}, "boss")
	enginetest.WantKind(t, err, assign.NotFound)
	_, err = n.Reassign(t.Context(), x.ID, assign.Reassignment{User: ""}, "boss")
	enginetest.WantKind(t, err, assign.Invalid)
	n.PushKeys(t, "inbox", "b")
	n.Take(t, "inbox", "dan")
	_, err = n.Reassign(t.Context(), x.ID, assign.Reassignment{User: "dan"}, "boss")
	enginetest.WantKind(t, err, assign.NotAvailable) // the new holder has as much as one may
	if _, err = n.Extend(t.Context(), w.ID, w.Holder()); !assign.IsRefusal(err, assign.LeaseLost) {
		t.Errorf("ann extends: %v", err)
	}
	// A member of a group stays the group's held one.
	enginetest.NewInbox(t, n, "groups", nil)
	n.PushItems(t, "groups", assign.NewItem{Item: "1", Exclusive: &group}, assign.NewItem{Item: "2", Exclusive: &group})
	g := n.Take(t, "groups", "ann")
	if _, err := n.Reassign(t.Context(), g.ID, assign.Reassignment{User: "bob", Force: true}, "boss"); err != nil {
		t.Fatal(err)
	}
	if r := n.Click(t, "groups", "cyd", 1); enginetest.Why(r) != assign.AllHeld {
		t.Errorf("cyd: %s %v", r.State, enginetest.Why(r))
	}
	// An item that a query found is passed on without asking the query again.
	enginetest.NewTask(t, n, "query", enginetest.Numbers, nil)
	q := n.Take(t, "query", "ann")
	if q, err = n.Reassign(t.Context(), q.ID, assign.Reassignment{User: "bob", Force: true}, "boss"); err != nil || q.Item != "1" {
		t.Errorf("%+v, %v", q, err)
	}
	n.Let(t, q, assign.Disposition{Outcome: "complete"})
}

// What is released is not handed to whom it was taken from: their requests that linger are cancelled with it, all of them or those of
// the task, and nobody else's.
func TestReleaseCancelsWhatLingers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := audited(t, url), enginetest.Pool(t, url)
	for _, task := range []string{"one", "two"} {
		enginetest.NewInbox(t, n, task, nil)
		n.PushKeys(t, task, "a", "b")
		if r := n.Click(t, task, "ann", 2); len(r.Work) != 2 {
			t.Fatal(r.State)
		}
	}
	one, two, bob := n.Linger(t, "one", "ann", 2), n.Linger(t, "two", "ann", 1), n.Linger(t, "one", "bob", 1)
	dry := func(what assign.Release, count, requests int) assign.Release {
		t.Helper()
		what.DryRun = true
		got, err := n.Release(t.Context(), what, "boss")
		if err != nil || got.Count != count || got.Requests != requests {
			t.Fatalf("%+v: %+v, %v; want %d and %d", what, got, err, count, requests)
		}
		what.DryRun, what.Token = false, got.Token
		return what
	}
	release := func(what assign.Release, count, requests int) {
		t.Helper()
		if got, err := n.Release(t.Context(), what, "boss"); err != nil || got != (assign.Released{Count: count, Requests: requests}) {
			t.Fatalf("%+v, %v; want %d and %d", got, err, count, requests)
		}
	}
	dry(assign.Release{Task: "one"}, 2, 0) // nobody is named, so nobody's requests end
	all, of := dry(assign.Release{User: "ann"}, 4, 2), dry(assign.Release{User: "ann", Task: "one"}, 2, 1)
	release(of, 2, 1)
	if r := n.EndedRequest(t, one.ID); r.State != assign.Cancelled {
		t.Errorf("her request is %s", r.State)
	}
	if r := n.EndedRequest(t, bob.ID); fmt.Sprint(enginetest.Items(r)) != "[a]" {
		t.Errorf("bob got %v", enginetest.Items(r))
	}
	if _, err := n.Release(t.Context(), all, "boss"); !assign.IsRefusal(err, assign.ChangedSet) {
		t.Errorf("another set: %v", err)
	}
	if state := enginetest.Query[string](t, db, `select state from getwork.work_requested where id = $1`, two.ID); state != "pending" {
		t.Errorf("after a refused release her request is %s", state)
	}
	release(dry(assign.Release{User: "ann"}, 2, 1), 2, 1)
	release(dry(assign.Release{User: "ann"}, 0, 0), 0, 0)
	n.Take(t, "two", "ann") // the released items are free, for her as well
	n.Take(t, "one", "cyd")
	n.Linger(t, "one", "ann", 1)
	release(dry(assign.Release{User: "ann", Task: "one"}, 0, 1), 0, 1) // she holds nothing there, and waits
	if got := enginetest.Query[string](t, db, `select string_agg(concat_ws(' ', object, detail->>'task', detail->>'count', detail->>'requests'), ', ' order by n) from getwork.audit where act = 'work.release'`); got != "ann one 2 1, ann  2 1, ann  0 0, ann one 0 1" {
		t.Errorf("audited: %s", got)
	}
}

// More than one transaction can let go of is released in parts. Each of them is whole: what a later one meets does not undo it.
func TestReleaseInParts(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "inbox", nil)
	const all = 2*manage.ReleaseBatch + 10
	enginetest.Execute(t, db, `insert into getwork.work (task_id, item, slot, user_name, instance, attempt)
		select s.task_id, n::text, 1, 'ann', '', 1 from getwork.task_state s, generate_series(1, $1) n`, all)
	enginetest.Execute(t, db, `insert into getwork.item (task_id, item, pushed_by, due_at) select s.task_id, n::text, 'boss', 'infinity' from getwork.task_state s, generate_series(1, $1) n`, all)
	count := func(state string) int {
		return enginetest.Query[int](t, db, `select count(*) from getwork.work where state = $1`, state)
	}
	begin := func(ctx context.Context, row int) (tx pgx.Tx, ended chan assign.Released, failed chan error) {
		t.Helper()
		d, err := n.Release(t.Context(), assign.Release{User: "ann", DryRun: true}, "boss")
		if err != nil {
			t.Fatal(err)
		}
		tx, err = db.Begin(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = tx.Rollback(context.Background()) })
		if _, err := tx.Exec(t.Context(), `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_by = 'ann', closed_xid = pg_current_xact_id()
			where id = (select id from getwork.work where state = 'held' order by id offset $1 limit 1)`, row); err != nil {
			t.Fatal(err)
		}
		ended, failed = make(chan assign.Released, 1), make(chan error, 1)
		go func() {
			got, err := n.Release(ctx, assign.Release{User: "ann", Token: d.Token}, "boss")
			ended <- got
			failed <- err
		}()
		return tx, ended, failed
	}
	// The second transaction waits for somebody who completes one of its items, and its caller does not wait for that.
	ctx, leave := context.WithCancel(t.Context())
	tx, ended, failed := begin(ctx, manage.ReleaseBatch+3)
	enginetest.Await(t, "the first part is released", func() bool { return count("returned") == manage.ReleaseBatch })
	leave()
	if err := <-failed; err == nil {
		t.Errorf("a release that was given up: %+v", <-ended)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	if returned, held := count("returned"), count("held"); returned != manage.ReleaseBatch || held != all-manage.ReleaseBatch {
		t.Errorf("%d returned, %d held", returned, held)
	}
	// The next one waits again, and counts what is left of its part.
	tx, ended, failed = begin(t.Context(), manage.ReleaseBatch+3)
	enginetest.Await(t, "the next part is released", func() bool { return count("returned") == 2*manage.ReleaseBatch })
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got, err := <-ended, <-failed; err != nil || got.Count != all-manage.ReleaseBatch-1 {
		t.Errorf("%+v, %v", got, err)
	}
	if returned, held := count("returned"), count("held"); returned != all-1 || held != 0 {
		t.Errorf("%d returned, %d held", returned, held)
	}
	if n := enginetest.Query[int](t, db, `select count(*) from getwork.item where due_at is null`); n != all-1 {
		t.Errorf("%d items are free", n)
	}
	// A part whose set changes under it is refused, and undone, as long as nothing was released.
	n.Take(t, "inbox", "ann")
	tx, _, failed = begin(t.Context(), 0)
	enginetest.Await(t, "the release waits", func() bool {
		return enginetest.Query[bool](t, db, `select exists (select from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database())`)
	})
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	enginetest.WantKind(t, <-failed, assign.ChangedSet)
}

// Work goes to members of the task's groups alone, and to nobody whose name was never seen, unless that is forced. What is known of
// somebody is what they last logged in or asked with.
func TestReassignTo(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	enginetest.NewInbox(t, n, "open", nil)
	enginetest.NewInbox(t, n, "closed", func(s *assign.Settings) { s.Groups = []string{"vip", "gold"} })
	person := func(name, kind, role string, seen bool, groups ...string) string {
		enginetest.Execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role, groups, seen_at)
			values ($1, $1, 'bank', $1, $2, nullif($3, ''), $4, case when $5 then clock_timestamp() end)`, name, kind, role, append([]string{}, groups...), seen)
		return fmt.Sprint("j:", enginetest.Query[int64](t, db, `select id from getwork.principal where name = $1`, name))
	}
	asks := func(user, credential string, anything bool, groups ...string) {
		t.Helper()
		c := assign.Click{Holder: assign.Holder{User: user}, Count: 1, Groups: groups, Anything: anything, Credential: credential}
		if r, err := n.GetWork(t.Context(), "open", c); err != nil || r.State != assign.None {
			t.Fatal(user, r, err)
		}
	}
	var all []string
	for _, p := range []struct {
		name string
		come func(name string)
		open, closed,
		forced bool // whether they get work of either task, and with force work of the open one
	}{
		{"unseen", func(string) {}, false, false, true},
		{"unlike unseen", func(string) { asks("Unlike Unseen", "", false, "vip") }, false, false, true},
		{"logged in", func(name string) { person(name, "person", "worker", true, "desk", "gold") }, true, true, true},
		{"logged in without", func(name string) { person(name, "person", "worker", true, "desk") }, true, false, true},
		{"manager", func(name string) { person(name, "person", "manager", true) }, true, true, true},
		{"service", func(name string) { person(name, "service", "agent", false, "vip") }, true, true, true},
		{"service without", func(name string) { person(name, "service", "agent", false) }, true, false, true},
		{"asked", func(name string) { asks(name, "", false, "vip") }, true, true, true},
		{"asked without", func(name string) { asks(name, "", false, "vip"); asks(name, "", false, "desk") }, true, false, true},
		{"asked as manager", func(name string) { asks(name, "", true) }, true, true, true},
		{"held alone", func(name string) { n.PushKeys(t, "open", name); n.Serve(t, "open", name, 1) }, true, false, true},
		{"with a JWT", func(name string) { asks(name, person(name, "person", "", false), false, "vip") }, true, true, true},
		{"with a JWT that lost it", func(name string) {
			by := person(name, "person", "", false)
			asks(name, by, false, "vip")
			asks(name, by, false)
		}, true, false, true},
		{"with a JWT since", func(name string) { asks(name, person(name, "person", "worker", true), false, "vip") }, true, true, true},
		{"with a JWT before", func(name string) {
			asks(name, person(name, "person", "worker", true), false, "vip")
			enginetest.Execute(t, db, `update getwork.principal set seen_at = clock_timestamp() where name = $1`, name)
		}, true, false, true},
		{"refreshed", func(name string) {
			person(name, "person", "worker", true, "vip")
			c := assign.Click{Holder: assign.Holder{User: name}, Count: 1, Groups: []string{"vip"}, Credential: logIn(t, db, name)}
			if _, err := n.GetWork(t.Context(), "open", c); err != nil {
				t.Fatal(err)
			}
			enginetest.Execute(t, db, `update getwork.principal set groups = '{}' where name = $1`, name)
		}, true, false, true},
	} {
		p.come(p.name)
		all = append(all, p.name)
		for _, task := range []string{"open", "closed"} {
			for _, force := range []bool{false, true} {
				to := assign.Reassignment{User: p.name, Force: force}
				want := map[string]bool{"open": p.open || force && p.forced, "closed": p.closed}[task]
				got := func(how string, got assign.Work, err error) {
					t.Helper()
					if want {
						if err != nil || got.User != p.name || got.State != "held" {
							t.Errorf("%s, %s, %s, force %t: %+v, %v", p.name, how, task, force, got, err)
						}
						// They would have been seen now.
						enginetest.Execute(t, db, `delete from getwork.work where id = $1`, got.ID)
						return
					}
					enginetest.WantKind(t, err, assign.NotAvailable)
					var r *assign.Refusal
					errors.As(err, &r)
					rule := strings.Contains(r.Detail, "gold, vip; "+p.name+" was in none of them")
					unseen := len(r.Fields) == 1 && r.Fields[0].Field == "force" && strings.Contains(r.Detail, `"`+p.name+`" has logged in`)
					if wanted := !p.open && !force; unseen != wanted || rule == wanted {
						t.Errorf("%s, %s, %s, force %t: %s %+v", p.name, how, task, force, r.Detail, r.Fields)
					}
				}
				free, held := fmt.Sprint(p.name, " free ", force), fmt.Sprint(p.name, force)
				n.PushKeys(t, task, free, held)
				given, _, err := n.Give(t.Context(), task, free, to)
				if got("given", given, err); !want {
					enginetest.Execute(t, db, `update getwork.item set done_at = clock_timestamp() where item = $1`, free)
				}
				w, _, err := n.Claim(t.Context(), task, held, assign.Who{Holder: assign.Holder{User: "ann"}, Anything: true})
				if err != nil {
					t.Fatal(err)
				}
				given, err = n.Reassign(t.Context(), w.ID, to, "boss")
				got("reassigned", given, err)
				if !want {
					n.Let(t, w, assign.Disposition{Outcome: "complete"})
				}
			}
		}
	}
	together, err := n.Known(t.Context(), all...)
	if err != nil {
		t.Fatal(err)
	}
	for i, user := range all {
		if alone, err := n.Known(t.Context(), user); err != nil || !reflect.DeepEqual(alone[0], together[i]) || alone[0].Who.Holder.User != user {
			t.Errorf("of %s alone is known %+v, %v; with the others %+v", user, alone, err, together[i])
		}
	}
}

// An item that is given is held as if its holder had claimed it, and they are told. Nobody who is blocked gets any, and a limit holds
// however many managers give at once.
func TestGive(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := enginetest.Start(t, url, enginetest.Options{})
	db := enginetest.Pool(t, url)
	lease := assign.Duration(time.Hour)
	enginetest.NewInbox(t, n, "inbox", func(s *assign.Settings) { s.Lease, s.MaxOpen = &lease, new(1) })
	enginetest.NewTask(t, n, "query", enginetest.Numbers, nil)
	n.PushKeys(t, "inbox", "a", "b", "c")
	to := func(user string) assign.Reassignment { return assign.Reassignment{User: user, Force: true} }
	heard := n.WorkEvents(t, assign.Holder{User: "ann"})
	for _, task := range []string{"inbox", "query"} {
		item := map[string]string{"inbox": "a", "query": "3"}[task]
		w, given, err := n.Give(t.Context(), task, item, to("ann"))
		if err != nil || !given || w.User != "ann" || w.Item != item || w.State != "held" || (w.LeaseExpiresAt != nil) != (task == "inbox") {
			t.Fatalf("%s: %+v, %t, %v", task, w, given, err)
		}
		if got := <-heard; got.ID != w.ID || got.State != "held" {
			t.Errorf("%s: ann hears %+v", task, got)
		}
		if again, given, err := n.Give(t.Context(), task, item, to("ann")); err != nil || given || again.ID != w.ID {
			t.Errorf("%s again: %+v, %t, %v", task, again, given, err)
		}
		_, _, err = n.Give(t.Context(), task, item, to("bob"))
		enginetest.WantKind(t, err, assign.NoSlot)
	}
	for _, c := range []struct {
		task, item string
		to         assign.Reassignment
		kind       assign.Kind
	}{
		{"inbox", "b", to("ann"), assign.NotAvailable}, // she is at the limit
		{"inbox", "b", assign.Reassignment{User: "nobody"}, assign.NotAvailable},
		{"inbox", "b", to("a\nb"), assign.Invalid},
		{"inbox", "nothing", to("bob"), assign.NotFound},
		{"query", "nothing", to("bob"), assign.NotFound},
		{"nothing", "b", to("bob"), assign.NotFound},
	} {
		_, _, err := n.Give(t.Context(), c.task, c.item, c.to)
		enginetest.WantKind(t, err, c.kind)
	}
	enginetest.Execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role, seen_at, blocked_at)
		values ('bill', 'bill', 'bank', 'bill', 'person', 'worker', clock_timestamp(), clock_timestamp())`)
	_, _, err := n.Give(t.Context(), "inbox", "b", to("bill"))
	if enginetest.WantKind(t, err, assign.NotAvailable); !strings.Contains(err.Error(), "bill is blocked") {
		t.Error(err)
	}

	answers := make(chan error, 2)
	for _, item := range []string{"b", "c"} {
		go func() {
			_, _, err := n.Give(context.Background(), "inbox", item, to("cyd"))
			answers <- err
		}()
	}
	one, other := <-answers, <-answers
	if one == nil {
		one, other = other, one
	}
	if enginetest.WantKind(t, one, assign.NotAvailable); other != nil {
		t.Error(other)
	}
}

// logIn makes a session of a user, and returns their credential.
func logIn(t testing.TB, db *pgxpool.Pool, user string) string {
	t.Helper()
	enginetest.Execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role) values ($1, $1, 'bank', $1, 'person', 'worker') on conflict do nothing`, user)
	return enginetest.Query[string](t, db, `
with new as (select $1 || '-' || (select count(*) from getwork.session) as name)
insert into getwork.session (id, public_id, principal, role, ends_at)
select sha256(convert_to(n.name, 'UTF8')), n.name, p.id, 'worker', clock_timestamp() + interval '10 hours'
from new n, getwork.principal p where p.name = $1
returning 's:' || public_id`, user)
}

// A redrive puts back items that used up their attempts, and items that are named. An item that a user said is never to come
// back stays so unless it is named. The next attempt is the first again.
func TestRedrive(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, kind := range []string{"inbox", "query"} {
		t.Run(kind, func(t *testing.T) {
			url := schematest.URL(t)
			n := enginetest.Start(t, url, enginetest.Options{})
			db := enginetest.Pool(t, url)
			attempts := 1
			sql := `select i as item from generate_series(1, 5) i order by i`
			if kind == "inbox" {
				sql = ""
			}
			enginetest.NewTask(t, n, "task", sql, func(s *assign.Settings) { s.MaxAttempts, s.RerunAfter = &attempts, assign.Duration(time.Second) })
			if kind == "inbox" {
				n.PushKeys(t, "task", "1", "2", "3", "4", "5")
			}
			r := n.EndedRequest(t, n.Click(t, "task", "ann", 5).ID)
			for i, d := range []assign.Disposition{{Outcome: "fail"}, {Outcome: "never"}, {Outcome: "fail"}, enginetest.GiveBack(time.Hour)} {
				n.Let(t, r.Work[i], d)
			}
			redrive := func(want int64, keys ...string) {
				t.Helper()
				got, err := n.Redrive(t.Context(), "task", keys, "boss")
				if err != nil || got != want {
					t.Fatalf("%v: %d, %v, want %d", keys, got, err, want)
				}
			}
			redrive(0, "4", "5", "nothing")
			waiting := n.Linger(t, "task", "bob", 2)
			redrive(2)
			if r := n.EndedRequest(t, waiting.ID); fmt.Sprint(enginetest.Items(r)) != "[1 3]" || r.Work[0].Attempt != 1 {
				t.Errorf("bob got %v", enginetest.Items(r))
			}
			redrive(0)
			redrive(1, "2", "1")
			if w := n.Take(t, "task", "cyd"); w.Item != "2" || w.Attempt != 1 {
				t.Errorf("cyd has %s, attempt %d", w.Item, w.Attempt)
			}
			if got := enginetest.Query[string](t, db, `select string_agg(item || redriven_by, ' ' order by item) from getwork.work where redriven_by is not null`); got != "1boss 2boss 3boss" {
				t.Errorf("recorded: %s", got)
			}
			_, err := n.Redrive(t.Context(), "task", []string{"1", ""}, "boss")
			enginetest.WantKind(t, err, assign.Invalid)
			_, err = n.Redrive(t.Context(), "nowhere", nil, "boss")
			enginetest.WantKind(t, err, assign.NotFound)
			if got, err := n.Redrive(t.Context(), "task", []string{}, "boss"); err != nil || got != 0 {
				t.Errorf("none named: %d, %v", got, err)
			}
		})
	}
}
