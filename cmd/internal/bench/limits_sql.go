package bench

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/schema"
)

// bare is the same writes without getwork: a click is a request that is recorded, a place on the shelf, three
// candidates that are read, three rows of work, and the request's end. Its tables have getwork's columns, and the few
// indexes that nobody can do without: an item is held once, one request of a user waits, a user finds what he holds. They
// have no foreign keys; and the shelf is parted beforehand, a lane for each client, so that nobody ever waits for
// another. So it is faster than anything that has to agree on who gets what.
type bare struct {
	env        *Env
	conn       *pgx.Conn
	name       schema.Name
	candidates int
}

const makeBare = `
create table getwork.bare_request (like getwork.work_requested including defaults including identity including storage, primary key (id));
create unique index on getwork.bare_request (user_name, instance, task_id) where state = 'pending';
create table getwork.bare_work (like getwork.work including defaults including identity including storage, primary key (id));
create unique index on getwork.bare_work (task_id, item, slot) where state = 'held';
create index on getwork.bare_work (user_name, id) where state = 'held';
create table getwork.bare_candidate (like getwork.candidate including all);
create table getwork.bare_lane (lane integer primary key, next bigint not null) with (fillfactor = 10)`

const fillBare = `
insert into getwork.bare_candidate (run_id, rank, item, details)
select 1, g, g::text, json_build_object('customer', 'customer ' || g % 5000, 'amount', (g % 100000) / 100.0)
from generate_series(1, $1::bigint) g`

// bare makes the tables, with a shelf of so many candidates.
func (e *Env) bare(ctx context.Context, candidates int) (b *bare, leave func(), err error) {
	name, drop, err := e.Schema(ctx)
	if err != nil {
		return nil, nil, err
	}
	b = &bare{env: e, name: schema.Name(name), candidates: candidates}
	if b.conn, err = e.Connect(ctx); err != nil {
		return nil, nil, err
	}
	leave = func() {
		_ = b.conn.Close(context.WithoutCancel(ctx))
		drop()
	}
	err = schema.Up(ctx, b.conn, b.name)
	if err == nil {
		_, err = b.conn.Exec(ctx, b.name.SQL(makeBare))
	}
	if err == nil {
		_, err = b.conn.Exec(ctx, b.name.SQL(fillBare), candidates)
	}
	if err == nil {
		_, err = b.conn.Exec(ctx, b.name.SQL(`vacuum analyze getwork.bare_candidate`))
	}
	if err != nil {
		leave()
		return nil, nil, fmt.Errorf("make the limits' tables: %w", err)
	}
	return b, leave, nil
}

// reset empties the tables, and parts the shelf into lanes.
func (b *bare) reset(ctx context.Context, lanes int) error {
	if _, err := b.conn.Exec(ctx, b.name.SQL(`truncate getwork.bare_request, getwork.bare_work, getwork.bare_lane`)); err != nil {
		return fmt.Errorf("empty the limits' tables: %w", err)
	}
	const makeLanes = `insert into getwork.bare_lane select g, g * ($2::bigint / $1) from generate_series(0, $1 - 1) g`
	if _, err := b.conn.Exec(ctx, b.name.SQL(makeLanes), lanes, b.candidates); err != nil {
		return fmt.Errorf("part the limits' shelf: %w", err)
	}
	return nil
}

// fiveStatements is a click as any design writes it that commits each by itself.
const fiveStatements = `
begin;
insert into getwork.bare_request (task_id, user_name, wanted, requested) values (1, 'user ' || :client_id, 3, 3) returning id \gset
update getwork.bare_lane set next = next + 3 where lane = :client_id returning next \gset
select rank, item, details from getwork.bare_candidate where run_id = 1 and rank > :next - 3 and rank <= :next;
insert into getwork.bare_work (task_id, item, user_name, request_id, run_id, rank, details)
  select 1, item, 'user ' || :client_id, :id, 1, rank, details from getwork.bare_candidate where run_id = 1 and rank > :next - 3 and rank <= :next;
update getwork.bare_request set state = 'assigned', assigned = 3, completed_at = clock_timestamp(), run_id = 1 where id = :id and state = 'pending';
commit;
`

