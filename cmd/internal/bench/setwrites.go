package bench

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema"
)

const (
	// With the columns, checks and indexes of getwork's own tables, but no foreign keys.
	makeAnswered = `
create table getwork.bare_request (like getwork.work_requested including all);
create table getwork.bare_work (like getwork.work including all)`

	fillWaiting = `
insert into getwork.bare_request (task_id, user_name, wanted, requested)
select 1, 'user-' || n, $1, $1
from generate_series(1, $2::integer) n
returning id`

	analyzeWaiting = `analyze getwork.bare_request`

	answerAll = `
update getwork.bare_request r
set state = 'assigned', assigned = r.wanted, completed_at = clock_timestamp(), round_id = 1
where r.id = any($1::bigint[])`

	holdAll = `
insert into getwork.bare_work (task_id, item, user_name, request_id, rank, details)
select 1, g.item, g.user_name, g.request_id, g.rank, g.details::json
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) as g (item, user_name, request_id, rank, details)`
)

// setWrites is the limit of writing: so many requests that wait are answered, each with its items, in one transaction of
// set-based SQL. It returns how long that takes.
func (e *Env) setWrites(ctx context.Context, users int) (took time.Duration, err error) {
	name, drop, err := e.Schema(ctx)
	if err != nil {
		return 0, err
	}
	defer drop()
	conn, err := e.Connect(ctx)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, conn.Close(context.WithoutCancel(ctx))) }()
	in := schema.Name(name)
	requests, err := waitingRows(ctx, conn, in, users)
	if err != nil {
		return 0, fmt.Errorf("make requests that wait: %w", err)
	}
	var items, names, details []string
	var of, ranks []int64
	for i, id := range requests {
		for range wantedEach {
			rank := len(items) + 1
			items = append(items, fmt.Sprint(rank))
			names = append(names, fmt.Sprintf("user-%d", i+1))
			details = append(details, fmt.Sprintf(`{"customer":"customer %d","amount":%.2f}`, rank%5000, float64(rank)/100))
			of, ranks = append(of, id), append(ranks, int64(rank))
		}
	}
	began := time.Now()
	err = pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, in.SQL(answerAll), requests); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, in.SQL(holdAll), items, names, of, ranks, details)
		return err
	})
	if err != nil {
		return 0, fmt.Errorf("answer them: %w", err)
	}
	return time.Since(began), nil
}

// waitingRows makes the tables, and requests that wait.
func waitingRows(ctx context.Context, conn *pgx.Conn, in schema.Name, users int) ([]int64, error) {
	if err := schema.Up(ctx, conn, in); err != nil {
		return nil, err
	}
	if _, err := conn.Exec(ctx, in.SQL(makeAnswered)); err != nil {
		return nil, err
	}
	rows, err := conn.Query(ctx, in.SQL(fillWaiting), wantedEach, users)
	if err != nil {
		return nil, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
	if err != nil {
		return nil, err
	}
	_, err = conn.Exec(ctx, in.SQL(analyzeWaiting))
	return ids, err
}
