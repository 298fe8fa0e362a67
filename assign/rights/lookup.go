package rights

import (
	"context"
	"crypto/subtle"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
)

// Why a credential is no good, for the log and the metrics. A stranger learns no more than that it is not valid.
const (
	WhyUnknown  = "unknown" // there is no such credential, or it has the wrong form
	WhyWrong    = "wrong"   // its id exists, and has another secret
	WhyEnded    = "ended"   // somebody ended it, or the session that it depends on
	WhyExpired  = "expired" // it has reached its end
	WhyIdle     = "idle"    // nobody has used the session for too long
	WhyBlocked  = "blocked"
	WhyOwner    = "owner"    // the owner of a personal token has not logged in for long
	WhyRole     = "role"     // the owner's role has nothing in common with the token's
	WhyGrant    = "no-grant" // none of their groups gives a role
	WhyOverload = "overload" // too many unknown credentials
)

// A Rejection says why a credential gives no rights. Its refusal is what the caller reads.
type Rejection struct {
	Why  string
	User string // empty unless the secret was right
	*assign.Refusal
}

func (r *Rejection) Unwrap() error { return r.Refusal }

func reject(why, user string) *Rejection {
	kind, detail := assign.Unauthenticated, "this token is not valid; make a new one with `getwork token create`, or ask an administrator"
	switch why {
	case WhyEnded:
		detail = "this has been ended; log in again, or make a new token"
	case WhyExpired, WhyIdle:
		detail = "this has expired; log in again, or make a new token"
	case WhyBlocked:
		kind, detail = assign.Forbidden, "your account is blocked; ask an administrator"
	case WhyOwner:
		detail = "the owner of this token has not logged in for a long time; when they have, it works again"
	case WhyRole:
		kind, detail = assign.Forbidden, "the owner of this token has another role now, which it was not made for; make a new token"
	case WhyGrant:
		kind, detail = assign.Forbidden, "your account has no role here: none of its groups gives one; ask whoever manages the groups of your company's accounts"
	case WhyOverload:
		kind, detail = assign.Unavailable, "too many unknown credentials come at once; try again in a moment"
	}
	return &Rejection{Why: why, User: user, Refusal: assign.Refuse(kind, "%s", detail)}
}

// found is what the database says of a credential.
type found struct {
	Rights
	exists bool
	hash   []byte    // of the secret; nil: an account, which has none
	why    string    // why it gives no rights, one of the constants above; empty: it gives some
	at     time.Time // before it was read, by the node's clock
}

// The rights of a personal token are its role and its owner's; those of a service its role and the service's; those of a terminal
// are its session's. Deadlines are read as the time that is left, because the node's clock may differ. One of them is the time by
// which a personal token's owner must log in again. It passes without a change of any row, so the live channels of somebody who has
// left would go on if it were left out.
const selectTokens = `
select a.n, t.id is not null, coalesce(t.id, ''), t.hash, coalesce(t.kind, ''), coalesce(t.principal, 0), coalesce(p.name, ''),
  coalesce(case when t.kind = 'cli' then s.role else t.role end, ''), coalesce(case when t.kind = 'cli' then s.role else p.role end, ''),
  coalesce(case when t.kind = 'cli' then s.admin else t.admin end, false),
  coalesce(case when t.kind = 'cli' then s.groups else p.groups end, '{}'), t.scopes, t.tasks, t.parent,
  coalesce(least(t.expires_at, s.ends_at), 'epoch'), s.idle_at, s.auth_time,
  coalesce(extract(epoch from least(t.expires_at, s.ends_at, s.idle_at,
    case when t.kind = 'personal' and p.kind = 'person' then p.seen_at + $2::bigint * interval '1 microsecond' end) - clock_timestamp()), 0)::float8,
  case
    when t.ended_at is not null or s.ended_at is not null then 'ended'
    when least(t.expires_at, s.ends_at) <= clock_timestamp() then 'expired'
    when s.idle_at <= clock_timestamp() then 'idle'
    when p.blocked_at is not null then 'blocked'
    when t.kind = 'personal' and p.kind = 'person' and coalesce(p.seen_at <= clock_timestamp() - $2::bigint * interval '1 microsecond', true) then 'owner'
    else ''
  end,
  coalesce(t.used_at < clock_timestamp() - interval '1 minute', true), coalesce('s:' || s.public_id, '')
from unnest($1::text[]) with ordinality as a (id, n)
left join getwork.token t on t.id = a.id
left join getwork.principal p on p.id = t.principal
left join getwork.session s on s.id = t.parent
order by a.n`

