package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	selectTaskOfRequest = `
select s.name from getwork.work_requested r join getwork.task_state s on s.task_id = r.task_id where r.id = $1`

	selectTaskOfWork = `
select s.name from getwork.work w join getwork.task_state s on s.task_id = w.task_id where w.id = $1`
)

// TaskOf returns the name of the task of a request or of work; empty: there is no such row.
func (rs *Records) TaskOf(ctx context.Context, id int64, work bool) (name string, err error) {
	statement := selectTaskOfRequest
	if work {
		statement = selectTaskOfWork
	}
	err = rs.db.QueryRow(ctx, rs.sql(statement), id).Scan(&name)
	if errors.Is(err, pgx.ErrNoRows) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("read the task: %w", err)
	}
	return name, nil
}
