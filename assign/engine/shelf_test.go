package engine

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

func fresh(d time.Duration) func(*assign.Settings) {
	return func(s *assign.Settings) { s.FreshFor = assign.Duration(d) }
}

func runs(t *testing.T, db *pgxpool.Pool) int {
	t.Helper()
	return query[int](t, db, `select count(*) from getwork.run`)
}

// A shelf ends sooner when fresh_for is shortened, as if it had had that time from the beginning.
func TestShorterFreshFor(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id from generate_series(11, 19) i`)
	const old = `update getwork.task_state set fresh_until = fresh_until - interval '5 minutes', expires_at = expires_at - interval '5 minutes',
  used_at = used_at - interval '3 hours' where task_id = $1` // not in use, so that nothing is refreshed ahead of need
	for i, c := range []struct {
		name     string
		from, to time.Duration
		staleFor time.Duration
		before   string // what has become of the shelf meanwhile, besides that it is five minutes old
		want     string // what bob and then cyd get, and whether the shelf had expired
		runs     [2]int // how many there are by then
	}{
		{"each round runs it", time.Hour, 0, time.Hour, "", "[1] false [12] false ", [2]int{2, 3}},
		{"over", time.Hour, time.Minute, 0, "", "[1] false [12] false ", [2]int{2, 2}},
		{"over, and its refresh has failed", time.Hour, time.Minute, time.Hour, `expires_at = null`, "[1] false [12] false ", [2]int{2, 2}},
		{"over, and it may serve on", time.Hour, time.Minute, time.Hour, "", "[12] true [1] false ", [2]int{2, 2}},
		{"ended early", time.Hour, time.Minute, time.Hour, `fresh_until = clock_timestamp()`, "[1] false [12] false ", [2]int{2, 2}},
		{"not over", 2 * time.Hour, time.Hour, 0, "", "[12] false [13] false ", [2]int{1, 1}},
		{"lengthened before", 2 * time.Hour, time.Hour, 0,
			`fresh_until = fresh_until - interval '1 hour', expires_at = expires_at - interval '1 hour'`, "[12] false [13] false ", [2]int{1, 1}},
	} {
		t.Run(c.name, func(t *testing.T) {
			name := fmt.Sprint("task-", i)
			execute(t, db, `delete from loan where id = 1`)
			task := newTask(t, n, name, `select id as item from loan order by id`, func(s *assign.Settings) {
				s.FreshFor, s.StaleFor = assign.Duration(c.from), assign.Duration(c.staleFor)
			})
			n.take(t, name, "ann")
			n.idle(t)
			execute(t, db, `insert into loan values (1)`)
			execute(t, db, old, task.ID)
			execute(t, db, `update getwork.run set started_at = started_at - interval '5 minutes', finished_at = finished_at - interval '5 minutes' where task_id = $1`, task.ID)
			if c.before != "" {
				execute(t, db, `update getwork.task_state set `+c.before+` where task_id = $1`, task.ID)
			}
			if _, err := n.change(t, name, func(s *assign.Settings) { s.FreshFor = assign.Duration(c.to) }); err != nil {
				t.Fatal(err)
			}
			got := ""
			for i, user := range []string{"bob", "cyd"} {
				r := n.endedRequest(t, n.click(t, name, user, 1).ID)
				got += fmt.Sprint(items(r), r.Stale, " ")
				var runs int
				await(t, "the runs that the click asks for", func() bool {
					runs = query[int](t, db, `select count(*) from getwork.run where task_id = $1`, task.ID)
					return runs >= c.runs[i]
				})
				n.idle(t)
				if runs = query[int](t, db, `select count(*) from getwork.run where task_id = $1`, task.ID); runs != c.runs[i] {
					t.Errorf("%d runs after %s's click, want %d", runs, user, c.runs[i])
				}
			}
			if got != c.want {
				t.Errorf("got  %s\nwant %s", got, c.want)
			}
		})
	}
}

// Leftovers of a run serve later clicks in the click's own transaction, without another run.
func TestShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from generate_series(1, 6) i order by i`, fresh(time.Hour))
	first := n.endedRequest(t, n.click(t, "task", "ann", 2).ID)
	second := n.click(t, "task", "bob", 3)
	third := n.click(t, "task", "cyd", 3)
	fourth := n.click(t, "task", "dan", 3)
	got := fmt.Sprintf("%v %v %s %v %s %s %s", items(first), items(second), second.State, items(third), third.State, fourth.State, *fourth.Reason)
	if want := "[1 2] [3 4 5] assigned [6] partial none all_held"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if n := runs(t, db); n != 1 {
		t.Errorf("%d runs, want 1", n)
	}
}