// Token returns the rights of a token. A [Rejection] says why it gives none; another error means that the database could not be
// asked.
func (g *Registry) Token(ctx context.Context, token string) (Rights, error) {
	id, ok := tokenID(token)
	if !ok {
		return Rights{}, reject(WhyUnknown, "")
	}
	f, err := g.look(ctx, "t:"+id, func() (found, error) { return g.tokens.Ask(ctx, id) })
	if err != nil {
		return Rights{}, err
	}
	return g.judged(f, Hash(token))
}

// Session returns the rights of a session, by its cookie's value. Its errors are those of Token.
func (g *Registry) Session(ctx context.Context, cookie string) (Rights, error) {
	id := string(Hash(cookie))
	f, err := g.look(ctx, "s:"+id, func() (found, error) { return g.sessions.Ask(ctx, id) })
	if err != nil {
		return Rights{}, err
	}
	return g.judged(f, []byte(id))
}

// look returns what was read of a credential within the last second, or reads it. A credential that this node has not seen exist may
// be refused unread, with WhyOverload; see pace.
func (g *Registry) look(ctx context.Context, key string, ask func() (found, error)) (f found, err error) {
	if f, ok := g.cache.get(key); ok {
		return f, nil
	}
	if !g.cache.existed(key) {
		if !g.unknown.enter(ctx) {
			return found{}, reject(WhyOverload, "")
		}
		defer func() { g.unknown.leave(f.exists || err != nil) }()
	}
	at := time.Now() // before the read: what ends during it may not be in it
	f, err = ask()
	if err != nil {
		return found{}, fmt.Errorf("look up a credential: %w", err)
	}
	f.at = at
	g.cache.put(key, f)
	return f, nil
}

// judged is found.judged, and notes that the session behind the credential is in use here.
func (g *Registry) judged(f found, hash []byte) (Rights, error) {
	r, err := f.judged(hash)
	if err == nil && r.parent != "" {
		g.uses.saw(string(r.parent))
	}
	return r, err
}

// judged compares the secret, and returns the rights that are left.
func (f found) judged(hash []byte) (Rights, error) {
	switch {
	case !f.exists:
		return Rights{}, reject(WhyUnknown, "")
	case subtle.ConstantTimeCompare(f.hash, hash) != 1:
		return Rights{}, reject(WhyWrong, "")
	case f.why != "":
		return Rights{}, reject(f.why, f.User)
	}
	r := f.Rights
	if r.Left -= time.Since(f.at); r.Left <= 0 {
		return Rights{}, reject(WhyExpired, f.User)
	}
	return r, nil
}

func (g *Registry) readTokens(ctx context.Context, ids []string) ([]found, error) {
	rows, err := g.DB.Query(ctx, g.SQL(selectTokens), ids, g.OwnerWithin.Microseconds())
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		var n int
		var id string
		var own, owner assign.Role
		var idle, auth *time.Time
		var left float64
		err = row.Scan(&n, &f.exists, &id, &f.hash, &f.Kind, &f.Principal, &f.User, &own, &owner, &f.Admin, &f.Groups, &f.Scopes, &f.Tasks, &f.Parent,
			&f.EndsAt, &idle, &auth, &left, &f.why, &f.unused, &f.parent)
		f.Credential, f.Role = ByToken(id), own.Both(owner)
		f.IdleAt, f.AuthAt, f.Left = orZero(idle), orZero(auth), time.Duration(left*float64(time.Second))
		// A session with the admin bit alone has no role, and nor has its terminal's token.
		if f.why == "" && f.Role == "" && (own != "" || !f.Admin) {
			f.why = WhyRole
		}
		return f, err
	})
}

const selectSessions = `
select a.n, s.id is not null, coalesce(s.public_id, ''), s.id, coalesce(s.principal, 0), coalesce(p.name, ''), coalesce(s.role, ''),
  coalesce(s.admin, false), coalesce(s.groups, '{}'), coalesce(s.ends_at, 'epoch'), s.idle_at, s.auth_time,
  coalesce(extract(epoch from least(s.ends_at, s.idle_at) - clock_timestamp()), 0)::float8,
  case
    when s.ended_at is not null then 'ended'
    when s.ends_at <= clock_timestamp() then 'expired'
    when s.idle_at <= clock_timestamp() then 'idle'
    when p.blocked_at is not null then 'blocked'
    else ''
  end, coalesce(s.wall, false)
from unnest($1::bytea[]) with ordinality as a (id, n)
left join getwork.session s on s.id = a.id
left join getwork.principal p on p.id = s.principal
order by a.n`

