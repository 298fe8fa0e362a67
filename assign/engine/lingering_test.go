package engine

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// lingerers adds requests that linger, and that a round has left so a moment ago: user 1, user 2 and so on.
func lingerers(t testing.TB, db *pgxpool.Pool, task int64, n int) {
	t.Helper()
	execute(t, db, `
insert into getwork.work_requested (task_id, user_name, wanted, requested, linger_until, look_after, reason)
select $1, 'user ' || i, 1, 1, clock_timestamp() + interval '8 hours', clock_timestamp() + interval '59 minutes', 'all_held'
from generate_series(1, $2::integer) i`, task, n)
	execute(t, db, `vacuum analyze getwork.work_requested`)
}

// nothingLeft makes tasks of each kind that have nothing to give.
func nothingLeft(t testing.TB, n *node, suffix string) map[string]assign.Task {
	t.Helper()
	tasks := map[string]assign.Task{
		"inbox": newInbox(t, n, "inbox"+suffix, patient),
		"shelf": newTask(t, n, "shelf"+suffix, `select 1 as item`, func(s *assign.Settings) { patient(s); s.FreshFor = assign.Duration(time.Hour) }),
		"query": newTask(t, n, "query"+suffix, `select 1 as item`, patient),
	}
	for _, task := range tasks {
		if task.Inbox() {
			n.pushItems(t, task.Name, assign.NewItem{Item: "first", Exclusive: new("group")})
		}
		n.take(t, task.Name, "ann")
		n.idle(t)
	}
	return tasks
}

// touched returns how many of the task's lingering requests were locked or written since they were added.
func touched(t testing.TB, db *pgxpool.Pool, task int64) int {
	t.Helper()
	return query[int](t, db, `select count(*) from getwork.work_requested where task_id = $1 and user_name like 'user %' and xmax <> '0'`, task)
}

// A click, a lingering request and a push beside thousands of requests that linger leave those alone: no row is locked, and
// none is written, whatever the kind of the task.
func TestClicksLeaveThoseWhoLingerAlone(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	for kind, task := range nothingLeft(t, n, "") {
		lingerers(t, db, task.ID, 2000)
		asked := n.endedRequest(t, n.click(t, task.Name, "zoe", 2).ID)
		if asked.State != assign.None || why(asked) != assign.AllHeld {
			t.Errorf("%s: a click ends as %s %v", kind, asked.State, why(asked))
		}
		r := n.linger(t, task.Name, "lee", 1)
		await(t, "a round leaves it lingering", func() bool {
			return query[bool](t, db, `select look_after is not null from getwork.work_requested where id = $1`, r.ID)
		})
		n.idle(t)
		if r.State != assign.Pending {
			t.Errorf("%s: a lingering request ends as %s", kind, r.State)
		}
		if again := n.linger(t, task.Name, "user 7", 1); again.User != "user 7" || again.State != assign.Pending {
			t.Errorf("%s: asking again answers with %+v", kind, again)
		}
		if task.Inbox() {
			n.pushItems(t, task.Name, assign.NewItem{Item: "second", Exclusive: new("group")}) // nobody may have it
			n.idle(t)
		}
		if got := touched(t, db, task.ID); got > 0 {
			t.Errorf("%s: %d of 2,000 requests that linger were locked or written", kind, got)
		}
	}
}

// What comes back goes to those who have lingered longest, however many there are, and not to a click that comes first.
func TestTheLongestLineIsServedInOrder(t *testing.T) {
	t.Parallel()
	const waiting, items = 700, 450
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{Deaf: true})
	task := newInbox(t, n, "inbox", patient)
	lingerers(t, db, task.ID, waiting)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by, priority) select $1, i, 'boss', -i from generate_series(1, $2::integer) i`, task.ID, items)
	if r := n.click(t, "inbox", "zoe", 1); r.State != assign.None {
		t.Errorf("a click got %v before those who linger", items)
	}
	n.idle(t)
	wrong := query[int](t, db, `
select count(*) from (
  select r.user_name, row_number() over (order by r.id) as place, w.item
  from getwork.work_requested r left join getwork.work w on w.request_id = r.id
  where r.task_id = $1 and r.user_name like 'user %') r
where r.item is distinct from case when place <= $2 then place::text end`, task.ID, items)
	if wrong > 0 {
		t.Errorf("%d of %d requests got something else than their place in the line gives", wrong, waiting)
	}
}

// A rule that passes over those who have lingered longest does not pass over the others: the round reads on until it comes
// to one who may have the item.
func TestRoundReadsOnWhileRulesPassOver(t *testing.T) {
	t.Parallel()
	const waiting, barred = 700, 600
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{Deaf: true})
	first := newInbox(t, n, "first", nil)
	task := newInbox(t, n, "second", func(s *assign.Settings) { patient(s); s.ConflictsWith = []string{"first"} })
	execute(t, db, `
insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid)
select $1, 'a', 'user ' || i, 'completed', clock_timestamp(), 'user ' || i, pg_current_xact_id() from generate_series(1, $2::integer) i`, first.ID, barred)
	lingerers(t, db, task.ID, waiting)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) values ($1, 'a', 'boss')`, task.ID)
	if r := n.click(t, "second", "zoe", 1); r.State != assign.None {
		t.Errorf("a click ends as %s with %v", r.State, items(r))
	}
	if got, want := query[string](t, db, `select user_name from getwork.work where task_id = $1`, task.ID), fmt.Sprint("user ", barred+1); got != want {
		t.Errorf("%s got the item, want %s", got, want)
	}
	// Everybody who lingers is passed over now, and the click is not.
	execute(t, db, `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_by = user_name, closed_xid = pg_current_xact_id() where task_id = $1`, task.ID)
	execute(t, db, `
insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid)
select $1, 'b', 'user ' || i, 'completed', clock_timestamp(), 'user ' || i, pg_current_xact_id() from generate_series(1, $2::integer) i`, first.ID, waiting)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) values ($1, 'b', 'boss')`, task.ID)
	if r := n.click(t, "second", "zoe", 1); r.State != assign.Assigned {
		t.Errorf("a click that everybody before may not have ends as %s %v", r.State, why(r))
	}
}

// What somebody whose log-in has ended would have got goes to the next of those who linger, though the round had read no farther than
// that one, and not to the click.
func TestEndedLogInBeforeTheLongestLine(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{Deaf: true})
	task := newInbox(t, n, "inbox", patient)
	lingerers(t, db, task.ID, 300)
	execute(t, db, `update getwork.work_requested set credential = 's:gone' where id in (select id from getwork.work_requested order by id limit 120)`)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) values ($1, 'a', 'boss')`, task.ID)
	if r := n.click(t, "inbox", "zoe", 1); r.State != assign.None {
		t.Errorf("the click ends as %s", r.State)
	}
	if got := query[string](t, db, `select user_name from getwork.work`); got != "user 121" {
		t.Errorf("%s got the item", got)
	}
	if left := query[int](t, db, `select count(*) from getwork.work_requested where credential is not null and state <> 'cancelled'`); left > 0 {
		t.Errorf("%d requests of a log-in that has ended were not cancelled", left)
	}
}

// A run's round puts off the next run for all who linger, also for those that it does not read. Otherwise each of them would
// start a run at a time of its own.
func TestRunPutsOffTheNextForAllWhoLinger(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	task := nothingLeft(t, n, "")["query"]
	lingerers(t, db, task.ID, 300)
	execute(t, db, `update getwork.work_requested set look_after = clock_timestamp() + id % 20 * interval '1 second' + interval '1 minute'
where task_id = $1 and state = 'pending'`, task.ID)
	n.endedRequest(t, n.click(t, task.Name, "zoe", 1).ID)
	n.idle(t)
	if soon := query[int](t, db, `select count(*) from getwork.work_requested
where task_id = $1 and state = 'pending' and look_after < clock_timestamp() + interval '59 minutes'`, task.ID); soon > 0 {
		t.Errorf("%d of 300 start the next run sooner than after rerun_after", soon)
	}
}

