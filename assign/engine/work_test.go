package engine

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

func after(d time.Duration) *assign.Duration { return new(assign.Duration(d)) } // new of a value: Go 1.26

func TestTasks(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	create := func(change func(*assign.Settings)) error {
		s := assign.DefaultSettings()
		s.Name, s.Query = "task", numbers
		change(&s)
		_, err := n.CreateTask(t.Context(), s, "boss")
		return err
	}
	for name, change := range map[string]func(*assign.Settings){
		"name":        func(s *assign.Settings) { s.Name = "-x" },
		"no query":    func(s *assign.Settings) { s.Query = " ; " },
		"timeout":     func(s *assign.Settings) { s.QueryTimeout = 0 },
		"candidates":  func(s *assign.Settings) { s.MaxCandidates = 0 },
		"max_request": func(s *assign.Settings) { s.MaxRequest = 1001 },
		"NUL":         func(s *assign.Settings) { s.Title = "a\x00" },
		"NUL in it":   func(s *assign.Settings) { s.Query += "\x00" },
		"rerun_after": func(s *assign.Settings) { s.RerunAfter = assign.Duration(time.Millisecond) },
	} {
		if err := create(change); !assign.IsRefusal(err, assign.Invalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, q := range []string{"select", "select 1", "select 1 as item, 2 as item", "select $1::int as item", "select 1 as item; select 2",
		"insert into x values (1) returning 1 as item", "delete from getwork.task returning id as item", "select 1 as item) q; drop table getwork.work; --",
		"with d as (delete from getwork.work returning id) select id as item from d", "values (1)", "select nope as item"} {
		if err := create(func(s *assign.Settings) { s.Query = assign.Query(q) }); !assign.IsRefusal(err, assign.QueryRefused) {
			t.Errorf("query %q: %v", q, err)
		}
	}
	if err := create(func(s *assign.Settings) { s.Query = "select 1 as item -- with a comment, and a semicolon\n;" }); err != nil {
		t.Error(err)
	}
	if err := create(func(*assign.Settings) {}); !assign.IsRefusal(err, assign.Exists) {
		t.Errorf("a second of that name: %v", err)
	}
	rename := func(s *assign.Settings) error { s.Name, s.Title = "other", "Other"; return nil }
	if _, err := n.UpdateTask(t.Context(), "task", 7, "boss", rename); !assign.IsRefusal(err, assign.StaleVersion) {
		t.Errorf("a stale version: %v", err)
	}
	task, err := n.UpdateTask(t.Context(), "task", 1, "boss", rename)
	if err != nil || task.Name != "other" || task.Version != 2 || task.MaxRequest != 5 {
		t.Errorf("renamed: %+v, %v", task, err)
	}
	r := n.endedRequest(t, n.click(t, "other", "ann", 1).ID)
	if err := n.DeleteTask(t.Context(), "other", 0); !assign.IsRefusal(err, assign.InUse) {
		t.Errorf("delete with held work: %v", err)
	}
	if _, err := n.Dispose(t.Context(), r.Work[0].ID, assign.Disposition{Outcome: "complete"}, r.Holder(), false); err != nil {
		t.Fatal(err)
	}
	if err := n.DeleteTask(t.Context(), "other", 0); err != nil {
		t.Error(err)
	}
	if err := n.DeleteTask(t.Context(), "other", 0); !assign.IsRefusal(err, assign.NotFound) {
		t.Errorf("delete again: %v", err)
	}
	if err := create(func(s *assign.Settings) { s.Name = "other" }); err != nil {
		t.Errorf("its name is not free: %v", err)
	}
	if got, err := n.Request(t.Context(), r.ID, r.Holder(), false); err != nil || got.Assigned != 1 {
		t.Errorf("history: %v", err)
	}
}

// A request that was recorded while its task was deleted is ended.
func TestRequestBesideADeletion(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil)
	if err := n.DeleteTask(t.Context(), "task", 0); err != nil {
		t.Fatal(err)
	}
	id := query[int64](t, db, `insert into getwork.work_requested (task_id, user_name, wanted, requested) values ($1, 'ann', 2, 2) returning id`, task.ID)
	n.Wake(task.ID)
	if r := n.endedRequest(t, id); r.State != assign.Cancelled {
		t.Errorf("the request is %s", r.State)
	}
}

// No change of a task waits for its run.
func TestManagersDoNotWaitForTheQuery(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	locked := newGate(StepLocked)
	n := startNode(t, url, nodeOptions{Steps: locked.hold})
	newTask(t, n, "task", numbers, nil)
	n.click(t, "task", "ann", 1)
	<-locked.reached
	if _, err := n.UpdateTask(t.Context(), "task", 1, "boss", func(s *assign.Settings) error { s.Title = "x"; s.Paused = true; return nil }); err != nil {
		t.Error(err)
	}
	if err := n.DeleteTask(t.Context(), "task", 0); !assign.IsRefusal(err, assign.InUse) {
		t.Errorf("delete while somebody waits: %v", err)
	}
	close(locked.open)
}
