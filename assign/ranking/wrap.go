package ranking

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"getwork/assign"
	"getwork/assign/pg"
)

// A ranking query is wrapped, so that one execution returns its rows as getwork reads them, best first, with what the task's
// work says of each. A [reader] counts them, and passes over those that can't be items.
//
//   - The query stands near the beginning, so that pg_stat_activity, which cuts statements off, shows it.
//   - The line breaks around the query keep a comment at its end from swallowing the bracket.
//   - A query may return slots, exclusive, deadline, needs and since. If it does not, their names find the row of defaults outside of the
//     lateral join. No query returns a regdictionary, so the types of the last columns show whether it returns them.
//   - The rows come in the query's order, since nothing around it sorts, groups or joins. So what blocks an item is looked up
//     by sub-queries between select and from; as a join, it might change the order.
//   - The whole row travels as one value, so that details are made only for rows that are items and are not blocked. They keep
//     the order of the query's columns: json, not jsonb. DetailsOf makes them.
//   - Only items with one place can be blocked here. Items that are full, or whose group is busy, stay, since they
//     may become free while the result is on the shelf. "offset 0" makes PostgreSQL evaluate the blocked check once a row.
//   - A key that is too long in the database's own encoding, in which its tables count, is no item. A reader counts in UTF-8.
//   - An item of an exclusive group has one place, whatever the task says.
//   - The snapshot is the statement's own, evaluated once.
//
// Numbers are written into the text, because a placeholder would count as one of the query's own.
const (
	// RowsHead and RowsTail surround the query, and name its columns as getwork reads them.
	RowsHead = `
  select getwork_query.item::text collate "C" as item, coalesce(slots::integer, case when exclusive::text <> '' then 1 else %d end) as slots,
    nullif(exclusive::text collate "C", '') as exclusive, getwork_query as r,
    case when false then slots end as slots_type, case when false then exclusive end as exclusive_type,
    case when false then since end as since_type, case when false then deadline end as deadline_type,
    case when false then needs end as needs_type
  from (
`
	RowsTail = `
  ) getwork_query`

	// Defaults is the row of defaults, which stands before the rows.
	Defaults = `(values (null::regdictionary, null::regdictionary, null::regdictionary, null::regdictionary, null::regdictionary)) getwork_defaults (slots, exclusive, deadline, needs, since)`

	// fullNow says of a ranked row c whether all places of its item are taken, or its group is busy. %[1]v is the task.
	fullNow = `(c.slots > 1 and c.slots <= (select count(*) from getwork.blocked b where b.task_id = %[1]v and b.item = c.item and b.held)
      or c.exclusive is not null and (
        select true from getwork.blocked b where b.task_id = %[1]v and b.exclusive = c.exclusive and b.held limit 1) is true)`

	wrapHead = `
with ranked as (
  select item, getwork_rows.slots, getwork_rows.exclusive, r, slots_type, exclusive_type, since_type, deadline_type, needs_type
  from ` + Defaults + `
  cross join lateral (` + RowsHead
	wrapTail = RowsTail + `) getwork_rows
)
select case when octet_length(item) <= 200 then item end, case when octet_length(exclusive) > 200 then 0 else slots end, exclusive,
  case when not blocked and slots >= 1 and octet_length(item) between 1 and 200 then ` + RowDetails + ` end,
  blocked, full_now, (select pg_current_snapshot()::text), slots_type, exclusive_type, since_type, deadline_type, needs_type
from (
  select *, slots = 1 and exists (select from getwork.blocked b where b.task_id = %[1]d and b.item = c.item) as blocked,
    ` + fullNow + ` as full_now
  from ranked c
  offset 0
) marked`

	// The same columns where the query runs on a database of its own. The query names nothing of getwork's schema: a replica may
	// lag behind, and the login may be limited to the bank's tables.
	elsewhereHead = `
select item, getwork_rows.slots, getwork_rows.exclusive, ` + RowDetails + `, false, false, null::text, slots_type, exclusive_type, since_type, deadline_type, needs_type
from ` + Defaults + `
cross join lateral (` + RowsHead
	elsewhereTail = RowsTail + `) getwork_rows`
)

// Wrapped returns the statement for a task's query. slots is the task's setting.
func (q *Ranker) Wrapped(query assign.Query, task int64, slots int) string {
	if q.Queries != nil {
		return fmt.Sprintf(elsewhereHead, slots) + query.Trimmed() + elsewhereTail
	}
	return fmt.Sprintf(wrapHead, slots) + query.Trimmed() + q.SQL(fmt.Sprintf(wrapTail, task))
}

// enterQuery returns the settings that prepare a transaction for user SQL: read only, a time limit, and the query role's
// rights. They prevent accidents. A malicious query can leave the role, but can't exceed the login's rights. Rolling back to
// a savepoint before them undoes all of them. lock_timeout is off, because the run lock's transaction has one for getwork's own
// locks; a query may wait for a lock as long as its time-out allows.
func (q *Ranker) enterQuery(timeout assign.Duration) string {
	s := "set local transaction_read_only = on; set local lock_timeout = 0; " + limitStatements(timeout)
	if q.QueryRole != "" {
		s += "; set local role " + pgx.Identifier{q.QueryRole}.Sanitize()
	}
	return s
}

// enterAgain undoes what one user statement left behind in its transaction, and prepares the transaction for the next, here
// and on the query database. What the first one set, its own time-out and role included, or made, such as a large object,
// does not reach the second.
func (q *Ranker) enterAgain(ctx context.Context, tx pgx.Tx, timeout assign.Duration) error {
	enter := limitStatements(timeout)
	if q.Queries == nil {
		enter = q.enterQuery(timeout)
	}
	if _, err := tx.Exec(ctx, "rollback to savepoint ranking; "+enter); err != nil {
		return fmt.Errorf("enter the recheck: %w", err)
	}
	return nil
}

