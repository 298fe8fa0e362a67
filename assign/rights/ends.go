package rights

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/notify"
)

// change runs a transaction that gives or ends rights: f changes rows and returns the act, and the credentials that have
// ended. The requests that wait under them are cancelled, the act is audited, and every node is notified. f may run more than
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
	leave, err := g.turns.take(ctx, audit.ActorOf(ctx))
	if err != nil {
		return fmt.Errorf("change rights: %w", err)
	}
	defer leave()
	idle := false
	err = pg.Transact(ctx, g.DB, func(tx pgx.Tx) error {
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

// turns lets a user make one change at a time on this node. Their changes wait for one another anyway, for the principal's row, but there
// each would do so on a connection. A node has few of them for calls, and a script that ends a hundred sessions at once would take all.
type turns struct {
	mu    sync.Mutex
	users map[string]*turn
}

type turn struct {
	taken chan struct{} // holds one value during a change; waiting senders are served first come, first served
	known int           // changes that are under way or wait
}

// take waits for the actor's turn, which lasts until leave is called. Who acts without a credential locks nothing, and waits for nobody.
func (t *turns) take(ctx context.Context, by audit.Actor) (leave func(), err error) {
	if by.Credential == "" {
		return func() {}, nil
	}
	t.mu.Lock()
	mine := t.users[by.User]
	if mine == nil {
		mine = &turn{taken: make(chan struct{}, 1)}
		if t.users == nil {
			t.users = map[string]*turn{}
		}
		t.users[by.User] = mine
	}
	mine.known++
	t.mu.Unlock()
	gone := func() {
		t.mu.Lock()
		defer t.mu.Unlock()
		if mine.known--; mine.known == 0 {
			delete(t.users, by.User)
		}
	}
	select {
	case mine.taken <- struct{}{}:
		return func() { <-mine.taken; gone() }, nil
	case <-ctx.Done():
		gone()
		return nil, ctx.Err()
	}
}

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
// would end with nothing. A request under a manager's token of a lesser role gets its groups at the next poll. A JSON web token says
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
	return textsOf(ctx, tx, g.SQL(selectCredentials), principal)
}

// textsOf executes a statement that returns texts; never nil without an error.
func textsOf(ctx context.Context, tx pgx.Tx, statement string, args ...any) ([]string, error) {
	rows, err := tx.Query(ctx, statement, args...)
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
	return textsOf(ctx, tx, g.SQL(endEverything), principal, by)
}

// A provider may send its log-out message while a log-in is under way: its code is exchanged, and there is no session yet that
// the message could end. So the message is remembered, and ends that log-in, too. Both first take a lock for the provider's
// session or account, so that the later one sees what the earlier one did.

// overKept is how long a message is remembered; longer than a log-in takes from its ID token to its session.
const overKept = 2 * time.Minute

const (
	// Two keys with one hash only wait for each other. The lock ends with the transaction.
	lockOver = `select pg_advisory_xact_lock(hashtextextended($1, 0))`

	// until is the time of the message plus overKept, and selectOver asks with the time of the ID token plus overKept: it finds a
	// message that is no older than the ID token. Both times are by the provider's clock.
	insertOver = `
insert into getwork.once (what, until) values ($1, $2)
on conflict (what) do update set until = greatest(once.until, excluded.until)`

	selectOver = `select exists (select from getwork.once where what = any($1::text[]) and until >= $2)`
)

// overKey names what a message is about: a session of the provider, or else all of an account.
func overKey(iss, sid, sub string) string {
	about := "session " + sid
	if sid == "" {
		about = "account " + sub
	}
	sum := sha256.Sum256([]byte("over " + iss + "\n" + about))
	return hex.EncodeToString(sum[:])
}

func (g *Registry) lockOver(ctx context.Context, tx pgx.Tx, keys ...string) error {
	slices.Sort(keys) // two log-ins of one account wait for each other in turn
	for _, key := range keys {
		if _, err := tx.Exec(ctx, g.SQL(lockOver), key); err != nil {
			return fmt.Errorf("lock a provider's session: %w", err)
		}
	}
	return nil
}

// rememberOver keeps a message for log-ins that are under way.
func (g *Registry) rememberOver(ctx context.Context, tx pgx.Tx, e Ending) error {
	_, err := tx.Exec(ctx, g.SQL(insertOver), overKey(e.Iss, e.SID, e.Sub), e.IssuedAt.Add(overKept))
	return err
}

// refuseOver refuses a log-in that the provider has ended since it issued the ID token.
func (g *Registry) refuseOver(ctx context.Context, tx pgx.Tx, in LogIn) error {
	if in.IssuedAt.IsZero() {
		return nil
	}
	keys := []string{overKey(in.Iss, "", in.Sub)}
	if in.SID != "" {
		keys = append(keys, overKey(in.Iss, in.SID, ""))
	}
	if err := g.lockOver(ctx, tx, keys...); err != nil {
		return err
	}
	var over bool
	if err := tx.QueryRow(ctx, g.SQL(selectOver), keys, in.IssuedAt.Add(overKept)).Scan(&over); err != nil || !over {
		return err
	}
	return assign.Refuse(assign.LogInFailed, "your identity provider has logged you out meanwhile; log in again")
}

const (
	lockGranted = `
select id, name, role is not null or admin
from getwork.principal
where iss = $1 and sub = $2
for no key update`

	// A log-in or another refresh since the claim was made shows what the provider said last. Times ahead of the clock, which was then
	// set back, show nothing: they could keep a role for as long as it was set back. Both ends of the time have an index.
	stillUngranted = `
select exists (select from getwork.session where id = $1 and refreshing_until = $2)
  and not exists (
    select from getwork.session
    where principal = $3 and (ended_at is null or ended_at > $2 - ` + claimLasts + `)
      and greatest(created_at, refreshed_at) between $2 - ` + claimLasts + ` and clock_timestamp())`

	ungrantPrincipal = `
update getwork.principal
set role = null, admin = false, groups = '{}', changed = pg_current_xact_id()
where id = $1`

	endPrincipalsSessions = `
update getwork.session
set ended_at = clock_timestamp(), ended_by = $2, changed = pg_current_xact_id()
where principal = $1 and ended_at is null`
)

// Ungranted records that an identity provider gives an account no role any more, as it said at the refresh of a claimed session
// (c) or, if c is nil, at a log-in. All sessions of the account end. Its tokens stay, and allow nothing, because a token
// allows no more than its owner may. If this were not recorded, the tokens would keep the last role that the provider gave. Requests
// that wait under a session or a token of the account are cancelled. Requests under an access token of the provider (JWT) go on
// waiting, because such a token states a role of its own.
//
// It does nothing about an account that has no name here. After a refresh it also does nothing if the claim was lost, or if the account
// has logged in or another of its sessions was refreshed since the claim: the answer may have waited long for the database, and the
// account may have got its role back meanwhile. So it may be repeated as Refreshed may.
func (g *Registry) Ungranted(ctx context.Context, iss, sub string, c *Claim) error {
	ctx = entering(ctx)
	by := "log-in"
	if c != nil {
		by = "refresh"
	}
	var name string
	err := g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		var id int64
		var granted bool
		name = ""
		err := tx.QueryRow(ctx, g.SQL(lockGranted), iss, sub).Scan(&id, &name, &granted)
		if errors.Is(err, pgx.ErrNoRows) || err == nil && !granted {
			return nil, nil, nil
		}
		if err != nil {
			return nil, nil, err
		}
		if c != nil { // a log-in locks the principal, too, and this statement sees one that was committed during the wait
			var still bool
			if err := tx.QueryRow(ctx, g.SQL(stillUngranted), c.ID, c.until, id).Scan(&still); err != nil || !still {
				return nil, nil, err
			}
		}
		all, err := g.credentialsOf(ctx, tx, id)
		if err != nil {
			return nil, nil, err
		}
		var ended []string
		for _, credential := range all {
			if credential[0] == 's' || credential[0] == 't' {
				ended = append(ended, credential)
			}
		}
		if _, err := tx.Exec(ctx, g.SQL(ungrantPrincipal), id); err != nil {
			return nil, nil, err
		}
		if _, err := tx.Exec(ctx, g.SQL(endPrincipalsSessions), id, by); err != nil {
			return nil, nil, err
		}
		return &audit.Act{Act: "user.change", Object: name, Detail: map[string]any{"iss": iss, "role": "", "admin": false, "groups": []string{}, "by": by}}, ended, nil
	})
	if err == nil && name != "" && c == nil {
		g.refusedEntry(ctx, name, true, reject(WhyGrant, name))
	}
	return err
}