func (g *Registry) readSessions(ctx context.Context, ids []string) ([]found, error) {
	hashes := make([][]byte, len(ids))
	for i, id := range ids {
		hashes[i] = []byte(id)
	}
	rows, err := g.DB.Query(ctx, g.SQL(selectSessions), hashes)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		var n int
		var id string
		var idle, auth *time.Time
		var left float64
		err = row.Scan(&n, &f.exists, &id, &f.hash, &f.Principal, &f.User, &f.Role, &f.Admin, &f.Groups, &f.EndsAt, &idle, &auth, &left, &f.why, &f.Wall)
		f.Credential, f.Parent = BySession(id), f.hash
		f.parent = f.Credential
		f.IdleAt, f.AuthAt, f.Left = orZero(idle), orZero(auth), time.Duration(left*float64(time.Second))
		return f, err
	})
}

func orZero(t *time.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.UTC()
}

// RejectionOf returns the rejection in an error, or nil.
func RejectionOf(err error) *Rejection {
	var r *Rejection
	if errors.As(err, &r) {
		return r
	}
	return nil
}

const (
	keptFor   = time.Second            // how long after it was read something counts
	cacheFor  = 500 * time.Millisecond // a generation; what was read is in memory for three, since a generation may end late
	cacheMost = 25_000                 // entries of a generation: more would let strangers fill a node's memory with credentials that don't exist
	askMost   = 50                     // credentials that don't exist that are looked up in a second
)

// cache keeps what was read of a credential for at most a second, so that a busy client costs one read, and an end that
// commits now is obeyed by every call a second later.
type cache struct {
	mu         sync.Mutex
	now, older map[string]found
	since      time.Time
	known      map[string]struct{} // credentials that existed once: they are looked up however many unknown ones come
}

// get returns what was read of a credential at most keptFor ago.
func (c *cache) get(key string) (f found, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	if f, ok = c.now[key]; !ok {
		f, ok = c.older[key]
	}
	if !ok || time.Since(f.at) > keptFor {
		return found{}, false
	}
	return f, true
}

// put keeps what was read, also that a credential does not exist. f.at must be a time before the read began.
func (c *cache) put(key string, f found) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.turn()
	if len(c.now) >= cacheMost {
		c.now, c.older, c.since = map[string]found{}, c.now, time.Now()
	}
	c.now[key] = f
	if !f.exists {
		return
	}
	if c.known == nil || len(c.known) >= 2*cacheMost {
		c.known = map[string]struct{}{}
	}
	c.known[key] = struct{}{}
}

// turn begins a generation when the last one is old enough.
func (c *cache) turn() {
	switch age := time.Since(c.since); {
	case age >= 2*cacheFor:
		c.now, c.older, c.since = map[string]found{}, nil, time.Now()
	case age >= cacheFor:
		c.now, c.older, c.since = map[string]found{}, c.now, time.Now()
	}
}

// clear forgets everything, because something has ended or changed. A read that is under way may still put what it saw before the
// change; that is believed for a second after the read began, and no longer.
func (c *cache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.now, c.older = map[string]found{}, nil
}

// existed reports whether this node has read that a credential exists, even if that is long ago.
func (c *cache) existed(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	_, ok := c.known[key]
	return ok
}

// pace bounds how many credentials that don't exist are looked up in a second. Until it is looked up, a good credential that this
// node has not seen looks like them: it may have to wait for others, and takes nothing from the bound. So everybody can come back at
// once to a node that has just started.
type pace struct {
	mu    sync.Mutex
	since time.Time
	none  int           // how many did not exist, since then
	asked int           // how many are being looked up
	left  chan struct{} // closed when one of these is through; nil: nobody waits
}

// patience is how long a read may wait for others.
const patience = time.Second

// enter begins to look up a credential, and reports whether that is allowed. If so, leave must follow.
func (p *pace) enter(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		left, ok := p.tryEnter()
		if left == nil {
			return ok
		}
		select {
		case <-left:
		case <-ctx.Done():
			return false
		}
	}
}

// tryEnter is enter, or returns a channel to wait for before the next try.
func (p *pace) tryEnter() (left <-chan struct{}, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if time.Since(p.since) >= time.Second {
		p.since, p.none = time.Now(), 0
	}
	switch {
	case p.none >= askMost:
		return nil, false
	case p.none+p.asked < askMost:
		p.asked++
		return nil, true
	}
	if p.left == nil {
		p.left = make(chan struct{})
	}
	return p.left, false
}

// leave says whether the credential exists; if that could not be read, it counts as one that does.
func (p *pace) leave(exists bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asked--
	if !exists {
		p.none++
	}
	if p.left != nil {
		close(p.left)
		p.left = nil
	}
}
