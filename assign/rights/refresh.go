package rights

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/notify"
)

// refreshEvery is how old what the provider said of a session may be before it is asked again.
const refreshEvery = 10 * time.Minute

// Claim is a session about which this node, and no other, asks the provider now.
type Claim struct {
	ID        []byte        // the key of the row, with which Sealed was sealed
	PublicID  string        // the id for logs
	Sub       string        // of the account; the provider must mean the same
	Sealed    []byte        // the refresh token
	Age       time.Duration // since the provider last confirmed the session
	until     time.Time     // stands for the claim
	principal int64
}

// A claim lasts until its node has asked, which takes 8 s at most, and has then tried for a minute to store the answer. If it ran
// out before, and the database came back after a while, another node could be the first to claim, and would use a token that the
// provider has replaced.
const claimLasts = `interval '75 seconds'`

// Two nodes that asked at once would each use the refresh token, and the provider would end the session for it. The claim is
// committed before the provider is asked, so no connection is held meanwhile. It skips a row that another node is claiming: by the end
// of a wait that node has it. If the node dies, the claim runs out, and another node asks. As an array the inner query is executed
// once; as a list to look into it might be executed again for each session, and claim more than it should.
const claimRefresh = `
update getwork.session s
set refreshing_until = clock_timestamp() + ` + claimLasts + `
from getwork.principal p
where p.id = s.principal and s.id = any(array(
  select c.id from getwork.session c
  where c.public_id = any($1::text[]) and c.ended_at is null and c.refresh is not null and c.refreshed_at < clock_timestamp() - $2::bigint * interval '1 microsecond'
    and coalesce(c.refreshing_until < clock_timestamp(), true)
  order by c.refreshed_at
  limit $3
  for update skip locked))
returning s.id, s.public_id, p.sub, s.refresh, (extract(epoch from clock_timestamp() - s.refreshed_at) * 1000000)::bigint, s.refreshing_until, s.principal`

// ClaimRefresh claims at most so many sessions that are in use on this node and were not confirmed for ten minutes. A claim lasts
// 75 s; within that time the caller asks the provider, and then calls Refreshed, Unrefreshed, or what ends the session, until one
// succeeds.
func (w *Watch) ClaimRefresh(ctx context.Context, most int) (claims []Claim, err error) {
	credentials := w.uses.lately(refreshEvery)
	w.mu.Lock()
	for _, all := range w.live {
		if parent := all[0].rights.parent; parent != "" { // all are of one credential, so of one session
			credentials = append(credentials, string(parent))
		}
	}
	w.mu.Unlock()
	if len(credentials) == 0 {
		return nil, nil
	}
	ids := make([]string, len(credentials))
	for i, c := range credentials {
		ids[i] = c[2:]
	}
	err = pg.Transact(ctx, w.DB.Calls, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, w.SQL(claimRefresh), ids, refreshEvery.Microseconds(), most)
		if err != nil {
			return err
		}
		claims, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claim, err error) {
			var age int64
			err = row.Scan(&c.ID, &c.PublicID, &c.Sub, &c.Sealed, &age, &c.until, &c.principal)
			c.Age = time.Duration(age) * time.Microsecond
			return c, err
		})
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("claim sessions to refresh: %w", err)
	}
	return claims, nil
}

const (
	// The claim may have run out, and another node may have the session now: then nothing is stored.
	storeRefresh = `
update getwork.session s
set refresh = coalesce($3, s.refresh), refreshed_at = clock_timestamp(), refreshing_until = null,
    role = nullif($4, ''), admin = $5, groups = $6,
    idle_at = case when $4 <> 'observer' or $5 then coalesce(s.idle_at, clock_timestamp() + $7::bigint * interval '1 microsecond') end,
    changed = case when s.role is distinct from nullif($4, '') or s.admin <> $5 or s.groups <> $6 then pg_current_xact_id() else s.changed end
where s.id = $1 and s.refreshing_until = $2 and s.ended_at is null
returning s.changed = pg_current_xact_id()`

	updatePrincipal = `
update getwork.principal
set role = nullif($2, ''), admin = $3, groups = $4, changed = pg_current_xact_id()
where id = $1 and (role is distinct from nullif($2, '') or admin <> $3 or groups <> $4)`

	// The provider did not answer. It is asked again in a minute; a token that it gave all the same is kept.
	postponeRefresh = `
update getwork.session
set refresh = coalesce($3, refresh), refreshing_until = clock_timestamp() + interval '1 minute'
where id = $1 and refreshing_until = $2 and ended_at is null`
)

// Refreshed stores what the provider said of a claimed session: the new refresh token (nil: the old one stays), and the rights,
// which the user's principal gets, too. If the claim was lost or the session has ended, it stores nothing and returns nil. So it
// may be repeated after an error, even if it has committed.
func (g *Registry) Refreshed(ctx context.Context, c Claim, sealed []byte, e Entry) error {
	return g.changeTelling(ctx, func(tx pgx.Tx) (*audit.Act, []string, []notify.Change, error) {
		groups := append([]string{}, e.Groups...)
		var changed bool
		err := tx.QueryRow(ctx, g.SQL(storeRefresh), c.ID, c.until, sealed, e.Role, e.Admin, groups, g.Idle.Microseconds()).Scan(&changed)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, nil, nil
		}
		if err != nil {
			return nil, nil, nil, err
		}
		// Even if the session had these rights before: another one may have given the principal, and so their tokens, more.
		principal, err := tx.Exec(ctx, g.SQL(updatePrincipal), c.principal, e.Role, e.Admin, groups)
		if err != nil || !changed && principal.RowsAffected() == 0 {
			return nil, nil, nil, err
		}
		changes, err := g.regroup(ctx, tx, c.principal, e.Role, groups)
		return &audit.Act{Act: "session.change", Object: c.PublicID, Detail: map[string]any{"role": e.Role, "admin": e.Admin, "groups": groups}}, nil, changes, err
	})
}

// Unrefreshed records that the provider did not answer about a claimed session. sealed is a new refresh token; nil: the old one
// stays. It may be repeated as Refreshed may.
func (g *Registry) Unrefreshed(ctx context.Context, c Claim, sealed []byte) error {
	if _, err := g.DB.Exec(ctx, g.SQL(postponeRefresh), c.ID, c.until, sealed); err != nil {
		return fmt.Errorf("put a refresh off: %w", err)
	}
	return nil
}
