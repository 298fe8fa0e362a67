package schema

import (
	"context"
	_ "embed"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
)

// objects has all that the migrations make, as [Inventory] reads it from a migrated database: one object a line, its fields
// parted by tabs. A test compares it with what the migrations make.
//
//go:embed objects.txt
var objects string

// Object is a part of the schema.
type Object struct {
	Kind       string // table, column, constraint, index, trigger or function
	Table      string // that it belongs to; empty: a function
	Name       string // without the schema's
	Definition string // as PostgreSQL writes it; of a table only what keeps it (permanent, unlogged), of a function's body a hash
}

// inventory writes all objects as PostgreSQL describes them. NOT NULL stands with the column, since PostgreSQL 18 alone has constraints
// for it. An index that belongs to a constraint stands in both places, because indexes are built anew without their constraints. Web hooks
// switch their triggers on and off; those of the audit are always on.
const inventory = `
with t as (
  select oid, relname, relpersistence from pg_class where relnamespace = to_regnamespace($1) and relkind in ('r', 'p') and relname <> 'version')
select 'table', relname, relname, case relpersistence when 'p' then 'permanent' else 'unlogged' end from t
union all
select 'column', t.relname, a.attname, concat_ws(' ', format_type(a.atttypid, a.atttypmod), case when a.attnotnull then 'not null' end,
  case when a.attidentity <> '' then 'identity' when a.attgenerated <> '' then 'generated' when a.atthasdef then 'default' end,
  pg_get_expr(d.adbin, d.adrelid))
from t join pg_attribute a on a.attrelid = t.oid and a.attnum > 0 and not a.attisdropped
left join pg_attrdef d on d.adrelid = t.oid and d.adnum = a.attnum
union all
select 'constraint', t.relname, c.conname, pg_get_constraintdef(c.oid)
from t join pg_constraint c on c.conrelid = t.oid and c.contype in ('c', 'f', 'p', 'u', 'x')
union all
select 'index', t.relname, c.relname, pg_get_indexdef(c.oid)
from t join pg_index i on i.indrelid = t.oid join pg_class c on c.oid = i.indexrelid
union all
select 'trigger', t.relname, g.tgname, pg_get_triggerdef(g.oid) || case when g.tgenabled = 'D' and t.relname = 'audit' then ' DISABLED' else '' end
from t join pg_trigger g on g.tgrelid = t.oid and not g.tgisinternal
union all
select 'function', '', format('%s(%s)', p.proname, pg_get_function_identity_arguments(p.oid)),
  concat_ws(' ', pg_get_function_result(p.oid), l.lanname, case when p.prosecdef then 'security definer' end, p.proconfig::text,
    md5(replace(p.prosrc, $1 || '.', 'getwork.')))
from pg_proc p join pg_language l on l.oid = p.prolang
where p.pronamespace = to_regnamespace($1)
order by 1, 2, 3`

// Inventory reads all objects of a schema. Names in their definitions have no quotes, which depend on whether a schema's name needs them.
func Inventory(ctx context.Context, conn *pgx.Conn, n Name) (all []Object, err error) {
	err = pgx.BeginTxFunc(ctx, conn, pgx.TxOptions{AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
		// PostgreSQL writes definitions as these settings say.
		const plainly = `set local search_path = pg_catalog; set local standard_conforming_strings = on; set local quote_all_identifiers = off; set local intervalstyle = 'postgres'`
		if _, err := tx.Exec(ctx, plainly, pgx.QueryExecModeSimpleProtocol); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, inventory, n.Quoted())
		if err == nil {
			all, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Object])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("read the schema's objects: %w", err)
	}
	for i := range all {
		all[i].Definition = unquoted(all[i].Definition)
	}
	return all, nil
}

// Objects returns what [Inventory] reads from a schema of the newest version that nobody has changed.
func Objects(n Name) (all []Object) {
	for line := range strings.Lines(objects) {
		fields := strings.SplitN(strings.TrimSuffix(line, "\n"), "\t", 4)
		all = append(all, Object{fields[0], fields[1], fields[2], unquoted(n.SQL(fields[3]))})
	}
	return all
}

func unquoted(definition string) string {
	return strings.Join(strings.Fields(strings.ReplaceAll(definition, `"`, "")), " ")
}
