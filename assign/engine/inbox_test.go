package engine

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A batch is pushed whole or not at all, and everything that is wrong with any item is named.
func TestPushAllOrNothing(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	newInbox(t, n, "inbox", nil)
	newInbox(t, n, "places", func(s *assign.Settings) { s.Slots = 2 })
	newTask(t, n, "query", numbers, nil)
	two, many, group, long := 2, 10_001, "g", strings.Repeat("g", 201)
	good := assign.NewItem{Item: "good"}
	for field, bad := range map[string]assign.NewItem{
		"[1].item":      {Item: ""},
		"[1].slots":     {Item: "x", Slots: &many},
		"[1].exclusive": {Item: "x", Exclusive: &long},
		"[1].details":   {Item: "x", Details: []byte(`[1]`)},
	} {
		_, err := n.Push(t.Context(), "inbox", []assign.NewItem{good, bad}, boss)
		wantKind(t, err, assign.Invalid)
		var r *assign.Refusal
		if errors.As(err, &r); len(r.Fields) != 1 || r.Fields[0].Field != field {
			t.Errorf("fields %v, want %s", r.Fields, field)
		}
	}
	for name, bad := range map[string]assign.NewItem{
		"long": {Item: strings.Repeat("ö", 101)}, "NUL": {Item: "a\x00"}, "no UTF-8": {Item: "\xff"},
		"slots and group": {Item: "x", Slots: &two, Exclusive: &group},
		"no object":       {Item: "x", Details: []byte(`"text"`)},
	} {
		if _, err := n.Push(t.Context(), "inbox", []assign.NewItem{good, bad}, boss); !assign.IsRefusal(err, assign.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := n.Push(t.Context(), "query", []assign.NewItem{good}, boss)
	wantKind(t, err, assign.Invalid)
	_, err = n.Push(t.Context(), "nowhere", []assign.NewItem{good}, boss)
	wantKind(t, err, assign.NotFound)
	_, err = n.Push(t.Context(), "inbox", make([]assign.NewItem, assign.MaxPush+1), boss)
	wantKind(t, err, assign.TooLarge)
	if got := query[int](t, db, `select count(*) from getwork.item`); got != 0 {
		t.Errorf("%d items, want none", got)
	}
	if p := n.pushItems(t, "inbox"); p != (assign.Pushed{}) {
		t.Errorf("an empty batch: %+v", p)
	}
}

// A lingering request is served by a push, by an item that falls due, by work that is closed and by a group that becomes
// free: at once, by event and timer, first come first served. The rescuer is off here.
func TestLingeringIsServedByEvent(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := startNode(t, url, nodeOptions{}), startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, a, "inbox", func(s *assign.Settings) { s.Backoff = assign.Duration(300 * time.Millisecond) })
	first, second := a.linger(t, "inbox", "first", 1), b.linger(t, "inbox", "second", 1)
	served := func(what string, r assign.Request, from *node) assign.Work {
		t.Helper()
		r = from.endedRequest(t, r.ID)
		if r.State != assign.Assigned || r.CompletedAt.Sub(r.CreatedAt) > 20*time.Second {
			t.Fatalf("%s: %s %v after %v", what, r.State, why(r), r.CompletedAt.Sub(r.CreatedAt))
		}
		return r.Work[0]
	}
	b.push(t, "inbox", "pushed")
	w := served("pushed", first, a)
	stood := standstill(t, db)
	a.let(t, w, giveBack(300*time.Millisecond))
	w = served("put off", second, b)
	if d := w.AssignedAt.Sub(query[time.Time](t, db, `select max(available_at) from getwork.work`)); d < 0 || d > 2*time.Second+stood() {
		t.Errorf("handed out %v after it fell due", d)
	}

	third := a.linger(t, "inbox", "third", 1)
	b.let(t, w, assign.Disposition{Outcome: "fail"})
	w = served("failed", third, a)
	if w.Attempt != 2 {
		t.Errorf("attempt %d, want 2", w.Attempt)
	}
	a.let(t, w, assign.Disposition{Outcome: "complete"})

	fourth := a.linger(t, "inbox", "fourth", 1)
	soon := query[time.Time](t, db, `select clock_timestamp() + interval '300 milliseconds'`)
	b.pushItems(t, "inbox", assign.NewItem{Item: "later", NotBefore: &soon})
	if w = served("not before", fourth, a); w.AssignedAt.Before(soon) {
		t.Errorf("handed out %v early", soon.Sub(w.AssignedAt))
	}

	// The other way round: the item is there, not yet due, when the request begins to linger.
	soon = query[time.Time](t, db, `select clock_timestamp() + interval '300 milliseconds'`)
	b.pushItems(t, "inbox", assign.NewItem{Item: "later still", NotBefore: &soon})
	served("due later", a.linger(t, "inbox", "fifth", 1), a)

	group := "crawl example.org"
	b.pushItems(t, "inbox", assign.NewItem{Item: "page 1", Exclusive: &group}, assign.NewItem{Item: "page 2", Exclusive: &group})
	page := a.take(t, "inbox", "agent 1")
	sixth := a.linger(t, "inbox", "agent 2", 1)
	b.let(t, page, assign.Disposition{Outcome: "complete"})
	if w = served("the group is free", sixth, a); w.Item != "page 2" {
		t.Errorf("agent 2 has %s", w.Item)
	}
}

// The members of held groups are passed over by a hash of these groups, whatever the planner knows: thousands of groups may be held, and
// each may have many members.
func TestHeldGroupsAreHashed(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	task := newInbox(t, n, "inbox", nil).ID
	const groups, members = 2000, 20
	execute(t, db, `insert into getwork.item (task_id, item, exclusive, pushed_by)
		select $1, g || ' ' || m, g::text, 'boss' from generate_series(1, $2::integer) g, generate_series(1, $3::integer) m`, task, groups, members)
	execute(t, db, `insert into getwork.item (task_id, item, exclusive, pushed_by) values ($1, 'last', 'free', 'boss')`, task)
	execute(t, db, `insert into getwork.work (task_id, item, exclusive, user_name) select $1, g, g::text, 'ann' from generate_series(1, $2::integer) g`, task, groups)
	limit, _ := atMost(10)
	for _, statistics := range []string{"none", "taken"} {
		if statistics == "taken" {
			execute(t, db, `analyze getwork.item, getwork.work`)
		}
		for name, statement := range map[string]string{"selectInbox": selectInbox, "selectInboxAlone": selectInboxAlone} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+mode); err != nil {
						return err
					}
					rows, err := tx.Query(t.Context(), "explain "+statement+limit, task, []int64{}, 1, 1)
					if err != nil {
						return err
					}
					plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
					if text := strings.Join(plan, "\n"); err == nil && (!strings.Contains(text, "hashed SubPlan") || !strings.Contains(text, "using item_ready on item i")) {
						t.Errorf("%s, statistics %s, %s:\n%s", name, statistics, mode, text)
					}
					return err
				})
				if err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	if r := n.serve(t, "inbox", "bob", 1); fmt.Sprint(items(r)) != "[last]" {
		t.Errorf("bob got %v", items(r))
	}
}

