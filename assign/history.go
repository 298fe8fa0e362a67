package assign

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Run is one execution of a task's ranking query, as the history shows it.
type Run struct {
	ID         int64      `json:"id,string"`
	Version    int        `json:"version"`
	Node       string     `json:"node"`
	State      string     `json:"state"` // running, finished, failed, cancelled, lost
	StartedAt  time.Time  `json:"started_at"`
	FinishedAt *time.Time `json:"finished_at"`
	Error      *string    `json:"error"`
	Given      *int64     `json:"given"`       // rows that the query gave
	Blocked    *int64     `json:"blocked"`     // of them held, put off or never
	PassedOver *int64     `json:"passed_over"` // of them without a usable item
	Candidates *int       `json:"candidates"`  // what remained, at most max_candidates
	Cut        *bool      `json:"cut"`         // more than that remained
	DurationMS *float64   `json:"duration_ms"`

	TaskID int64 `json:"-"`
}

const runColumns = `u.id, u.version, u.node, u.state, u.started_at, u.finished_at, u.error, u.given, u.blocked, u.passed_over,
  u.candidates, u.cut, extract(epoch from u.finished_at - u.started_at)::float8 * 1000, u.task_id`

func scanRun(row pgx.CollectableRow) (Run, error) {
	var r Run
	err := row.Scan(&r.ID, &r.Version, &r.Node, &r.State, &r.StartedAt, &r.FinishedAt, &r.Error, &r.Given, &r.Blocked, &r.PassedOver,
		&r.Candidates, &r.Cut, &r.DurationMS, &r.TaskID)
	r.StartedAt, r.FinishedAt = r.StartedAt.UTC(), utc(r.FinishedAt)
	return r, err
}

const selectRuns = `
select ` + runColumns + `
from getwork.run u
where u.task_id = $1 and u.id < $2
order by u.id desc
limit $3`

// Runs reads a task's runs, newest first, those before the given id (0: from the newest).
func (e *Engine) Runs(ctx context.Context, name string, before int64, limit int) ([]Run, error) {
	t, err := e.Task(ctx, name)
	if err != nil {
		return nil, err
	}
	if before == 0 {
		before = 1<<63 - 1
	}
	rows, err := e.api.Query(ctx, e.SQL(selectRuns), t.ID, before, limit)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	if err != nil {
		return nil, fmt.Errorf("read runs: %w", err)
	}
	return runs, nil
}
