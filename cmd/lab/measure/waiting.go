package measure

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
)

// crowdSize returns how many users wait.
func crowdSize(e *stage.Env) int { return stage.Sized(e, 1000, 10_000) }

func waitingFigures(e *stage.Env) []*bench.Figure {
	limit := &bench.Figure{Key: "waiting_limit", Name: "raw TCP and set-based writes", Unit: "ms"}
	return []*bench.Figure{
		{Key: "waiting_1", Name: "End of the query to the last of " + bench.Thousands(crowdSize(e)) + " waiting users, one node", Unit: "ms", Limit: limit, Goal: bench.AtMost(1.8)},
		{Key: "waiting_3", Name: "the same on three nodes", Unit: "ms", Limit: limit, Goal: bench.AtMost(1.8)},
	}
}

// waiting measures how long users who wait for a query go on waiting after its end.
func waiting(ctx context.Context, r *bench.Rounds) error { return waitingOf(ctx, r, crowdSize(r.Env)) }

func waitingOf(ctx context.Context, r *bench.Rounds, users int) error {
	var parts [2][]pushed
	var raw, written []float64
	for range r.Each() {
		for i, nodes := range []int{1, 3} {
			p, err := waitOnce(ctx, r.Env, users, nodes)
			if err != nil {
				return err
			}
			r.Add(fmt.Sprintf("waiting_%d", nodes), p.last)
			parts[i] = append(parts[i], p)
		}
		wire, err := rawPush(ctx, users, parts[0][0].size)
		if err != nil {
			return err
		}
		wrote, err := setWrites(ctx, r.Env, users)
		if err != nil {
			return err
		}
		raw, written = append(raw, stage.Millis(wire)), append(written, stage.Millis(wrote))
		r.Add("waiting_limit", stage.Millis(wire+wrote))
	}
	r.Figure("waiting_limit").Note = fmt.Sprintf("raw TCP %.0f ms (messages of %d bytes, %d writers), one transaction of set-based SQL %.0f ms",
		bench.Quantile(raw, 0.5), parts[0][0].size, rawWriters, bench.Quantile(written, 0.5))
	r.Figure("waiting_1").Note, r.Figure("waiting_3").Note = phases(parts[0]), phases(parts[1])
	return nil
}

// waitOnce makes one round with that many users on that many nodes who wait for a query's end.
func waitOnce(ctx context.Context, e *stage.Env, users, nodes int) (p pushed, err error) {
	err = onCrowd(ctx, e, users, nodes, func(c *crowd) error {
		p, err = c.push(ctx)
		return err
	})
	if err != nil {
		err = fmt.Errorf("%s waiting users, nodes: %d: %w", bench.Thousands(users), nodes, err)
	}
	return p, err
}

// phases reports where the time goes.
func phases(ps []pushed) string {
	median := func(of func(pushed) float64) float64 {
		var values []float64
		for _, p := range ps {
			values = append(values, of(p))
		}
		return bench.Quantile(values, 0.5)
	}
	note := fmt.Sprintf("the first user has their items after %.0f ms, half of them after %.0f",
		median(func(p pushed) float64 { return p.first }), median(func(p pushed) float64 { return p.half }))
	if ps[0].committed == 0 {
		return note
	}
	return fmt.Sprintf("the round begins to write after %.0f ms, is committed after %.0f; ",
		median(func(p pushed) float64 { return p.written }), median(func(p pushed) float64 { return p.committed })) + note
}

const (
	// With the columns, checks and indexes of getwork's own tables, but without foreign keys.
	makeAnswered = `
create table getwork.bare_request (like getwork.work_requested including all);
create table getwork.bare_work (like getwork.work including all)`

	fillWaiting = `
insert into getwork.bare_request (task_id, user_name, wanted, requested)
select 1, 'user-' || n, $1, $1
from generate_series(1, $2::integer) n
returning id`

	answerAll = `
update getwork.bare_request r
set state = 'assigned', assigned = r.wanted, completed_at = clock_timestamp(), round_id = 1
where r.id = any($1::bigint[])`

	holdAll = `
insert into getwork.bare_work (task_id, item, user_name, request_id, rank, details)
select 1, g.item, g.user_name, g.request_id, g.rank, g.details::json
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) as g (item, user_name, request_id, rank, details)`
)

// setWrites is the limit of writing: it answers that many waiting requests, each with its items, in one transaction of
// set-based SQL, and returns how long that takes.
func setWrites(ctx context.Context, e *stage.Env, users int) (took time.Duration, err error) {
	err = e.On(ctx, 0, func(s *stage.Stage) error {
		if err := s.Exec(ctx, "make the limit's tables", []string{makeAnswered}); err != nil {
			return err
		}
		rows, err := s.Conn.Query(ctx, s.SQL(fillWaiting), stage.WantedEach, users)
		if err != nil {
			return err
		}
		requests, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		if err := s.Exec(ctx, "insert waiting requests", []string{`analyze getwork.bare_request`}); err != nil {
			return err
		}
		var items, names, details []string
		var of, ranks []int64
		for rank := range users * stage.WantedEach {
			items, names = append(items, fmt.Sprint(rank+1)), append(names, fmt.Sprintf("user-%d", rank/stage.WantedEach+1))
			details = append(details, fmt.Sprintf(`{"customer":"customer %d","amount":%.2f}`, rank%5000, float64(rank)/100))
			of, ranks = append(of, requests[rank/stage.WantedEach]), append(ranks, int64(rank+1))
		}
		began := time.Now()
		err = pgx.BeginFunc(ctx, s.Conn, func(tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, s.SQL(answerAll), requests); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, s.SQL(holdAll), items, names, of, ranks, details)
			return err
		})
		took = time.Since(began)
		return err
	})
	if err != nil {
		err = fmt.Errorf("set-based writes: %w", err)
	}
	return took, err
}
