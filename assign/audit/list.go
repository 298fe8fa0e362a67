package audit

import (
	"context"
	"fmt"
	"math"

	"github.com/jackc/pgx/v5"
)

// Filter selects rows. Empty fields do not filter.
type Filter struct {
	Act, Actor string
	Before     int64 // only rows with lower numbers
	Limit      int   // how many at most; 0 lists none
}

// Each reads one index backwards. The equality is written as a range of the whole key, and so is the order: with a plain
// equality the planner may walk through all rows of others by the primary key. In listByBoth act is part of an expression, so the
// planner can't choose the index of acts, whose order is another.
const (
	listAll     = `select ` + columns + ` from getwork.audit where n < $1 order by n desc limit $2`
	listByAct   = `select ` + columns + ` from getwork.audit where act >= $3 and (act, n) < ($3, $1) order by act desc, n desc limit $2`
	listByActor = `select ` + columns + ` from getwork.audit where actor >= $3 and (actor, n) < ($3, $1) order by actor desc, n desc limit $2`
	listByBoth  = `select ` + columns + ` from getwork.audit where actor >= $3 and (actor, n) < ($3, $1) and act || '' = $4 order by actor desc, n desc limit $2`
)

// List reads rows, newest first.
func (w *Writer) List(ctx context.Context, f Filter) ([]Row, error) {
	if f.Before == 0 {
		f.Before = math.MaxInt64
	}
	statement, args := listAll, []any{f.Before, f.Limit}
	switch {
	case f.Actor != "" && f.Act != "":
		statement, args = listByBoth, append(args, f.Actor, f.Act)
	case f.Actor != "":
		statement, args = listByActor, append(args, f.Actor)
	case f.Act != "":
		statement, args = listByAct, append(args, f.Act)
	}
	rows, err := w.DB.Query(ctx, w.sql(statement), args...)
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	found, err := pgx.CollectRows(rows, scan)
	if err != nil {
		return nil, fmt.Errorf("read the audit: %w", err)
	}
	return found, nil
}
