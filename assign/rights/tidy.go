package rights

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/audit"
	"getwork/assign/pg"
)

// overBatch bounds how long a transaction that audits ends by time keeps others from the audit.
const overBatch = 50

// Nobody acts when a session or a token ends by time, so a node writes the row later. Such an end leaves ended_at null: what waits
// under the credential waits on, until it is no longer valid. A token of a terminal ends with its session, which names it.
const auditOver = `
with sessions as materialized (
  select id, public_id, principal, least(ends_at, idle_at) as at, case when idle_at < ends_at then 'idle' else 'expired' end as by
  from getwork.session
  where ended_at is null and not end_audited and least(ends_at, idle_at) <= clock_timestamp()
  limit $1 for update skip locked
), tokens as materialized (
  select id, principal, expires_at as at, parent
  from getwork.token
  where ended_at is null and not end_audited and expires_at <= clock_timestamp()
  limit $1 for update skip locked
), told_sessions as (
  update getwork.session s set end_audited = true from sessions o where s.id = o.id
), told_tokens as (
  update getwork.token t set end_audited = true from tokens o where t.id = o.id
)
select 'session.end', p.name, o.at, o.by,
  array['s:' || o.public_id] || array(select 't:' || t.id from getwork.token t where t.parent = o.id and t.ended_at is null order by t.id)
from sessions o join getwork.principal p on p.id = o.principal
union all
select 'token.end', o.id, o.at, 'expired', null from tokens o where o.parent is null
order by 3, 2`

// auditOver audits sessions and tokens that have ended by time, and returns how many rows it wrote.
func (g *Registry) auditOver(ctx context.Context) (n int, err error) {
	err = pg.Transact(ctx, g.DB, func(tx pgx.Tx) error {
		n = 0
		rows, err := tx.Query(ctx, g.SQL(auditOver), overBatch)
		if err != nil {
			return err
		}
		var acts []audit.Act
		var what, object, by string
		var at time.Time
		var credentials []string
		if _, err := pgx.ForEachRow(rows, []any{&what, &object, &at, &by, &credentials}, func() error {
			detail := map[string]any{"by": by, "at": at.UTC().Format(time.RFC3339)}
			if credentials != nil {
				detail["credentials"] = credentials
			}
			acts = append(acts, audit.Act{Act: what, Object: object, Detail: detail})
			credentials = nil
			return nil
		}); err != nil || len(acts) == 0 || g.Audit == nil {
			return err
		}
		n = len(acts)
		acts[0].Then = acts[1:]
		return g.Audit.Write(ctx, tx, acts[0])
	})
	if err != nil {
		return 0, fmt.Errorf("audit sessions and tokens that ended by time: %w", err)
	}
	return n, nil
}

// What ended is kept for 30 days, so that somebody can ask how. Tokens go first: those for terminals refer to their session.
var tidies = []string{
	`delete from getwork.token where ctid = any(array(
		select ctid from getwork.token where least(ended_at, expires_at) < clock_timestamp() - interval '30 days' limit 1000 for update skip locked))`,
	`delete from getwork.session s where s.ctid = any(array(
		select ctid from getwork.session e where least(e.ended_at, e.ends_at) < clock_timestamp() - interval '30 days'
		  and not exists (select from getwork.token t where t.parent = e.id) limit 1000 for update skip locked))`,
	`delete from getwork.once where ctid = any(array(
		select ctid from getwork.once where until < clock_timestamp() limit 1000 for update skip locked))`,
}

// runTidy tidies until ctx ends. Looking doesn't wait for it: whoever acts meanwhile may hold the audit, and after a day's end there are
// thousands of rows to write, while somebody who is blocked must be out within two seconds.
func (w *Watch) runTidy(ctx context.Context) {
	for pause := rand.N(w.tidyEvery); ; pause = w.tidyEvery {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		w.tidy(ctx)
	}
}

// tidy audits what has ended by time, and removes what is over for long.
func (w *Watch) tidy(ctx context.Context) {
	within, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	if err := w.tidyOnce(within); err != nil && ctx.Err() == nil {
		w.Log.Warn("audit and remove sessions and tokens that are over; it is tried again in ten minutes", "error", err)
	}
}

func (w *Watch) tidyOnce(ctx context.Context) error {
	for n := overBatch; n >= overBatch; {
		var err error
		if n, err = w.auditOver(ctx); err != nil {
			return err
		}
	}
	for _, statement := range tidies {
		if _, err := w.DB.Exec(ctx, w.SQL(statement)); err != nil {
			return fmt.Errorf("remove what ended long ago: %w", err)
		}
	}
	return nil
}
