package records

import (
	"testing"

	"getwork/assign/pg"
)

// A task's pace comes from the sums of hours, and from what was completed since: nothing is counted twice, and what was completed
// before midnight is not of today.
func TestTasksPace(t *testing.T) {
	t.Parallel()
	pool := withTask(t)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	exec(`insert into getwork.task_hour (hour, task_id, completed)
		select date_trunc('hour', now()) - i * interval '1 hour', s.task_id, 6 from getwork.task_state s, unnest('{1,2,30}'::int[]) i`)
	exec(`insert into getwork.task_hour (hour, task_id) values (date_trunc('hour', now()) - interval '1 hour', 0)`)
	exec(`insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select s.task_id, i::text, 'ann', 'completed', case when i > 3 then date_trunc('hour', now()) - interval '30 minutes' else now() end, pg_current_xact_id()
		from getwork.task_state s, generate_series(1, 9) i`)
	var today, passed float64
	if err := pool.QueryRow(t.Context(), `select 3 + 6 * (select count(*) from unnest('{1,2,30}'::int[]) i
		where date_trunc('hour', now()) - i * interval '1 hour' >= date_trunc('day', now())), extract(epoch from now() - date_trunc('hour', now())) / 3600`).Scan(&today, &passed); err != nil {
		t.Fatal(err)
	}
	task, err := New(pg.Router{Calls: pool}, nil).Task(t.Context(), "verify")
	if err != nil {
		t.Fatal(err)
	}
	least, most := 21/(3+passed+0.1)-0.1, 21/(3+max(passed, 1./12))+0.1
	if p := task.Pace; float64(p.DoneToday) != today || p.PerHour == nil || *p.PerHour < least || *p.PerHour > most || p.ThroughAt == nil {
		t.Errorf("pace %+v, want %v today and %v to %v an hour", p, today, least, most)
	}
}
