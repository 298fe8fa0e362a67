package rights

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/audit"
	"getwork/assign/pg"
)

// End says how the rights behind a live channel ended.
type End string

// The ends.
const (
	EndOver    End = "over"    // log in again
	EndBlocked End = "blocked" // blocked, or no role any more
	EndChanged End = "changed" // other rights now: reconnect
	EndAway    End = "away"    // the node has not reached the database for so long that it can't know
)

// Live is what depends on a credential for a while: a live channel, an event stream, a held answer, or a query that a call waits for.
type Live struct {
	rights *Rights   // shared with who follows, or each socket would cost as much again
	until  time.Time // by the node's clock
	end    func(End)
	ended  bool
}

const (
	lookEvery = time.Second
	awayFor   = 30 * time.Second // a node cut off from the database for so long closes its live channels
)

// Watch reads each second what has ended or changed, and ends the live channels that depend on it.
type Watch struct {
	*Registry
	soon chan struct{}

	mu       sync.Mutex
	live     map[Credential][]*Live
	fresh    map[Credential]struct{} // followed since the last poll: what was read of them may be older than it
	lookedAt time.Time               // when the database last answered

	alive atomic.Int64 // how many sessions are

	tidyEvery time.Duration // about how often it is tidied; 10 m

	// Only the loop uses these.
	snapshot string // what the last poll saw; empty: everything is read
	cluster  string // the life of the cluster that it belongs to
}

// NewWatch returns a watch, which does nothing until Run.
func NewWatch(g *Registry) *Watch {
	w := &Watch{Registry: g, soon: make(chan struct{}, 1), live: map[Credential][]*Live{}, fresh: map[Credential]struct{}{}, lookedAt: time.Now(), tidyEvery: 10 * time.Minute}
	g.watch = w
	return w
}

// Heard reports that NOTIFY named a change of rights.
func (w *Watch) Heard() {
	w.cache.clear()
	w.lookSoon()
}

// Follow calls end, at most once, when the rights end or change. The caller must not change r, and must call release. until bounds the
// rights further; zero: not. The watch's one loop calls end, so end must return at once: meanwhile nobody else's rights are read.
// It may still be under way when release returns.
func (w *Watch) Follow(r *Rights, until time.Duration, end func(End)) (release func()) {
	left := r.Left
	if until > 0 {
		left = min(left, until)
	}
	l := &Live{rights: r, until: time.Now().Add(left), end: end}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.live[r.Credential] = append(w.live[r.Credential], l)
	w.fresh[r.Credential] = struct{}{}
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		l.ended = true
		all := w.live[r.Credential]
		if i := slices.Index(all, l); i >= 0 {
			all = slices.Delete(all, i, i+1)
		}
		if w.live[r.Credential] = all; len(all) == 0 {
			delete(w.live, r.Credential)
		}
	}
}

// Lag returns how long ago the database last answered a poll.
func (w *Watch) Lag() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.lookedAt)
}

// Run polls until ctx ends, and returns nil.
func (w *Watch) Run(ctx context.Context) error {
	ctx = pg.AsOwn(ctx)
	var tidying sync.WaitGroup
	tidying.Go(func() { w.runTidy(ctx) })
	defer tidying.Wait()
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var count time.Time // when sessions are counted next
	var limit pg.LogLimiter
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-w.soon:
		}
		within, cancel := context.WithTimeout(ctx, 5*time.Second)
		err := w.look(within)
		cancel()
		if err != nil && ctx.Err() == nil {
			if facts := limit.About(err); facts != nil {
				w.Log.Warn("look for ended rights; it is tried again", facts...)
			}
			w.partWhenAway()
		}
		w.endOver(ctx)
		w.flushUses(ctx)
		if time.Now().After(count) {
			count = time.Now().Add(countEvery)
			if err := w.countAlive(ctx); err != nil && ctx.Err() == nil {
				w.Log.Warn("count the sessions that are alive, for the metrics", "error", err)
			}
		}
	}
}

// selectChanged reads the credentials whose rows were changed by transactions that the previous poll could not see. A session
// stands for the tokens of its terminals, too, and the row of a principal for all of its credentials, those of its last rebind included.
//
// The snapshot that it returns is the one that it reads by, so nothing falls between two polls: a transaction that is still under way
// is not visible in it, and a later poll finds it, however low its id is. The comparison with xmin is for the index on changed.
const selectChanged = `
with now as materialized (select pg_current_snapshot() as snapshot, getwork.cluster() as cluster),
changed as (
  select 's:' || public_id as credential from getwork.session where changed >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(changed, $1::pg_snapshot)
  union all
  select 't:' || t.id from getwork.session s join getwork.token t on t.parent = s.id
  where s.changed >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(s.changed, $1::pg_snapshot)
  union all
  select 't:' || id from getwork.token where changed >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(changed, $1::pg_snapshot)
  union all
  select c.credential
  from getwork.principal p cross join lateral (
    select 's:' || public_id from getwork.session s where s.principal = p.id
    union all select 't:' || id from getwork.token t where t.principal = p.id
    union all select k.kind || p.id || case when n > 0 then '.' || n else '' end
      from (values ('j:'), ('p:')) k (kind), generate_series(greatest(p.rebound - 1, 0), p.rebound) n) as c (credential)
  where p.changed >= pg_snapshot_xmin($1::pg_snapshot) and not pg_visible_in_snapshot(p.changed, $1::pg_snapshot)
)
select n.snapshot::text, n.cluster, array(select distinct credential from changed) from now n`

