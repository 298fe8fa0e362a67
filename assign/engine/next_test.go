package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// next asks for an item of any of the tasks, and lingers for an hour if linger is set.
func (n *node) next(t testing.TB, user string, linger bool, tasks ...string) assign.Request {
	t.Helper()
	c := assign.Click{Holder: assign.Holder{User: user}, Count: 1, Tasks: tasks}
	if linger {
		c.Linger = assign.Duration(time.Hour)
	}
	r, err := n.GetNext(t.Context(), c)
	if err != nil {
		t.Fatalf("%s asks for the next item of %v: %v", user, tasks, err)
	}
	return r
}

// wantGiven fails the test unless the request ended with that item of that task; empty: with nothing.
func wantGiven(t testing.TB, r assign.Request, task, item string) {
	t.Helper()
	if len(r.Work) > 1 || r.Task != task || strings.Join(items(r), " ") != item || len(r.Work) == 1 && r.Work[0].Task != task {
		t.Fatalf("%s's request %d of task %s ended as %s %v with %v; want %q of %s", r.User, r.ID, r.Task, r.State, why(r), items(r), item, task)
	}
}

// What can give something now answers at once: the task of the highest priority, and equal ones in turns.
func TestNextTakesTurns(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		priority int
		want     string
	}{"equal": {0, "a1 b1 a2 b2"}, "one first": {1, "b1 b2 a1 a2"}} {
		t.Run(name, func(t *testing.T) {
			n := startNode(t, schematest.URL(t), nodeOptions{})
			newInbox(t, n, "a", nil)
			newInbox(t, n, "b", func(s *assign.Settings) { s.Priority = c.priority })
			n.push(t, "a", "a1", "a2")
			n.push(t, "b", "b1", "b2")
			var got []string
			for i := range 4 {
				r := n.next(t, fmt.Sprint("user ", i), false, "*")
				if r.State != assign.Assigned || len(r.Work) != 1 || r.Task != r.Work[0].Task || !slices.Contains(r.Tasks, "a") || !slices.Contains(r.Tasks, "b") {
					t.Fatalf("%+v", r)
				}
				got = append(got, r.Work[0].Item)
			}
			if all := strings.Join(got, " "); all != c.want {
				t.Errorf("handed out %s, want %s", all, c.want)
			}
			if r := n.next(t, "ann", false, "*"); r.State != assign.None || why(r) != assign.AllHeld || r.Task != "*" {
				t.Errorf("with nothing left: %s %v of %s", r.State, why(r), r.Task)
			}
		})
	}
}

// One task after the other is asked, and each query runs for nobody else.
func TestNextAsksOneAfterTheOther(t *testing.T) {
	t.Parallel()
	const nothing, finds, fails = `select 1 as item where false`, `select 'x' as item`, `select 1 / count(*) as item from pg_class where relname = 'there is none'`
	for name, c := range map[string]struct {
		a, b string
		want string
		runs string
	}{
		"the second finds":        {nothing, finds, "assigned b x", "a finished, b finished"},
		"the first finds":         {finds, finds, "assigned a x", "a finished"},
		"none finds":              {nothing, nothing, "none no_match", "a finished, b finished"},
		"one fails, one finds":    {fails, finds, "assigned b x", "a failed, b finished"},
		"one fails, none finds":   {fails, nothing, "failed", "a failed, b finished"},
		"the second fails":        {nothing, fails, "failed", "a finished, b failed"},
		"there is nothing to ask": {"", "", "none no_match", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			newTask(t, n, "a", c.a, nil)
			newTask(t, n, "b", c.b, nil)
			r := n.endedRequest(t, n.next(t, "ann", false, "a", "b").ID)
			got := string(r.State)
			if r.State == assign.Assigned {
				got += " " + r.Task + " " + strings.Join(items(r), " ")
			} else if r.Reason != nil {
				got += " " + string(*r.Reason)
			}
			if got != c.want {
				t.Errorf("ended as %s %v, want %s", got, r.Error, c.want)
			}
			n.idle(t)
			runs := query[string](t, pool(t, url), `
select coalesce(string_agg(s.name || ' ' || u.state, ', ' order by u.id), '') from getwork.run u join getwork.task_state s using (task_id)`)
			if runs != c.runs {
				t.Errorf("runs: %s, want %s", runs, c.runs)
			}
			if r := n.next(t, "ann", false, "a", "b"); r.State == assign.None && r.RankedAt == nil && c.want == "none no_match" && c.a != "" {
				t.Errorf("the queries found nothing a moment ago, and the answer does not say when: %+v", r)
			}
		})
	}
}