// A cut shelf says nothing about what else the query would return: a request that finds too little waits for a run, and
// nobody overtakes it.
func TestCutShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{maxRuns: 1}) // so that no run starts ahead of need
	db := pool(t, url)
	newTask(t, n, "task", `select i as item from generate_series(1, 20) i order by i`, func(s *assign.Settings) {
		s.FreshFor, s.MaxCandidates = assign.Duration(time.Hour), 5
	})
	n.endedRequest(t, n.click(t, "task", "ann", 2).ID)
	bob := n.click(t, "task", "bob", 2)
	cyd := n.endedRequest(t, n.click(t, "task", "cyd", 2).ID)
	if got := fmt.Sprint(items(bob), items(cyd)); got != "[3 4] [5 6]" {
		t.Errorf("bob and cyd got %s, want [3 4] [5 6]", got)
	}
	if n := runs(t, db); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

// An item that was closed after the run's snapshot is not handed out from its shelf, because the query ranked it by the state
// before. This also holds if the closing was stamped before the snapshot and committed after it.
func TestClosedAfterTheSnapshot(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	begins := newGate(StepRunBegins)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 4) i order by i`, fresh(time.Hour))
	execute(t, db, `insert into getwork.work (task_id, item, user_name) values ($1, '1', 'early'), ($1, '2', 'early')`, task.ID)
	// A closing that is stamped now, and commits after the run has its snapshot.
	closing, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	_, err = closing.Exec(t.Context(), `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id() where item = '1'`)
	if err != nil {
		t.Fatal(err)
	}
	close(begins.open)
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if err := closing.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	// Ann completes her own: it is not on this shelf any more, either.
	if _, err := n.Dispose(t.Context(), ann.Work[0].ID, assign.Disposition{Outcome: "complete"}, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	bob := n.click(t, "task", "bob", 5)
	if got := fmt.Sprint(items(ann), items(bob)); got != "[3] [4]" {
		t.Errorf("ann and bob got %s, want [3] [4]", got)
	}
	// The next run sees the closings before it.
	execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp()`)
	cyd := n.endedRequest(t, n.click(t, "task", "cyd", 5).ID)
	if got := fmt.Sprint(items(cyd)); got != "[1 3]" {
		t.Errorf("cyd got %s, want [1 3]", got)
	}
}

// While a run is under way the old shelf is still handed out, and the run does not hand the same items out again.
func TestOldShelfServesDuringARun(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(StepQueried)
	var armed atomic.Bool // either node may come first
	steps := func(ctx context.Context, step Step) {
		if armed.Load() {
			queried.hold(ctx, step)
		}
	}
	n := startNode(t, url, nodeOptions{steps: steps})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 9) i order by i`, fresh(time.Hour))
	n.endedRequest(t, n.click(t, "task", "ann", 2).ID)

	other := startNode(t, url, nodeOptions{steps: steps})
	armed.Store(true)
	// A lingering request whose look_after has come makes a run due whatever the shelf holds.
	execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until, look_after)
		values ($1, 'patient', 1, 1, clock_timestamp() + interval '1 hour', clock_timestamp())`, task.ID)
	other.Wake(task.ID)
	<-queried.reached
	if got := fmt.Sprint(items(n.click(t, "task", "bob", 2))); got != "[4 5]" && got != "[3 4]" {
		t.Errorf("bob got %s from the old shelf", got)
	}
	close(queried.open)
	await(t, "everybody is served", func() bool {
		return query[int](t, db, `select count(*) from getwork.work_requested where state = 'pending'`) == 0
	})
	if got := query[string](t, db, `select string_agg(item, ' ' order by item) from getwork.work where state = 'held'`); got != "1 2 3 4 5" {
		t.Errorf("held are %s, want 1 2 3 4 5", got)
	}
}

