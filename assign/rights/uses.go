package rights

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// uses gathers when tokens were last used and whose sessions were active, and writes them about once a second: not with the
// call, which would wait for it, and at most once a minute for each.
type uses struct {
	mu       sync.Mutex
	tokens   map[string]netip.Addr
	sessions map[string]time.Time // when this node last wrote it, or is going to
	active   [][]byte
	people   map[int64]struct{}   // whom proxies named
	seen     map[string]time.Time // sessions, as credentials, that were used here, and when last
}

// saw records that a session is in use here.
func (u *uses) saw(credential string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if u.seen == nil || len(u.seen) >= 2*cacheMost {
		u.seen = map[string]time.Time{}
	}
	u.seen[credential] = time.Now()
}

// lately returns the sessions that were used here within that time, and forgets the others.
func (u *uses) lately(within time.Duration) (credentials []string) {
	u.mu.Lock()
	defer u.mu.Unlock()
	for c, at := range u.seen {
		if time.Since(at) > within {
			delete(u.seen, c)
		} else {
			credentials = append(credentials, c)
		}
	}
	return credentials
}

// Used records that a credential was used from an address. active: it was an act of its user, which keeps a session alive.
func (g *Registry) Used(r *Rights, from netip.Addr, active bool) {
	u := &g.uses
	u.mu.Lock()
	defer u.mu.Unlock()
	if r.unused && r.Credential[0] == 't' {
		if u.tokens == nil {
			u.tokens = map[string]netip.Addr{}
		}
		u.tokens[string(r.Credential[2:])] = from
	}
	if r.unused && r.Credential[0] == 'p' {
		if u.people == nil {
			u.people = map[int64]struct{}{}
		}
		u.people[r.Principal] = struct{}{}
	}
	if !active || r.Parent == nil || r.IdleAt.IsZero() {
		return
	}
	if time.Since(u.sessions[string(r.Parent)]) < time.Minute {
		return
	}
	if u.sessions == nil || len(u.sessions) >= 2*cacheMost {
		u.sessions = map[string]time.Time{}
	}
	u.sessions[string(r.Parent)] = time.Now()
	u.active = append(u.active, r.Parent)
}

const (
	writeUses = `
update getwork.token t
set used_at = clock_timestamp(), used_from = nullif(u.address, '')::inet
from unnest($1::text[], $2::text[]) as u (id, address)
where t.id = u.id and coalesce(t.used_at < clock_timestamp() - interval '1 minute', true)`

	// A session that is over stays over.
	writeActive = `
update getwork.session
set active_at = clock_timestamp(), idle_at = clock_timestamp() + $2::bigint * interval '1 microsecond'
where id = any($1::bytea[]) and ended_at is null and idle_at > clock_timestamp()`

	// Whom a proxy names has logged in there.
	writeSeen = `
update getwork.principal
set seen_at = clock_timestamp()
where id = any($1::bigint[]) and coalesce(seen_at < clock_timestamp() - interval '1 hour', true)`
)

// flushUses writes what was gathered. What can't be written is lost: a use is news for a minute only.
func (w *Watch) flushUses(ctx context.Context) {
	u := &w.uses
	u.mu.Lock()
	tokens, active, people := u.tokens, u.active, u.people
	u.tokens, u.active, u.people = nil, nil, nil
	u.mu.Unlock()
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if len(tokens) > 0 {
		var ids, addresses []string
		for id, from := range tokens {
			address := ""
			if from.IsValid() {
				address = from.Unmap().WithZone("").String()
			}
			ids, addresses = append(ids, id), append(addresses, address)
		}
		if _, err := w.DB.Exec(ctx, w.SQL(writeUses), ids, addresses); err != nil {
			w.Log.Warn("write when tokens were used", "error", err)
		}
	}
	if len(active) > 0 {
		if _, err := w.DB.Exec(ctx, w.SQL(writeActive), active, w.Idle.Microseconds()); err != nil {
			w.Log.Warn("write which sessions are active", "error", err)
		}
	}
	if len(people) > 0 {
		if _, err := w.DB.Exec(ctx, w.SQL(writeSeen), slices.Collect(maps.Keys(people))); err != nil {
			w.Log.Warn("write whom proxies named", "error", err)
		}
	}
}
