package rights

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"golang.org/x/text/unicode/norm"

	"getwork/assign"
	"getwork/assign/audit"
)

// CheckName returns a [assign.Refusal] if a principal can't have that name. It asks more than [assign.CheckUser]: a name is
// normalised, has no two spaces in a row, and its letters are of one of Latin, Greek and Cyrillic, because an "а" of Cyrillic
// in a Latin name would make a second person with the same name to the eye.
func CheckName(name string) error {
	if err := assign.CheckUser(name); err != nil {
		return err
	}
	switch {
	case !norm.NFC.IsNormalString(name):
		return assign.RefuseField("user", "a user name is in Unicode's normal form C; this one has marks apart from their letters")
	case strings.Contains(name, "  "):
		return assign.RefuseField("user", "a user name has no two spaces in a row")
	}
	scripts := map[string]bool{}
	for _, r := range name {
		if !unicode.IsPrint(r) {
			return assign.RefuseField("user", "a user name has no unassigned characters; this one has U+%04X", r)
		}
		for script, table := range map[string]*unicode.RangeTable{"Latin": unicode.Latin, "Greek": unicode.Greek, "Cyrillic": unicode.Cyrillic} {
			if unicode.Is(table, r) {
				scripts[script] = true
			}
		}
	}
	if len(scripts) > 1 {
		return assign.RefuseField("user", "a user name has letters of one of the Latin, Greek and Cyrillic alphabets, not of several")
	}
	return nil
}

// nameKey returns what two names that would be mistaken for each other have in common.
func nameKey(name string) string { return strings.ToLower(norm.NFKC.String(name)) }

// Issuer is the issuer of names that getwork itself gave: services, and tokens made on the database.
const Issuer = "getwork"

// Entry is what an identity provider, a proxy or a JSON web token says of somebody who comes in.
type Entry struct {
	Iss, Sub string
	Name     string // their name, if they come for the first time
	Role     assign.Role
	Admin    bool
	Groups   []string // sorted, without repetition

	From netip.Addr // where they come from, for the audit; the zero Addr: as the context says
}

// principal is the row of somebody.
type principal struct {
	id      int64
	name    string
	kind    string
	role    assign.Role
	admin   bool
	groups  []string
	blocked bool
	made    bool // they come for the first time
}

const (
	// No key update: the key never changes, so sessions and tokens that refer to the row can be inserted meanwhile.
	lockPrincipal = `
select id, name, kind, coalesce(role, ''), admin, groups, blocked_at is not null
from getwork.principal
where iss = $1 and sub = $2
for no key update`

	insertPrincipal = `
insert into getwork.principal (name, name_key, iss, sub, kind, role, admin, groups)
values ($1, $2, $3, $4, $5, nullif($6, ''), $7, $8)
returning id`

	// A log-in that changes no rights leaves changed as it is, or every node would read all credentials of the user again.
	seePrincipal = `
update getwork.principal
set seen_at = clock_timestamp(), role = nullif($2, ''), admin = $3, groups = $4, changed = case when $5 then pg_current_xact_id() else changed end
where id = $1`
)

// errBlocked returns the rejection of a blocked user. The name is for the log; the user reads only that they are blocked.
func errBlocked(name string) error { return reject(WhyBlocked, name) }

func errNameTaken(name string) error {
	return assign.Refuse(assign.NameTaken, "somebody else has the name %q here already; ask an administrator, who can bind it to you", name)
}