// Requests that linger are cancelled, and end, while a round reads on: it serves the next in the line, and nobody twice.
func TestCancelBesideTheLongestLine(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	read := newGate(StepRead)
	n := startNode(t, url, nodeOptions{Steps: read.hold, Deaf: true})
	other := startNode(t, url, nodeOptions{Deaf: true})
	task := newInbox(t, other, "inbox", patient)
	lingerers(t, db, task.ID, 600)
	first := query[int64](t, db, `select min(id) from getwork.work_requested where task_id = $1`, task.ID)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) select $1, i, 'boss' from generate_series(1, 150) i`, task.ID)
	answered := make(chan assign.Request, 1)
	go func() {
		r, err := n.GetWork(context.Background(), "inbox", assign.Click{Holder: assign.Holder{User: "zoe"}, Count: 1})
		if err != nil {
			t.Error(err)
		}
		answered <- r
	}()
	<-read.reached
	// It has read no further than there was something to give, and so not this one.
	if r, err := other.Cancel(t.Context(), first+599, assign.Holder{User: "user 600"}, false); err != nil || r.State != assign.Cancelled {
		t.Errorf("a request that the round did not read: %s (%v)", r.State, err)
	}
	cancelled := make(chan error, 1)
	go func() { // this one it serves, so that the cancel waits for it
		_, err := other.Cancel(context.Background(), first, assign.Holder{User: "user 1"}, false)
		cancelled <- err
	}()
	await(t, "the cancel waits", func() bool { return schematest.LockWaits(t, db) > 0 })
	close(read.open)
	if r := <-answered; r.State != assign.None {
		t.Errorf("the click ends as %s", r.State)
	}
	wantKind(t, <-cancelled, assign.NotPending)
	if served := query[int](t, db, `select count(*) from getwork.work_requested where task_id = $1 and state = 'assigned' and id < $2`, task.ID, first+150); served != 150 {
		t.Errorf("%d of the first 150 were served", served)
	}
}

// readOf returns how many rows of requests each of the statements reads, with a plan for these arguments and with one for any.
func readOf(t *testing.T, db *pgxpool.Pool, statements map[string]looked) map[string]int {
	t.Helper()
	read := map[string]int{}
	for what, l := range statements {
		for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
			err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
				if _, err := tx.Exec(t.Context(), "set local plan_cache_mode = "+mode); err != nil {
					return err
				}
				rows := func() (n int) {
					if err := tx.QueryRow(t.Context(), rowsRead).Scan(&n); err != nil {
						t.Fatal(err)
					}
					return n
				}
				for range 2 { // the first execution marks dead rows
					if _, err := tx.Exec(t.Context(), "savepoint again"); err != nil {
						return err
					}
					before := rows()
					if _, err := tx.Exec(t.Context(), l.sql, l.args...); err != nil {
						return fmt.Errorf("%s: %w", what, err)
					}
					read[what+", "+mode] = rows() - before
					if _, err := tx.Exec(t.Context(), "rollback to savepoint again"); err != nil {
						return err
					}
				}
				return errRolledBack
			})
			if !errors.Is(err, errRolledBack) {
				t.Fatal(err)
			}
		}
	}
	return read
}

const rowsRead = `select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relid = 'getwork.work_requested'::regclass`

// However many linger, on a task or on another, the statements of a click, a round and a read of a task read as many requests: before
// the table has statistics and after.
func TestClicksReadNobodyWhoLingers(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	of := func(sql string, args ...any) looked { return looked{n.SQL(sql), args} }
	tasks := nothingLeft(t, n, "")
	statements := map[string]looked{
		"the first in line":  of(selectFirstInLine, true, []int64{}, []int64{}),
		"the oldest":         of(selectOldest),
		"whom nobody serves": of(selectOrphans),
	}
	for kind, task := range tasks {
		id := task.ID
		for what, l := range map[string]looked{
			"how far to read":         of(fmt.Sprintf(selectNext, 0), id, 0),
			"who waits":               of(fmt.Sprintf(selectWaiting, 0), id, 0),
			"who must be answered":    of(selectMustRead, id, 0),
			"what the clickers have":  of(selectTickets, []int64{id, id}, []string{"zoe", "user 7"}, []string{"", ""}),
			"a click that waits":      of(insertRequests, id, []string{"zoe"}, []string{""}, []int32{1}, []int64{1e9}, []*int64{nil}, []*string{nil}, []*string{nil}, []*time.Time{nil}, []*string{nil}, []*string{nil}, []*string{nil}, []bool(nil)),
			"what the keys have made": of(selectKeys, []int64{id, id}, []string{"zoe", "user 7"}, []string{"k", "l"}),
			"the click's request":     of(selectRecorded, id, []string{"user 7"}, []string{""}, []*string{nil}),
			"the task":                of(selectTaskView, id),
			"who is put off":          of(putOffOthers, id, assign.Duration(time.Minute), nil, []int64{}),
			"whether a run is wanted": of(stillWanted, id, "", "", 1, 1, 1),
		} {
			statements[kind+": "+what] = l
		}
	}
	end := func() { execute(t, db, `delete from getwork.work_requested where state = 'pending'`) }
	for kind, task := range tasks {
		lingerers(t, db, task.ID, 20)
		few := readOf(t, db, statements)
		end()
		compare := func(when string) {
			t.Helper()
			for what, many := range readOf(t, db, statements) {
				if many > few[what]+5 {
					t.Errorf("%s: %s reads %d requests beside 5,000 who linger on the %s, %d beside 20", when, what, many, kind, few[what])
				}
			}
		}
		lingerers(t, db, task.ID, 5000)
		compare("with statistics")
		execute(t, db, `delete from pg_statistic where starelid = 'getwork.work_requested'::regclass`)
		compare("without statistics")
		end()
	}
}
