package engine

import (
	"context"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// An item that was returned at once, and put off the next time, is due in the inbox when the last closing says, not when the
// first did. Otherwise no node would wake for it.
func TestClockSetBackKeepsWhatWasPutOffLast(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, db, set := clockNode(t)
	newInbox(t, n, "jobs", nil)
	n.push(t, "jobs", "a")
	set(aDay)
	n.let(t, n.take(t, "jobs", "ann"), giveBack(0))
	n.let(t, n.take(t, "jobs", "ann"), giveBack(2*time.Hour))
	before := n.Looks.Load()
	await(t, "the node has seen that it is tomorrow", func() bool { return n.Looks.Load() > before+1 })
	set(0)
	await(t, "what was returned at once is there again", func() bool {
		return query[int](t, db, `select count(*) from getwork.work where after = interval '0' and available_at > clock_timestamp()`) == 0
	})
	if !query[bool](t, db, `select i.due_at = (select w.available_at from getwork.work w where w.item = i.item order by w.id desc limit 1) from getwork.item i`) {
		t.Error("it is due in the inbox before it can be handed out")
	}
}

// A node that starts after the clock was set back finds out, too.
func TestClockSetBackWhileNobodyWasThere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	server, clock := schematest.ClockServer(t)
	url := server.URL("getwork")
	n := startNode(t, url, nodeOptions{})
	newInbox(t, n, "jobs", nil)
	n.push(t, "jobs", "a")
	clock.Set(aDay)
	n.let(t, n.take(t, "jobs", "ann"), giveBack(0))
	n.stop()
	clock.Set(0)
	n = startNode(t, url, nodeOptions{look: 200 * time.Millisecond})
	if r := n.linger(t, "jobs", "bob", 1); n.endedRequest(t, r.ID).State != assign.Assigned {
		t.Error("bob got nothing of what is there again")
	}
}

// Healing a clock that was set back reads the rows that are late, and not the whole history.
func TestCatchUpByIndex(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	const past = 50_000
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	task := newTask(t, n, "task", numbers, nil).ID
	execute(t, db, `
insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, after, available_at)
select $1, 'item ' || i, 'ann', 'returned', at, pg_current_xact_id(), interval '0', at
from generate_series(1, $2::integer) i, lateral (select clock_timestamp() + (i - $2 + 10) * interval '1 hour' as at) a`, task, past)
	execute(t, db, `analyze getwork.work`)
	var plan []string
	err := pgx.BeginTxFunc(t.Context(), db, pg.ReadCommitted, func(tx pgx.Tx) error {
		rows, err := tx.Query(t.Context(), `explain (analyze, timing off) `+healWork)
		if err != nil {
			return err
		}
		plan, err = pgx.CollectRows(rows, pgx.RowTo[string])
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	text, read := strings.Join(plan, "\n"), 0
	for _, m := range regexp.MustCompile(`Scan using \w+ on work .*actual rows=(\d+)`).FindAllStringSubmatch(text, -1) {
		rows, _ := strconv.Atoi(m[1])
		read += rows
	}
	if read == 0 || read > 100 {
		t.Errorf("%d rows were read:\n%s", read, text)
	}
	if moved := query[int](t, db, `select count(*) from getwork.work where available_at > clock_timestamp()`); moved != 0 {
		t.Errorf("%d are late still", moved)
	}
}

// A run whose lock was released, and whose node is about to record why, is not lost, however long ago the clock says that it
// began.
func TestARunThatIsGivenUpIsNotLost(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	run := query[int64](t, db, insertRunning, task.ID, 1<<30)
	execute(t, db, `update getwork.run set started_at = started_at - interval '2 hours'`)
	state := func() string { return query[string](t, db, `select state from getwork.run`) }
	r := newRescuer(n.Engine)
	r.rescueOnce(t.Context())
	r.rescueOnce(t.Context())
	if s := state(); s != "running" || r.gone[run].IsZero() {
		t.Fatalf("it is %s already; known to be gone: %v", s, r.gone)
	}
	r.gone[run] = r.gone[run].Add(-n.LookEvery)
	if r.rescueOnce(t.Context()); state() != "lost" {
		t.Error("it is never given up")
	}
}

// The rescuer, which looks every two seconds, does nothing for the tasks that were ever deleted.
func TestGlancePassesOverDeletedTasks(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{}), pool(t, url)
	newTask(t, n, "task", numbers, nil)
	execute(t, db, `insert into getwork.task select from generate_series(1, 3000)`)
	execute(t, db, `insert into getwork.task_version (task_id, version, name, query, created_by) select id, 1, 'old', 'select 1', 'x' from getwork.task where id > 1`)
	execute(t, db, `insert into getwork.task_state (task_id, name, version, deleted_at) select id, 'old', 1, clock_timestamp() from getwork.task where id > 1`)
	execute(t, db, `analyze getwork.task_state, getwork.task_version`)
	rows, err := n.api.Query(t.Context(), `explain (analyze, timing off) `+selectAnythingToRescue)
	if err != nil {
		t.Fatal(err)
	}
	plan, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil {
		t.Fatal(err)
	}
	text := strings.Join(plan, "\n")
	all := regexp.MustCompile(`loops=(\d+)`).FindAllStringSubmatch(text, -1)
	if len(all) == 0 {
		t.Fatalf("nothing is known of how often anything is done:\n%s", text)
	}
	for _, m := range all {
		if loops, _ := strconv.Atoi(m[1]); loops > 100 {
			t.Fatalf("something is done %d times:\n%s", loops, text)
		}
	}
}

// A lingering request gets an item that falls due when the clock is set past that time, although the node's own timer is set
// for later.
func TestClockLeapsOverWhatFallsDue(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, _, set := clockNode(t)
	newInbox(t, n, "jobs", patient)
	due := time.Now().Add(30 * time.Minute)
	n.pushItems(t, "jobs", assign.NewItem{Item: "a", NotBefore: &due})
	r := n.linger(t, "jobs", "ann", 1)
	await(t, "the node has a timer", func() bool {
		n.mu.Lock()
		defer n.mu.Unlock()
		return len(n.timers) == 1 && len(n.loops) == 0
	})
	before := n.Looks.Load()
	await(t, "the node has looked", func() bool { return n.Looks.Load() > before+1 })
	set(40 * time.Minute)
	if r = n.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("ann is %s", r.State)
	}
}

