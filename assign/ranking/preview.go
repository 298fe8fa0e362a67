package ranking

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Preview plans and executes a query as a run of the task would, and writes nothing. If query is nil it takes the task's own.
// limit is 1 to 100. [assign.QueryRefused] carries PostgreSQL's error; [assign.Busy] says that others' took too long. On a
// separate query database, rows are read until limit items are found, and the counts cover what was read.
func (q *Ranker) Preview(ctx context.Context, task string, query *assign.Query, limit int) (assign.Preview, error) {
	id, s, err := q.Records.Find(ctx, task, assign.Who{Anything: true})
	if err != nil {
		return assign.Preview{}, err
	}
	if query != nil {
		s.Query = *query
	}
	if s.Inbox() {
		return assign.Preview{}, assign.RefuseField("query", "task %q is an inbox and has no query of its own; send the query to be previewed", task)
	}
	return q.preview(ctx, task, id, s, limit)
}

// PreviewNew is [Ranker.Preview] for a task that does not exist yet. It uses the settings Query, QueryTimeout and Slots.
// Nothing is blocked, because no work of such a task exists.
func (q *Ranker) PreviewNew(ctx context.Context, s assign.Settings, limit int) (assign.Preview, error) {
	if s.Inbox() {
		return assign.Preview{}, assign.RefuseField("query", "an inbox has no query; send the query to be previewed")
	}
	s.Name = "new" // Check requires a name, which a new task may still lack
	const none = 0 // ids begin at 1
	return q.preview(ctx, "", none, s, limit)
}

func (q *Ranker) preview(ctx context.Context, name string, task int64, s assign.Settings, limit int) (assign.Preview, error) {
	if limit < 1 || limit > 100 {
		return assign.Preview{}, assign.RefuseField("limit", "a preview shows 1 to 100 rows, not %d", limit)
	}
	if err := s.Check(); err != nil {
		return assign.Preview{}, err
	}
	if q.Previewing != nil {
		if err := q.Previewing(ctx, name, &s); err != nil {
			return assign.Preview{}, err
		}
	}
	p := assign.Preview{Rows: []assign.PreviewRow{}}
	err := q.AskSlot(ctx, func(ctx context.Context) error { // also to try the query, which takes a connection of calls or runs
		if err := q.TryQuery(ctx, s.Query); err != nil {
			return err
		}
		s.MaxCandidates = limit
		return q.inTx(ctx, s, "query", func(ctx context.Context, tx pgx.Tx) error {
			if err := explainPreview(ctx, tx, &p, q.Wrapped(s.Query, task, s.Slots)); err != nil {
				return err
			}
			return q.executePreview(ctx, tx, &p, task, s)
		})
	})
	if err != nil {
		return assign.Preview{}, err
	}
	return p, nil
}

func explainPreview(ctx context.Context, tx pgx.Tx, p *assign.Preview, statement string) error {
	var plan []byte
	if err := tx.QueryRow(ctx, "explain (format json) "+statement, pgx.QueryExecModeExec).Scan(&plan); err != nil {
		return fmt.Errorf("plan the query: %w", err)
	}
	var parts []struct {
		Plan struct {
			Cost float64 `json:"Total Cost"`
		}
	}
	if err := json.Unmarshal(plan, &parts); err != nil || len(parts) == 0 {
		return fmt.Errorf("read the plan %.100q: %w", plan, err)
	}
	p.Plan, p.Cost = plan, parts[0].Plan.Cost
	return nil
}

const previewDetails = 8 << 20 // bytes of details

func (q *Ranker) executePreview(ctx context.Context, tx pgx.Tx, p *assign.Preview, task int64, s assign.Settings) (err error) {
	var found Result
	small := *q // a node makes many previews into answers at a time, after they have given their slot back
	small.MaxDetails = min(q.MaxDetails, previewDetails)
	began := time.Now()
	if q.Queries != nil {
		found, err = small.Stream(ctx, tx, task, s)
	} else {
		found, err = small.read(ctx, tx, task, s)
	}
	p.DurationMS = float64(time.Since(began).Microseconds()) / 1000
	p.Given, p.Blocked, p.PassedOver, p.LeftOut = found.Given, found.Blocked, found.PassedOver, found.LeftOut
	for _, r := range found.Items {
		row := assign.PreviewRow{Rank: r.Rank, Item: r.Item, Slots: r.Slots, Exclusive: r.Exclusive, Deadline: r.Deadline, Needs: found.NeedsOf(r), Details: json.RawMessage(r.Details)}
		if row.LeftOut = r.Details == assign.NoDetails; row.LeftOut {
			row.Details = json.RawMessage("{}")
		}
		p.Rows = append(p.Rows, row)
	}
	return err
}

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

// selectMisplaced names a table that somebody made in a schema with getwork's tables, and that schema. A login called as the schema does
// so unawares, because search_path begins with it. A name that is missing here is named as misplaced.
const selectMisplaced = `
select pg_catalog.quote_ident(n.nspname), pg_catalog.quote_ident(c.relname)
from pg_catalog.pg_namespace n
join pg_catalog.pg_class c on c.relnamespace = n.oid and c.relkind in ('r', 'p', 'v', 'm', 'f') and not c.relispartition
where (select count(*) from pg_catalog.pg_class o where o.relnamespace = n.oid and o.relname in ('task_state', 'task_version', 'work_requested')) = 3
  and c.relname not in ('absence', 'audit', 'audit_head', 'blocked', 'candidate', 'candidate_place', 'hook', 'hook_event', 'item', 'limits', 'once',
    'principal', 'run', 'session', 'skill', 'task', 'task_conflict', 'task_hour', 'task_pause', 'task_state', 'task_version', 'token', 'version', 'work', 'work_requested')
order by n.nspname, c.relname
limit 1`

// Schema reads which tables and columns a ranking query may read: with the rights of the login that executes it, and of the
// query role. [assign.Busy] says that others' previews took too long.
func (q *Ranker) Schema(ctx context.Context) (s assign.Schema, err error) {
	settings := assign.Settings{Query: "select 1", QueryTimeout: assign.Duration(10 * time.Second)}
	err = q.InTx(ctx, settings, "query", func(ctx context.Context, tx pgx.Tx) error {
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
		var in, name string
		rows, err = tx.Query(ctx, selectMisplaced, pgx.QueryExecModeExec)
		if err == nil {
			_, err = pgx.ForEachRow(rows, []any{&in, &name}, func() error {
				s.Reason = fmt.Sprintf("%s lies in %s, getwork's own schema, and no table there is offered: move it, for example with alter table %[2]s.%[1]s set schema public", name, in)
				return nil
			})
		}
		if err != nil {
			return fmt.Errorf("read the tables of getwork's schema: %w", err)
		}
		return nil
	})
	return s, err
}
