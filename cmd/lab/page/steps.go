package page

import (
	"strings"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// Dispositions returns the outcomes of all work, in order.
func Dispositions(s *e2e.Site) string {
	s.T.Helper()
	return strings.Join(e2e.Column[string](s, `select item || ' ' || state || coalesce(' ' || note, '') from getwork.work order by id`), ", ")
}

// Disposes waits until the database has the outcomes of all work.
func Disposes(s *e2e.Site, want string) {
	s.T.Helper()
	defer func() {
		if s.T.Failed() {
			s.T.Log("the work is ", Dispositions(s))
		}
	}()
	e2e.Await(s.T, "the work is "+want, e2e.Soon, func() bool { return Dispositions(s) == want })
}

// Manages makes a call as a manager.
func Manages(s *e2e.Site, method, path string, body any) (answered struct{ Token string }) {
	s.T.Helper()
	mary := s.As("mary", 0)
	mary.Role = "manager"
	a, err := mary.Do(s.T.Context(), method, "/api/v1"+path, body)
	if err == nil {
		err = a.Decode(&answered)
	}
	if err != nil {
		s.T.Fatal(method, path, err)
	}
	return answered
}

// Answered waits until no request is pending in the database.
func Answered(s *e2e.Site) {
	s.T.Helper()
	deadline := time.After(timeout.Scale(e2e.Soon))
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		var waiting bool
		if err := s.DB.QueryRow(s.T.Context(), `select exists (select from getwork.work_requested where state = 'pending')`).Scan(&waiting); err != nil {
			s.T.Fatal(err)
		}
		if !waiting {
			return
		}
		select {
		case <-tick.C:
		case <-deadline:
			s.T.Fatal("somebody still waits")
		}
	}
}

// Changes has a manager at the i-th node change a task.
func Changes(s *e2e.Site, task string, settings map[string]any, i int) {
	s.T.Helper()
	mary := s.As("mary", i)
	mary.Role = "manager"
	if a, err := mary.Do(s.T.Context(), "PATCH", "/api/v1/tasks/"+task, settings, "If-Match", "*"); err != nil || a.Status != 200 {
		s.T.Fatalf("change the task: %d %s %v", a.Status, a.Body, err)
	}
}

// Deletes has a manager at the i-th node delete a task.
func Deletes(s *e2e.Site, task string, i int) {
	s.T.Helper()
	mary := s.As("mary", i)
	mary.Role = "manager"
	if a, err := mary.Do(s.T.Context(), "DELETE", "/api/v1/tasks/"+task, nil); err != nil || a.Status != 204 {
		s.T.Fatalf("delete the task: %d %s %v", a.Status, a.Body, err)
	}
}

// Versions returns how many versions a task has.
func Versions(s *e2e.Site, task string) int {
	s.T.Helper()
	return e2e.Column[int](s, `select version from getwork.task_state where name = $1 and deleted_at is null`, task)[0]
}
