package feed

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/manage"
	"getwork/assign/records"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// A round on one node is pushed on another, to its owner alone and with the work. Runs and tasks are delivered to the users
// who wait or follow.
func TestPushedOnAnotherNode(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(engine.StepQueried)
	a := startNode(t, url, NodeOptions{Steps: queried.hold})
	b := startNode(t, url, NodeOptions{Steps: queried.hold})
	newTask(t, a, "task", numbers, nil)
	ann, eve := follow(t, b, "ann"), follow(t, b, "eve")
	for _, f := range []*follower{ann, eve} {
		if err := f.Start(t.Context(), "worker"); err != nil {
			t.Fatal(err)
		}
		f.next("hello", ofType("hello"))
		f.next("snapshot", ofType("snapshot"))
	}
	if err := eve.Follow(t.Context(), []string{"task"}, assign.Who{Anything: true}); err != nil {
		t.Fatal(err)
	}
	if e := eve.next("the task as it is", ofType("task")); e.Body.(*assign.Task).Waiting != 0 {
		t.Errorf("%d wait", e.Body.(*assign.Task).Waiting)
	}
	r := a.click(t, "task", "ann", 2)
	<-queried.reached
	pending, started := false, false // in this order, unless the other node has heard of the new task and ran for her at once
	ann.next("a pending request, and a run that started", func(e assign.Event) bool {
		pending = pending || e.Type == "request" && e.Request.State == assign.Pending
		started = started || e.Type == "run" && e.Body.(assign.RunEvent).Phase == "started"
		return pending && started
	})
	close(queried.open)
	e := ann.next("her result", func(e assign.Event) bool { return e.Type == "request" && e.Request.State == assign.Assigned })
	if e.Request.ID != r.ID || fmt.Sprint(items(*e.Request)) != "[1 2]" {
		t.Errorf("request %d with %v", e.Request.ID, items(*e.Request))
	}
	finished, held := false, false // in either order: runs and tasks are read apart
	eve.next("a run that finished, and the task with two held", func(e assign.Event) bool {
		if e.Type == "request" || e.Type == "work" {
			t.Errorf("eve got ann's %s", e.Type)
		}
		finished = finished || e.Type == "run" && e.Body.(assign.RunEvent).Phase == "finished" && *e.Body.(assign.RunEvent).Candidates == 1000
		held = held || e.Type == "task" && e.Body.(*assign.Task).Held == 2
		return finished && held
	})
	if _, err := a.Dispose(t.Context(), e.Request.Work[0].ID, assign.Disposition{Outcome: "complete"}, assign.Holder{User: "ann"}, false); err != nil {
		t.Fatal(err)
	}
	ann.next("her work closed", func(e assign.Event) bool { return e.Type == "work" && e.Body.(*assign.Work).State == "completed" })
}

// No change is missed between the snapshot and the events after it: what commits while the snapshot is read comes after it.
func TestNothingBetweenSnapshotAndEvents(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{})
	newTask(t, n, "task", numbers, nil)
	ann := follow(t, n, "ann")
	r := n.click(t, "task", "ann", 1) // registered, no snapshot yet
	n.endedRequest(t, r.ID)
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("hello first", ofType("hello"))
	snapshot := ann.next("snapshot second", ofType("snapshot")).Body.(assign.Pipeline)
	if len(snapshot.Work) != 1 {
		t.Errorf("the snapshot has %d items", len(snapshot.Work))
	}
	ann.next("the result, behind the snapshot", func(e assign.Event) bool { return e.Type == "request" && e.Request.State == assign.Assigned })
}

// A follower that does not take its events is cut off; nobody waits for it.
func TestSlowFollower(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{})
	slow := follow(t, n, "slow")
	if err := slow.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	for range streamLimit + 1 {
		n.Feed.Broadcast(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Live}})
	}
	if events, cut := slow.Take(); !cut || len(events) > 0 {
		t.Errorf("%d events, cut off: %v", len(events), cut)
	}
}

