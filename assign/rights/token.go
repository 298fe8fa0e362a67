package rights

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
)

// The scopes of a token: what it may be used for.
const (
	ScopeRead   = "read"   // GET, event streams, sockets
	ScopeWork   = "work"   // get work, cancel, claim, dispose, extend
	ScopePush   = "push"   // push items
	ScopeManage = "manage" // all else
)

// Scopes are all scopes.
var Scopes = []string{ScopeRead, ScopeWork, ScopePush, ScopeManage}

// ShownToken is a token as lists show it.
type ShownToken = assign.Token

// NewToken is what a token is to be.
type NewToken struct {
	Label   string
	Scopes  []string
	Tasks   []string      // nil: all
	Expires time.Duration // its life; 0: 90 days, or as long as it may be if that is less
	Role    assign.Role   // of a personal token: its owner's
	Admin   bool          // only of tokens made on the database

	Service string   // the name of the service that it is for; empty: it is personal
	Groups  []string // of a new service; one that is there already must have the same. nil: whichever it has, or none
	By      int64    // the principal who makes it; 0: its own, made on the database
	Manager bool     // they are a manager
	From    string   // of one made on the database: by whom and on which machine, for the audit
}

const (
	defaultLife = 2160 * time.Hour // 90 days
	adminMost   = 24 * time.Hour   // the longest life of a token with the admin bit
	maxTokens   = 20               // live personal ones of one user
	maxHourly   = 10               // made by one user within an hour, of whatever kind: each is a row, and two of the audit, that nothing trims soon
	maxTasks    = 50
)

// check refuses a wrong token.
func (n *NewToken) check(most time.Duration) error {
	if n.Label == "" || len(n.Label) > 200 || !utf8.ValidString(n.Label) || strings.ContainsFunc(n.Label, func(r rune) bool { return r < ' ' || r == 0x7f }) {
		return assign.RefuseField("label", "label says what the token is for, in 1 to 200 bytes of text on one line")
	}
	if len(n.Scopes) == 0 {
		return assign.RefuseField("scopes", "scopes are some of read, work, push and manage")
	}
	for _, s := range n.Scopes {
		if !slices.Contains(Scopes, s) {
			return assign.RefuseField("scopes", "a scope is read, work, push or manage, not %q", s)
		}
	}
	n.Scopes = slices.Compact(slices.Sorted(slices.Values(n.Scopes)))
	if n.Tasks != nil && len(n.Tasks) == 0 || len(n.Tasks) > maxTasks {
		return assign.RefuseField("tasks", "tasks are 1 to %d names of tasks; leave it out for all", maxTasks)
	}
	for _, t := range n.Tasks {
		if !assign.IsTaskName(t) {
			return assign.RefuseField("tasks", "%q is not the name of a task", t)
		}
	}
	if n.Service != "" {
		if err := CheckName(n.Service); err != nil {
			return err
		}
	}
	if n.Admin && (n.By != 0 || n.Service == "") {
		return assign.Refuse(assign.Forbidden, "only a token that is made on the database itself may be an administrator's: `getwork token create --direct --admin`")
	}
	if n.Admin {
		most = min(most, adminMost)
	}
	if n.Expires == 0 {
		n.Expires = min(defaultLife, most)
	}
	if n.Expires < time.Minute || n.Expires > most {
		return assign.RefuseField("expires_in", "a token lives for 1m to %s, not %s", assign.Duration(most), assign.Duration(n.Expires))
	}
	return assign.CheckRole(n.Role)
}

const (
	countTokens = `
select count(*) from getwork.token
where principal = $1 and kind = 'personal' and ended_at is null and expires_at > clock_timestamp()`

	// A token with a date in the future was made before the clock was set back.
	countHourly = `
select count(*), coalesce((extract(epoch from min(t.created_at) + interval '1 hour' - clock_timestamp()) * 1000000)::bigint, 0)
from (
  select created_at from getwork.token
  where made_by = $1 and created_at between clock_timestamp() - interval '1 hour' and clock_timestamp()
  order by created_at desc
  limit $2
) t`

	insertToken = `
insert into getwork.token (id, hash, kind, principal, parent, label, role, admin, scopes, tasks, made_by, expires_at)
values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, clock_timestamp() + $12::bigint * interval '1 microsecond')`

	lockPrincipalByID = `
select id, name, kind, coalesce(role, ''), admin, groups, blocked_at is not null
from getwork.principal
where id = $1
for no key update`
)