// Many items fall due at the same time: the best of them all is handed out first, and the rest is not forgotten.
func TestManyFallDueAtOnce(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.MaxRequest = 1000 })
	const due = 3000
	at := query[time.Time](t, db, `select clock_timestamp() + interval '1 hour'`)
	batch := make([]assign.NewItem, due)
	for i := range batch {
		batch[i] = assign.NewItem{Item: fmt.Sprint(i), Priority: int32(i / 10), NotBefore: &at}
	}
	n.pushItems(t, "inbox", batch...)
	if r := n.click(t, "inbox", "early", 1); why(r) != assign.AllHeld {
		t.Errorf("before: %s %v", r.State, why(r))
	}
	var waiting []assign.Request
	for i := range 3 {
		waiting = append(waiting, n.linger(t, "inbox", fmt.Sprint("user ", i), 1000))
	}
	execute(t, db, `update getwork.item set due_at = clock_timestamp() - (3000 - id) * interval '1 millisecond' where due_at is not null`)
	n.Wake(waiting[0].TaskID)
	got := map[string]bool{}
	for i, r := range waiting {
		r = n.endedRequest(t, r.ID)
		if r.State != assign.Assigned || len(r.Work) != 1000 {
			t.Fatalf("user %d: %s, %d", i, r.State, len(r.Work))
		}
		for j, w := range r.Work {
			best := 1000*i + j
			if want := fmt.Sprint(due - 10 - best/10*10 + best%10); w.Item != want {
				t.Fatalf("user %d's item %d is %s, want %s", i, j, w.Item, want)
			}
			got[w.Item] = true
		}
	}
	if len(got) != due {
		t.Errorf("%d items, want %d", len(got), due)
	}
}