// look asks what has changed since the previous poll, reads those credentials again that something here depends on, and ends
// what they no longer allow. Only a poll that has done all of this remembers its snapshot; after an error the next poll finds the same
// changes again.
func (w *Watch) look(ctx context.Context) error {
	if err := w.settle(ctx); err != nil {
		return err
	}
	var before *string // null: nothing is looked for, everything is read again
	if w.snapshot != "" {
		before = &w.snapshot
	}
	var snapshot, cluster string
	var changed []Credential
	// In a transaction, which makes PostgreSQL use the indexes however few rows there were when it planned.
	err := pg.Transact(ctx, w.DB, func(tx pgx.Tx) error {
		return tx.QueryRow(ctx, w.SQL(selectChanged), before).Scan(&snapshot, &cluster, &changed)
	})
	if err != nil {
		return fmt.Errorf("read what has changed: %w", err)
	}
	all := w.snapshot == "" || cluster != w.cluster // after a fail-over or a restore the snapshot means nothing
	if len(changed) > 0 || all {
		w.cache.clear()
	}
	if len(changed) > 0 && w.CancelEnded != nil {
		if err := w.CancelEnded(ctx); err != nil { // a click may have committed beside the end
			return err
		}
	}
	here := w.followed(changed, all)
	if err := w.judge(ctx, here); err != nil {
		w.mu.Lock()
		for _, c := range here {
			w.fresh[c] = struct{}{}
		}
		w.mu.Unlock()
		return err
	}
	w.snapshot, w.cluster = snapshot, cluster
	w.mu.Lock()
	w.lookedAt = time.Now()
	w.mu.Unlock()
	return nil
}

// followed returns those of the credentials, or all, that something on this node depends on.
func (w *Watch) followed(changed []Credential, all bool) (here []Credential) {
	w.mu.Lock()
	defer w.mu.Unlock()
	fresh := w.fresh
	w.fresh = map[Credential]struct{}{}
	for _, c := range changed {
		fresh[c] = struct{}{}
	}
	for c := range w.live {
		if _, looked := fresh[c]; looked || all {
			here = append(here, c)
		}
	}
	return here
}

// judge reads credentials again, and ends what they no longer allow.
func (w *Watch) judge(ctx context.Context, credentials []Credential) error {
	if len(credentials) == 0 {
		return nil
	}
	now, err := w.readAgain(ctx, credentials)
	if err != nil {
		return err
	}
	for _, c := range credentials {
		f := now[c]
		w.endIf(c, func(l *Live) End {
			switch {
			case !f.exists || f.account != l.rights.account || f.rebound != l.rights.rebound: // the name was given to another account
				return EndOver
			case f.why == WhyBlocked || f.why == WhyRole:
				return EndBlocked
			case f.why != "":
				return EndOver
			case c[0] == 'j': // a JSON web token says itself what it allows
			case c[0] == 'p' && f.version == l.rights.version: // no change since, though proxies may contradict each other
			case !f.same(l.rights):
				return EndChanged
			case f.Left > 0:
				l.until = time.Now().Add(f.Left) // a session that was used lives longer
			}
			return ""
		})
	}
	return nil
}

// endIf ends the live channels of a credential for which why returns an end. w.mu is held while why runs, and not while channels end.
func (w *Watch) endIf(c Credential, why func(*Live) End) {
	w.mu.Lock()
	ends := map[*Live]End{}
	for _, l := range w.live[c] {
		if end := why(l); end != "" && !l.ended {
			l.ended = true
			ends[l] = end
		}
	}
	w.mu.Unlock()
	for l, end := range ends {
		l.end(end)
	}
}

// endOver ends what has reached its time, unless its credential was used and lives longer.
func (w *Watch) endOver(ctx context.Context) {
	now := time.Now()
	var over []Credential
	w.mu.Lock()
	for c, all := range w.live {
		for _, l := range all {
			if !l.ended && now.After(l.until) {
				over = append(over, c)
				break
			}
		}
	}
	w.mu.Unlock()
	if len(over) == 0 {
		return
	}
	within, cancel := context.WithTimeout(ctx, 5*time.Second) // a database that hangs must not hold up the next poll
	defer cancel()
	if err := w.judge(within, over); err != nil {
		w.Log.Warn("read credentials whose time is over again; their live channels end", "error", err)
	}
	for _, c := range over {
		w.endIf(c, func(l *Live) End {
			if now.After(l.until) {
				if l.rights.Credential[0] == 'p' {
					return EndChanged // the proxy says again who they are
				}
				return EndOver
			}
			return ""
		})
	}
}

