package rights

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/notify"
)

// LogIn is a log-in that the identity provider has confirmed.
type LogIn struct {
	Entry
	SID      string        // what the provider calls its session; empty: it does not say
	AuthAt   time.Time     // when it saw them prove who they are; zero: it does not say
	IssuedAt time.Time     // when it issued the ID token, by its clock; zero: it can't have ended the log-in since
	Max      time.Duration // the longest life of the session
	Address  netip.Addr
	Agent    string // the browser
	Former   string // the cookie that the browser showed; its session ends

	// Seal returns the refresh token and the log-out hint as they are stored, given the session's id; nil: neither.
	Seal func(session []byte) (refresh, hint []byte, err error)
}

// maxSessions is how many sessions of one user live at once; a further one ends the oldest.
const (
	maxSessions = 10
	maxWalls    = 1000 // screens of one name
)

const (
	insertSession = `
insert into getwork.session (id, public_id, principal, sid, role, admin, groups, auth_time, idle_at, ends_at, refresh, refreshed_at, hint, address, agent)
values ($1, $2, $3, nullif($4, ''), nullif($5, ''), $6, $7, $8,
  case when $5 <> 'observer' or $6 then clock_timestamp() + $9::bigint * interval '1 microsecond' end,
  clock_timestamp() + $10::bigint * interval '1 microsecond', $11, case when $11::bytea is not null then clock_timestamp() end, $12, $13, left($14, 200))
returning ends_at`

	// The browser's former session, whoever's it is, and the oldest of too many; with each, the terminals' tokens that depend on it.
	endReplaced = `
with ended as (
  update getwork.session
  set ended_at = clock_timestamp(), ended_by = 'log-in', changed = pg_current_xact_id()
  where ended_at is null and id <> $1 and (id = $2 or id in (
    select id from getwork.session where principal = $3 and ended_at is null and least(ends_at, idle_at) > clock_timestamp()
    order by created_at desc, id offset $4))
  returning id, public_id, principal
), tokens as (
  update getwork.token t
  set ended_at = clock_timestamp(), ended_by = 'log-in', changed = pg_current_xact_id()
  from ended e
  where t.ended_at is null and t.parent = e.id
  returning t.parent, t.id
)
select e.principal, p.name, array['s:' || e.public_id] || array(select 't:' || t.id from tokens t where t.parent = e.id)
from ended e join getwork.principal p on p.id = e.principal`
)

// Begun is a session that began.
type Begun struct {
	Cookie string // its secret
	User   string // whose it is
	Ends   time.Time
}

// Begin makes a session, and ends the browser's former one. Otherwise somebody could plant a session of their own in another user's
// browser. The user's requests that wait under a session that this one replaces move to it. Those that wait under another session
// of theirs, such as one in another browser, stay there: a log-out there cancels what was asked there.
//
// It refuses somebody who is blocked or whose name can't be used ([assign.Forbidden]), whose name somebody else has
// ([assign.NameTaken]), or whom the provider has logged out meanwhile ([assign.LogInFailed]).
func (g *Registry) Begin(ctx context.Context, in LogIn) (begun Begun, err error) {
	ctx = entering(ctx)
	act := audit.Act{Act: "log-in", Object: in.Name, Detail: map[string]any{"iss": in.Iss, "role": in.Role, "admin": in.Admin}}
	err = g.changeTelling(ctx, func(tx pgx.Tx) (*audit.Act, []string, []notify.Change, error) {
		if err := g.refuseOver(ctx, tx, in); err != nil {
			return nil, nil, nil, err
		}
		p, changed, err := g.enter(ctx, tx, in.Entry)
		if err != nil {
			return nil, nil, nil, err
		}
		var secret [32]byte
		_, _ = rand.Read(secret[:])
		begun = Begun{Cookie: base64.RawURLEncoding.EncodeToString(secret[:]), User: p.name}
		id, public := Hash(begun.Cookie), publicID()
		var refresh, hint []byte
		if in.Seal != nil {
			if refresh, hint, err = in.Seal(id); err != nil {
				return nil, nil, nil, err
			}
		}
		var auth *time.Time
		if !in.AuthAt.IsZero() {
			auth = &in.AuthAt
		}
		var address *netip.Addr
		if in.Address.IsValid() {
			address = &in.Address
		}
		if err := tx.QueryRow(ctx, g.SQL(insertSession), id, public, p.id, in.SID, in.Role, in.Admin, p.groups, auth, g.Idle.Microseconds(), in.Max.Microseconds(),
			refresh, hint, address, in.Agent).Scan(&begun.Ends); err != nil {
			return nil, nil, nil, err
		}
		var regrouped []string
		if changed {
			if regrouped, err = g.regroupable(ctx, tx, p.id, in.Role); err != nil {
				return nil, nil, nil, err
			}
		}
		ended, acts, err := g.replace(ctx, tx, id, in.Former, p, string(BySession(public)), begun.Ends, maxSessions, regrouped)
		if err != nil {
			return nil, nil, nil, err
		}
		var changes []notify.Change
		if changed {
			if changes, err = g.regroup(ctx, tx, p.id, in.Role, p.groups); err != nil {
				return nil, nil, nil, err
			}
		}
		act.Actor, act.Object, act.Then = p.name, p.name, acts
		return &act, ended, changes, nil
	})
	if err == nil {
		return begun, nil
	}
	name, known := in.Name, assign.IsRefusal(err, assign.LogInFailed)
	if r := RejectionOf(err); r != nil {
		name, known = r.User, true
	}
	g.refusedEntry(ctx, name, known, err)
	return Begun{}, err
}

