package engine

import (
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A program can't have any number of requests wait under instances that it invents. Its user's other clicks are served, and so are
// others'.
func TestInventedInstances(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan (id int)`)
	n := startNode(t, url, nodeOptions{})
	tasks := map[string]assign.Task{
		"query": newTask(t, n, "query", `select id as item from loan`, nil),
		"inbox": newTask(t, n, "inbox", "", nil),
	}
	other := newTask(t, n, "other", "", nil)
	asks := func(task, user, instance string) (assign.Request, error) {
		return n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user, Instance: instance}, Count: 1})
	}
	if _, err := asks("inbox", "ann", "before"); err != nil { // the node remembers the task
		t.Fatal(err)
	}
	const fill = `insert into getwork.work_requested (task_id, user_name, instance, wanted, requested, state)
		select $1, 'ann', 'i' || i, 1, 1, 'pending' from generate_series($2::integer, $3::integer) i`
	keyed := func(instance string) (assign.Request, error) {
		return n.GetWork(t.Context(), "inbox", assign.Click{Holder: assign.Holder{User: "ann", Instance: instance}, Count: 1, Key: "repeated"})
	}
	first, err := keyed("repeats")
	if err != nil {
		t.Fatal(err)
	}
	execute(t, db, `update getwork.work_requested set state = 'none', completed_at = clock_timestamp() where id = $1`, first.ID)
	execute(t, db, fill, other.ID, 2, maxWaiting)
	for name, task := range tasks {
		if _, err := asks(name, "ann", "under-the-limit"); err != nil {
			t.Errorf("%s: below the limit: %v", name, err)
		}
		execute(t, db, `delete from getwork.work_requested where task_id = $1 and state = 'pending'`, task.ID)
	}
	execute(t, db, fill, other.ID, 1, 1)
	for name := range tasks {
		_, err := asks(name, "ann", "invented")
		wantKind(t, err, assign.Busy)
		if !strings.Contains(err.Error(), "you have 5000 requests waiting; cancel some") {
			t.Error(err)
		}
		if _, err := asks(name, "ann", ""); err != nil {
			t.Errorf("%s: ann without an instance: %v", name, err)
		}
		if _, err := asks(name, "bob", "one"); err != nil {
			t.Errorf("%s: bob: %v", name, err)
		}
	}
	if again, err := keyed("repeats"); err != nil || again.ID != first.ID {
		t.Errorf("a call that is repeated finds %d, %v, want %d", again.ID, err, first.ID)
	}
	if r, err := asks("other", "ann", "i7"); err != nil || r.ID == 0 {
		t.Errorf("a request that waits is not found: %v", err)
	}
}
