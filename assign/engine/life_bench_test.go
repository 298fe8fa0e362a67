package engine

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// What the database pays for an item's life: handed out, extended, completed, with this many rows of history behind it. The
// figures are the backend's CPU time, the WAL that it writes, and the entries that it adds to indexes, each by item. Checkpoints
// come rarely, so page images hardly count.
//
//	GETWORK_BENCH_HISTORY=3000000 go test -run '^$' -bench 'Life' -benchtime 40x ./assign/engine
func BenchmarkLife(b *testing.B) {
	for _, rows := range []int{100_000, atoi(cmp.Or(os.Getenv("GETWORK_BENCH_HISTORY"), "1000000"))} {
		b.Run(fmt.Sprintf("%d rows of history", rows), func(b *testing.B) { benchmarkLife(b, rows) })
	}
}

func atoi(s string) int {
	n, _ := strconv.Atoi(s)
	return n
}

// pastLives are closed three times for each item, in no order of their keys, as loans are worked on over months.
const pastLives = `
insert into getwork.work (task_id, item, user_name, request_id, assigned_at, state, closed_at, closed_by, closed_xid, after, available_at)
select $1, 'loan ' || hashint8(i % ($2::bigint / 3)), 'user ' || i % 300, i, c.at, c.as, c.at, 'user ' || i % 300, '3'::xid8,
  case c.as when 'returned' then interval '0' end, case c.as when 'returned' then c.at end
from generate_series(1, $2::bigint) i
cross join lateral (select clock_timestamp() - ($2 - i) * interval '2 seconds' as at, case when i % 10 = 0 then 'returned' else 'completed' end as as) c`

// benchmarkLife takes a hundred clicks for three items at a time, by the statements of a round, and extends and completes what
// they got, by those of the holders.
func benchmarkLife(b *testing.B, rows int) {
	url := schematest.URL(b)
	n := still(b, url)
	task := newTask(b, n, "task", numbers, leased(time.Hour))
	db := pool(b, url)
	execute(b, db, pastLives, task.ID, rows)
	execute(b, db, `create extension pg_walinspect`)
	execute(b, db, `vacuum analyze getwork.work`)
	execute(b, db, `checkpoint`)
	conn, err := pgx.Connect(b.Context(), url)
	if err != nil {
		b.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(b.Context(), `set synchronous_commit = on`); err != nil { // so that what was written can be read
		b.Fatal(err)
	}

	const clicks, each = 100, 3
	type cost struct {
		cpu          time.Duration
		wal, entries int64
	}
	spent := map[string]cost{}
	measured := func(phase string, f func(tx pgx.Tx) error) {
		before, from := backendCPU(b, conn), query[string](b, db, `select pg_current_wal_flush_lsn()::text`)
		if err := pgx.BeginFunc(b.Context(), conn, f); err != nil {
			b.Fatal(phase, err)
		}
		c := spent[phase]
		c.cpu += backendCPU(b, conn) - before
		c.wal += query[int64](b, db, `select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), $1::text::pg_lsn)::bigint`, from)
		c.entries += query[int64](b, db, `select count(*) from pg_get_wal_records_info_till_end_of_wal($1::text::pg_lsn) where resource_manager = 'Btree' and record_type in ('INSERT_LEAF', 'INSERT_POST', 'SPLIT_L', 'SPLIT_R')`, from)
		spent[phase] = c
	}
	round := 0
	for b.Loop() {
		round++
		var g grants
		lease := int64(time.Hour / time.Microsecond)
		for i := range clicks * each {
			g.items = append(g.items, query[string](b, db, `select 'loan ' || hashint8($1)`, int64((round*clicks*each+i)*7919)%int64(rows/3)))
			g.slots, g.attempts, g.exclusives = append(g.slots, 1), append(g.attempts, 1), append(g.exclusives, nil)
			g.users, g.instances = append(g.users, fmt.Sprint("user ", i/each)), append(g.instances, "")
			g.requests, g.ranks, g.leases = append(g.requests, int64(rows+round*clicks+i/each)), append(g.ranks, nil), append(g.leases, &lease)
			g.details = append(g.details, `{"amount": 12000, "name": "somebody", "since": "2026-01-01"}`)
		}
		var ids []int64
		measured("hand-out", func(tx pgx.Tx) error {
			rows, err := tx.Query(b.Context(), insertWork+returningGiven, task.ID, nil, g.items, g.slots, g.exclusives, g.users, g.instances, g.requests, g.ranks, g.details, g.leases, g.attempts)
			if err != nil {
				return err
			}
			ids, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (id int64, err error) { return id, row.Scan(&id, nil, nil, nil, nil) })
			return err
		})
		each := func(queue func(batch *pgx.Batch, i int, id int64)) func(tx pgx.Tx) error {
			return func(tx pgx.Tx) error {
				var batch pgx.Batch
				for i, id := range ids {
					queue(&batch, i, id)
				}
				return tx.SendBatch(b.Context(), &batch).Close()
			}
		}
		measured("extension", each(func(batch *pgx.Batch, i int, id int64) {
			batch.Queue(extendWork, id, g.users[i], g.instances[i])
		}))
		measured("completion", each(func(batch *pgx.Batch, i int, id int64) {
			batch.Queue(closeWork, id, "completed", g.users[i], nil, false, nil, nil, nil, nil, nil)
		}))
	}
	items := float64(round * clicks * each)
	var all cost
	for phase, c := range spent {
		b.ReportMetric(float64(c.cpu.Microseconds())/items, phase+"-µs")
		b.ReportMetric(float64(c.wal)/items, phase+"-WAL-B")
		b.ReportMetric(float64(c.entries)/items, phase+"-entries")
		all.cpu, all.wal, all.entries = all.cpu+c.cpu, all.wal+c.wal, all.entries+c.entries
	}
	b.ReportMetric(float64(all.cpu.Microseconds())/items, "life-µs")
	b.ReportMetric(float64(all.wal)/items, "life-WAL-B")
	b.ReportMetric(float64(all.entries)/items, "life-entries")
	b.ReportMetric(0, "ns/op")
}

// backendCPU returns how long a connection's server process has been on a CPU.
func backendCPU(b *testing.B, conn *pgx.Conn) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/schedstat", conn.PgConn().PID()))
	if err != nil {
		b.Skip("Linux tells a process's CPU time: ", err)
	}
	ns, err := strconv.ParseInt(strings.Fields(string(text))[0], 10, 64)
	if err != nil {
		b.Fatal(err)
	}
	return time.Duration(ns)
}