// What was handed out while the query ran, and what of it was closed, is not put on the new shelf, however much it is and whatever
// stands before it: the first click that comes to it would look each of these up. An item with several places may have one left.
// What was closed before the query began stays on the shelf, since the query saw that.
func TestNewShelfLacksWhatIsGone(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for _, test := range []struct {
		slots, candidates int
		patient, cyd      string
	}{{1, 2401, "1700", "[3501 3502]"}, {2, 6000, "1", "[2 3]"}} {
		t.Run(fmt.Sprint(test.slots), func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			queried := newGate(StepQueried)
			n := startNode(t, url, nodeOptions{})
			task := newTask(t, n, "task", `select i as item from generate_series(1, 6000) i order by i`, func(s *assign.Settings) {
				s.FreshFor, s.Slots, s.MaxCandidates = assign.Duration(time.Hour), test.slots, 10_000
			})
			n.endedRequest(t, n.click(t, "task", "early", 1).ID)
			begins := newGate(StepRunBegins)
			other := startNode(t, url, nodeOptions{steps: func(ctx context.Context, s Step) {
				begins.hold(ctx, s)
				queried.hold(ctx, s)
			}})
			n.stop()
			const insertDone = `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid)
				select $1, i, 'bob', s.state, case when s.state <> 'held' then clock_timestamp() end, case when s.state <> 'held' then 'bob' end,
				  case when s.state <> 'held' then pg_current_xact_id() end
				from generate_series(2, 6000) i, lateral (select case when i % 2 = 0 then 'held' else 'completed' end as state) s
				where `
			execute(t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until, look_after)
				values ($1, 'patient', 1, 1, clock_timestamp() + interval '1 hour', clock_timestamp())`, task.ID)
			other.Wake(task.ID)
			<-begins.reached
			execute(t, db, insertDone+`i in (3601, 3603)`, task.ID)
			close(begins.open)
			<-queried.reached
			execute(t, db, insertDone+`i <> 1700 and (i <= 3500 or i > 5900)`, task.ID)
			close(queried.open)
			await(t, "the patient one is served", func() bool {
				return query[int](t, db, `select count(*) from getwork.work where user_name = 'patient'`) == 1
			})
			if got := query[string](t, db, `select item from getwork.work where user_name = 'patient'`); got != test.patient {
				t.Errorf("the patient one got %s, want %s", got, test.patient)
			}
			if got := query[int](t, db, `select count(*) from getwork.candidate c join getwork.task_state s on s.shelf_run = c.run_id`); got != test.candidates {
				t.Errorf("the new shelf has %d candidates, want %d", got, test.candidates)
			}
			if got := fmt.Sprint(items(other.click(t, "task", "cyd", 2))); got != test.cyd {
				t.Errorf("cyd got %s, want %s", got, test.cyd)
			}
		})
	}
}

// A request that a fresh shelf leaves lingering is looked at again at its look_after, by the node that left it.
func TestLingeringOnAFreshShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select 1 as id`)
	newTask(t, n, "task", `select id as item from loan`, func(s *assign.Settings) {
		s.FreshFor, s.RerunAfter = assign.Duration(time.Hour), assign.Duration(time.Second)
	})
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	ben, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ben"}, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil || ben.State != assign.Pending {
		t.Fatalf("ben is %s (%v)", ben.State, err)
	}
	execute(t, db, `insert into loan values (2)`)
	if r := n.endedRequest(t, ben.ID); r.State != assign.Assigned {
		t.Errorf("ben is %s", r.State)
	}
}

// Tables that were dumped and restored carry transaction ids of another server. They keep nothing back: with a cut result the
// query would otherwise run again and again.
func TestTransactionsOfAFormerServer(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.MaxCandidates = 1 })
	ann := n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	if _, err := n.Dispose(t.Context(), ann.Work[0].ID, assign.Disposition{Outcome: "return", After: after(0)}, ann.Holder(), false); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `update getwork.work set closed_xid = (pg_current_xact_id()::text::bigint + 1000000)::text::xid8`)
	if r := n.endedRequest(t, n.click(t, "task", "ben", 1).ID); fmt.Sprint(items(r)) != "[1]" {
		t.Errorf("ben got %v", items(r))
	}
	if n := runs(t, db); n != 2 {
		t.Errorf("%d runs, want 2", n)
	}
}

// A node that freezes in a round, with the assign lock, loses both after a few seconds. Its write is refused when it wakes,
// and nobody gets what it had planned for another.
func TestFrozenRoundLetsGo(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	a := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	newTask(t, a, "task", numbers, fresh(time.Hour))
	a.endedRequest(t, a.click(t, "task", "first", 1).ID)

	read := newGate(StepRead)
	frozen := startNode(t, url, nodeOptions{steps: read.hold})
	refused := make(chan error, 1)
	go func() {
		_, err := frozen.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "frozen"}, Count: 2})
		refused <- err
	}()
	<-read.reached
	ben := a.click(t, "task", "ben", 2)
	if got := fmt.Sprint(items(ben)); got != "[2 3]" {
		t.Errorf("ben got %s (%s), want [2 3]", got, ben.State)
	}
	close(read.open)
	if err := <-refused; err == nil {
		t.Error("the frozen node's round was committed after it had lost its lock")
	} else if p, _ := pg.ProblemOf(err); p.Status != 503 {
		t.Errorf("it answers %d: %v; want 503, so that the click is repeated", p.Status, err)
	}
	if n := query[int](t, db, `select count(*) from getwork.work where user_name = 'frozen'`); n != 0 {
		t.Errorf("%d items went to a user who was not answered", n)
	}
}

// A shelf whose last items were claimed is empty, although no round has counted them.
func TestClaimedFromTheShelfIsNotLeft(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "task", `select i as item from generate_series(1, 5) i order by i`, fresh(time.Hour))
	n.take(t, "task", "ann")
	if _, _, err := n.Claim(t.Context(), "task", "4", who("ann")); err != nil {
		t.Fatal(err)
	}
	if r := n.endedRequest(t, n.click(t, "task", "bob", 3).ID); fmt.Sprint(items(r)) != "[2 3 5]" {
		t.Fatalf("bob got %v", items(r))
	}
	task, err := n.Records.Task(t.Context(), "task")
	if err != nil || task.Shelf != 0 {
		t.Errorf("%d are on the shelf (%v), want none", task.Shelf, err)
	}
}