// checkPace refuses ([assign.RateLimited]) somebody who has made too many tokens within the hour. Their principal is locked (mayStillAct),
// so two calls at once don't count the same.
func (g *Registry) checkPace(ctx context.Context, tx pgx.Tx, by int64) error {
	var made int
	var left int64
	if err := tx.QueryRow(ctx, g.SQL(countHourly), by, maxHourly).Scan(&made, &left); err != nil || made < maxHourly {
		return err
	}
	after := time.Duration(left) * time.Microsecond
	limited := assign.Refuse(assign.RateLimited, "you have made %d tokens within an hour, which is as many as a user may; you can make the next one in %s",
		made, assign.Duration(after.Truncate(time.Minute)+time.Minute))
	limited.After = max(after, time.Second)
	return limited
}

// CreateToken makes a personal token of n.By, or a service's. The token itself is returned once, and kept nowhere. Besides wrong
// fields it refuses a blocked owner ([assign.Forbidden]; [assign.InUse] for a service), an owner with too many tokens
// ([assign.InUse]), one who made too many within the hour ([assign.RateLimited]),
// a service's name that somebody has ([assign.NameTaken]), a service that has other rights ([assign.Exists]), and a manager's or a query writer's service if n.By is
// no manager ([assign.Forbidden]).
func (g *Registry) CreateToken(ctx context.Context, n NewToken) (token string, made ShownToken, err error) {
	if err := n.check(g.TokenMax); err != nil {
		return "", made, err
	}
	var id string
	err = g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		id, token = newToken()
		if n.By != 0 {
			if err := g.checkPace(ctx, tx, n.By); err != nil {
				return nil, nil, err
			}
		}
		kind, owner, err := g.ownerOf(ctx, tx, n)
		if err != nil {
			return nil, nil, err
		}
		by := n.By
		if by == 0 {
			by = owner.id
		}
		if _, err := tx.Exec(ctx, g.SQL(insertToken), id, Hash(token), kind, owner.id, nil, n.Label, n.Role, n.Admin, n.Scopes, n.Tasks, by,
			n.Expires.Microseconds()); err != nil {
			return nil, nil, err
		}
		detail := map[string]any{"kind": kind, "user": owner.name, "label": n.Label, "role": n.Role,
			"admin": n.Admin, "scopes": n.Scopes, "tasks": n.Tasks, "expires_in": assign.Duration(n.Expires).String()}
		if n.From != "" {
			detail["from"] = n.From
		}
		return &audit.Act{Act: "token.create", Object: id, Detail: detail}, nil, nil
	})
	if err != nil {
		return "", made, err
	}
	found, err := g.Tokens(ctx, "", id)
	if err != nil {
		return "", made, err
	}
	return token, found[0], nil
}

// ownerOf locks the principal whom a new token is for, and makes that of a new service. The lock lasts until the token is inserted, so
// that two calls can't both count the last token that is allowed.
func (g *Registry) ownerOf(ctx context.Context, tx pgx.Tx, n NewToken) (kind string, p principal, err error) {
	if n.Service == "" {
		err = tx.QueryRow(ctx, g.SQL(lockPrincipalByID), n.By).Scan(&p.id, &p.name, &p.kind, &p.role, &p.admin, &p.groups, &p.blocked)
		var live int
		if err == nil {
			err = tx.QueryRow(ctx, g.SQL(countTokens), p.id).Scan(&live)
		}
		switch {
		case err != nil:
			return "", p, err
		case p.blocked:
			return "", p, errBlocked(p.name)
		case live >= maxTokens:
			return "", p, assign.Refuse(assign.InUse, "you have %d tokens, which is as many as a user may; end one that you no longer need", live)
		}
		return "personal", p, nil
	}
	p, err = g.lockOrMake(ctx, tx, Entry{Iss: Issuer, Sub: n.Service, Name: n.Service, Role: n.Role, Admin: n.Admin, Groups: n.Groups}, "service")
	var r *assign.Refusal
	switch {
	case errors.As(err, &r) && r.Kind == assign.NameTaken:
		return "", p, assign.Refuse(assign.NameTaken, "%q is the name of somebody who logs in, or looks like one; give the service another", n.Service)
	case err != nil:
		return "", p, err
	case p.blocked:
		return "", p, assign.Refuse(assign.InUse, "%q is blocked; let it in again first, with `getwork user unblock`", n.Service)
	case p.role != n.Role && (!n.Admin || n.By != 0):
		return "", p, assign.Refuse(assign.Exists, "%q has the role %s; give the token that role, or the service another name", n.Service, p.role)
	case n.By != 0 && !n.Manager && (p.role == assign.RoleManager || g.QueryAuthors != "" && slices.Contains(p.groups, g.QueryAuthors)):
		return "", p, errManages(n.Service)
	case n.Groups != nil && !slices.Equal(asSet(n.Groups), asSet(p.groups)):
		return "", p, otherGroups(n.Service, p.groups)
	}
	return "service", p, nil
}