// A client that follows more tasks than events may wait for it gets all of them at once, and is not cut off; but no more may wait
// for it than that, however often it follows them.
func TestFollowerOfManyTasks(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{Still: true}) // the test is the feed's loop
	const many = streamLimit + 44
	names := make([]string, many)
	for i := range names {
		names[i] = fmt.Sprint("task-", i)
		newTask(t, n, names[i], numbers, nil)
	}
	ann := follow(t, n, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := ann.Follow(t.Context(), append(names, names...), assign.Who{Anything: true}); err != nil {
			t.Fatal(err)
		}
	}
	if err := n.Feed.drainNews(t.Context()); err != nil {
		t.Fatal(err)
	}
	events, cut := ann.Take()
	told := map[string]bool{}
	for _, e := range events {
		if e.Type == "task" {
			told[e.Body.(*assign.Task).Name] = true
		}
	}
	if cut || len(told) != many {
		t.Errorf("%d of %d tasks came, cut off: %v", len(told), many, cut)
	}
	ann.Unfollow(append(names[:44:44], names[:44]...))
	for _, over := range []int{0, 1} {
		for range 2*streamLimit + over {
			n.Feed.Broadcast(assign.Event{Type: "mark"})
		}
		if events, cut := ann.Take(); cut != (over > 0) {
			t.Errorf("with %d more than may wait: %d events, cut off: %v", over, len(events), cut)
		}
	}
}

// After the listener was away, all users are read again, and hear of it.
func TestSnapshotAfterAGap(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, NodeOptions{})
	db := pool(t, url)
	ann := follow(t, n, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("the first snapshot", ofType("snapshot"))
	execute(t, db, `select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and query ~ '^(listen|select pg_notification_queue_usage)'`)
	ann.next("lagging", func(e assign.Event) bool {
		return e.Type == "node" && e.Body.(assign.NodeEvent).State == assign.Lagging
	})
	ann.next("a new snapshot", ofType("snapshot"))
	ann.next("live", func(e assign.Event) bool { return e.Type == "node" && e.Body.(assign.NodeEvent).State == assign.Live })
}

// A node that does not listen finds by polling what others hear.
func TestDeafNode(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, deaf := startNode(t, url, NodeOptions{}), startNode(t, url, NodeOptions{Deaf: true})
	newTask(t, a, "task", numbers, nil)
	ann := follow(t, deaf, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("the first snapshot", ofType("snapshot"))
	r := a.click(t, "task", "ann", 1)
	if r := deaf.endedRequest(t, r.ID); r.State != assign.Assigned {
		t.Errorf("asked of the deaf node, the request is %s", r.State)
	}
	ann.next("a snapshot with the work", func(e assign.Event) bool {
		p, ok := e.Body.(assign.Pipeline)
		return ok && len(p.Work) == 1
	})
}

func TestAwaitEndsWithItsContext(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{})
	newTask(t, n, "task", numbers, func(s *assign.Settings) { s.Paused = true })
	r, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Linger: assign.Duration(time.Hour)})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Second) // longer than the first poll takes
	defer cancel()
	if r, err := n.Feed.Await(ctx, r.ID, r.Holder(), false, func(r *assign.Request) bool { return r.State != assign.Pending }); err != nil || r.State != assign.Pending {
		t.Errorf("%s, %v", r.State, err)
	}
}

func TestEventsAreEncodedAsTheContractHasThem(t *testing.T) {
	t.Parallel()
	b, err := json.Marshal(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Lagging}})
	if err != nil || string(b) != `{"type":"node","node":{"state":"lagging"}}` {
		t.Errorf("%s, %v", b, err)
	}
	for d, want := range map[time.Duration]string{0: "0s", 90 * time.Second: "90s", 2 * time.Minute: "2m", 24 * time.Hour: "24h", 1500 * time.Millisecond: "1500ms"} {
		if got := assign.Duration(d).String(); got != want {
			t.Errorf("%d is written %s, want %s", d, got, want)
		}
	}
}

// A node whose listener never comes up, as behind a transaction pooler, finds by polling what others hear.
func TestListenerThatNeverComesUp(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, mute := startNode(t, url, NodeOptions{}), startNode(t, url, NodeOptions{Mute: true})
	newTask(t, a, "task", numbers, nil)
	ann := follow(t, mute, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	a.endedRequest(t, a.click(t, "task", "ann", 1).ID)
	ann.next("a snapshot with the work", func(e assign.Event) bool {
		p, ok := e.Body.(assign.Pipeline)
		return ok && len(p.Work) == 1
	})
}

// A client that connects while the node is lagging hears so after the snapshot, because it has missed the event itself.
func TestConnectedWhileLagging(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{Mute: true})
	n.Feed.Disconnected()
	ann := follow(t, n, "ann")
	if err := ann.Start(t.Context(), "worker"); err != nil {
		t.Fatal(err)
	}
	ann.next("the snapshot", ofType("snapshot"))
	ann.next("lagging", func(e assign.Event) bool {
		return e.Type == "node" && e.Body.(assign.NodeEvent).State == assign.Lagging
	})
}

