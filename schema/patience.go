package schema

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A migration takes exclusive locks on tables. While it waits for one, every later transaction waits behind it, for as long as
// an earlier one lasts: a query that runs for an hour, or a backup. So it waits briefly, releases its locks, and tries the
// whole transaction again a little later; the others go on in between.
const (
	lockWait  = 300 * time.Millisecond
	firstRest = 250 * time.Millisecond
	longRest  = 5 * time.Second
	tellEvery = 10 * time.Second
)

// unhurried are a migration's settings. Time-outs that are set on the database or the login are meant for people's queries.
// They would end a migration that builds an index, or a node that waits for another to migrate. A login that only reads unless it says
// otherwise could not migrate, and at a higher isolation level a migration would not see what others did while it waited for a lock.
const unhurried = `set lock_timeout = 0; set statement_timeout = 0; set idle_in_transaction_session_timeout = 0; set search_path = pg_catalog;
set default_transaction_read_only = off; set default_transaction_isolation = 'read committed'`

// patience are the settings of one try.
var patience = fmt.Sprintf(unhurried+`; set lock_timeout = %d`, lockWait.Milliseconds())

// patiently calls try until it succeeds, fails for another reason than a lock, or ctx ends. It reports what waits, and for
// whom, at first and then every ten seconds.
func patiently(ctx context.Context, conn *pgx.Conn, n Name, what string, tell []func(string), try func() error) error {
	var told time.Time
	var by string
	rest := firstRest
	for {
		if _, err := conn.Exec(ctx, patience); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		err := try()
		switch {
		case waits(err):
			by = holders(ctx, conn, n)
		case by == "" || ctx.Err() == nil:
			return err
		}
		if time.Since(told) >= tellEvery {
			told = time.Now()
			for _, f := range tell {
				f(fmt.Sprintf("%s waits for a lock, and is tried again; other sessions go on meanwhile. Tables are in use by: %s", what, by))
			}
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%s: could not get a lock, tables were in use by: %s; end those transactions, or try again later: %w", what, by, err)
		case <-time.After(rest + rand.N(rest/4)):
			rest = min(2*rest, longRest)
		}
	}
}

// waits reports whether another session was in the way: the lock took too long, or there was a deadlock.
func waits(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && (pg.Code == "55P03" || pg.Code == "40P01")
}

const selectHolders = `
select format('%s (pid %s%s)', coalesce(nullif(a.application_name, ''), 'a session'), a.pid,
  ', in a transaction for ' || date_trunc('second', clock_timestamp() - a.xact_start))
from pg_stat_activity a
where a.pid <> pg_backend_pid() and a.pid in (
  select l.pid
  from pg_locks l
  join pg_class c on c.oid = l.relation
  join pg_namespace s on s.oid = c.relnamespace
  where s.nspname = $1 and l.granted and l.database = (select oid from pg_database where datname = current_database()))
order by a.xact_start
limit 3`

// holders names the sessions that have locks on the schema's tables, the oldest transactions first.
func holders(ctx context.Context, conn *pgx.Conn, n Name) string {
	rows, err := conn.Query(ctx, selectHolders, string(n))
	if err != nil {
		return "somebody"
	}
	names, err := pgx.CollectRows(rows, pgx.RowTo[string])
	if err != nil || len(names) == 0 {
		return "a session that has ended by now"
	}
	return strings.Join(names, ", ")
}