// lockOrMake locks the row of somebody, and makes it if they come for the first time. The name that they have then stays
// theirs for ever, whatever their provider calls them later. It refuses a name that somebody else has ([assign.NameTaken]), and one
// that CheckName refuses ([assign.Forbidden]). A blocked principal is returned like any other.
//
// tx must be at READ COMMITTED: after a conflict the row that was in the way is read again, and a fixed snapshot would not show it.
func (g *Registry) lockOrMake(ctx context.Context, tx pgx.Tx, e Entry, kind string) (p principal, err error) {
	for taken := false; ; taken = true {
		err = tx.QueryRow(ctx, g.SQL(lockPrincipal), e.Iss, e.Sub).Scan(&p.id, &p.name, &p.kind, &p.role, &p.admin, &p.groups, &p.blocked)
		if !errors.Is(err, pgx.ErrNoRows) {
			return p, err
		}
		if taken {
			return p, errNameTaken(e.Name)
		}
		if err := CheckName(e.Name); err != nil {
			var r *assign.Refusal
			if errors.As(err, &r) {
				return p, assign.Refuse(assign.Forbidden, "your account's name can't be used here: %s; ask an administrator", r.Detail)
			}
			return p, err
		}
		groups := append([]string{}, e.Groups...)
		made := principal{name: e.Name, kind: kind, role: e.Role, admin: e.Admin, groups: groups, made: true}
		inner, err := tx.Begin(ctx) // a savepoint: the name may be taken
		if err != nil {
			return p, err
		}
		err = inner.QueryRow(ctx, g.SQL(insertPrincipal), e.Name, nameKey(e.Name), e.Iss, e.Sub, kind, e.Role, e.Admin, groups).Scan(&made.id)
		if err == nil {
			return made, inner.Commit(ctx)
		}
		if back := inner.Rollback(ctx); back != nil {
			return p, back
		}
		// Another account took the name, or the same one logged in elsewhere at the same time. Either way that row is committed.
		// An id that exists is no name: a move of the tables left the ids behind, and newcomers would read that theirs is taken.
		var pgErr *pgconn.PgError
		switch {
		case !errors.As(err, &pgErr) || pgErr.Code != "23505":
			return p, err
		case pgErr.ConstraintName == "principal_pkey":
			return p, fmt.Errorf("the ids of principal are below those in the table; raise them as docs/upgrade.md says (Backup and restore): %w", err)
		}
	}
}

// enter records that somebody came in, in the caller's transaction, and returns their rights without a credential. changed: these
// differ from their former ones. A blocked principal is refused.
func (g *Registry) enter(ctx context.Context, tx pgx.Tx, e Entry) (p principal, changed bool, err error) {
	if p, err = g.lockOrMake(ctx, tx, e, "person"); err != nil {
		return p, false, err
	}
	if p.blocked {
		return p, false, errBlocked(p.name)
	}
	changed = p.role != e.Role || p.admin != e.Admin || !slices.Equal(p.groups, e.Groups)
	groups := append([]string{}, e.Groups...)
	if _, err := tx.Exec(ctx, g.SQL(seePrincipal), p.id, e.Role, e.Admin, groups, changed); err != nil {
		return p, false, err
	}
	p.role, p.admin, p.groups = e.Role, e.Admin, groups
	return p, changed, nil
}

// User is a principal as administrators see it.
type User = assign.User

const selectUsers = `
select p.name, p.kind, p.iss, p.sub, coalesce(p.role, ''), p.admin, p.groups, p.blocked_at is not null, p.blocked_at, p.seen_at, p.created_at,
  (select count(*) from getwork.session s where s.principal = p.id and s.ended_at is null and least(s.ends_at, s.idle_at) > clock_timestamp()),
  (select count(*) from getwork.token t where t.principal = p.id and t.ended_at is null and t.expires_at > clock_timestamp()),
  (select count(*) from getwork.work w where w.user_name = p.name and w.state = 'held')
from getwork.principal p
where p.name > $1 and ($2 = '' or p.name = $2) and ($3 = '' or position($3 in p.name_key) > 0)
order by p.name
limit $4`

// Which says which users to list. Empty texts do not filter.
type Which struct {
	After  string // only those whose names come later
	Name   string // only this one
	Search string // only those whose names contain it, in capitals or not
	Limit  int    // how many at most; 0 lists none
}

// Users lists principals by name. Nobody to list is no error.
func (g *Registry) Users(ctx context.Context, which Which) ([]User, error) {
	rows, err := g.DB.Query(ctx, g.SQL(selectUsers), which.After, which.Name, nameKey(which.Search), which.Limit)
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	users, err := pgx.CollectRows(rows, pgx.RowToStructByPos[User])
	if err != nil {
		return nil, fmt.Errorf("read users: %w", err)
	}
	return users, nil
}

func noUser(name string) error {
	return assign.Refuse(assign.NotFound, "there is no user %q; GET /api/v1/users lists all users", name)
}

const blockPrincipal = `
update getwork.principal
set blocked_at = case when $2 then coalesce(blocked_at, clock_timestamp()) end, changed = pg_current_xact_id()
where name = $1 and (blocked_at is not null) <> $2
returning id`

