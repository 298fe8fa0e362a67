package records

import (
	"testing"

	"getwork/assign"
	"getwork/assign/pg"
)

// Items count whose needs nobody meets who is known: neither by a log-in's groups, nor by skills, nor both together, nor by a request.
// Managers and who is blocked don't count.
func TestItemsForNobody(t *testing.T) {
	t.Parallel()
	pool := withTask(t)
	exec := func(statement string, args ...any) {
		t.Helper()
		if _, err := pool.Exec(t.Context(), statement, args...); err != nil {
			t.Fatal(err)
		}
	}
	read := func() assign.Task {
		t.Helper()
		task, err := New(pg.Router{Calls: pool}, nil).Task(t.Context(), "verify")
		if err != nil {
			t.Fatal(err)
		}
		figures, err := New(pg.Router{Calls: pool}, nil).TaskFigures(t.Context())
		if err != nil || len(figures) != 1 || figures[0].Nobody != task.ItemsNobody {
			t.Errorf("figures %+v, %v", figures, err)
		}
		return task
	}
	exec(`insert into getwork.principal (name, name_key, iss, sub, kind, role, groups, blocked_at) values
		('ann', 'ann', 'i', '1', 'person', 'worker', '{french}', null), ('mia', 'mia', 'i', '2', 'person', 'manager', '{legal}', null),
		('bob', 'bob', 'i', '3', 'person', 'worker', '{legal}', now())`)
	exec(`update getwork.task_version set query = 'select 1 as item'`)
	if n := read().ItemsNobody; n != 0 {
		t.Errorf("%d, and no item needs anything", n)
	}
	exec(`with r as (insert into getwork.run (task_id, version, node, state, finished_at, snapshot, given, blocked, passed_over, candidates, cut, needs)
		select task_id, version, 'n', 'finished', now(), pg_current_snapshot(), 0, 0, 0, 0, false,
			'[{"needs":[],"items":1},{"needs":["french"],"items":2},{"needs":["legal"],"items":4},{"needs":["french","notary"],"items":8}]'
		from getwork.task_state returning id)
		update getwork.task_state set last_run = r.id from r`)
	for _, step := range []struct {
		statement string
		want      int64
	}{
		{`select`, 12},
		{`insert into getwork.skill (user_name, skills, changed_by) values ('cyd', '{notary}', 'mia')`, 12},
		{`insert into getwork.skill (user_name, skills, changed_by) values ('ann', '{notary}', 'mia')`, 4},
		{`insert into getwork.work_requested (task_id, user_name, wanted, requested, assigned, state, groups) select task_id, 'dan', 1, 1, 0, 'pending', '{legal}' from getwork.task_state`, 0},
		{`update getwork.work_requested set groups = null`, 4},
		{`update getwork.principal set blocked_at = now() where name = 'ann'`, 14},
		{`update getwork.task_version set query = null`, 0}, // an inbox has needs of its own
		{`with i as (insert into getwork.item (task_id, item, pushed_by, class, needs_until)
			select task_id, i::text, 'mia', 1 + i % 2, case when i = 1 then now() end from getwork.task_state, generate_series(1, 7) i)
			update getwork.task_state set needs = '[{"needs":[]},{"needs":["legal"]}]'`, 3},
	} {
		exec(step.statement)
		if n := read().ItemsNobody; n != step.want {
			t.Errorf("%s: %d, want %d", step.statement, n, step.want)
		}
	}
}