// When very many have fallen due, a round reads the best of them in their order; when few have, it reads those, however many fall due
// later.
func TestStormIsReadInOrder(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := still(t, url)
	db := pool(t, url)
	task := newInbox(t, n, "inbox", nil).ID
	const off = 50_000
	execute(t, db, `insert into getwork.item (task_id, item, priority, due_at, pushed_by)
		select $1, i::text, i % 100, clock_timestamp() + interval '1 hour', 'boss' from generate_series(1, $2::integer) i`, task, off)
	limit, _ := atMost(1000)
	for _, fallen := range []int{10, off} {
		execute(t, db, `update getwork.item set due_at = clock_timestamp() - interval '1 hour' where id <= $1`, fallen)
		for _, statistics := range []string{"of before", "of now"} {
			if statistics == "of now" {
				execute(t, db, `vacuum analyze getwork.item`)
			}
			look := strings.Replace(fmt.Sprintf(fallDue, limit), "update getwork.item i set due_at = null from due where i.id = due.id", "select from due", 1)
			rows, err := db.Query(t.Context(), "explain (analyze, costs off, timing off, summary off) "+look, task)
			if err != nil {
				t.Fatal(err)
			}
			plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
			if err != nil {
				t.Fatal(err)
			}
			for _, line := range plan {
				var read float64
				_, after, is := strings.Cut(line, "(actual rows=")
				if !is {
					_, after, is = strings.Cut(line, "Rows Removed by Filter: ")
				}
				if is {
					if _, err := fmt.Sscanf(after, "%g", &read); err != nil {
						t.Fatalf("%s: %v", line, err)
					}
				}
				if read > 2001 {
					t.Errorf("%d of %d have fallen due, statistics %s:\n%s", fallen, off, statistics, strings.Join(plan, "\n"))
					break
				}
			}
		}
	}
}

// Two batches with the same keys in opposite order wait for each other in one direction only.
func TestPushesInOppositeOrder(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a, b := still(t, url), still(t, url)
	db := pool(t, url)
	newInbox(t, a, "inbox", nil)
	for round := range 20 {
		var up []assign.NewItem
		for i := range 200 {
			up = append(up, assign.NewItem{Item: fmt.Sprintf("%d of %d", i, round)})
		}
		down := slices.Clone(up)
		slices.Reverse(down)
		var both sync.WaitGroup
		var accepted [2]int
		for i, n := range []*node{a, b} {
			batch := [][]assign.NewItem{up, down}[i]
			both.Go(func() {
				p, err := n.Push(t.Context(), "inbox", batch, boss)
				if err != nil || p.Accepted+p.Duplicates != len(batch) {
					t.Errorf("%+v, %v", p, err)
				}
				accepted[i] = p.Accepted
			})
		}
		both.Wait()
		if accepted[0]+accepted[1] != len(up) {
			t.Errorf("%v accepted, want %d in all", accepted, len(up))
		}
	}
	if got := query[int](t, db, `select deadlocks from pg_stat_database where datname = current_database()`); got != 0 {
		t.Errorf("%d deadlocks", got)
	}
}

// A completion and a push of the same key meet: the push counts as before or after the completion, and says which.
func TestPushBesideACompletion(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := still(t, url), still(t, url)
	db := pool(t, url)
	newInbox(t, a, "inbox", nil)
	a.push(t, "inbox", "a")
	w := a.serve(t, "inbox", "ann", 1).Work[0]
	l := newLatch(t, db)
	var p assign.Pushed
	complete := func() error {
		_, err := a.Dispose(t.Context(), w.ID, assign.Disposition{Outcome: "complete"}, w.Holder(), false)
		return err
	}
	push := func() (err error) {
		p, err = b.Push(t.Context(), "inbox", []assign.NewItem{{Item: "a"}}, boss)
		return err
	}
	if one, two := l.race(t, complete, push, nil); one != nil || two != nil {
		t.Fatal(one, two)
	}
	if got := b.serve(t, "inbox", "bob", 5); p.Accepted+p.Duplicates != 1 || got.Assigned != p.Accepted {
		t.Errorf("%+v, and bob got %d", p, got.Assigned)
	}
	if p = b.pushItems(t, "inbox", assign.NewItem{Item: "a"}, assign.NewItem{Item: "b"}); p.Accepted < 1 {
		t.Errorf("later: %+v", p)
	}
}