// startTold starts a node that hears what the test passes to it, and nothing else.
func startTold(t *testing.T) *Node {
	t.Helper()
	n := startNode(t, schematest.URL(t), NodeOptions{Mute: true})
	n.Feed.Connected()
	await(t, "the feed has caught up", func() bool {
		n.Feed.mu.Lock()
		defer n.Feed.mu.Unlock()
		clear(n.Feed.debts)
		return n.Feed.news.rounds == nil
	})
	return n
}

const (
	answeredRun = `
insert into getwork.run (task_id, version, node, state, finished_at, snapshot, given, blocked, passed_over, candidates, cut)
values ($1, 1, $2, 'finished', clock_timestamp(), pg_current_snapshot(), 1, 0, 0, 1, false)`
	answeredRequests = `
insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, completed_at, round_id, run_id)
select $1, 'user ' || to_char(i, 'FM00000'), $3, $3, $3, 'assigned', clock_timestamp(), 1, 1
from generate_series(1, $2::integer) i`
	answeredWork = `
insert into getwork.work (task_id, item, user_name, request_id, run_id, rank, details)
select $1, 'loan ' || r.id || '/' || i, r.user_name, r.id, 1, i,
  json_build_object('loan_id', r.id, 'name', 'A rather usual name', 'amount', 12345.67, 'submitted', '2026-01-31')
from getwork.work_requested r cross join generate_series(1, $2::integer) i
where r.task_id = $1`
)

// A round that answered thousands is delivered to each follower on this node: all of their own requests and nothing else,
// with the end of the run, whether the round's own NOTIFY names it or an announcement does.
func TestRoundOfThousands(t *testing.T) {
	t.Parallel()
	n := startTold(t)
	task := newTask(t, n, "task", numbers, nil)
	db := n.Pools.API
	const answeredAll, each = 2*records.MaxBatch + 100, 3
	execute(t, db, answeredRun, task.ID, n.Node)
	execute(t, db, answeredRequests, task.ID, answeredAll, each)
	execute(t, db, answeredWork, task.ID, each)
	execute(t, db, `update getwork.work set request_id = null where request_id = 7`)
	execute(t, db, `update getwork.work_requested set state = 'none', reason = 'no_match', requested = 0, assigned = 0 where id = 7`)
	for name, m := range map[string]notify.Message{
		"round":        {Round: &notify.Round{Task: task.ID, ID: 1, Run: 1, Requests: answeredAll}},
		"announcement": {Changes: []notify.Change{{Task: task.ID, Rounds: []int64{1}, Runs: []int64{1}}}},
	} {
		t.Run(name, func(t *testing.T) {
			var all []*follower
			for _, i := range []int{1, 2, 7, records.MaxBatch, records.MaxBatch + 1, answeredAll, answeredAll} {
				f := follow(t, n, fmt.Sprintf("user %05d", i))
				f.live = true
				all = append(all, f)
			}
			stranger := follow(t, n, "somebody else")
			stranger.live = true
			n.Feed.Heard(m)
			for _, f := range all {
				f.next("the run's end", func(e assign.Event) bool {
					if e.Type == "request" {
						t.Errorf("%s is answered before the run is over", f.holder.User)
					}
					return e.Type == "run" && e.Body.(assign.RunEvent).Phase == "finished"
				})
				r := f.next("the answer", ofType("request")).Request
				want := fmt.Sprintf("[loan %d/1 loan %d/2 loan %d/3]", r.ID, r.ID, r.ID)
				if r.ID == 7 {
					want = "[]"
				}
				if got := fmt.Sprint(items(*r)); r.User != f.holder.User || got != want {
					t.Errorf("%s got %s's %s, want %s", f.holder.User, r.User, got, want)
				}
			}
			n.Feed.Broadcast(assign.Event{Type: "mark"})
			stranger.next("only the mark", func(e assign.Event) bool {
				if e.Type != "mark" && e.Type != "tasks" {
					t.Errorf("a user who asked for nothing got a %s", e.Type)
				}
				return e.Type == "mark"
			})
			for _, f := range all {
				f.Close()
			}
			stranger.Close()
		})
	}
}

