package ranking

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// mostColumns is how many columns Schema lists at most. Nobody reads more, and a page must not have to.
const mostColumns = 10_000

// selectSchema lists what the present role may read. A schema with getwork's tables is left out, whoever they belong to: a
// ranking query has no business there. Every role may read the catalogs, and search_path decides what needs no schema's name.
const selectSchema = `
select case when pg_catalog.pg_table_is_visible(c.oid) then '' else pg_catalog.quote_ident(n.nspname) || '.' end || pg_catalog.quote_ident(c.relname),
  c.relkind in ('v', 'm'), pg_catalog.quote_ident(a.attname), pg_catalog.format_type(a.atttypid, a.atttypmod)
from pg_catalog.pg_namespace n
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition
join pg_catalog.pg_attribute a on a.attrelid = c.oid and a.attnum > 0 and not a.attisdropped
where n.nspname not like 'pg\_%' and n.nspname <> 'information_schema'
  and (select count(*) from pg_catalog.pg_class o where o.relnamespace = n.oid and o.relname in ('task_state', 'task_version', 'work_requested')) < 3
  and pg_catalog.has_schema_privilege(n.oid, 'usage') and pg_catalog.has_column_privilege(c.oid, a.attnum, 'select')
order by pg_catalog.pg_table_is_visible(c.oid) desc, n.nspname, c.relname, a.attnum
limit $1`

// Schema reads which tables and columns a ranking query may read: with the rights of the login that executes it, and of the
// query role. [assign.Busy] says that no run slot was free.
func (q *Ranker) Schema(ctx context.Context) (s assign.Schema, err error) {
	settings := assign.Settings{Query: "select 1", QueryTimeout: assign.Duration(10 * time.Second)}
	err = q.InTx(ctx, SlotWait, settings, "query", func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectSchema, pgx.QueryExecModeExec, mostColumns+1)
		if err != nil {
			return fmt.Errorf("read the tables: %w", err)
		}
		s = assign.Schema{Tables: []assign.Table{}}
		var t assign.Table
		var column assign.Column
		columns := 0
		_, err = pgx.ForEachRow(rows, []any{&t.Name, &t.View, &column.Name, &column.Type}, func() error {
			if columns++; columns > mostColumns {
				s.Cut = true
				return nil
			}
			if last := len(s.Tables) - 1; last < 0 || s.Tables[last].Name != t.Name {
				s.Tables = append(s.Tables, t)
			}
			last := &s.Tables[len(s.Tables)-1]
			last.Columns = append(last.Columns, column)
			return nil
		})
		if err != nil {
			return fmt.Errorf("read the tables: %w", err)
		}
		return nil
	})
	return s, err
}