// errManages is the refusal of an administrator who would become a manager by a service of their own making.
func errManages(service string) error {
	return assign.Refuse(assign.Forbidden, "%q has the role manager, or is in the group that writes queries: only somebody who is a manager as well as an administrator makes tokens for it; ask one, or use `getwork token create --direct` on the database", service)
}

func asSet(groups []string) []string { return slices.Compact(slices.Sorted(slices.Values(groups))) }

func otherGroups(service string, has []string) error {
	if len(has) == 0 {
		return assign.Refuse(assign.Exists, "%q is in no group; leave the groups out, or give the service another name", service)
	}
	return assign.Refuse(assign.Exists, "%q is in the groups %s; leave the groups out, or give the service another name", service, strings.Join(has, ", "))
}

const selectShownTokens = `
select t.id, t.kind, p.name, t.label, t.role, t.admin, t.scopes, t.tasks, m.name, t.created_at, t.expires_at, t.used_at, host(t.used_from),
  t.ended_at, t.ended_by
from getwork.token t join getwork.principal p on p.id = t.principal join getwork.principal m on m.id = t.made_by
where ($1 = '' or p.name = $1 or m.name = $1 and t.kind = 'service') and ($2 = '' or t.id = $2)
  and (t.ended_at is null and t.expires_at > clock_timestamp() or $2 <> '')
order by t.created_at, t.id
limit 1000`

// Tokens lists the live tokens of a user (empty: of all), and of the services that they made them for, oldest first, a thousand at
// most; or the one of that id, which may have ended.
func (g *Registry) Tokens(ctx context.Context, user, id string) ([]ShownToken, error) {
	rows, err := g.DB.Query(ctx, g.SQL(selectShownTokens), user, id)
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	tokens, err := pgx.CollectRows(rows, pgx.RowToStructByPos[ShownToken])
	if err != nil {
		return nil, fmt.Errorf("read tokens: %w", err)
	}
	return tokens, nil
}

const endToken = `
update getwork.token t
set ended_at = clock_timestamp(), ended_by = $2, changed = pg_current_xact_id()
where t.id = $1 and t.ended_at is null and ($3 = 0 or t.principal = $3 or t.made_by = $3)
returning 't:' || t.id`

// EndToken ends a token: one of that principal, or made by them; 0 for an administrator, who may end any. Ending it again
// changes nothing. [assign.NotFound]: there is none, or it is somebody else's.
func (g *Registry) EndToken(ctx context.Context, id string, by string, of int64) error {
	return g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		var credential string
		err := tx.QueryRow(ctx, g.SQL(endToken), id, by, of).Scan(&credential)
		if errors.Is(err, pgx.ErrNoRows) {
			var known bool
			err := tx.QueryRow(ctx, g.SQL(`select exists (select from getwork.token where id = $1 and ($2 = 0 or principal = $2 or made_by = $2))`), id, of).Scan(&known)
			if err == nil && !known {
				err = assign.Refuse(assign.NotFound, "there is no token %q; GET /api/v1/tokens lists yours", id)
			}
			return nil, nil, err
		}
		return &audit.Act{Act: "token.end", Object: id}, []string{credential}, err
	})
}
