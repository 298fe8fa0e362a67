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

// Watch looks each second at what has ended or changed, and ends the live channels that depend on it.
type Watch struct {
	*Registry
	soon chan struct{}

	mu       sync.Mutex
	live     map[Credential][]*Live
	fresh    map[Credential]struct{} // followed since the last look: what was read of them may be older than it
	lookedAt time.Time               // when the database last answered

	alive atomic.Int64 // how many sessions are

	tidyEvery time.Duration // about how often it is tidied; 10 m

	// Only the loop uses these.
	snapshot string // what the last look saw; empty: everything is looked at
	cluster  string // the life of the cluster that it belongs to
}

// NewWatch returns a watch, which does nothing until Run.
func NewWatch(g *Registry) *Watch {
	w := &Watch{Registry: g, soon: make(chan struct{}, 1), live: map[Credential][]*Live{}, fresh: map[Credential]struct{}{}, lookedAt: time.Now(), tidyEvery: 10 * time.Minute}
	g.watch = w
	return w
}

// Heard tells the watch that NOTIFY named a change of rights.
func (w *Watch) Heard() {
	w.cache.clear()
	w.lookSoon()
}

// Follow calls end, at most once, when the rights end or change. The caller must not change r, and must call release. until bounds the
// rights further; zero: not. The watch's one loop calls end, so end must return at once: meanwhile nobody else's rights are looked at.
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

// Lag returns how long ago the database last answered a look.
func (w *Watch) Lag() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Since(w.lookedAt)
}

// Run looks until ctx ends, and returns nil.
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

// selectChanged reads the credentials whose rows were changed by transactions that the previous look could not see. A session
// stands for the tokens of its terminals, too, and the row of a principal for all of its credentials, those of its last rebind included.
//
// The snapshot that it returns is the one that it reads by, so nothing falls between two looks: a transaction that is still under way
// is not visible in it, and a later look finds it, however low its id is. The comparison with xmin is for the index on changed.
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

// look asks what has changed since the previous look, reads those credentials again that something here depends on, and ends
// what they no longer allow. Only a look that has done all of this remembers its snapshot; after an error the next look finds the same
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
	within, cancel := context.WithTimeout(ctx, 5*time.Second) // a database that hangs must not hold up the next look
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