// oneStatement is the same as one: as few round trips as there can be.
const oneStatement = `
with place as (
  update getwork.bare_lane set next = next + 3 where lane = :client_id returning next
), asked as (
  insert into getwork.bare_request (task_id, user_name, wanted, requested, state, assigned, completed_at, run_id)
  values (1, 'user ' || :client_id, 3, 3, 'assigned', 3, clock_timestamp(), 1) returning id
)
insert into getwork.bare_work (task_id, item, user_name, request_id, run_id, rank, details)
select 1, c.item, 'user ' || :client_id, asked.id, 1, c.rank, c.details
from asked, place join getwork.bare_candidate c on c.run_id = 1 and c.rank > place.next - 3 and c.rank <= place.next
returning item, details;
`

// clientCounts are those of which the best is taken.
var clientCounts = []int{1, 8, 32}

// best is the best of the clients' counts, and what each came to.
func (b *bare) best(ctx context.Context, script string, lasts time.Duration) (best float64, each []float64, err error) {
	for _, clients := range clientCounts {
		if err := b.reset(ctx, clients); err != nil {
			return 0, nil, err
		}
		tps, err := b.env.pgbench(ctx, b.name.SQL(script), clients, lasts)
		if err != nil {
			return 0, nil, err
		}
		each = append(each, tps)
		best = max(best, tps)
	}
	return best, each, nil
}

// The same, many clicks a transaction. Each statement is one for all of them.
const (
	bareRecord = `
insert into getwork.bare_request (task_id, user_name, wanted, requested)
select 1, u, 3, 3 from unnest($1::text[]) u
returning id`

	barePlace = `update getwork.bare_lane set next = next + $2 where lane = $1 returning next`

	bareRead = `select rank, item, details from getwork.bare_candidate where run_id = 1 and rank > $1 and rank <= $2 order by rank`

	bareAssign = `
insert into getwork.bare_work (task_id, item, user_name, request_id, run_id, rank, details)
select 1, w.item, w.user_name, w.request_id, 1, w.rank, w.details::json
from unnest($1::text[], $2::text[], $3::bigint[], $4::bigint[], $5::text[]) w (item, user_name, request_id, rank, details)`

	bareEnd = `
update getwork.bare_request r
set state = 'assigned', assigned = 3, completed_at = clock_timestamp(), run_id = 1
from unnest($1::bigint[]) e (id)
where r.id = e.id and r.state = 'pending'`
)

// batch is how many clicks a transaction the set-based limit has, and connections how many of them run at a time: more
// than there are cores gain nothing.
const (
	batch       = 100
	connections = 2
)

// setBased is how many clicks a second can be recorded and served by set-based statements.
func (b *bare) setBased(ctx context.Context, lasts time.Duration) (float64, error) {
	if err := b.reset(ctx, connections); err != nil {
		return 0, err
	}
	until := time.Now().Add(lasts)
	var rounds [connections]int
	began := time.Now()
	g, ctx := errgroup.WithContext(ctx)
	for lane := range connections {
		g.Go(func() error {
			conn, err := b.env.Connect(ctx)
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			if _, err := conn.Exec(ctx, `set enable_seqscan = off`); err != nil {
				return err
			}
			for time.Now().Before(until) {
				if err := b.round(ctx, conn, lane); err != nil {
					return fmt.Errorf("a set-based round: %w", err)
				}
				rounds[lane]++
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, err
	}
	return float64((rounds[0]+rounds[1])*batch) / time.Since(began).Seconds(), nil
}

func (b *bare) round(ctx context.Context, conn *pgx.Conn, lane int) error {
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		users := make([]string, batch)
		for i := range users {
			users[i] = "user " + strconv.Itoa(lane) + "-" + strconv.Itoa(i)
		}
		rows, err := tx.Query(ctx, b.name.SQL(bareRecord), users)
		if err != nil {
			return err
		}
		ids, err := pgx.CollectRows(rows, pgx.RowTo[int64])
		if err != nil {
			return err
		}
		var upto int64
		if err := tx.QueryRow(ctx, b.name.SQL(barePlace), lane, 3*batch).Scan(&upto); err != nil {
			return err
		}
		if rows, err = tx.Query(ctx, b.name.SQL(bareRead), upto-3*batch, upto); err != nil {
			return err
		}
		var items, holders, details []string
		var requests, ranks []int64
		for rows.Next() {
			var rank int64
			var item, detail string
			if err := rows.Scan(&rank, &item, &detail); err != nil {
				return err
			}
			i := len(items) / 3
			items, details, ranks = append(items, item), append(details, detail), append(ranks, rank)
			holders, requests = append(holders, users[i]), append(requests, ids[i])
		}
		if err := rows.Err(); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, b.name.SQL(bareAssign), items, holders, requests, ranks, details); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, b.name.SQL(bareEnd), ids)
		return err
	})
}