// Whoever waits for a slow query gets what is pushed elsewhere at once, and the query, which nobody waits for any more, is given up.
func TestNextIsServedElsewhere(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "slow", `select 1 as item from pg_sleep(3600)`, nil)
	newInbox(t, n, "inbox", nil)
	r := n.next(t, "ann", false, "*")
	if r.State != assign.Pending || r.Task != "*" || r.Asking == nil || *r.Asking != "slow" || r.Position == nil || *r.Position != 1 {
		t.Fatalf("%s of %s, asking %v at %v", r.State, r.Task, r.Asking, r.Position)
	}
	await(t, "the query runs", func() bool { return query[int](t, db, `select count(*) from getwork.run where state = 'running'`) == 1 })
	n.push(t, "inbox", "x")
	wantGiven(t, n.endedRequest(t, r.ID), "inbox", "x")
	await(t, "the query is given up", func() bool { return query[string](t, db, `select state from getwork.run`) == "cancelled" })
}

// The hardest race: something is pushed between the click's look and its commit. The push wakes a task in whose line nobody stands, so
// the click wakes all its tasks after its commit.
func TestPushBesideANextClick(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	other := startNode(t, url, nodeOptions{})
	newTask(t, other, "slow", `select 1 as item from pg_sleep(3600)`, patient)
	newInbox(t, other, "inbox", patient)
	written := newGate(StepWritten)
	n := startNode(t, url, nodeOptions{Steps: written.hold})
	recorded := make(chan assign.Request, 1)
	go func() {
		r, err := n.GetNext(context.Background(), assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Tasks: []string{"*"}})
		if err != nil {
			t.Error(err)
		}
		recorded <- r
	}()
	<-written.reached
	other.push(t, "inbox", "x")
	other.idle(t) // it has seen no request
	close(written.open)
	wantGiven(t, n.endedRequest(t, (<-recorded).ID), "inbox", "x")
}

// A node dies between the commit and the wake: another's rescuer wakes every task that has not looked, although the query that the
// request waits for is alive.
func TestNextClickWhoseNodeDies(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	recorded := newGate(StepRecorded)
	n := startNode(t, url, nodeOptions{Steps: recorded.hold, Deaf: true})
	newTask(t, n, "slow", `select 1 as item from pg_sleep(3600)`, patient)
	newInbox(t, n, "inbox", patient)
	n.idle(t)
	other := startNode(t, url, nodeOptions{Look: 200 * time.Millisecond, Deaf: true})
	go func() {
		_, _ = n.GetNext(context.Background(), assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Tasks: []string{"slow", "inbox"}})
	}()
	<-recorded.reached
	defer close(recorded.open)
	db := pool(t, url)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) select task_id, 'x', 'a node that died, too' from getwork.task_state where name = 'inbox'`)
	wantGiven(t, other.endedRequest(t, query[int64](t, db, `select id from getwork.work_requested`)), "inbox", "x")
}

// The rounds of two tasks want one request: the second waits for the first, gives nothing, and keeps its item.
func TestTwoRoundsWantOneRequest(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	a := startNode(t, url, nodeOptions{Deaf: true})
	newInbox(t, a, "a", patient)
	newInbox(t, a, "b", patient)
	r := a.next(t, "ann", true, "a", "b")
	a.idle(t)
	read := newGate(StepRead)
	b := startNode(t, url, nodeOptions{Steps: read.hold, Deaf: true})
	b.push(t, "a", "x")
	<-read.reached
	a.push(t, "b", "y")
	await(t, "the second round waits for the request", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock'`) > 0
	})
	close(read.open)
	wantGiven(t, a.endedRequest(t, r.ID), "a", "x")
	a.idle(t)
	if ready := query[int](t, db, `select count(*) from getwork.item where item = 'y' and due_at is null and done_at is null`); ready != 1 {
		t.Error("the second round took its item although it gave it to nobody")
	}
	if n := query[int](t, db, `select count(*) from getwork.work`); n != 1 {
		t.Errorf("%d were handed out", n)
	}
}