// A follower gets a task's state at first and when it has changed: not when others begin to follow it, nor when it was only
// read again.
func TestTaskIsToldWhenItChanges(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startTold(t)
	db := n.Pools.API
	task := newTask(t, n, "task", numbers, nil)
	join := func(user string) *follower {
		f := follow(t, n, user)
		f.live = true
		if err := f.Follow(t.Context(), []string{"task"}, assign.Who{Anything: true}); err != nil {
			t.Fatal(err)
		}
		return f
	}
	title := func(f *follower, want string) {
		t.Helper()
		if e := f.next("how the task is", ofType("task")); e.Body.(*assign.Task).Title != want {
			t.Errorf("%s got %q, want %q", f.holder.User, e.Body.(*assign.Task).Title, want)
		}
	}
	nothing := func(f *follower) {
		t.Helper()
		n.Feed.Broadcast(assign.Event{Type: "mark"})
		f.next("only the mark", func(e assign.Event) bool {
			if e.Type != "mark" && e.Type != "tasks" {
				t.Errorf("%s got a %s", f.holder.User, e.Type)
			}
			return e.Type == "mark"
		})
	}
	ann := join("ann")
	title(ann, "")
	bob := join("bob")
	title(bob, "")
	nothing(ann)

	execute(t, db, `update getwork.task_version set title = 'another' where task_id = $1`, task.ID)
	n.Feed.reread(t.Context()) // as every few seconds
	n.Feed.mu.Lock()
	n.Feed.hear(func(*news) {})
	n.Feed.mu.Unlock()
	title(ann, "another")
	title(bob, "another")

	n.Feed.reread(t.Context())
	cyd := join("cyd") // hears after that was read
	title(cyd, "another")
	nothing(ann)
	nothing(bob)

	// A user who follows it again hears again.
	if err := ann.Follow(t.Context(), []string{"task"}, assign.Who{Anything: true}); err != nil {
		t.Fatal(err)
	}
	title(ann, "another")
	nothing(bob)
	for _, wrong := range []string{"nothing", "no name", "\x00", ""} {
		if err := bob.Follow(t.Context(), []string{"task", wrong}, assign.Who{Anything: true}); err == nil || !strings.Contains(err.Error(), "no task") {
			t.Errorf("following %q: %v", wrong, err)
		}
	}
	bob.Unfollow([]string{"task"})
	execute(t, db, `update getwork.task_version set title = 'a third' where task_id = $1`, task.ID)
	n.Feed.reread(t.Context())
	dan := join("dan")
	title(dan, "a third")
	title(ann, "a third")
	nothing(bob)
}

// Ten thousand followers of a task hear of its changes a little later, so that they do not take a whole core. A new
// follower hears at once.
func TestThousandsFollowATask(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{Still: true}) // the test is the feed's loop
	task := newTask(t, n, "task", numbers, nil)
	var told []string
	followAs := func(user string) {
		s, end := n.Feed.Subscribe(assign.Holder{User: user}, func(events ...assign.Event) {
			for _, e := range events {
				if e.Type == "task" {
					told = append(told, user+" "+e.Body.(*assign.Task).Title)
				}
			}
		})
		t.Cleanup(end)
		s.follow(assign.Who{Anything: true}, []followed{{id: task.ID, name: "task"}})
	}
	tell := func() []string {
		t.Helper()
		told, n.Feed.readTasks = nil, time.Time{}
		if err := n.Feed.drainNews(t.Context()); err != nil {
			t.Fatal(err)
		}
		return told
	}
	const many = 10_000
	for i := range many {
		followAs(fmt.Sprint(i))
	}
	if got := tell(); len(got) != many {
		t.Fatalf("%d of %d are told", len(got), many)
	}
	n.Feed.toldTasks = time.Now().Add(time.Hour) // so that it is not their turn now
	execute(t, n.Pools.API, `update getwork.task_version set title = 'another' where task_id = $1`, task.ID)
	n.Feed.Heard(notify.Message{Changes: []notify.Change{{Task: task.ID, Settings: true}}})
	followAs("newcomer")
	if got := tell(); len(got) != 1 || got[0] != "newcomer another" {
		t.Errorf("%d are told, the first is %v", len(got), got[:min(1, len(got))])
	}
	n.Feed.toldTasks = time.Time{} // now it is their turn
	got := tell()
	if len(got) != many {
		t.Errorf("%d of %d are told", len(got), many)
	}
	for _, who := range got {
		if !strings.HasSuffix(who, " another") || who == "newcomer another" {
			t.Fatalf("%s got an event", who)
		}
	}
}

