package engine

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A change of a task that leaves its conflicts alone does not put off the next run of requests that linger on the other side.
func TestChangeLeavesPartnersAlone(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", `select 1 as item where false`, func(s *assign.Settings) {
		s.FreshFor, s.RerunAfter = assign.Duration(time.Hour), assign.Duration(20*time.Minute)
	})
	other := newTask(t, n, "other", `select 1 as item`, func(s *assign.Settings) { s.ConflictsWith = []string{"task"} })
	r := n.linger(t, "task", "ann", 1)
	await(t, "the run has left it lingering", func() bool {
		return query[bool](t, db, `select look_after is not null from getwork.work_requested where id = $1`, r.ID)
	})
	n.Wait(t.Context()) // it is looked at once more after the run
	execute(t, db, `update getwork.work_requested set look_after = look_after - interval '15 minutes' where id = $1`, r.ID)
	due := func() time.Time {
		n.Wait(t.Context())
		return query[time.Time](t, db, `select look_after from getwork.work_requested where id = $1`, r.ID)
	}
	before := due()
	four := 4
	changed, err := n.UpdateTask(t.Context(), "other", other.Version, "boss", func(s *assign.Settings) error { s.MaxOpen = &four; return nil })
	if err != nil {
		t.Fatal(err)
	}
	if now := due(); !now.Equal(before) {
		t.Errorf("the next run of task %d is put off by %v", task.ID, now.Sub(before))
	}
	if _, err := n.UpdateTask(t.Context(), "other", changed.Version, "boss", func(s *assign.Settings) error { s.ConflictsWith = nil; return nil }); err != nil {
		t.Fatal(err)
	}
	if now := due(); !now.After(before) {
		t.Error("it was not served when the conflict ended")
	}
}
