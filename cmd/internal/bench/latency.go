package bench

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// percentile is the value that p of 100 do not exceed.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	return sorted[min(len(sorted)-1, int(float64(len(sorted))*p/100))]
}

// breath is what passes between two calls on a system that is otherwise idle.
const breath = 5 * time.Millisecond

// idleClick measures a single click on an idle system, and beside it what its commits and its HTTP alone cost.
func idleClick(ctx context.Context, e *Env) ([]Figure, error) {
	p50 := Figure{Key: "idle_click_p50", Name: "One click on an idle system, POST to 201, p50", Unit: "ms", Goal: &Goal{AtMost: new(2.5), Absolute: true}}
	p99 := Figure{Key: "idle_click_p99", Name: "One click on an idle system, POST to 201, p99", Unit: "ms", Goal: &Goal{AtMost: new(8.0), Absolute: true}}
	commits50 := Figure{Key: "limit_two_commits_p50", Name: "its two commits alone, by pgx, p50", Unit: "ms"}
	commits99 := Figure{Key: "limit_two_commits_p99", Name: "its two commits alone, by pgx, p99", Unit: "ms"}
	bare50 := Figure{Key: "bare_post_p50", Name: "a POST that is answered 404, p50", Unit: "ms"}
	for round := range e.Rounds {
		e.log("round %d of %d: single clicks", round+1, e.Rounds)
		clicks, commits, posts, err := e.singleClicks(ctx)
		if err != nil {
			return nil, err
		}
		p50.Values, p99.Values = append(p50.Values, percentile(clicks, 50)), append(p99.Values, percentile(clicks, 99))
		commits50.Values, commits99.Values = append(commits50.Values, percentile(commits, 50)), append(commits99.Values, percentile(commits, 99))
		bare50.Values = append(bare50.Values, percentile(posts, 50))
	}
	p50.Limit, p99.Limit = &commits50, &commits99
	return []Figure{p50, p99, bare50}, nil
}

// singleClicks are the times, in ms, of clicks, of bare commits and of bare calls, one after the other in turn: what
// disturbs one disturbs the others.
func (e *Env) singleClicks(ctx context.Context) (clicks, commits, posts []float64, err error) {
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		return nil, nil, nil, err
	}
	defer leave()
	b, drop, err := e.bare(ctx, 20_000)
	if err != nil {
		return nil, nil, nil, err
	}
	defer drop()
	if err := b.reset(ctx, 1); err != nil {
		return nil, nil, nil, err
	}
	u, err := s.shelfFor(ctx, "idle", 3, 20_000)
	if err != nil {
		return nil, nil, nil, err
	}
	defer u.close()
	post := request("POST", "/api/v1/nothing", "somebody", "{}")
	n := 500
	if e.Quick {
		n = 200
	}
	for i := range n + n/10 {
		click, err := u.click()
		if err != nil {
			return nil, nil, nil, err
		}
		sleep(ctx, breath)
		commit, err := b.twoCommits(ctx)
		if err != nil {
			return nil, nil, nil, fmt.Errorf("two commits alone: %w", err)
		}
		sleep(ctx, breath)
		began := time.Now()
		if status, _, err := u.wire.do(post); err != nil || status != 404 {
			return nil, nil, nil, fmt.Errorf("a call of nothing: status %d, %w", status, err)
		}
		bare := time.Since(began)
		sleep(ctx, breath)
		if i >= n/10 { // before, plans and connections are made
			clicks, commits, posts = append(clicks, millis(click)), append(commits, millis(commit)), append(posts, millis(bare))
		}
	}
	return clicks, commits, posts, s.check(ctx, "idle", u.items)
}

// shelfFor makes items, a task whose shelf stays fresh, and fills it. The user that is returned has had one click.
func (s *stage) shelfFor(ctx context.Context, task string, count, items int) (*user, error) {
	if err := s.makeItems(ctx, items); err != nil {
		return nil, err
	}
	if err := s.task(ctx, task, itemsQuery, map[string]any{"max_candidates": items, "fresh_for": "24h"}); err != nil {
		return nil, err
	}
	u, err := openUser(ctx, s.nodes.URL(0), task, "somebody", count)
	if err != nil {
		return nil, err
	}
	if _, err := u.click(); err != nil {
		u.close()
		return nil, fmt.Errorf("fill the shelf: %w", err)
	}
	return u, nil
}

// twoCommits writes a click as a design does that records it before it serves it: one commit, and then another.
func (b *bare) twoCommits(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	const record = `insert into getwork.bare_request (task_id, user_name, wanted, requested) values (1, 'somebody', 3, 3) returning id`
	var id int64
	if err := b.conn.QueryRow(ctx, b.name.SQL(record)).Scan(&id); err != nil {
		return 0, err
	}
	err := pgx.BeginFunc(ctx, b.conn, func(tx pgx.Tx) error {
		const lock = `select id from getwork.bare_request where id = $1 and state = 'pending' for update`
		if err := tx.QueryRow(ctx, b.name.SQL(lock), id).Scan(&id); err != nil {
			return err
		}
		var upto int64
		if err := tx.QueryRow(ctx, b.name.SQL(barePlace), 0, 3).Scan(&upto); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, b.name.SQL(bareRead), upto-3, upto)
		if err != nil {
			return err
		}
		if _, err := pgx.CollectRows(rows, pgx.RowToMap); err != nil {
			return err
		}
		const assign = `
insert into getwork.bare_work (task_id, item, user_name, request_id, run_id, rank, details)
select 1, item, 'somebody', $1, 1, rank, details from getwork.bare_candidate where run_id = 1 and rank > $2 and rank <= $3`
		if _, err := tx.Exec(ctx, b.name.SQL(assign), id, upto-3, upto); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, b.name.SQL(bareEnd), []int64{id})
		return err
	})
	return time.Since(began), err
}
