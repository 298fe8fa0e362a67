package engine

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// each makes a disposition of each work.
func each(d assign.Disposition, works ...assign.Work) (all []assign.Disposal) {
	for _, w := range works {
		all = append(all, assign.Disposal{ID: w.ID, Disposition: d})
	}
	return all
}

// disposeMany disposes as a holder, or as a manager, and fails the test if the call as a whole is refused.
func (n *node) disposeMany(t testing.TB, by assign.Holder, asManager bool, all ...assign.Disposal) []assign.Result {
	t.Helper()
	results, err := n.DisposeMany(t.Context(), all, by, asManager, false)
	if err != nil || len(results) != len(all) {
		t.Fatalf("%d results of %d: %v", len(results), len(all), err)
	}
	for i, r := range results {
		if r.ID != all[i].ID || (r.Work == nil) == (r.Problem == nil) || r.Work != nil && (r.Work.ID != r.ID || r.Status != 200) || r.Problem != nil && r.Status != r.Problem.Status {
			t.Fatalf("result %d of work %d: %+v", i, all[i].ID, r)
		}
	}
	return results
}

// verdict returns a result as a single call would answer.
func verdict(r assign.Result) string {
	if r.Problem != nil {
		return fmt.Sprint(r.Status, " ", r.Problem.Type, " ", r.Problem.Detail)
	}
	return fmt.Sprint(r.Status, " ", r.Work.State)
}

// verdictAlone returns what a single call answers.
func verdictAlone(w assign.Work, err error) string {
	if err != nil {
		return verdict(refused(w.ID, err))
	}
	return verdict(assign.Result{Status: 200, Work: &w})
}