// When more has changed than can be named, all users are read again, but not all the time. What is named is delivered
// meanwhile.
func TestMoreChangesThanNamed(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{Still: true}) // the test is the feed's loop
	task := newTask(t, n, "task", numbers, nil)
	id := waits(t, n.Pools.API, task, 1)[0]
	ann := follow(t, n, "user 1")
	ann.live = true
	tell := func() {
		t.Helper()
		select {
		case <-n.Feed.wake:
		default:
		}
		if err := n.Feed.drainNews(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	many := func() { n.Feed.Heard(notify.Message{Changes: []notify.Change{{Task: task.ID, Many: true}}}) }
	many()
	tell()
	if p := ann.next("a snapshot", ofType("snapshot")).Body.(assign.Pipeline); len(p.Requests) != 1 || p.Requests[0].ID != id {
		t.Errorf("the snapshot is %+v", p)
	}
	n.Feed.manyAfter = time.Now().Add(time.Hour) // as if reading all users had taken long
	many()
	n.Feed.Heard(notify.Message{Changes: []notify.Change{{Task: task.ID, Requests: []int64{id}}}})
	tell()
	ann.next("the request before the snapshot", func(e assign.Event) bool {
		if e.Type == "snapshot" {
			t.Error("everybody was read at once")
		}
		return e.Type == "request"
	})
	due := time.Now().Add(200 * time.Millisecond)
	n.Feed.manyAfter = due
	tell()
	select {
	case <-n.Feed.wake:
	case <-time.After(timeout.Scale(30 * time.Second)):
		t.Fatal("the feed does not come back to it")
	}
	if early := time.Until(due); early > 0 {
		t.Errorf("everybody is to be read again %v too early", early)
	}
	tell()
	ann.next("the snapshot in the end", ofType("snapshot"))
}

// Whatever changes, a long inbox is counted now and then. What else has changed is sent at once, and the last count in the end.
func TestLongInboxIsCountedNowAndThen(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), NodeOptions{Still: true}) // the test is the feed's loop
	task := newInbox(t, n, "inbox", nil)
	execute(t, n.Pools.API, `insert into getwork.item (task_id, item, pushed_by) select $1, i, 'boss' from generate_series(1, $2::integer) i`, task.ID, longInbox+1)
	ann := follow(t, n, "ann")
	ann.live = true
	if err := ann.Follow(t.Context(), []string{"inbox"}, assign.Who{Anything: true}); err != nil {
		t.Fatal(err)
	}
	told := func(when, title string, ready int64) {
		t.Helper()
		n.Feed.readTasks, n.Feed.toldTasks = time.Time{}, time.Time{}
		if err := n.Feed.drainNews(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := ann.next(when, ofType("task")).Body.(*assign.Task); got.Title != title || got.Shelf != ready {
			t.Errorf("%s: %q with %d ready items, want %q with %d", when, got.Title, got.Shelf, title, ready)
		}
	}
	change := func(title string) {
		t.Helper()
		execute(t, n.Pools.API, `update getwork.task_version set title = $2 where task_id = $1`, task.ID, title)
		execute(t, n.Pools.API, `update getwork.item set done_at = clock_timestamp() where id = (select min(id) from getwork.item where done_at is null)`)
		n.Feed.Heard(notify.Message{Changes: []notify.Change{{Task: task.ID, Items: true}}})
	}
	counted := func(ago time.Duration) {
		t.Helper()
		c, known := n.Feed.counts[task.ID]
		if !known {
			t.Fatal("the feed does not remember the count")
		}
		c.at = time.Now().Add(-ago)
		n.Feed.counts[task.ID] = c
	}
	told("as it is", "", longInbox+1)
	counted(-time.Hour) // so that it is not counted now
	change("a")
	told("not counted again", "a", longInbox+1)
	if !n.Feed.news.tasks[task.ID] || n.Feed.later == nil {
		t.Fatal("the feed does not come back to it")
	}
	counted(countEvery)
	told("counted again", "a", longInbox)
	if len(n.Feed.news.tasks) > 0 {
		t.Error("the feed comes back, though it has told the last count")
	}
	counted(countEvery)
	change("b")
	told("a shorter inbox", "b", longInbox-1)
	change("c")
	told("a shorter inbox is always counted", "c", longInbox-2)
}