// The server's clock may be a little faster than the node's: a query that used up its time by the server's clock has taken
// too long, and is not repeated.
func TestTimeOutByAFasterClock(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	n, db, set := clockNode(t)
	newTask(t, n, "task", `select 1 as item from pg_sleep(60)`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(5 * time.Second) })
	r := n.click(t, "task", "ann", 1)
	await(t, "the query runs", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and wait_event = 'PgSleep'`) > 0
	})
	set(40 * time.Millisecond)
	if r = n.endedRequest(t, r.ID); r.State != assign.Failed || !strings.Contains(faultIn(r), "longer than its query_timeout") {
		t.Errorf("ann is %s: %s", r.State, faultIn(r))
	}
	if runs := query[int](t, db, `select count(*) from getwork.run`); runs != 1 {
		t.Errorf("the query ran %d times", runs)
	}
}

// An item that was completed while its query ran elsewhere, and the clock was set back, is not handed out from that run.
func TestClockSetBackWhileAQueryRunsElsewhere(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	server, clock := schematest.ClockServer(t)
	url := server.URL("getwork")
	n, db := startNode(t, url, nodeOptions{queries: url, look: 200 * time.Millisecond}), pool(t, url)
	execute(t, db, `create table loan as values ('a'), ('b')`)
	task := newTask(t, n, "task", `select column1 as item from loan, `+barrier+` order by column1`, nil)
	clock.Set(time.Hour)
	ann := query[int64](t, db, `insert into getwork.work (task_id, item, user_name) values ($1, 'a', 'ann') returning id`, task.ID)
	runs, open := atBarrier(t, db)
	r := n.click(t, "task", "bob", 1)
	runs()
	clock.Set(0)
	execute(t, db, `delete from loan where column1 = 'a'`)
	if _, err := n.Dispose(t.Context(), ann, assign.Disposition{Outcome: "complete"}, assign.Holder{User: "ann"}, false); err != nil {
		t.Fatal(err)
	}
	open()
	if r = n.endedRequest(t, r.ID); len(r.Work) != 1 || r.Work[0].Item != "b" {
		t.Errorf("bob is %s with %v: %s", r.State, items(r), faultIn(r))
	}
}

// A request that came before the clock was set back has waited for a growing time, whatever the clock says.
func TestOldestRequestOfALaterTime(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n, db := startNode(t, url, nodeOptions{look: 50 * time.Millisecond}), pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	run, err := db.Begin(t.Context()) // another session runs its query
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = run.Rollback(context.Background()) }()
	var backend int32
	if err := run.QueryRow(t.Context(), runLock, task.ID).Scan(&backend); err != nil {
		t.Fatal(err)
	}
	query[int64](t, db, insertRunning, task.ID, backend)
	execute(t, db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at)
values ($1, 'ann', 1, 1, clock_timestamp() + interval '1 hour')`, task.ID)
	await(t, "it is known", func() bool { return n.Oldest.Load() > 0 })
	since := n.Oldest.since.Load()
	before := n.Looks.Load()
	await(t, "the node has looked", func() bool { return n.Looks.Load() > before+20 })
	if n.Oldest.since.Load() != since {
		t.Error("it began to wait anew")
	}
}

// faultIn returns a request's error, or "".
func faultIn(r assign.Request) string {
	if r.Error == nil {
		return ""
	}
	return *r.Error
}
