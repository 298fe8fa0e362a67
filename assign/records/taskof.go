package records

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

const (
	selectOfRequest = `
select s.name, v.groups, r.user_name
from getwork.work_requested r join getwork.task_state s on s.task_id = r.task_id join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where r.id = $1`

	selectOfWork = `
select s.name, v.groups, w.user_name
from getwork.work w join getwork.task_state s on s.task_id = w.task_id join getwork.task_version v on v.task_id = s.task_id and v.version = s.version
where w.id = $1`
)

// Subject is what a request or work is about, and whose it is.
type Subject struct {
	Task   string   // empty: there is no such row
	Groups []string // the task's
	User   string
}

// Subject reads what a request or work is about.
func (rs *Records) Subject(ctx context.Context, id int64, work bool) (s Subject, err error) {
	statement := selectOfRequest
	if work {
		statement = selectOfWork
	}
	err = rs.db.QueryRow(ctx, rs.sql(statement), id).Scan(&s.Task, &s.Groups, &s.User)
	if errors.Is(err, pgx.ErrNoRows) {
		return Subject{}, nil
	}
	if err != nil {
		return Subject{}, fmt.Errorf("read the task: %w", err)
	}
	return s, nil
}