// What somebody made for themselves, as tokens on the database are, is theirs and no service's.
const (
	selectServices = `
select distinct s.name
from getwork.principal p join getwork.token t on t.made_by = p.id join getwork.principal s on s.id = t.principal
where p.name = $1 and t.kind = 'service' and t.principal <> p.id and t.ended_at is null and t.expires_at > clock_timestamp()
order by s.name`

	endServices = `
update getwork.token t
set ended_at = clock_timestamp(), ended_by = $2, changed = pg_current_xact_id()
from getwork.principal p
where p.name = $1 and t.made_by = p.id and t.kind = 'service' and t.principal <> p.id and t.ended_at is null
returning 't:' || t.id`
)

// Block keeps a user out, or lets them in again. Their sessions and tokens stay, and give no rights meanwhile. Their waiting
// requests are cancelled. The tokens that they made for services go on, unless these are to end, too: then for good, since the user may
// have copied them. Tokens of these services that somebody else made stay. Blocking a blocked user changes nothing but that.
// [assign.NotFound]: no user has the name.
func (g *Registry) Block(ctx context.Context, name string, to assign.UserChange) (changed assign.ChangedUser, err error) {
	if to.WithServices && !to.Blocked {
		return changed, assign.RefuseField("with_services", `services end with a block: send "blocked": true, or leave with_services out`)
	}
	act := "user.block"
	if !to.Blocked {
		act = "user.unblock"
	}
	err = g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		var id int64
		err := tx.QueryRow(ctx, g.SQL(blockPrincipal), name, to.Blocked).Scan(&id)
		nothing := errors.Is(err, pgx.ErrNoRows) // there is nobody, or nothing to change
		if err != nil && !nothing {
			return nil, nil, err
		}
		if changed.Services, err = textsOf(ctx, tx, g.SQL(selectServices), name); err != nil {
			return nil, nil, err
		}
		var ended []string
		var ends []audit.Act
		if to.WithServices {
			if ended, err = textsOf(ctx, tx, g.SQL(endServices), name, audit.ActorOf(ctx).User); err != nil {
				return nil, nil, err
			}
			for _, credential := range ended {
				ends = append(ends, audit.Act{Act: "token.end", Object: credential[2:]})
			}
		}
		if nothing && len(ended) == 0 {
			return nil, nil, nil
		}
		if to.Blocked && !nothing {
			credentials, err := g.credentialsOf(ctx, tx, id)
			if err != nil {
				return nil, nil, err
			}
			ended = append(ended, credentials...)
		}
		detail := map[string]any{}
		if to.Blocked {
			detail["services"], detail["with_services"] = changed.Services, to.WithServices
		}
		return &audit.Act{Act: act, Object: name, Detail: detail, Then: ends}, ended, nil
	})
	if err == nil {
		changed.User, err = g.user(ctx, name)
	}
	return changed, err
}

// user reads one user.
func (g *Registry) user(ctx context.Context, name string) (User, error) {
	users, err := g.Users(ctx, Which{Name: name, Limit: 1})
	if err == nil && len(users) == 0 {
		err = noUser(name)
	}
	if err != nil {
		return User{}, err
	}
	return users[0], nil
}

const rebindPrincipal = `
update getwork.principal
set iss = $2, sub = $3, kind = 'person', rebound = rebound + 1, changed = pg_current_xact_id()
where name = $1
returning id, rebound - 1`

// RebindUser gives a user's name to another account of an identity provider, and ends all sessions and tokens of the former
// one. [assign.NotFound]: no user has the name. [assign.InUse]: the account has a name already.
func (g *Registry) RebindUser(ctx context.Context, name, iss, sub string) (User, error) {
	if iss == "" || sub == "" || len(iss) > 1000 || len(sub) > 1000 {
		return User{}, assign.RefuseField("sub", "say which account the name is for: iss is the provider's issuer, sub its name for the account, each of 1 to 1000 bytes")
	}
	err := g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		var id int64
		var before int
		err := tx.QueryRow(ctx, g.SQL(rebindPrincipal), name, iss, sub).Scan(&id, &before)
		var pgErr *pgconn.PgError
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return nil, nil, noUser(name)
		case errors.As(err, &pgErr) && pgErr.Code == "23505":
			return nil, nil, assign.Refuse(assign.InUse, "this account has a name here already; GET /api/v1/users shows which")
		case err != nil:
			return nil, nil, err
		}
		credentials, err := g.endAll(ctx, tx, id, "rebind")
		credentials = append(credentials, string(ByJWT(id, before)), string(ByProxy(id, before)))
		return &audit.Act{Act: "user.rebind", Object: name, Detail: map[string]any{"iss": iss, "sub": sub}}, credentials, err
	})
	if err != nil {
		return User{}, err
	}
	return g.user(ctx, name)
}
