package feed

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/manage"
	"getwork/notify"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// announcements listens as nodes do, and returns a function that waits until an announcement says that a task is new, changed
// or deleted.
func announcements(t *testing.T, url string) (await func(what string)) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	if _, err := conn.Exec(t.Context(), `listen getwork`); err != nil {
		t.Fatal(err)
	}
	return func(what string) {
		t.Helper()
		soon, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
		defer cancel()
		for {
			said, err := conn.WaitForNotification(soon)
			if err != nil {
				t.Fatalf("%s: it is not announced: %v", what, err)
			}
			m, err := notify.Decode(said.Payload)
			if err == nil && slices.ContainsFunc(m.Changes, func(c notify.Change) bool { return c.Settings }) {
				return
			}
		}
	}
}

// Whatever changes about a task, all users on every node hear that the list has changed, whether or not the task is open
// to them, and nothing about the task.
func TestEverybodyIsToldOfAnotherListOfTasks(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	o := NodeOptions{Reread: time.Hour} // a reread between a change and its announcement would report the change twice
	a, b := startNode(t, url, o), startNode(t, url, o)
	all := []*follower{join(t, a, "ann"), join(t, b, "bob"), join(t, b, "bob"), join(t, b, "cyd")}
	announced := announcements(t, url)
	version := 0
	update := func(n *Node, name string, change func(*assign.Settings)) func() error {
		return func() error {
			task, err := manage.UpdateTask(t.Context(), n.Engine, name, version, "boss", func(s *assign.Settings) error { change(s); return nil })
			version = task.Version
			return err
		}
	}
	for _, step := range []struct {
		what string
		do   func() error
	}{
		{"created", func() error {
			version = newTask(t, a, "secret", numbers, func(s *assign.Settings) { s.Groups = []string{"desk"} }).Version
			return nil
		}},
		{"another title", update(b, "secret", func(s *assign.Settings) { s.Title = "A secret" })},
		{"another name", update(a, "secret", func(s *assign.Settings) { s.Name = "secret-2" })},
		{"paused", func() error {
			_, err := manage.SetPaused(t.Context(), b.Engine, "secret-2", true, 0, "boss")
			return err
		}},
		{"resumed", func() error {
			_, err := manage.SetPaused(t.Context(), a.Engine, "secret-2", false, 0, "boss")
			return err
		}},
		{"open to others", update(b, "secret-2", func(s *assign.Settings) { s.Groups = []string{"other"} })},
		{"restored", func() error {
			_, err := manage.Restore(t.Context(), a.Engine, "secret-2", 1, 0, "boss", nil)
			return err
		}},
		{"deleted", func() error { return manage.DeleteTask(t.Context(), b.Engine, "secret-2", 0) }},
	} {
		if err := step.do(); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		announced(step.what)
		for _, f := range all {
			f.listed(step.what)
		}
	}
	a.Feed.Broadcast(assign.Event{Type: "mark"})
	b.Feed.Broadcast(assign.Event{Type: "mark"})
	for _, f := range all {
		f.next("nothing else", func(e assign.Event) bool {
			if e.Type != "mark" {
				t.Errorf("%s got a %s, too", f.holder.User, e.Type)
			}
			return e.Type == "mark"
		})
	}
}

// However many tasks change at once, all users hear of it about once a second, and of the last change, too.
func TestManyTasksChangeAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	a, b := startNode(t, url, NodeOptions{}), startNode(t, url, NodeOptions{})
	const many = 60
	ann := join(t, b, "ann")
	began := time.Now()
	go func() {
		for i := range many {
			s := assign.DefaultSettings()
			s.Name = fmt.Sprintf("task-%d", i)
			if _, err := manage.CreateTask(t.Context(), a.Engine, s, "boss"); err != nil && t.Context().Err() == nil {
				t.Error(err)
			}
		}
	}()
	told, known := 0, 0
	for known < many { // a client that reads when it hears so knows all in the end
		ann.listed(fmt.Sprintf("%d of %d are known", known, many))
		told++
		tasks, err := b.Tasks(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		known = len(tasks)
	}
	if took := time.Since(began); told > 2+int(took/tellListEvery) {
		t.Errorf("told %d times within %v", told, took)
	}
}

