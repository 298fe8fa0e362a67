package records

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
)

// Who waits is an alert after five minutes, unless a round has looked for them or the task is paused.
func TestAlerts(t *testing.T) {
	t.Parallel()
	checkAlerts(t, []alertStep{
		{"nothing", `select`, ""},
		{"a short wait", `insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at)
			select task_id, 'ann', 1, 1, now() - interval '4 minutes' from getwork.task_state`, ""},
		{"two long ones", `insert into getwork.work_requested (task_id, user_name, wanted, requested, created_at)
			select task_id, u, 1, 1, now() - m * interval '1 minute' from getwork.task_state, (values ('bob', 6), ('cid', 9)) x (u, m)`, "unserved 2, 9 min"},
		{"a round has looked", `update getwork.work_requested set reason = 'no_match', linger_until = now() + interval '1 hour' where user_name = 'cid'`, "unserved 1, 6 min"},
		{"held work is late", `insert into getwork.work (task_id, item, user_name, deadline)
			select task_id, m::text, 'ann', now() - m * interval '1 minute' from getwork.task_state, unnest('{3,8,-5}'::int[]) m`, "unserved 1, 6 min; late 2, 8 min"},
		{"two runs have failed since one worked", `with run as (
				insert into getwork.run (task_id, version, node, state, started_at, finished_at, error)
				select task_id, 1, 'n', 'failed', now() - m * interval '1 minute', now() - m * interval '1 minute', 'e' from getwork.task_state, unnest('{40,30,20}'::int[]) m)
			update getwork.task_state set failures = 2, last_error = 'it broke', failed_until = now()`, "failing 2, 30 min: it broke; unserved 1, 6 min; late 2, 8 min"},
		{"rechecks alone failed", `delete from getwork.run`, "failing 2, 0 min: it broke; unserved 1, 6 min; late 2, 8 min"},
		{"the task is paused", `update getwork.task_state set paused = true`, "late 2, 8 min"},
		{"the task is gone", `update getwork.task_state set deleted_at = now()`, ""},
	})
}

// The oldest item is an alert when it is older than the task says, unless it can't be there any more or the task is paused.
func TestBacklogAlert(t *testing.T) {
	t.Parallel()
	checkAlerts(t, []alertStep{
		{"no age is named", `insert into getwork.item (task_id, item, priority, pushed_by, pushed_at)
			select task_id, i, p, 'mia', now() - m * interval '1 minute'
			from getwork.task_state, (values ('a', 5, 250), ('b', 5, 20), ('c', 0, 300), ('d', 0, 400), ('e', -1, 290)) x (i, p, m)`, ""},
		{"four hours", `update getwork.task_version set alert_backlog_age = '4 hours'`, "backlog 5, 300 min"},
		{"the oldest is held", `update getwork.item set due_at = 'infinity' where item in ('c', 'd')`, "backlog 3, 290 min"},
		{"the oldest is completed", `update getwork.item set done_at = now() where item = 'e'`, "backlog 2, 250 min"},
		{"only young ones are left", `update getwork.item set done_at = now() where item = 'a'`, ""},
		{"a run found old ones", `with v as (update getwork.task_version set query = 'select'),
			run as (insert into getwork.run (task_id, version, node, state, started_at, finished_at, given, blocked, passed_over, candidates, cut, oldest, snapshot)
				select task_id, 1, 'n', 'finished', now() - interval '1 minute', now(), 4, 1, 1, 2, false, now() - interval '10 hours', pg_current_snapshot() from getwork.task_state
				returning id)
			update getwork.task_state set last_run = (select id from run)`, "backlog 2, 600 min"},
		{"one has been handed out since", `insert into getwork.work (task_id, item, user_name) select task_id, 'a', 'ann' from getwork.task_state`, "backlog 2, 600 min"},
		{"all have", `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_by, closed_xid) select task_id, 'b', 'ann', 'completed', now(), 'ann', pg_current_xact_id() from getwork.task_state`, ""},
		{"another run finds old ones", `update getwork.run set started_at = now() + interval '1 second', finished_at = now() + interval '1 second'`, "backlog 2, 600 min"},
		{"the task is paused", `update getwork.task_state set paused = true`, ""},
	})
}

type alertStep struct{ what, statement, want string }

// checkAlerts does one step after the other, and compares the alerts after each.
func checkAlerts(t *testing.T, steps []alertStep) {
	t.Helper()
	pool := withTask(t)
	rs := New(pg.Router{Calls: pool}, nil)
	for _, step := range steps {
		if _, err := pool.Exec(t.Context(), step.statement); err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		tasks, err := rs.Tasks(t.Context())
		var alerts []assign.Alert
		if err == nil {
			alerts, err = rs.Alerts(t.Context(), tasks)
		}
		if err != nil {
			t.Fatalf("%s: %v", step.what, err)
		}
		var all []string
		for _, a := range alerts {
			one := fmt.Sprintf("%s %d, %.0f min: %s", a.Kind, a.Count, time.Since(a.Since).Minutes(), a.Detail)
			all = append(all, strings.TrimSuffix(one, ": "))
		}
		if got := strings.Join(all, "; "); got != step.want {
			t.Errorf("%s: %q, want %q", step.what, got, step.want)
		}
	}
}