// partWhenAway ends live channels, a thirtieth each second, if the database has not answered for so long that an end could
// not have been seen.
func (w *Watch) partWhenAway() {
	if w.Lag() < awayFor {
		return
	}
	w.mu.Lock()
	var some []Credential
	for c := range w.live {
		if rand.N(30) == 0 || time.Since(w.lookedAt) > 2*awayFor {
			some = append(some, c)
		}
	}
	w.mu.Unlock()
	for _, c := range some {
		w.endIf(c, func(*Live) End { return EndAway })
	}
}

const selectPrincipals = `
select id, name, coalesce(role, ''), admin, groups, blocked_at is not null, iss, sub, changed::text, rebound
from getwork.principal
where id = any($1::bigint[])`

const selectSessionIDs = `
select public_id, id from getwork.session where public_id = any($1::text[])`

// readAgain reads credentials past the cache. A credential that the result lacks, or that has exists false in it, has no row any more.
func (w *Watch) readAgain(ctx context.Context, credentials []Credential) (map[Credential]found, error) {
	read := map[Credential]found{}
	var tokens, sessions []string
	principals := map[int64][]Credential{}
	for _, c := range credentials {
		switch c[0] {
		case 't':
			tokens = append(tokens, string(c[2:]))
		case 's':
			sessions = append(sessions, string(c[2:]))
		default:
			if id, _, ok := c.principal(); ok {
				principals[id] = append(principals[id], c)
			}
		}
	}
	if len(tokens) > 0 {
		all, err := w.readTokens(ctx, tokens)
		if err != nil {
			return nil, err
		}
		for i, f := range all {
			read[ByToken(tokens[i])] = f
		}
	}
	if len(sessions) > 0 {
		rows, err := w.DB.Query(ctx, w.SQL(selectSessionIDs), sessions)
		if err != nil {
			return nil, err
		}
		var ids []string
		var public string
		var id []byte
		if _, err := pgx.ForEachRow(rows, []any{&public, &id}, func() error { ids = append(ids, string(id)); return nil }); err != nil {
			return nil, err
		}
		all, err := w.readSessions(ctx, ids)
		if err != nil {
			return nil, err
		}
		for _, f := range all {
			read[f.Credential] = f
		}
	}
	return read, w.readPrincipals(ctx, principals, read)
}

func (w *Watch) readPrincipals(ctx context.Context, principals map[int64][]Credential, read map[Credential]found) error {
	if len(principals) == 0 {
		return nil
	}
	ids := make([]int64, 0, len(principals))
	for id := range principals {
		ids = append(ids, id)
	}
	rows, err := w.DB.Query(ctx, w.SQL(selectPrincipals), ids)
	if err != nil {
		return err
	}
	var p principal
	var of account
	var version string
	var rebound int
	_, err = pgx.ForEachRow(rows, []any{&p.id, &p.name, &p.role, &p.admin, &p.groups, &p.blocked, &of.iss, &of.sub, &version, &rebound}, func() error {
		for _, c := range principals[p.id] {
			f := found{exists: true, Rights: Rights{Credential: c, Principal: p.id, User: p.name, Role: p.role, Admin: p.admin, Groups: p.groups,
				account: of.key(), rebound: rebound, version: version}}
			switch _, shown, _ := c.principal(); {
			case shown != rebound:
				f.exists = false // the name belongs to another account now
			case p.blocked:
				f.why = WhyBlocked
			case c[0] == 'p' && p.role == "" && !p.admin:
				f.why = WhyRole
			}
			read[c] = f
		}
		p = principal{}
		return nil
	})
	return err
}

// Ended reads a credential again, and says how it has ended; empty: it has not.
func (w *Watch) Ended(ctx context.Context, c Credential) (End, error) {
	now, err := w.readAgain(ctx, []Credential{c})
	if err != nil {
		return "", fmt.Errorf("read a credential again: %w", err)
	}
	switch f := now[c]; {
	case f.exists && f.why == "":
		return "", nil
	case f.why == WhyBlocked || f.why == WhyRole:
		return EndBlocked, nil
	}
	return EndOver, nil
}

const (
	// countEvery is how often sessions are counted. It reads all that nobody has ended, those of the last month included that
	// ended by themselves.
	countEvery = time.Minute

	countWithin = time.Second // polls for ended rights wait meanwhile
)

const countAlive = `select count(*) from getwork.session where ended_at is null and least(ends_at, idle_at) > clock_timestamp()`

// Alive returns how many sessions are alive, on all nodes, as of a minute ago.
func (w *Watch) Alive() int64 { return w.alive.Load() }

// countAlive counts them. If that fails, the former count stays.
func (w *Watch) countAlive(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, countWithin)
	defer cancel()
	var n int64
	if err := w.DB.QueryRow(ctx, w.SQL(countAlive)).Scan(&n); err != nil {
		return err
	}
	w.alive.Store(n)
	return nil
}

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
