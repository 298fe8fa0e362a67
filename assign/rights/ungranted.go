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

	ungrantPrincipal = `
update getwork.principal
set role = null, admin = false, groups = '{}', changed = pg_current_xact_id()
where id = $1`

	endPrincipalsSessions = `
update getwork.session
set ended_at = clock_timestamp(), ended_by = $2, changed = pg_current_xact_id()
where principal = $1 and ended_at is null`
)

// Ungranted records that an identity provider gives an account no role any more, as it said at a refresh or a log-in (by). All
// sessions of the account end. Its tokens stay, and allow nothing, because they allow no more than their owner may: without
// this the last role that the provider gave would live on in them. What waits under either is cancelled. Access tokens of the
// provider (JWT) state roles of their own, so theirs waits on.
//
// It does nothing about an account that has no name here.
func (g *Registry) Ungranted(ctx context.Context, iss, sub, by string) error {
	ctx = entering(ctx)
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
		all, err := g.credentialsOf(ctx, tx, id)
		if err != nil {
			return nil, nil, err
		}
		var ended []string
		for _, c := range all {
			if c[0] == 's' || c[0] == 't' {
				ended = append(ended, c)
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
	if err == nil && name != "" && by == "log-in" {
		g.refusedEntry(ctx, name, true, reject(WhyGrant, name))
	}
	return err
}