// replace ends the sessions that a log-in replaces, with their terminals' tokens, and returns an act for each session. It moves the
// requests that wait under those of them that are the person's own to the new session. It returns the credentials of whoever used
// the browser before, so that the caller cancels their requests. others are further credentials whose requests the caller changes
// afterwards.
//
// replace first locks the requests under all these credentials, in the order of their ids, as rounds do. If the log-in locked some of
// them now and some later, it and a round could wait for each other; PostgreSQL might then end the round, and its run's result would
// be lost.
func (g *Registry) replace(ctx context.Context, tx pgx.Tx, id []byte, former string, p principal, credential string, until time.Time, most int, others []string) (ended []string, acts []audit.Act, err error) {
	rows, err := tx.Query(ctx, g.SQL(endReplaced), id, Hash(former), p.id, most)
	if err != nil {
		return nil, nil, err
	}
	var own []string
	var of int64
	var user string
	var credentials []string
	if _, err := pgx.ForEachRow(rows, []any{&of, &user, &credentials}, func() error {
		if of == p.id {
			own = append(own, credentials...)
		} else {
			ended = append(ended, credentials...)
		}
		acts = append(acts, audit.Act{Act: "session.end", Object: user, Detail: map[string]any{"by": "log-in", "credentials": credentials}})
		credentials = nil
		return nil
	}); err != nil {
		return nil, nil, err
	}
	if all := slices.Concat(own, ended, others); len(all) > 0 && g.Lock != nil {
		if err := g.Lock(ctx, tx, all); err != nil {
			return nil, nil, fmt.Errorf("lock what waits: %w", err)
		}
	}
	if len(own) > 0 && g.Rebind != nil {
		err = g.Rebind(ctx, tx, p.name, own, credential, until)
	}
	return ended, acts, err
}

// Ending says which sessions are to end.
type Ending struct {
	By       string // what ends them: log-out, provider, admin, idle, expired, refresh
	Cookie   string // the browser's; or
	PublicID string // the one of this id; or
	Claim    *Claim // the claimed one, unless the claim was lost; or
	User     string // all of this user; or
	Iss      string // those of this issuer's
	SID      string // session,
	Sub      string // or else of its account

	Of int64 // only if it is that principal's; 0: whoever's it is

	Once  *[32]byte // if it was inserted before, nothing ends; nil: it may be repeated
	Until time.Time // when Once may be forgotten

	IssuedAt time.Time // of a provider's message, by its clock: log-ins up to then end, too; zero: it is no message
}

const endSessions = `
with ended as (
  update getwork.session s
  set ended_at = clock_timestamp(), ended_by = $1, changed = pg_current_xact_id()
  from getwork.principal p
  where p.id = s.principal and s.ended_at is null and ($7 = 0 or s.principal = $7) and case
    when $2::bytea is not null then s.id = $2 and ($9::timestamptz is null or s.refreshing_until = $9)
    when $3 <> '' then s.public_id = $3
    when $4 <> '' then p.name = $4
    else p.iss = $5 and ($6 <> '' and s.sid = $6 or $6 = '' and p.sub = $8)
  end
  returning s.id, s.public_id, p.name, s.hint
), tokens as (
  update getwork.token t
  set ended_at = clock_timestamp(), ended_by = $1, changed = pg_current_xact_id()
  from ended e
  where t.parent = e.id and t.ended_at is null
  returning 't:' || t.id
)
select 's:' || public_id, name, id, hint from ended
union all
select t.*, '', null, null from tokens t`

