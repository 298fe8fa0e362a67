package ranking

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// A query could do more than read by calling one of PostgreSQL's functions: leave its role, switch its time-out off, take
// locks that outlive it, write files, execute SQL that nobody has seen. Such functions are volatile. So a task's query and its
// recheck are refused if they name a volatile function of the server or of an extension, or one of a few others that execute
// text. This prevents nothing alone. The boundary is what the query's login may do; docs/security.md says more.
//
// The check needs the list of the server on which the query is executed, which may be newer than getwork. So it takes place
// on that connection.

// selectVolatile lists the volatile functions, and whether their names count without a bracket behind them. For the server's
// own, that is always so. A function of an extension can be called without one, as a column of a row.
//
// Left out are functions that do no harm, and those that a query can't call, among which the sampling methods system and
// bernoulli have usual names.
const selectVolatile = `
select p.proname, bool_or(p.pronamespace = 'pg_catalog'::regnamespace
    or p.pronargs > 0 and p.pronargs - p.pronargdefaults <= 1 and exists (
      select from pg_catalog.pg_type t where t.oid = p.proargtypes[0] and t.typtype in ('c', 'p')))
from pg_catalog.pg_proc p
where p.provolatile = 'v'
  and (p.pronamespace = 'pg_catalog'::regnamespace
    or exists (select from pg_catalog.pg_depend d where d.classid = 'pg_catalog.pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e'))
  and p.proname <> all (array['clock_timestamp', 'timeofday', 'random', 'gen_random_uuid', 'current_query'])
  and not exists (
    select from pg_catalog.pg_type t
    where t.oid = any (p.proargtypes::oid[] || p.prorettype) and t.typtype = 'p'
      and (t.typname in ('internal', 'trigger', 'event_trigger') or t.typname like '%\_handler'))
group by p.proname`

// relistAfter is how long a connection's list is used. Meanwhile somebody may have made an extension, or a pooler may have
// taken another server.
const relistAfter = time.Minute

// listed is the list of a connection's server. It is kept with the connection, so that another server's is never used.
type listed struct {
	names *forbidden
	until time.Time
}

const listedKey = "volatile functions"

// forbiddenOn returns what queries must not name on the connection's server.
func forbiddenOn(ctx context.Context, tx pgx.Tx) (*forbidden, error) {
	kept := tx.Conn().PgConn().CustomData()
	if l, ok := kept[listedKey].(listed); ok && time.Now().Before(l.until) {
		return l.names, nil
	}
	names := newForbidden()
	until := time.Now().Add(relistAfter)
	// Cancelling a statement would lose the run lock, and a query's time-out is not meant for this one.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	// The transaction may be about to run a query for minutes, so the locks on the catalog end here.
	err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, selectVolatile)
		if err != nil {
			return err
		}
		var name string
		var everywhere bool
		if _, err = pgx.ForEachRow(rows, []any{&name, &everywhere}, func() error {
			names.add(name, everywhere)
			return nil
		}); err != nil {
			return err
		}
		if len(names.anywhere) == 0 {
			return errors.New("the server names none")
		}
		return errListed
	})
	if !errors.Is(err, errListed) {
		return nil, fmt.Errorf("%w: list the functions that a query must not call: %w", errOurs, err)
	}
	kept[listedKey] = listed{names, until}
	return names, nil
}

// errListed makes a transaction roll back.
var errListed = errors.New("listed")

// admit refuses a user's SQL that names a function which it must not call, with [assign.QueryRefused]. field is "query" or
// "recheck". It must come before the text is executed, and before PostgreSQL plans it: planning already executes some calls.
func (q *Ranker) admit(ctx context.Context, tx pgx.Tx, field string, text assign.Query) error {
	if !q.Confined || text == "" {
		return nil
	}
	names, err := forbiddenOn(ctx, tx)
	if err != nil {
		return err
	}
	name, before := names.find(string(text))
	switch name {
	case "":
		return nil
	case disguise:
		return queryRefusal(field, "a %s must not contain %s, which can disguise the name of a function; write the name as it is; it stands at position %d of the %s",
			field, disguise, before+1, field)
	}
	return queryRefusal(field, "a %s must not name %s, not even in a comment or a string, because that function does more than read; leave it out, "+
		"or call a function of your own database that does what you need; it stands at position %d of the %s", field, name, before+1, field)
}

// admitRun is admit for a run, which fails with the refusal's text.
func (q *Ranker) admitRun(ctx context.Context, tx pgx.Tx, s assign.Settings) error {
	err := q.admit(ctx, tx, "query", s.Query)
	if err == nil {
		err = q.admit(ctx, tx, "recheck", s.Recheck)
	}
	var refusal *assign.Refusal
	if errors.As(err, &refusal) {
		return &ErrQuery{refusal.Detail}
	}
	return err
}