// A request over several tasks spends no shelf on which it finds too little, and no query runs for it but the one that it asks.
func TestNextChangesNothingElsewhere(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "slow", `select 1 as item from pg_sleep(3600)`, func(s *assign.Settings) { s.Priority = 1 })
	shelf := newTask(t, n, "shelf", `select i as item from generate_series(1, 9) i order by i`, func(s *assign.Settings) {
		s.FreshFor, s.MaxCandidates, s.ConflictsWith = assign.Duration(time.Hour), 2, []string{"slow"}
	})
	if w := n.take(t, "shelf", "zoe"); w.Item != "1" {
		t.Fatalf("zoe has %s", w.Item)
	}
	// The rest of the shelf is item 2, which ann completed under the task that it conflicts with.
	execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid) select task_id, '2', 'ann', 'completed', clock_timestamp(), 'ann', pg_current_xact_id() from getwork.task_state where name = 'slow'`)
	r := n.next(t, "ann", false, "*")
	n.WakeLingering(shelf.ID)
	await(t, "a round of the shelf's has looked", func() bool {
		return query[bool](t, db, `select not $2::bigint = any(unseen) from getwork.work_requested where id = $1`, r.ID, shelf.ID)
	})
	if is := query[string](t, db, `
select (s.fresh_until > clock_timestamp()) || ' ' || (select count(*) from getwork.run u where u.task_id = s.task_id) from getwork.task_state s where name = 'shelf'`); is != "true 1" {
		t.Errorf("the shelf is fresh, and its runs: %s", is)
	}
	if w := n.take(t, "shelf", "bob"); w.Item != "2" {
		t.Errorf("bob has %s", w.Item)
	}
	if r, err := n.Cancel(t.Context(), r.ID, r.Holder(), false); err != nil || r.State != assign.Cancelled {
		t.Errorf("cancelled: %v, %v", r.State, err)
	}
	await(t, "the query is given up", func() bool {
		return query[int](t, db, `select count(*) from getwork.run where state = 'running'`) == 0
	})
}

// A key belongs to the user and to all tasks at once. One holder has one request over several tasks, and others beside it.
func TestNextKeys(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newInbox(t, n, "a", nil)
	newInbox(t, n, "b", nil)
	c := assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour), Key: "k", Tasks: []string{"*"}}
	first, err := n.GetNext(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	other := c
	other.Tasks, other.Key = []string{"b"}, ""
	if again, err := n.GetNext(t.Context(), other); err != nil || again.ID != first.ID {
		t.Errorf("while it waits, another click made request %d, %v", again.ID, err)
	}
	if r := n.linger(t, "a", "ann", 1); r.ID == first.ID || r.Task != "a" {
		t.Errorf("a click on one task got %+v", r)
	}
	n.push(t, "b", "x")
	wantGiven(t, n.endedRequest(t, first.ID), "b", "x")
	if again, err := n.GetNext(t.Context(), c); err != nil || again.ID != first.ID || len(again.Work) != 1 {
		t.Errorf("the same key made request %d, %v", again.ID, err)
	}
	c.Tasks = []string{"b"}
	if _, err := n.GetNext(t.Context(), c); !assign.IsRefusal(err, assign.KeyReused) {
		t.Errorf("the same key with other tasks: %v", err)
	}
	named, err := n.GetWork(t.Context(), "b", assign.Click{Holder: c.Holder, Count: 1, Linger: c.Linger, Key: "k"})
	if err != nil || named.ID == first.ID {
		t.Errorf("the same key on one task got request %d, %v", named.ID, err)
	}
}

func TestNextRefusals(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newInbox(t, n, "open", nil)
	newInbox(t, n, "desk", func(s *assign.Settings) { s.Groups = []string{"desk"} })
	newInbox(t, n, "queue", func(s *assign.Settings) { s.Pick, s.MaxRequest = "next", 9 })
	n.push(t, "queue", "x", "y")
	many := make([]string, 101)
	for i := range many {
		many[i] = fmt.Sprint("t", i)
	}
	for _, c := range []struct {
		tasks []string
		count int
		want  assign.Kind
	}{
		{nil, 1, assign.Invalid}, {many, 1, assign.Invalid}, {[]string{"*", "open"}, 1, assign.Invalid}, {[]string{"open", "open"}, 1, assign.Invalid},
		{[]string{"desk"}, 1, assign.NotFound}, {[]string{"open", "none"}, 1, assign.NotFound}, {[]string{"O'"}, 1, assign.NotFound},
		{[]string{"open"}, 6, assign.Invalid}, {[]string{"*"}, 10, assign.Invalid}, {[]string{"queue"}, 1, assign.Forbidden},
	} {
		if _, err := n.GetNext(t.Context(), assign.Click{Holder: assign.Holder{User: "ann"}, Count: c.count, Tasks: c.tasks}); !assign.IsRefusal(err, c.want) {
			t.Errorf("%d of %v: %v, want %v", c.count, c.tasks, err, c.want)
		}
	}
	for range 2 { // read, and then remembered
		if _, err := n.GetWork(t.Context(), "queue", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1}); !assign.IsRefusal(err, assign.Forbidden) {
			t.Errorf("a click on a task by name: %v", err)
		}
	}
	if _, _, err := n.Claim(t.Context(), "queue", "x", assign.Who{Holder: assign.Holder{User: "ann"}}); !assign.IsRefusal(err, assign.Forbidden) {
		t.Errorf("a claim: %v", err)
	}
	if r, err := n.GetWork(t.Context(), "queue", assign.Click{Holder: assign.Holder{User: "a program"}, Count: 1, Picks: true}); err != nil || len(r.Work) != 1 {
		t.Errorf("a program's click: %v, %v", items(r), err)
	}
	wantGiven(t, n.next(t, "ann", false, "*"), "queue", "y")
}

// A task that is paused or deleted while a request waits for its query is not asked any more, and the next one is.
func TestNextPassesWhatIsPaused(t *testing.T) {
	t.Parallel()
	for name, act := range map[string]func(*node) error{
		"paused":  func(n *node) error { _, err := n.SetPaused(context.Background(), "slow", true, 0, "boss"); return err },
		"deleted": func(n *node) error { return n.DeleteTask(context.Background(), "slow", 0) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{})
			newTask(t, n, "slow", `select 1 as item from pg_sleep(3600)`, nil)
			newTask(t, n, "quick", `select 'x' as item`, nil)
			r := n.next(t, "ann", false, "slow", "quick")
			if err := act(n); err != nil {
				t.Fatal(err)
			}
			wantGiven(t, n.endedRequest(t, r.ID), "quick", "x")
		})
	}
}

// Whoever is away, or holds as much as the limit over all tasks allows, gets nothing at once, although they would linger, and no query
// runs for them. Once they may have something, they get it.
func TestNextGivesNobodyMoreThanTheirLimit(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "query", `select 'x' as item`, nil)
	newInbox(t, n, "inbox", nil)
	limitTo(t, db, nil, nil, new(`{"full": 0, "robot": 0}`))
	execute(t, db, `insert into getwork.absence (user_name, from_at, created_by) values ('away', clock_timestamp() - interval '1 minute', 'boss')`)
	for _, ready := range []bool{false, true} {
		if ready {
			n.push(t, "inbox", "1", "2", "3", "4")
		}
		for user, reason := range map[string]assign.Reason{"away": assign.Away, "full": assign.AtLimit, "robot": assign.AtLimit} {
			for _, linger := range []assign.Duration{0, assign.Duration(time.Hour)} {
				for _, tasks := range [][]string{{"*"}, {"query"}, {"inbox", "query"}} {
					c := assign.Click{Holder: assign.Holder{User: user}, Count: 1, Linger: linger, Program: user == "robot", Tasks: tasks}
					if r, err := n.GetNext(t.Context(), c); err != nil || r.State != assign.None || why(r) != reason || r.Task != "*" {
						t.Errorf("%s asks %v, ready %v, lingering for %s: %s %s of %s, %v", user, tasks, ready, linger, r.State, why(r), r.Task, err)
					}
				}
			}
		}
	}
	n.idle(t)
	if runs := query[int](t, db, `select count(*) from getwork.run`); runs != 0 {
		t.Errorf("%d runs for people who get nothing", runs)
	}
	limitTo(t, db, nil, nil, nil)
	execute(t, db, `update getwork.absence set ended_at = clock_timestamp()`)
	wantGiven(t, n.next(t, "away", false, "inbox"), "inbox", "1")
	wantGiven(t, n.next(t, "full", false, "inbox"), "inbox", "2")

	// They get there while they wait: the query that their request waits for is stopped, and no other is asked for it.
	newTask(t, n, "slow", `select 'y' as item from pg_sleep(3600)`, func(s *assign.Settings) { s.Priority = 1 })
	waits := n.next(t, "ann", false, "slow", "query")
	if waits.State != assign.Pending {
		t.Fatalf("%s %s", waits.State, why(waits))
	}
	limitTo(t, db, nil, nil, new(`{"ann": 0}`))
	if _, err := n.SetPaused(t.Context(), "slow", true, 0, "boss"); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, waits.ID); r.State != assign.None || why(r) != assign.AtLimit {
		t.Errorf("ann, who is at her limit by now: %s %s", r.State, why(r))
	}
	if runs := query[int](t, db, `select count(*) from getwork.run u join getwork.task_state s using (task_id) where s.name = 'query'`); runs != 0 {
		t.Errorf("%d runs for somebody at their limit", runs)
	}
}

// Whoever lingers sleeps when all have been asked, gets what becomes free meanwhile, and makes all be asked again later.
func TestNextLingers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{Look: 100 * time.Millisecond})
	execute(t, db, `create table loan (id int)`)
	newTask(t, n, "a", `select id as item from loan`, func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Second) })
	newTask(t, n, "b", `select id as item from loan where false`, func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Second) })
	newInbox(t, n, "inbox", func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Second) })
	ann, bob := n.next(t, "ann", true, "*"), n.next(t, "bob", true, "*")
	asleep := func() bool {
		return query[int](t, db, `select count(*) from getwork.work_requested where state = 'pending' and todo = '{}' and look_after > clock_timestamp()`) == 2
	}
	await(t, "both sleep", asleep)
	n.push(t, "inbox", "x")
	wantGiven(t, n.endedRequest(t, ann.ID), "inbox", "x") // first come, first served
	execute(t, db, `insert into loan values (7)`)
	wantGiven(t, n.endedRequest(t, bob.ID), "a", "7")
	r := n.next(t, "cid", true, "*")
	await(t, "cid sleeps", func() bool {
		return query[int](t, db, `select count(*) from getwork.work_requested where state = 'pending' and todo = '{}'`) == 1
	})
	execute(t, db, `update getwork.work_requested set linger_until = clock_timestamp() where id = $1`, r.ID)
	if r = n.endedRequest(t, r.ID); r.State != assign.None {
		t.Errorf("when its time is over: %s", r.State)
	}
}

// An inbox in which a request waits, but for which nobody pushes, does not look again and again.
func TestNextDoesNotSpin(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{Look: 100 * time.Millisecond})
	newTask(t, n, "slow", `select 1 as item from pg_sleep(3600)`, nil)
	newInbox(t, n, "inbox", nil)
	n.next(t, "ann", false, "*")
	await(t, "the inbox has looked", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.loops) == 1
	})
	before := n.Rounds.Load()
	for range 3 {
		n.looked(t)
	}
	if after := n.Rounds.Load(); after > before+1 {
		t.Errorf("%d rounds while nothing happened", after-before)
	}
}

// Clicks over several tasks that a shelf or an inbox can answer share its rounds with clicks on it alone. They are recorded as ended, so
// nothing of them waits in between.
func TestNextClicksShareARound(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newInbox(t, n, "a", nil)
	newInbox(t, n, "b", nil)
	var pushed []string
	for i := range 12 {
		pushed = append(pushed, fmt.Sprint("a", i))
	}
	n.push(t, "a", pushed...)
	var batch []*click
	names := []string{"a", "b"}
	ids := query[[]int64](t, db, `select array_agg(task_id order by name) from getwork.task_state where name = any($1)`, names)
	for i := range 12 {
		k := &click{Click: assign.Click{Holder: assign.Holder{User: fmt.Sprint("user ", i/2*2)}, Count: 1}, done: make(chan struct{})}
		if k.holder = k.Holder; i%4 >= 2 {
			k.Key = fmt.Sprint("key ", i) // two keys of one holder
		}
		if i%2 == 1 { // everybody clicks on the task, and over both
			k.Tasks, k.targets, k.names = names, ids, names
		}
		batch = append(batch, k)
	}
	named := slices.Clone(batch[:6])
	n.recordBatch(t.Context(), "a", batch)
	rounds := map[int64]bool{}
	for i, k := range named {
		if i%2 == 1 {
			if !errors.Is(k.err, errElsewhere) {
				t.Errorf("the click over both of %s, who also clicks on the one: %v", k.holder.User, k.err)
			}
		} else if k.err != nil || k.answer.State != assign.Assigned || k.answer.Tasks != nil {
			t.Fatalf("the click of %s: %+v, %v", k.holder.User, k.answer, k.err)
		}
	}
	// Alone, they are answered, all by one round, and their keys find them again.
	var nexts []*click
	for i := range 6 {
		k := &click{Click: assign.Click{Holder: assign.Holder{User: fmt.Sprint("next ", i)}, Count: 1, Key: "key", Tasks: names}, targets: ids, names: names, done: make(chan struct{})}
		k.holder = k.Holder
		nexts = append(nexts, k)
	}
	n.recordBatch(t.Context(), "a", slices.Clone(nexts))
	for _, k := range nexts {
		if k.err != nil || k.answer.State != assign.Assigned || k.answer.Task != "a" || !slices.Equal(k.answer.Tasks, names) {
			t.Fatalf("%s: %+v, %v", k.holder.User, k.answer, k.err)
		}
		rounds[query[int64](t, db, `select round_id from getwork.work_requested where id = $1 and task_id = $2 and todo is null`, k.id, ids[0])] = true
		again, err := n.GetNext(t.Context(), assign.Click{Holder: k.Holder, Count: 1, Key: "key", Tasks: names})
		if err != nil || again.ID != k.id || len(again.Work) != 1 {
			t.Errorf("%s again: %+v, %v", k.holder.User, again, err)
		}
	}
	if len(rounds) != 1 {
		t.Errorf("%d rounds", len(rounds))
	}
	// With nothing left none of them is recorded by the task.
	k := &click{Click: assign.Click{Holder: assign.Holder{User: "late"}, Count: 1, Tasks: names}, targets: ids, names: names, holder: assign.Holder{User: "late"}}
	n.recordBatch(t.Context(), "a", []*click{k})
	if left := query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'late'`); !errors.Is(k.err, errElsewhere) || left != 0 {
		t.Errorf("with nothing left: %v, %d requests", k.err, left)
	}
}