// Ended is a session that [Registry.End] has ended.
type Ended struct {
	User string
	ID   []byte // of the session; the sealed hint was sealed with it
	Hint []byte // sealed, as LogIn.Seal returned it; nil: there is none
}

// End ends sessions, and the terminals' tokens that depend on them. It returns those that it ended; ending one again ends
// nothing.
func (g *Registry) End(ctx context.Context, e Ending) (ended []Ended, err error) {
	if e.Cookie != "" {
		actor := audit.ActorOf(ctx)
		actor.Credential = "" // the cookie is the proof, and a session that has ended already is no error
		ctx = audit.WithActor(ctx, actor)
	}
	err = g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		ended = nil
		if !e.IssuedAt.IsZero() {
			if err := g.lockOver(ctx, tx, overKey(e.Iss, e.SID, e.Sub)); err != nil {
				return nil, nil, err
			}
		}
		if e.Once != nil {
			tag, err := tx.Exec(ctx, g.SQL(insertOnce), e.Once[:], e.Until)
			if err != nil || tag.RowsAffected() == 0 {
				return nil, nil, err
			}
		}
		if !e.IssuedAt.IsZero() {
			if err := g.rememberOver(ctx, tx, e); err != nil {
				return nil, nil, err
			}
		}
		var id []byte
		var claim *time.Time
		switch {
		case e.Cookie != "":
			id = Hash(e.Cookie)
		case e.Claim != nil:
			id, claim = e.Claim.ID, &e.Claim.until
		}
		rows, err := tx.Query(ctx, g.SQL(endSessions), e.By, id, e.PublicID, e.User, e.Iss, e.SID, e.Of, e.Sub, claim)
		if err != nil {
			return nil, nil, err
		}
		var credentials []string
		var one Ended
		var credential string
		if _, err := pgx.ForEachRow(rows, []any{&credential, &one.User, &one.ID, &one.Hint}, func() error {
			credentials = append(credentials, credential)
			if one.ID != nil {
				ended = append(ended, one)
			}
			one = Ended{}
			return nil
		}); err != nil || len(ended) == 0 {
			return nil, nil, err
		}
		return &audit.Act{Act: "session.end", Object: ended[0].User, Detail: map[string]any{"by": e.By, "credentials": credentials}}, credentials, nil
	})
	return ended, err
}

// ShownSession is a session as lists show it.
type ShownSession = assign.Session

const selectShownSessions = `
select s.public_id, p.name, coalesce(s.role, ''), s.admin, s.created_at, s.active_at, s.idle_at, s.ends_at, host(s.address), s.agent,
  s.wall, s.opens_until
from getwork.session s join getwork.principal p on p.id = s.principal
where s.ended_at is null and least(s.ends_at, s.idle_at) > clock_timestamp()
  and (s.opens_until is null or s.opens_until > clock_timestamp()) and ($1 = '' or p.name = $1)
order by s.created_at desc, s.public_id
limit 1000`

// Sessions lists the live sessions of a user (empty: of all), newest first, a thousand at most.
func (g *Registry) Sessions(ctx context.Context, user string) ([]ShownSession, error) {
	rows, err := g.DB.Query(ctx, g.SQL(selectShownSessions), user)
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	sessions, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ShownSession])
	if err != nil {
		return nil, fmt.Errorf("read sessions: %w", err)
	}
	return sessions, nil
}

const insertOnce = `
insert into getwork.once (what, until) values (encode($1, 'hex'), $2) on conflict do nothing`

// Once reports whether something is used for the first time: a log-in's state, a code, a log-out message. It is remembered
// until that time, by which the thing itself must have expired, or it could be used again.
func (g *Registry) Once(ctx context.Context, what [32]byte, until time.Time) (first bool, err error) {
	tag, err := g.DB.Exec(ctx, g.SQL(insertOnce), what[:], until)
	if err != nil {
		return false, fmt.Errorf("remember what was used: %w", err)
	}
	return tag.RowsAffected() > 0, nil
}
