package records

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

const runColumns = `u.id, u.version, u.node, u.state, u.started_at, u.finished_at, u.error, u.given, u.blocked, u.passed_over,
  u.candidates, u.cut, ` + RunMS + `, u.task_id`

// RunMS is how many milliseconds a run u took, or null while it is under way. It is at least 0, because the clock may have
// been set back. It is computed before the cast to float8, which would turn 1691.39 into 1691.3899999999999.
const RunMS = `case when u.finished_at is not null then (greatest(extract(epoch from u.finished_at - u.started_at), 0) * 1000)::float8 end`

func scanRun(row pgx.CollectableRow) (assign.Run, error) {
	var r assign.Run
	err := row.Scan(&r.ID, &r.Version, &r.Node, &r.State, &r.StartedAt, &r.FinishedAt, &r.Error, &r.Given, &r.Blocked, &r.PassedOver,
		&r.Candidates, &r.Cut, &r.DurationMS, &r.TaskID)
	r.StartedAt, r.FinishedAt = r.StartedAt.UTC(), assign.UTC(r.FinishedAt)
	return r, err
}

const selectRuns = `
select ` + runColumns + `
from getwork.run u
where u.task_id = $1 and u.id < $2
order by u.id desc
limit $3`

// Runs reads a task's runs, newest first, starting before the given id (0: with the newest). A name that no task has is refused
// with [assign.NotFound].
func (rs *Records) Runs(ctx context.Context, name string, before int64, limit int) ([]assign.Run, error) {
	t, err := rs.Task(ctx, name)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1<<63 - 1
	}
	rows, err := rs.db.Query(ctx, rs.sql(selectRuns), t.ID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return runs, nil
}