// A follower hears when other holders hold or wait for a task's items, though as many, and nothing else has changed; but
// not of an extended lease.
func TestTaskIsToldWhenItChangesHands(t *testing.T) {
	t.Parallel()
	n := startTold(t)
	task := newInbox(t, n, "inbox", func(s *assign.Settings) { s.Lease = new(assign.Duration(time.Hour)) })
	n.push(t, "inbox", "a")
	work := n.click(t, "inbox", "ann", 1).Work[0]
	join := func(user string) *follower {
		f := follow(t, n, user)
		f.live = true
		if err := f.Follow(t.Context(), []string{"inbox"}, assign.Who{Anything: true}); err != nil {
			t.Fatal(err)
		}
		f.next("how the task is", ofType("task"))
		return f
	}
	heard := func() {
		n.Feed.Heard(notify.Message{Changes: []notify.Change{{Task: task.ID, Work: []int64{work.ID}}}})
	}
	told := func(f *follower, waiting int64) {
		t.Helper()
		e := f.next("the task once more", ofType("task")).Body.(*assign.Task)
		if e.Held != 1 || e.Waiting != waiting {
			t.Errorf("%d hold, %d wait", e.Held, e.Waiting)
		}
	}
	eve := join("eve")
	if _, err := n.Extend(t.Context(), work.ID, work.Holder()); err != nil {
		t.Fatal(err)
	}
	heard()
	join("cyd") // hears after that was read
	n.Feed.Broadcast(assign.Event{Type: "mark"})
	eve.next("only the mark", func(e assign.Event) bool {
		if e.Type == "task" {
			t.Error("eve got an event about an extension")
		}
		return e.Type == "mark"
	})
	if _, err := manage.Reassign(t.Context(), n.Engine, work.ID, assign.Reassignment{User: "bob", Force: true}, "boss"); err != nil {
		t.Fatal(err)
	}
	heard()
	told(eve, 0)
	r := n.linger(t, "inbox", "dan", 1)
	heard()
	told(eve, 1)
	if _, err := n.Cancel(t.Context(), r.ID, r.Holder(), false); err != nil {
		t.Fatal(err)
	}
	n.linger(t, "inbox", "fay", 1)
	heard()
	told(eve, 1)
}

// A follower hears at once when a run begins and how it ends, however long the commit of its end takes: not the state
// before that.
func TestTaskTellsOfItsRun(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, NodeOptions{})
	db := pool(t, url)
	newTask(t, n, "task", `select 1 as item`, nil)
	eve := follow(t, n, "eve")
	eve.live = true
	if err := eve.Follow(t.Context(), []string{"task"}, assign.Who{Anything: true}); err != nil {
		t.Fatal(err)
	}
	if e := eve.next("the task", ofType("task")).Body.(*assign.Task); e.RunningSince != nil || e.UsualSeconds != nil {
		t.Errorf("before the first run: since %v, usually %v", e.RunningSince, e.UsualSeconds)
	}
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	eve.next("how long a run takes", func(e assign.Event) bool {
		return e.Type == "task" && e.Body.(*assign.Task).UsualSeconds != nil && e.Body.(*assign.Task).RunningSince == nil
	})

	if _, err := manage.UpdateTask(t.Context(), n.Engine, "task", 1, "boss", func(s *assign.Settings) error { s.Query = `select 1 as item from pg_sleep(600)`; return nil }); err != nil {
		t.Fatal(err)
	}
	execute(t, db, `
create function slow() returns trigger language plpgsql as $$ begin perform pg_sleep(1); return null; end $$;
create constraint trigger slow after update on getwork.run deferrable initially deferred for each row execute function slow()`)
	r := n.click(t, "task", "bob", 1)
	running := eve.next("a run", func(e assign.Event) bool { return e.Type == "task" && e.Body.(*assign.Task).RunningSince != nil }).Body.(*assign.Task)
	if began := query[time.Time](t, db, `select started_at from getwork.run where state = 'running'`); !running.RunningSince.Equal(began) || running.UsualSeconds != nil {
		t.Errorf("since %v, want %v; usually %v, of another query", running.RunningSince, began, running.UsualSeconds)
	}
	if _, err := n.Cancel(t.Context(), r.ID, r.Holder(), false); err != nil {
		t.Fatal(err)
	}
	phase := eve.next("the end of the run", ofType("run")).Body.(assign.RunEvent).Phase
	for phase == "started" {
		phase = eve.next("the end of the run", ofType("run")).Body.(assign.RunEvent).Phase
	}
	if phase != "cancelled" {
		t.Errorf("the run has %s", phase)
	}
	began, stood := time.Now(), standstill(t, db)
	eve.next("no run", func(e assign.Event) bool { return e.Type == "task" && e.Body.(*assign.Task).RunningSince == nil })
	if took, stood := time.Since(began), stood(); took > rereadEvery/2+stood {
		t.Errorf("the end of the run was delivered %v later, of which the machine stood still for %v", took, stood)
	}
}
