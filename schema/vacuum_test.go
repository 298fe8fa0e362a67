package schema_test

import (
	"encoding/json"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"

	"getwork/schema/schematest"
)

// history is what a test writes into a table: rows of the present, which then leave an index together, and rows of the past, so wide
// that few of them make many pages. read is what a round or a claim begins with.
type history struct {
	table, present, past, end, read string
}

var histories = []history{
	{
		table:   "item",
		present: `insert into getwork.item (task_id, item, pushed_by) select 1, n::text, 'boss' from generate_series(1, 1100) n`,
		past: `insert into getwork.item (task_id, item, pushed_by, done_at, details)
select 1, 'old ' || n, 'boss', clock_timestamp(), to_json(repeat('x', 1800))
from generate_series(1, 6000) n`,
		end: `update getwork.item set due_at = 'infinity' where done_at is null`,
		read: `select id from getwork.item where task_id = 1 and due_at is null and done_at is null
order by priority desc, id limit 1`,
	},
	{
		table: "hook_event",
		present: `insert into getwork.hook_event (hook_id, task_id, type, body)
select 1, 1, 'work.closed', '{}' from generate_series(1, 1100) n`,
		past: `insert into getwork.hook_event (hook_id, task_id, type, body, state, ended_at)
select 1, 1, 'work.closed', to_json(repeat('x', 1800)), 'delivered', clock_timestamp()
from generate_series(1, 6000) n`,
		end: `update getwork.hook_event set state = 'delivered', ended_at = clock_timestamp() where state = 'waiting'`,
		read: `select id from getwork.hook_event where hook_id = 1 and state = 'waiting' and next_at <= (select clock_timestamp())
order by next_at limit 1`,
	},
	{
		table:   "work",
		present: `insert into getwork.work (task_id, item, user_name) select 1, n::text, 'ann' from generate_series(1, 1100) n`,
		past: `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid, details)
select 1, 'old ' || n, 'ann', 'completed', clock_timestamp(), pg_current_xact_id(), to_json(repeat('x', 1800))
from generate_series(1, 6000) n`,
		end: `update getwork.work set state = 'completed', closed_at = clock_timestamp(), closed_xid = pg_current_xact_id()
where state = 'held'`,
		read: `select id from getwork.work where user_name = 'ann' and instance = '' and state = 'held' order by task_id, item limit 1`,
	},
	{
		table: "work_requested",
		present: `insert into getwork.work_requested (task_id, user_name, wanted, requested)
select 1, n::text, 1, 1 from generate_series(1, 1100) n`,
		past: `insert into getwork.work_requested (task_id, user_name, wanted, requested, state, error, completed_at)
select 1, 'ann', 1, 0, 'failed', repeat('x', 1800), clock_timestamp()
from generate_series(1, 6000) n`,
		end: `update getwork.work_requested set state = 'none', requested = 0, reason = 'no_match', completed_at = clock_timestamp()
where state = 'pending'`,
		read: `select id from getwork.work_requested where task_id = 1 and state = 'pending' order by id limit 1`,
	},
}

// Each round or claim reads past what has left an index since the last vacuum. So autovacuum comes when little of a large table is
// dead, and cleans the indexes, however few of the table's pages that is on.
func TestVacuumClearsTheWay(t *testing.T) {
	t.Parallel()
	conn := connect(t, schematest.URL(t))
	exec(t, conn, `
insert into getwork.task default values;
insert into getwork.task_version (task_id, version, name, query, created_by) values (1, 1, 'a', null, 'boss');
set enable_seqscan = off; set enable_bitmapscan = off; set enable_sort = off`)
	for _, h := range histories {
		due := dueAt(t, conn, h.table)
		if few, many := due(0), due(10_000_000); few < 500 || few > 2000 || many > 250_000 {
			t.Errorf("%s: autovacuum comes after %.0f dead rows of few, and %.0f of ten million", h.table, few, many)
		}
		exec(t, conn, `alter table getwork.`+h.table+` set (autovacuum_enabled = off)`) // the test vacuums
		exec(t, conn, h.present)
		exec(t, conn, h.past)
		exec(t, conn, `vacuum analyze getwork.`+h.table)
		exec(t, conn, h.end)
		before := pagesOf(t, conn, h.read)
		exec(t, conn, `vacuum getwork.`+h.table)
		// The root, one or two leaves and a page of the table.
		if after := pagesOf(t, conn, h.read); after > 4 || before <= after {
			t.Errorf("%s: a read finds nothing on %d pages before a vacuum, and on %d after it", h.table, before, after)
		}
	}
}

// dueAt returns after how many dead rows autovacuum comes, by the number of all rows.
func dueAt(t *testing.T, conn *pgx.Conn, table string) func(rows float64) float64 {
	t.Helper()
	const settings = `
select coalesce(max(option_value) filter (where option_name = 'autovacuum_vacuum_threshold'), current_setting('autovacuum_vacuum_threshold'))::float8,
  coalesce(max(option_value) filter (where option_name = 'autovacuum_vacuum_scale_factor'), current_setting('autovacuum_vacuum_scale_factor'))::float8
from pg_class c left join pg_options_to_table(c.reloptions) on true
where c.oid = to_regclass('getwork.' || $1)`
	var threshold, factor float64
	if err := conn.QueryRow(t.Context(), settings, table).Scan(&threshold, &factor); err != nil {
		t.Fatal(err)
	}
	return func(rows float64) float64 { return threshold + factor*rows }
}

// pagesOf returns how many pages a statement reads once others have read the same: the first read marks entries that are dead.
func pagesOf(t *testing.T, conn *pgx.Conn, statement string) (pages int) {
	t.Helper()
	for range 2 {
		var text []byte
		if err := conn.QueryRow(t.Context(), fmt.Sprintf("explain (analyze, buffers, timing off, format json) %s", statement)).Scan(&text); err != nil {
			t.Fatal(err)
		}
		var plans []struct {
			Plan struct {
				Hit  int `json:"Shared Hit Blocks"`
				Read int `json:"Shared Read Blocks"`
			}
		}
		if err := json.Unmarshal(text, &plans); err != nil {
			t.Fatal(err)
		}
		pages = plans[0].Plan.Hit + plans[0].Plan.Read
	}
	return pages
}
