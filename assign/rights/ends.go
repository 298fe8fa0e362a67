package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/notify"
)

// change runs a transaction that gives or ends rights: f changes rows and returns the act, and the credentials that have
// ended. The requests that wait under them are cancelled, the act is audited, and every node is told. f may run more than
// once. A nil act means that nothing has changed.
func (g *Registry) change(ctx context.Context, f func(tx pgx.Tx) (act *audit.Act, ended []string, err error)) error {
	return g.changeTelling(ctx, func(tx pgx.Tx) (*audit.Act, []string, []notify.Change, error) {
		act, ended, err := f(tx)
		return act, ended, nil, err
	})
}

// changeTelling is change for an f that also changes requests, of which others must hear. Without an act these are cancelled
// and announced all the same, but no rights have changed.
//
// A transaction of this kind locks in this order: the actor's principal, what f locks, the requests that wait under ended credentials by
// their ids, and audit_head last. Where two may meet in another order, as Refreshed, which begins with a session, and a rebind do,
// PostgreSQL ends one of them, and Transact repeats it. An f that changes requests in more than one step first locks all of them
// (Config.Lock). An f that is refused leaves nothing behind. After any other error the cache is cleared, too, because the transaction
// may have committed.
func (g *Registry) changeTelling(ctx context.Context, f func(tx pgx.Tx) (act *audit.Act, ended []string, changes []notify.Change, err error)) error {
	idle := false
	err := pg.Transact(ctx, g.DB, func(tx pgx.Tx) error {
		if err := g.mayStillAct(ctx, tx); err != nil {
			return err
		}
		act, ended, changes, err := f(tx)
		if idle = err == nil && act == nil; err != nil {
			return err
		}
		if len(ended) > 0 && g.Cancel != nil {
			cancelled, err := g.Cancel(ctx, tx, ended)
			if err != nil {
				return fmt.Errorf("cancel what waits: %w", err)
			}
			changes = append(changes, cancelled...)
		}
		return g.conclude(ctx, tx, act, changes)
	})
	var r *assign.Refusal
	refused := errors.As(err, &r) // and rolled back, such as the wrong code of somebody whom nobody knows
	if !idle && !refused {
		g.cache.clear()
		g.lookSoon()
	}
	if err == nil || refused {
		return err
	}
	return fmt.Errorf("change rights: %w", err)
}

// The principal's row is locked against a block or a rebind that commits meanwhile: an administrator who is blocked could otherwise let
// themselves in again by a call that began before. The lock is that of writers, because an act may go on to lock the same row so, as that
// of somebody who makes themselves a token does: with a shared lock two such acts at once would be a deadlock. The second statement sees
// what was committed during the wait; the first one sees that of the locked row alone. The session or token is not locked: an act that
// commits beside its end counts as done before it.
const (
	lockActor   = `select p.id ` + actor + ` for no key update of p`
	selectActor = `select p.blocked_at is not null or c.ended ` + actor
)

// actor is the principal p who acts by the credential c.
const actor = `from (
  select s.principal, s.ended_at is not null as ended from getwork.session s where left($1, 2) = 's:' and s.public_id = substr($1, 3)
  union all
  select coalesce(o.principal, t.principal), t.ended_at is not null or o.ended_at is not null
  from getwork.token t left join getwork.session o on o.id = t.parent where left($1, 2) = 't:' and t.id = substr($1, 3)
  union all
  select q.id, substr($1, 3) <> q.id || case when q.rebound > 0 then '.' || q.rebound else '' end
  from getwork.principal q where q.id = case when $1 ~ '^[jp]:' then split_part(substr($1, 3), '.', 1)::bigint end
) c
join getwork.principal p on p.id = c.principal`

// entering returns the context of somebody who comes in by a proof of their own, such as a code of the provider. The session that
// their browser has had so far is not theirs to act with: it may be somebody else's, and another tab may just have ended it.
func entering(ctx context.Context) context.Context {
	return audit.WithActor(ctx, audit.Actor{Address: audit.ActorOf(ctx).Address})
}