// limitStatements makes the server end each statement of the transaction after the time-out.
func limitStatements(timeout assign.Duration) string {
	return fmt.Sprintf("set local statement_timeout = %d", max(1, time.Duration(timeout).Milliseconds()))
}

// TryQuery makes PostgreSQL parse the query, alone and wrapped, and plan it with the rights that it will have, without
// running it. [assign.QueryRefused] carries PostgreSQL's message and the position in the query, counted from 1.
func (q *Ranker) TryQuery(ctx context.Context, query assign.Query) error {
	trimmed := query.Trimmed()
	return q.trying(ctx, "query", query, func(tx pgx.Tx) error {
		alone, err := tx.Conn().PgConn().Prepare(ctx, "", trimmed, nil)
		if err != nil {
			if strings.Contains(trimmed, ";") {
				err = fmt.Errorf("a ranking query is one SELECT, with no semicolon except at its end: %w", err)
			}
			return refusedQuery("query", err, lead(query, trimmed))
		}
		if len(alone.ParamOIDs) > 0 {
			return queryRefusal("query", "the query has placeholders ($1); write the values into it")
		}
		columns := map[string]int{"item": 0}
		for _, f := range alone.Fields {
			columns[f.Name]++
		}
		if columns["item"] == 0 {
			return queryRefusal("query", "the query returns no column named \"item\": give that name to the key of the thing to be worked on (… as item)")
		}
		for name, n := range columns {
			if n > 1 {
				return queryRefusal("query", "the query returns %d columns named %q; give each a name of its own", n, name)
			}
		}
		rows, err := tx.Query(ctx, "explain "+q.Wrapped(query, 0, 1), pgx.QueryExecModeExec)
		if err == nil {
			rows.Close()
			err = rows.Err()
		}
		if err != nil {
			return refusedQuery("query", noSelect("ranking query", err), -1)
		}
		return nil
	})
}

// trying calls f in a transaction with the rights that queries will have, and rolls it back. field is "query" or "recheck": f
// shows PostgreSQL the user's text, unless it names a function that it must not call. PostgreSQL waits for the locks of the text's
// tables, and executes functions marked as immutable. Without a limit, a few previews would hold all connections that runs need.
func (q *Ranker) trying(ctx context.Context, field string, text assign.Query, f func(pgx.Tx) error) error {
	begin, role := q.DB.BeginTx, q.QueryRole
	if q.Queries != nil {
		begin, role = q.Queries.BeginTx, ""
	}
	tx, err := begin(ctx, pg.ReadOnly)
	if err != nil {
		return fmt.Errorf("try the query: %w", err)
	}
	defer func() { _ = tx.Rollback(ctx) }()
	if err := q.admit(ctx, tx, field, text); err != nil {
		return err
	}
	enter := fmt.Sprintf("set local lock_timeout = %d; ", max(1, q.PlanWithin.Milliseconds()/2)) + limitStatements(assign.Duration(q.PlanWithin))
	if role != "" {
		enter += "; set local role " + pgx.Identifier{role}.Sanitize()
	}
	if _, err := tx.Exec(ctx, enter); err != nil {
		return fmt.Errorf("prepare to try the %s (query role %q): %w", field, role, err)
	}
	err = f(tx)
	if pg.Cancelled(err) && ctx.Err() == nil {
		return queryRefusal(field, "to plan the %s took longer than %s, or somebody cancelled it; mark a slow function that it calls with constants as stable, because an immutable one is executed to make the plan; or join fewer tables",
			field, q.PlanWithin)
	}
	return err
}

// noSelect puts before PostgreSQL's error about a wrapped query that the text may not be a SELECT.
func noSelect(what string, err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && (pgErr.Code == "42601" || pgErr.Code == "0A000") { // a syntax error; a write where none is allowed
		return fmt.Errorf("a %s is one SELECT, without insert, update or delete: %w", what, err)
	}
	return err
}

// lead returns the number of characters of a query before the part that [assign.Query.Trimmed] returns.
func lead(query assign.Query, trimmed string) int {
	return len([]rune(query[:strings.Index(string(query), trimmed)]))
}

// refusedQuery makes a refusal of PostgreSQL's objection to the query or the recheck; other errors stay errors. field names
// which of the two it is. lead is the number of characters before the text that was parsed; below 0, the position is not in
// the query.
func refusedQuery(field string, err error, lead int) error {
	var pgErr *pgconn.PgError
	var fault *ErrQuery
	if errors.As(tooLarge(err), &fault) {
		return queryRefusal(field, "%s", fault.Message)
	}
	if !errors.As(err, &pgErr) || !pg.QueryFault(pgErr) || pgErr.Code == "55P03" || pg.Cancelled(err) { // 55P03: the statement was only planned, and one of its tables is locked just now
		return fmt.Errorf("try the %s: %w", field, err)
	}
	hint := strings.TrimSuffix(err.Error(), pgErr.Error()) // the text before PostgreSQL's own message
	if pgErr.Position > 0 && lead >= 0 {
		return queryRefusal(field, "%s%s (SQLSTATE %s) at position %d of the %s", hint, pg.Brief(pgErr.Message), pgErr.Code, int(pgErr.Position)+lead, field)
	}
	return queryRefusal(field, "%s%s (SQLSTATE %s)", hint, pg.Brief(pgErr.Message), pgErr.Code)
}

func queryRefusal(field, format string, args ...any) *assign.Refusal {
	r := assign.RefuseField(field, format, args...)
	r.Kind = assign.QueryRefused
	return r
}
