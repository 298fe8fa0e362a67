package demo

import (
	"context"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// naiveQuery is the task's own query without blocked items, as getwork runs it, but each user runs it alone. It selects
// the whole row, so that the planner can't leave out what the ranking computes.
const naiveQuery = `
select item, to_jsonb(details)::text
from (select row_number() over () as rank, q.item::text as item, q as details from (
%s
) q) ranked
where not exists (select from public.naive_work h where h.item = ranked.item)
  and not exists (
    select from getwork.blocked b join getwork.task_state s using (task_id)
    where s.name = '` + firstTask + `' and s.deleted_at is null and b.item = ranked.item)
order by rank
limit %d`

// The table has no unique constraint, on purpose.
const (
	createNaiveWork = `
drop table if exists public.naive_work;
create table public.naive_work (item text not null, user_name text not null);
create index on public.naive_work (item)`
	insertNaiveWork = `insert into public.naive_work (item, user_name) select unnest($1::text[]), $2`
	dropNaiveWork   = `
select pg_terminate_backend(pid) from pg_stat_activity where application_name = '` + naiveName + `' and state <> 'idle';
drop table if exists public.naive_work`
)

// naiveName is the application_name of the naive users' connections.
const naiveName = "naive"

// cleanUpWithin bounds the clean-up after a half, even after an interrupted one.
const cleanUpWithin = 15 * time.Second

// naiveHalf gives every user a connection, and has each do what a program does that knows of no other users.
func (c *contest) naiveHalf(ctx context.Context) (half, error) {
	c.spectator.step("running the query once, to warm the caches")
	manager, err := c.manager()
	if err != nil {
		return half{}, err
	}
	task, err := manager.Task(ctx, firstTask)
	if err != nil {
		return half{}, err
	}
	query := fmt.Sprintf(naiveQuery, strings.TrimSuffix(strings.TrimSpace(string(task.Query)), ";"), c.count)
	pool, err := c.naivePool(ctx)
	if err != nil {
		return half{}, err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, createNaiveWork); err != nil {
		return half{}, fmt.Errorf("create the scratch table: %w", err)
	}
	defer c.dropNaiveWork()
	began := time.Now()
	before, _ := cpuTime(c.server.PID())
	if _, err := topItems(ctx, pool, query); err != nil {
		return half{}, err
	}
	after, _ := cpuTime(c.server.PID())
	alone := time.Since(began)
	if c.budget > 0 {
		// What else the machine does now lengthens alone, but not the CPU time.
		cost := after - before
		if cost <= 0 {
			cost = alone
		}
		c.users = affordable(c.users, c.budget, cost)
	}
	what := fmt.Sprintf("each of %d users runs the query, which alone takes %.1f s", c.users, alone.Seconds())
	var queries atomic.Int64
	h := half{alone: alone}
	before, _ = cpuTime(c.server.PID())
	h.outcomes, err = c.clicks(ctx, what, func(ctx context.Context, user int) ([]string, error) {
		queries.Add(1)
		items, err := topItems(ctx, pool, query)
		if err == nil {
			_, err = pool.Exec(ctx, insertNaiveWork, items, clicker(user))
		}
		return items, err
	})
	after, ok := cpuTime(c.server.PID())
	h.queries, h.cpu, h.measured = int(queries.Load()), after-before, ok
	return h, err
}

// affordable returns how many users' queries of that cost this machine can run within a budget. It returns at least
// two, since one user races nobody.
func affordable(users int, budget, cost time.Duration) int {
	return max(2, min(users, int(budget*time.Duration(runtime.NumCPU())/max(cost, 1))))
}

// naivePool returns a pool with a connection for every user, all made before anybody clicks. The server ends a query
// that outlives the comparison.
func (c *contest) naivePool(ctx context.Context) (*pgxpool.Pool, error) {
	config, err := pgxpool.ParseConfig(c.database)
	if err != nil {
		return nil, err
	}
	config.MinConns, config.MaxConns = int32(c.users), int32(c.users)
	config.ConnConfig.RuntimeParams["application_name"] = naiveName
	config.ConnConfig.RuntimeParams["statement_timeout"] = fmt.Sprint(c.bound.Milliseconds())
	pool, err := pgxpool.NewWithConfig(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("connect the naive users: %w", err)
	}
	held := make([]*pgxpool.Conn, c.users)
	for i := range held {
		if held[i], err = pool.Acquire(ctx); err != nil {
			err = fmt.Errorf("connect the naive users: %w", err)
			break
		}
	}
	for _, conn := range held {
		if conn != nil {
			conn.Release()
		}
	}
	if err != nil {
		pool.Close()
		return nil, err
	}
	return pool, nil
}

// dropNaiveWork drops the scratch table. It first ends queries that were given up, which still run and would lock the
// table. If it fails, the next comparison drops the table.
func (d *demo) dropNaiveWork() {
	ctx, cancel := context.WithTimeout(d.hurry, cleanUpWithin)
	defer cancel()
	conn, err := pgx.Connect(ctx, d.database)
	if err != nil {
		return
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, _ = conn.Exec(ctx, dropNaiveWork)
}

func topItems(ctx context.Context, pool *pgxpool.Pool, query string) ([]string, error) {
	// The query is not prepared, so that each execution can have its own plan, as getwork's has.
	rows, err := pool.Query(ctx, query, pgx.QueryExecModeExec)
	if err != nil {
		return nil, fmt.Errorf("run the query: %w", err)
	}
	items, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (item string, err error) {
		var details string
		err = row.Scan(&item, &details)
		return item, err
	})
	if err != nil {
		return nil, fmt.Errorf("run the query: %w", err)
	}
	return items, nil
}