// An announcement that is lost, with its node or on its way, costs only time: each node finds by itself whether the list has
// changed.
func TestListOfTasksWithoutAnnouncement(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startTold(t) // hears of nothing
	ann := join(t, n, "ann")
	newTask(t, n, "task", numbers, nil)
	ann.listed("created")
	look := func() { // as every few seconds
		n.Feed.reread(t.Context())
		n.Feed.mu.Lock()
		defer n.Feed.mu.Unlock()
		n.Feed.hear(func(*news) {})
	}
	if _, err := manage.SetPaused(t.Context(), n.Engine, "task", true, 0, "boss"); err != nil { // makes no version
		t.Fatal(err)
	}
	look()
	ann.listed("paused")
	if err := manage.DeleteTask(t.Context(), n.Engine, "task", 0); err != nil {
		t.Fatal(err)
	}
	look()
	ann.listed("deleted")
	if changed, _, err := n.Feed.listChanged(t.Context()); changed || err != nil {
		t.Errorf("the list is news again after it was delivered: %v, %v", changed, err)
	}
}

// A client that was connected while the listener was away hears of it once it is back, before its new snapshot. A client that
// reads on either event reads once.
func TestListOfTasksAfterAGap(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startTold(t)
	ann := join(t, n, "ann")
	n.Feed.Disconnected()
	n.Feed.Connected()
	var told []string
	ann.next("the node is live", func(e assign.Event) bool {
		if e.Type != "node" {
			told = append(told, e.Type)
		}
		return e.Type == "node" && e.Body.(assign.NodeEvent).State == assign.Live
	})
	if want := []string{"tasks", "snapshot"}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// An announcement is delivered at once, without reading the tables first. Too many changes to name may include the list of
// tasks. Other announcements do not concern the list.
func TestListOfTasksIsAnnounced(t *testing.T) {
	t.Parallel()
	n := startTold(t)
	ann := join(t, n, "ann")
	n.Feed.Heard(notify.Message{Changes: []notify.Change{
		{Task: 1, Requests: []int64{1}, Work: []int64{1}, Waiting: true, Items: true}, {Task: 2, Many: true}}})
	ann.next("everybody is read again", func(e assign.Event) bool {
		if e.Type == "tasks" {
			t.Error("told that the list of tasks has changed")
		}
		return e.Type == "snapshot"
	})
	n.Feed.Heard(notify.Message{Changes: []notify.Change{{Task: 1, Settings: true}}})
	ann.listed("the task has changed")
	n.Feed.Heard(notify.Message{All: true})
	ann.listed("everything may have changed")
}

// A task that is renamed or deleted right after it was created is announced as well.
func TestCreatedAndChangedAtOnce(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, NodeOptions{})
	announced := announcements(t, url)
	execute(t, n.Pools.API, `
create function rename() returns trigger language plpgsql as $$
begin update getwork.task_state set name = 'other' where task_id = new.task_id; return null; end $$;
create constraint trigger rename after insert on getwork.task_state deferrable initially deferred
for each row execute function rename()`)
	s := assign.DefaultSettings()
	s.Name = "task"
	if _, err := manage.CreateTask(t.Context(), n.Engine, s, "boss"); err == nil || !strings.Contains(err.Error(), "no task") {
		t.Fatalf("creating it: %v; it should be another's by now", err)
	}
	announced("created")
}

// Whoever follows a task that gets groups hears of its runs no more, even before the task itself is read again.
func TestRunsAreToldToThoseWhoMaySeeTheTask(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, NodeOptions{})
	newTask(t, n, "task", `select 1 as item`, nil)
	var both [2]*follower
	for i, who := range []assign.Who{{Holder: assign.Holder{User: "out"}}, {Holder: assign.Holder{User: "in"}, Groups: []string{"desk"}}} {
		both[i] = join(t, n, who.Holder.User)
		if err := both[i].Follow(t.Context(), []string{"task"}, who); err != nil {
			t.Fatal(err)
		}
		both[i].next("the task", ofType("task"))
	}
	execute(t, pool(t, url), `update getwork.task_version set groups = '{desk}'`)
	if _, err := n.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Groups: []string{"desk"}}); err != nil {
		t.Fatal(err)
	}
	both[1].next("the end of the run", func(e assign.Event) bool {
		run, ok := e.Body.(assign.RunEvent)
		return ok && run.Phase == "finished"
	})
	n.Feed.Broadcast(assign.Event{Type: "node", Body: assign.NodeEvent{State: assign.Live}})
	both[0].next("the last event", func(e assign.Event) bool {
		if e.Type == "run" {
			t.Errorf("told of a run: %+v", e.Body)
		}
		return e.Type == "node"
	})
}
