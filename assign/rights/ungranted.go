package rights

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"getwork/assign/audit"
)

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