// Each of many is judged as it would be alone, whatever becomes of the others: of two tasks with the same work in the same states,
// one is disposed of in one call, and the other one by one. So are repetitions, and their opposites.
func TestManyAreJudgedAsOne(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	attempts, note := 2, "called"
	dispositions := []assign.Disposition{{Outcome: "complete"}, {Outcome: "complete", Note: &note}, giveBack(0), giveBack(time.Hour),
		{Outcome: "return", After: lasting(time.Hour), To: new("others")}, {Outcome: "never"}, {Outcome: "fail"}, {Outcome: "fail", Error: &note},
		{Code: new("ok")}, {Code: new("ok"), Outcome: "complete", Result: map[string]any{"score": 3.0}}, {Code: new("ok"), Outcome: "never"}, {Code: new("gone")},
		{Code: new("busy")}, {Code: new("busy"), After: lasting(time.Hour), To: new("all")}, {Code: new("busy"), Outcome: "return", Note: &note}, {Code: new("call")},
		{Code: new("ok"), After: lasting(0)}, {Outcome: "complete", Result: map[string]any{"score": "3"}}, {Outcome: "fail", Code: new("ok")},
		{Outcome: "done"}, {Outcome: "return"}, {Outcome: "complete", After: lasting(0)}, giveBack(73 * time.Hour), {Outcome: "complete", Note: new(strings.Repeat("x", 4097))}}
	states := []string{"held", "ran out", "last attempt", "of somebody else", "of another instance"}
	var made [2][]assign.Disposal
	for i, task := range []string{"together", "alone"} {
		newInbox(t, n, task, func(s *assign.Settings) {
			s.MaxAttempts, s.Lease, s.MaxRequest = &attempts, lasting(time.Hour), 1000
			s.Outcomes, s.Result = calls, []assign.ResultField{{Name: "score", Type: "number"}}
		})
		var keys []string
		for range len(states) * len(dispositions) {
			keys = append(keys, fmt.Sprintf("%03d", len(keys)))
		}
		n.push(t, task, keys...)
		works := n.serve(t, task, "ann", len(keys)).Work
		slices.SortFunc(works, func(a, b assign.Work) int { return cmp.Compare(a.Item, b.Item) })
		for j, w := range works {
			switch states[j/len(dispositions)] {
			case "ran out":
				execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where id = $1`, w.ID)
			case "last attempt":
				execute(t, db, `update getwork.work set attempt = 2 where id = $1`, w.ID)
			case "of somebody else":
				execute(t, db, `update getwork.work set user_name = 'bob' where id = $1`, w.ID)
			case "of another instance":
				execute(t, db, `update getwork.work set instance = 'i' where id = $1`, w.ID)
			}
			made[i] = append(made[i], assign.Disposal{ID: w.ID, Disposition: dispositions[j%len(dispositions)]})
		}
	}
	ann := assign.Holder{User: "ann"}
	outcome := func(i int, asManager bool) (answers []string) {
		if i == 0 {
			for _, r := range n.disposeMany(t, ann, asManager, made[0]...) {
				answers = append(answers, verdict(r))
			}
			return answers
		}
		for _, d := range made[1] {
			w, err := n.Dispose(t.Context(), d.ID, d.Disposition, ann, asManager)
			answers = append(answers, verdictAlone(w, err))
		}
		return answers
	}
	const rows = `
select string_agg(concat_ws(' ', w.item, w.state, w.after, w.to_others, w.note, w.error, w.exhausted, w.closed_by, w.code, w.result,
    round(extract(epoch from w.available_at - w.closed_at) / 100), w.closed_xid is not null,
    i.done_at is not null, case when i.due_at = 'infinity' then 'never' else round(extract(epoch from i.due_at - w.closed_at) / 100)::text end), E'\n' order by w.item)
from getwork.work w join getwork.task_state s using (task_id) left join getwork.item i using (task_id, item) where s.name = $1`
	for _, asManager := range []bool{false, false, true, true} {
		together, alone := outcome(0, asManager), outcome(1, asManager)
		for i := range together {
			mine := strings.NewReplacer(fmt.Sprint("work ", made[0][i].ID), "it", "task together", "task").Replace(together[i])
			theirs := strings.NewReplacer(fmt.Sprint("work ", made[1][i].ID), "it", "task alone", "task").Replace(alone[i])
			if mine != theirs {
				t.Errorf("%s, %+v, manager %v: together %s, alone %s", states[i/len(dispositions)], made[0][i].Disposition, asManager, mine, theirs)
			}
		}
		if one, other := query[string](t, db, rows, "together"), query[string](t, db, rows, "alone"); one != other {
			t.Errorf("together:\n%s\nalone:\n%s", one, other)
		}
	}
	for i := range made { // and what was done can't be changed
		for j := range made[i] {
			made[i][j].Disposition = assign.Disposition{Outcome: "never", Note: &note}
		}
	}
	if together, alone := outcome(0, false), outcome(1, false); len(together) != len(alone) || query[string](t, db, rows, "together") != query[string](t, db, rows, "alone") {
		t.Errorf("other dispositions differ: %v, %v", together, alone)
	}
}

// A call as a whole is refused if it names work twice, or too much, and then it does nothing. Nothing is no mistake.
func TestManyRefused(t *testing.T) {
	t.Parallel()
	n := still(t, schematest.URL(t))
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.Lease = lasting(time.Hour) })
	n.push(t, "inbox", "a", "b")
	works := n.serve(t, "inbox", "ann", 2).Work
	ann := works[0].Holder()
	d := each(assign.Disposition{Outcome: "complete"}, works[0], works[1], works[0])
	_, err := n.DisposeMany(t.Context(), d, ann, false, false)
	wantKind(t, err, assign.Invalid)
	_, err = n.ExtendMany(t.Context(), []int64{works[0].ID, works[0].ID}, ann)
	wantKind(t, err, assign.Invalid)
	var ids []int64
	var many []assign.Disposal
	for i := range int64(assign.MaxMany + 1) {
		ids, many = append(ids, 1000+i), append(many, assign.Disposal{ID: 1000 + i, Disposition: d[0].Disposition})
	}
	_, err = n.DisposeMany(t.Context(), many, ann, false, false)
	wantKind(t, err, assign.TooLarge)
	_, err = n.ExtendMany(t.Context(), ids, ann)
	wantKind(t, err, assign.TooLarge)
	for _, r := range n.disposeMany(t, ann, false, many[:assign.MaxMany]...) {
		if r.Status != 404 {
			t.Fatalf("%+v", r)
		}
	}
	n.disposeMany(t, ann, false)
	for _, r := range n.disposeMany(t, ann, false, d[:2]...) {
		if verdict(r) != "200 completed" {
			t.Errorf("%s", verdict(r))
		}
	}
}

// Extensions are judged as single ones are.
func TestExtendMany(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "leased", func(s *assign.Settings) { s.Lease, s.MaxRequest = lasting(time.Hour), 10 })
	newInbox(t, n, "forever", nil)
	n.push(t, "leased", "held", "ran out", "bob's", "done", "returned")
	n.push(t, "forever", "a")
	works := append(n.serve(t, "leased", "ann", 10).Work, n.serve(t, "forever", "ann", 1).Work...)
	ann := assign.Holder{User: "ann"}
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() + interval '1 minute' where lease is not null`)
	execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() where item = 'ran out'`)
	execute(t, db, `update getwork.work set user_name = 'bob' where item = $1`, "bob's")
	var ids []int64
	for _, w := range works {
		ids = append(ids, w.ID)
		switch w.Item {
		case "done":
			n.let(t, w, assign.Disposition{Outcome: "complete"})
		case "returned":
			n.let(t, w, giveBack(0))
		}
	}
	ids = append(ids, 999)
	results, err := n.ExtendMany(t.Context(), ids, ann)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range results {
		w, err := n.Extend(t.Context(), ids[i], ann)
		w.ID = ids[i]
		if one, other := verdict(r), verdictAlone(w, err); one != other || r.ID != ids[i] {
			t.Errorf("work %d: together %s, alone %s", ids[i], one, other)
		}
		if r.Work != nil && r.Work.Lease != nil && time.Until(*r.Work.LeaseExpiresAt) < 50*time.Minute {
			t.Errorf("extended to %v", r.Work.LeaseExpiresAt)
		}
	}
	if got := query[int](t, db, `select count(*) from getwork.work where lease_expires_at > clock_timestamp() + interval '50 min' and warn_at > clock_timestamp()`); got != 1 {
		t.Errorf("%d were extended, want 1", got)
	}
}

// Two calls with the same work in opposite order wait for each other in one direction only: one closes all of it, and the other
// finds it closed in just that way. The same holds for extensions, and for one beside the other.
func TestManyInOppositeOrder(t *testing.T) {
	t.Parallel()
	atEachLevel(t, func(t *testing.T, url string) {
		a, b := still(t, url), still(t, url)
		db := pool(t, url)
		newInbox(t, a, "inbox", func(s *assign.Settings) { s.MaxRequest, s.Lease = 1000, lasting(time.Hour) })
		ann := assign.Holder{User: "ann"}
		ids := func(all []assign.Disposal) (ids []int64) {
			for _, d := range all {
				ids = append(ids, d.ID)
			}
			return ids
		}
		completes := func(n *node, all []assign.Disposal) func() error {
			return func() error {
				for _, r := range n.disposeMany(t, ann, false, all...) {
					if verdict(r) != "200 completed" {
						return fmt.Errorf("work %d: %s", r.ID, verdict(r))
					}
				}
				return nil
			}
		}
		extends := func(n *node, all []assign.Disposal) func() error {
			return func() error {
				_, err := n.ExtendMany(t.Context(), ids(all), ann)
				return err
			}
		}
		l := newLatch(t, db)
		for i, second := range []func(*node, []assign.Disposal) func() error{completes, extends} {
			var keys []string
			for j := range 50 {
				keys = append(keys, fmt.Sprint(i, "/", j))
			}
			a.push(t, "inbox", keys...)
			up := each(assign.Disposition{Outcome: "complete"}, a.serve(t, "inbox", "ann", 50).Work...)
			down := slices.Clone(up)
			slices.Reverse(down)
			if one, two := l.race(t, completes(a, up), second(b, down[:30]), nil); one != nil || two != nil {
				t.Errorf("%v, %v", one, two)
			}
		}
		if left, deadlocks := query[int](t, db, `select count(*) from getwork.work where state = 'held'`),
			query[int](t, db, `select deadlocks from pg_stat_database where datname = current_database()`); left != 0 || deadlocks != 0 {
			t.Errorf("%d are held, %d deadlocks", left, deadlocks)
		}
	})
}

// Items with several places: two calls with different work on the same items meet there, and wait for each other in one direction
// only. An item is done if any of its work is completed, also if one call ends it differently for several holders.
func TestManyOfSeveralPlaces(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := still(t, url), still(t, url)
	db := pool(t, url)
	newInbox(t, a, "inbox", func(s *assign.Settings) { s.Slots, s.MaxRequest = 3, 1000 })
	for round := range 10 {
		var keys []string
		for i := range 60 {
			keys = append(keys, fmt.Sprintf("%02d of %d", i, round))
		}
		a.push(t, "inbox", keys...)
		ann, bob, cyd := a.serve(t, "inbox", "ann", 60).Work, a.serve(t, "inbox", "bob", 60).Work, a.serve(t, "inbox", "cyd", 60).Work
		if len(ann) != 60 || len(bob) != 60 || len(cyd) != 60 {
			t.Fatalf("%d, %d, %d", len(ann), len(bob), len(cyd))
		}
		slices.Reverse(bob)
		// cyd's half is completed beside ann's return of the same items in one call, the rest of cyd's is returned.
		mixed := append(each(giveBack(0), ann...), append(each(assign.Disposition{Outcome: "complete"}, cyd[:30]...), each(giveBack(0), cyd[30:]...)...)...)
		if round%2 == 1 {
			slices.Reverse(mixed)
		}
		var both sync.WaitGroup
		both.Go(func() { a.disposeMany(t, assign.Holder{User: "boss"}, true, mixed...) })
		both.Go(func() { b.disposeMany(t, assign.Holder{User: "bob"}, false, each(giveBack(time.Hour), bob...)...) })
		both.Wait()
		if got := query[int](t, db, `select count(*) from getwork.item where done_at is not null and item like '%of '||$1`, fmt.Sprint(round)); got != 30 {
			t.Errorf("%d items are done, want 30", got)
		}
		left := query[int](t, db, `select count(*) from getwork.item where done_at is null and due_at is null and item like '%of '||$1`, fmt.Sprint(round))
		if left != 30 {
			t.Errorf("%d items are ready, want 30", left)
		}
		execute(t, db, `delete from getwork.item where done_at is null`)
	}
	if got := query[int](t, db, `select deadlocks from pg_stat_database where datname = current_database()`); got != 0 {
		t.Errorf("%d deadlocks", got)
	}
}

// A call has closed its work and locked the first item when a sweep ends other leases on the same items, the last item's first. The sweep
// waits for the first item, and has not locked the last one, for which the call would wait.
func TestManyBesideASweep(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := still(t, url), still(t, url)
	db := pool(t, url)
	newInbox(t, a, "inbox", func(s *assign.Settings) { s.Slots, s.MaxRequest, s.Lease = 2, 1000, lasting(time.Hour) })
	// Found by key, in the table's order, or by lease, "a" comes first; but it is the youngest.
	a.push(t, "inbox", "c", "b", "a")
	ann, bob := a.serve(t, "inbox", "ann", 3).Work, a.serve(t, "inbox", "bob", 3).Work
	for i, w := range bob {
		execute(t, db, `update getwork.work set lease_expires_at = clock_timestamp() - $2::integer * interval '1 second' where id = $1`, w.ID, i)
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
	both.Go(func() { a.disposeMany(t, assign.Holder{User: "ann"}, false, each(giveBack(0), ann...)...) })
	await(t, "the call waits for the middle item", func() bool { return schematest.LockWaits(t, db) == 1 })
	both.Go(func() {
		if found, err := b.sweepOnce(t.Context(), expireWork); err != nil || len(found) != len(bob) {
			t.Errorf("%d leases ended, %v", len(found), err)
		}
	})
	await(t, "the sweep waits for the first", func() bool { return schematest.LockWaits(t, db) == 2 })
	if err := middle.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	both.Wait()
	if got := query[int](t, db, `select deadlocks from pg_stat_database where datname = current_database()`); got != 0 {
		t.Errorf("%d deadlocks", got)
	}
}

// What many let go of is given to those who linger at once, on a node that did not close it, too, and every holder's channel
// shows their work closed. Completed items of an inbox wake nobody.
func TestManyWakeAndAnnounce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, other := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
	newInbox(t, n, "one", func(s *assign.Settings) { s.MaxRequest = 10 })
	newInbox(t, n, "two", nil)
	n.push(t, "one", "a", "b", "c")
	n.push(t, "two", "d")
	take := func(task string, count int) []assign.Work {
		r := n.click(t, task, "ann", count)
		return n.endedRequest(t, r.ID).Work
	}
	works := append(take("one", 3), take("two", 1)...)
	if len(works) != 4 {
		t.Fatalf("%+v", works)
	}
	bob, cyd := other.linger(t, "one", "bob", 2), other.linger(t, "two", "cyd", 1)
	all := each(giveBack(0), works...)
	all[0].Disposition = assign.Disposition{Outcome: "complete"}
	n.disposeMany(t, works[0].Holder(), false, all...)
	if r := other.endedRequest(t, bob.ID); r.Assigned != 2 {
		t.Errorf("bob: %+v", r)
	}
	if r := other.endedRequest(t, cyd.ID); r.Assigned != 1 {
		t.Errorf("cyd: %+v", r)
	}
}