// mayStillAct refuses ([assign.Unauthenticated]) an act by a credential that has ended, or whose principal was blocked, since the call
// began. What a node keeps of a credential may be a second old, so without this somebody who was just shut out could still change rights.
func (g *Registry) mayStillAct(ctx context.Context, tx pgx.Tx) error {
	by := audit.ActorOf(ctx).Credential
	if by == "" { // such as a program that writes to the database itself
		return nil
	}
	var ended bool
	var batch pgx.Batch
	batch.Queue(g.SQL(lockActor), by)
	batch.Queue(g.SQL(selectActor), by).QueryRow(func(row pgx.Row) error { return row.Scan(&ended) })
	err := tx.SendBatch(ctx, &batch).Close()
	switch {
	case err == nil && !ended:
		return nil
	case err == nil, errors.Is(err, pgx.ErrNoRows):
		return assign.Refuse(assign.Unauthenticated, "your session or token has ended; log in again")
	}
	return fmt.Errorf("read who acts: %w", err)
}

// conclude writes the audit and announces the change, as the last statements of a transaction.
func (g *Registry) conclude(ctx context.Context, tx pgx.Tx, act *audit.Act, changes []notify.Change) error {
	if act == nil && len(changes) == 0 {
		return nil
	}
	if act != nil && g.Audit != nil {
		if err := g.Audit.Write(ctx, tx, *act); err != nil {
			return err
		}
	}
	payload := notify.Message{Node: g.Node, Changes: changes, Rights: act != nil}.Encode()
	if _, err := tx.Exec(ctx, notify.NotifySQL, g.Channel, payload); err != nil {
		return fmt.Errorf("announce the change: %w", err)
	}
	return nil
}

// regroup gives the waiting requests of a principal other groups. A manager needs none: given groups, a request for a task of others
// would end with nothing. A request under a manager's token of a lesser role gets its groups at the next look. A JSON web token says
// itself which groups it has, whatever its subject has elsewhere.
func (g *Registry) regroup(ctx context.Context, tx pgx.Tx, principal int64, role assign.Role, groups []string) ([]notify.Change, error) {
	credentials, err := g.regroupable(ctx, tx, principal, role)
	if err != nil || len(credentials) == 0 {
		return nil, err
	}
	return g.Regroup(ctx, tx, credentials, groups)
}

// regroupable returns the credentials whose waiting requests regroup changes.
func (g *Registry) regroupable(ctx context.Context, tx pgx.Tx, principal int64, role assign.Role) ([]string, error) {
	if g.Regroup == nil || role == assign.RoleManager {
		return nil, nil
	}
	credentials, err := g.credentialsOf(ctx, tx, principal)
	return slices.DeleteFunc(credentials, func(c string) bool { return strings.HasPrefix(c, "j:") }), err
}

const selectCredentials = `
select 's:' || public_id from getwork.session where principal = $1 and ended_at is null
union all
select 't:' || id from getwork.token where principal = $1 and ended_at is null
union all
select k.kind || id || case when rebound > 0 then '.' || rebound else '' end
from getwork.principal cross join (values ('j:'), ('p:')) k (kind)
where id = $1`

// credentialsOf returns the credentials of a principal that nobody has ended: sessions and tokens, also those that have ended by
// time, since requests may wait under them; and those by JWT and proxy, which have no row.
func (g *Registry) credentialsOf(ctx context.Context, tx pgx.Tx, principal int64) ([]string, error) {
	rows, err := tx.Query(ctx, g.SQL(selectCredentials), principal)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

const endEverything = `
with sessions as (
  update getwork.session set ended_at = clock_timestamp(), ended_by = $2, changed = pg_current_xact_id()
  where principal = $1 and ended_at is null
  returning 's:' || public_id
), tokens as (
  update getwork.token set ended_at = clock_timestamp(), ended_by = $2, changed = pg_current_xact_id()
  where principal = $1 and ended_at is null
  returning 't:' || id
)
select * from sessions union all select * from tokens`

// endAll ends all sessions and tokens of a principal, for the reason by, and returns their credentials. The caller cancels the requests
// that wait under these.
func (g *Registry) endAll(ctx context.Context, tx pgx.Tx, principal int64, by string) ([]string, error) {
	rows, err := tx.Query(ctx, g.SQL(endEverything), principal, by)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}
