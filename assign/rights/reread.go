package rights

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
)

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
