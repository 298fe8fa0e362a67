package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"getwork/cmd/internal/bench/stage"
)

// bare makes the same writes without getwork: a click is a recorded request, a position on the shelf, three candidates
// read, three rows of work, and the request's end. Its tables have getwork's columns, and only the indexes that every
// design needs: an item is held once, a user has one waiting request, and a user's held items are found. They have no
// foreign keys, and the shelf is divided beforehand into a lane for each client, so that no client waits for another.
// So bare is faster than any program that has to agree on who gets what.
type bare struct {
	*stage.Stage
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

// onBare calls do with such tables and a shelf of that many candidates.
func onBare(ctx context.Context, e *stage.Env, candidates int, do func(b *bare) error) error {
	return e.On(ctx, 0, func(s *stage.Stage) error {
		const what = "create the limits' tables"
		if err := s.Exec(ctx, what, []string{makeBare, fillBare}, candidates); err != nil {
			return err
		}
		if err := s.Exec(ctx, what, []string{`vacuum analyze getwork.bare_candidate`}); err != nil {
			return err
		}
		return do(&bare{s, candidates})
	})
}

// reset empties the tables, and divides the shelf into lanes.
func (b *bare) reset(ctx context.Context, lanes int) error {
	return b.Exec(ctx, "empty the limits' tables", []string{
		`truncate getwork.bare_request, getwork.bare_work, getwork.bare_lane`,
		`insert into getwork.bare_lane select g, g * ($2::bigint / $1) from generate_series(0, $1 - 1) g`}, lanes, b.candidates)
}

// fiveStatements is a click as any design writes it that commits each click by itself.
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

// oneStatement is the same in one statement: as few round trips as possible.
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

// clientCounts are the numbers of clients to try; the best rate counts.
var clientCounts = []int{1, 8, 32}

// perClients returns how often per second each number of clients executes a script.
func (b *bare) perClients(ctx context.Context, script string, lasts time.Duration) (rates []float64, err error) {
	for _, clients := range clientCounts {
		if err := b.reset(ctx, clients); err != nil {
			return nil, err
		}
		rate, err := pgbench(ctx, b.Env, b.SQL(script), clients, lasts)
		if err != nil {
			return nil, err
		}
		rates = append(rates, rate)
	}
	return rates, nil
}

// The same by pgx, for any number of clicks: each statement serves all of them.
const (
	bareRecord = `
insert into getwork.bare_request (task_id, user_name, wanted, requested)
select 1, u, 3, 3 from unnest($1::text[]) u
returning id`

	bareLock = `select id from getwork.bare_request where id = any($1) and state = 'pending' for update`

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

// write records clicks and serves them in one transaction or, with apart, in two, as a design does that records a click
// before serving it.
func (b *bare) write(ctx context.Context, conn *pgx.Conn, lane, clicks int, apart bool) error {
	var users, items, holders, details []string
	var ids, requests, ranks []int64
	for i := range clicks {
		users = append(users, fmt.Sprintf("user %d-%d", lane, i))
	}
	record := func(db interface {
		Query(context.Context, string, ...any) (pgx.Rows, error)
	}) error {
		rows, err := db.Query(ctx, b.SQL(bareRecord), users)
		if err == nil {
			ids, err = pgx.CollectRows(rows, pgx.RowTo[int64])
		}
		return err
	}
	if apart {
		if err := record(conn); err != nil {
			return err
		}
	}
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) (err error) {
		if apart {
			_, err = tx.Exec(ctx, b.SQL(bareLock), ids)
		} else {
			err = record(tx)
		}
		if err != nil {
			return err
		}
		var upto int64
		if err := tx.QueryRow(ctx, b.SQL(barePlace), lane, stage.WantedEach*clicks).Scan(&upto); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, b.SQL(bareRead), upto-int64(stage.WantedEach*clicks), upto)
		if err != nil {
			return err
		}
		var rank int64
		var item, detail string
		if _, err := pgx.ForEachRow(rows, []any{&rank, &item, &detail}, func() error {
			i := len(items) / stage.WantedEach
			items, details, ranks = append(items, item), append(details, detail), append(ranks, rank)
			holders, requests = append(holders, users[i]), append(requests, ids[i])
			return nil
		}); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, b.SQL(bareAssign), items, holders, requests, ranks, details); err != nil {
			return err
		}
		_, err = tx.Exec(ctx, b.SQL(bareEnd), ids)
		return err
	})
}

// together returns how many clicks per second some connections can record and serve at the same time, with that many
// clicks in each transaction. Each makes one transaction at least: a busy machine may need longer than the given time
// to begin.
func (b *bare) together(ctx context.Context, lanes, batch int, lasts time.Duration) (float64, error) {
	if err := b.reset(ctx, lanes); err != nil {
		return 0, err
	}
	conns := make([]*pgx.Conn, lanes)
	defer func() {
		for _, conn := range conns {
			if conn != nil {
				_ = conn.Close(context.WithoutCancel(ctx))
			}
		}
	}()
	for lane := range conns {
		var err error
		if conns[lane], err = b.Connect(ctx); err != nil {
			return 0, err
		}
		if _, err := conns[lane].Exec(ctx, `set enable_seqscan = off`); err != nil {
			return 0, fmt.Errorf("set-based writes: %w", err)
		}
	}
	began := time.Now()
	var written atomic.Int64
	g, ctx := errgroup.WithContext(ctx)
	for lane, conn := range conns {
		g.Go(func() error {
			for done := false; !done; done = time.Since(began) >= lasts {
				if err := b.write(ctx, conn, lane, batch, false); err != nil {
					return err
				}
				written.Add(int64(batch))
			}
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return 0, fmt.Errorf("set-based writes: %w", err)
	}
	return float64(written.Load()) / time.Since(began).Seconds(), nil
}
