package rights

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/notify"
)

// ProxyIssuer is the issuer of accounts that a proxy names; the subject is the name that the proxy sends.
const ProxyIssuer = "proxy"

// account identifies a user by an issuer, and by the issuer's own name for the user.
type account struct{ iss, sub string }

// maxSub is how long a subject may be.
const maxSub = 1000

// check refuses a subject that can't be stored.
func (a account) check() error {
	if a.sub == "" || len(a.sub) > maxSub || !utf8.ValidString(a.sub) || strings.ContainsFunc(a.sub, unicode.IsControl) {
		return assign.Refuse(assign.Forbidden, "your account's name can't be used here: it has from 1 to %d bytes of UTF-8, without control characters; ask an administrator", maxSub)
	}
	return nil
}

// key names the account in the cache, and in what a live channel remembers.
func (a account) key() string { return "a:" + a.iss + "\x00" + a.sub }

// noEnd is how long a proxy's word holds if nothing else is known: it is asked again with each call.
const noEnd = 100 * 365 * 24 * time.Hour

// selectAccounts returns a row for each account that is asked about, known or not, in the order of the questions, as a
// records.Batcher needs it. The last column says whether seen_at is old enough to be written anew.
const selectAccounts = `
select a.n, p.id is not null, coalesce(p.id, 0), coalesce(p.name, ''), coalesce(p.role, ''), coalesce(p.admin, false), coalesce(p.groups, '{}'),
  coalesce(p.blocked_at is not null, false), coalesce(p.changed::text, ''), coalesce(p.rebound, 0), coalesce(p.seen_at < clock_timestamp() - interval '1 hour', true)
from unnest($1::text[], $2::text[]) with ordinality as a (iss, sub, n)
left join getwork.principal p on p.iss = a.iss and p.sub = a.sub
order by a.n`

func (g *Registry) readAccounts(ctx context.Context, accounts []account) ([]found, error) {
	var issuers, subs []string
	for _, a := range accounts {
		issuers, subs = append(issuers, a.iss), append(subs, a.sub)
	}
	rows, err := g.DB.Query(ctx, g.SQL(selectAccounts), issuers, subs)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		var n int
		var blocked bool
		err = row.Scan(&n, &f.exists, &f.Principal, &f.User, &f.Role, &f.Admin, &f.Groups, &blocked, &f.version, &f.rebound, &f.unused)
		if blocked {
			f.why = WhyBlocked
		}
		return f, err
	})
}

// known returns what is known of an account, as it was read within the last second. A name that can't be stored is refused
// ([assign.Forbidden]). No pace bounds these reads, as it does those of sessions and tokens: a proxy or an issuer has vouched for
// the account, so strangers can't make up names.
func (g *Registry) known(ctx context.Context, a account) (f found, err error) {
	if err := a.check(); err != nil {
		return f, err
	}
	f, ok := g.cache.get(a.key())
	if ok {
		return f, nil
	}
	at := time.Now() // before the read: what ends during it may not be in it
	if f, err = g.accounts.Ask(ctx, a); err != nil {
		return f, fmt.Errorf("look up an account: %w", err)
	}
	f.at = at
	g.cache.put(a.key(), f)
	return f, nil
}

// Proxied returns the rights that a trusted proxy states for a user with this call. It makes the user's principal at their first
// call, and updates it when the statement differs from the row, which is a change of rights. Otherwise it writes nothing. A
// [Rejection] says why the user has no rights.
func (g *Registry) Proxied(ctx context.Context, e Entry) (Rights, error) {
	e.Iss = ProxyIssuer
	e.Groups = append([]string{}, e.Groups...)
	g.proxied.Store(true)
	a := account{e.Iss, e.Sub}
	ctx = enters(ctx, e, "proxy")
	f, err := g.known(ctx, a)
	none := e.Role == "" && !e.Admin
	if err == nil && f.why == "" && (!f.exists && !none || f.exists && !f.says(e)) {
		f, err = g.tell(ctx, e)
	}
	switch {
	case err != nil:
	case f.why != "":
		err = reject(f.why, f.User)
	case none:
		err = reject(WhyGrant, f.User)
	}
	if err != nil {
		g.refusedEntry(ctx, cmp.Or(f.User, e.Name), f.exists, err)
		return Rights{}, err
	}
	return Rights{Credential: ByProxy(f.Principal, f.rebound), Principal: f.Principal, User: f.User, Role: e.Role, Admin: e.Admin, Groups: e.Groups, Left: noEnd,
		account: a.key(), rebound: f.rebound, version: f.version, unused: f.unused}, nil
}

// says reports whether the principal's row has what is said of them.
func (f *found) says(e Entry) bool {
	return f.Role == e.Role && f.Admin == e.Admin && slices.Equal(f.Groups, e.Groups)
}

// JWT returns the rights of somebody who shows a JSON web token until it expires: those of the token, and never the admin bit.
// Their principal is the one that has its issuer and subject, also if it logged in. The token changes nothing of it: what it
// allows is not what its subject may do elsewhere.
func (g *Registry) JWT(ctx context.Context, e Entry, expires time.Time) (Rights, error) {
	a := account{e.Iss, e.Sub}
	ctx = enters(ctx, e, "jwt")
	f, err := g.known(ctx, a)
	if err == nil && !f.exists {
		f, err = g.tell(ctx, Entry{Iss: e.Iss, Sub: e.Sub, Name: e.Name})
	}
	if err == nil && f.why != "" {
		err = reject(f.why, f.User)
	}
	if err != nil {
		g.refusedEntry(ctx, cmp.Or(f.User, e.Name), f.exists, err)
		return Rights{}, err
	}
	return Rights{Credential: ByJWT(f.Principal, f.rebound), Principal: f.Principal, User: f.User, Role: e.Role, Groups: append([]string{}, e.Groups...),
		Left: time.Until(expires), EndsAt: expires.UTC(), account: a.key(), rebound: f.rebound}, nil
}

// enters returns the context of an entry, for the audit.
func enters(ctx context.Context, e Entry, by string) context.Context {
	actor := audit.ActorOf(ctx)
	actor.By = by
	if e.From != (netip.Addr{}) {
		actor.Address = e.From
	}
	return audit.WithActor(ctx, actor)
}

// refusedEntry audits the refusal of a known user, or of one whose name belongs to somebody else. It does so once an hour,
// because a page repeats its calls.
func (g *Registry) refusedEntry(ctx context.Context, name string, known bool, err error) {
	var r *assign.Refusal
	if g.Audit == nil || !errors.As(err, &r) || !known && r.Kind != assign.NameTaken {
		return
	}
	why := string(r.Kind)
	if rejection := RejectionOf(err); rejection != nil {
		why = rejection.Why
	}
	if err := g.Audit.WriteHourly(ctx, audit.Act{Act: "log-in", Object: name, Outcome: audit.Refused, Detail: map[string]any{"why": why}}); err != nil {
		g.Log.Error("audit a refused log-in", "error", err)
	}
}

// alternates is the time within which a statement that comes back after another one counts as two proxies that contradict
// each other.
const alternates = "10 seconds"

const (
	// lockTold locks nothing: lockOrMake has locked or inserted the row in the same transaction.
	lockTold = `
select changed::text, rebound, unsettled, coalesce(former = jsonb_build_array($2::text, $3::boolean, $4::text[]) and told_at > clock_timestamp() - interval '` + alternates + `', false)
from getwork.principal
where id = $1`

	// What alternates is no change of rights ($5) until it has settled.
	updateTold = `
update getwork.principal
set role = nullif($2, ''), admin = $3, groups = $4, seen_at = clock_timestamp(),
    former = jsonb_build_array(coalesce(role, ''), admin, groups), told_at = clock_timestamp(), unsettled = unsettled or $5,
    changed = case when $5 then changed else pg_current_xact_id() end
where id = $1
returning changed::text`

	// Every node executes this at each poll, so it skips rows that another node settles or tell changes just now. It is one
	// statement outside a transaction; the next selectChanged of every node finds what it changed.
	settleTold = `
update getwork.principal
set unsettled = false, changed = pg_current_xact_id()
where id = any(array(
  select id from getwork.principal
  where unsettled and told_at <= clock_timestamp() - interval '` + alternates + `'
  order by told_at
  limit 1000
  for no key update skip locked))`
)

// tell makes the principal of an account, or writes what is said of them, and returns them as they are then. If two proxies
// contradict each other in turn, the row follows each, but that ends no live channel before they agree for ten seconds: a
// channel that was ended each time could never live. The first contradiction is a change like any other.
func (g *Registry) tell(ctx context.Context, e Entry) (f found, err error) {
	alternating := false
	at := time.Now()
	err = g.changeTelling(ctx, func(tx pgx.Tx) (_ *audit.Act, ended []string, changes []notify.Change, err error) {
		alternating = false
		p, err := g.lockOrMake(ctx, tx, e, "person")
		if err != nil {
			return nil, nil, nil, err
		}
		f = found{exists: true, Rights: Rights{Principal: p.id, User: p.name, Role: p.role, Admin: p.admin, Groups: p.groups, unused: p.made}}
		if p.blocked {
			f.why = WhyBlocked
			return nil, nil, nil, nil
		}
		var again, unsettled bool
		if err := tx.QueryRow(ctx, g.SQL(lockTold), p.id, e.Role, e.Admin, e.Groups).Scan(&f.version, &f.rebound, &unsettled, &again); err != nil {
			return nil, nil, nil, err
		}
		act := &audit.Act{Act: "user.change", Object: p.name, Detail: map[string]any{"iss": e.Iss, "role": e.Role, "admin": e.Admin, "groups": e.Groups}}
		switch {
		case p.made:
			act.Act = "user.create"
			if e.Iss == ProxyIssuer { // whose uses are written later, and until then their personal tokens would not work
				_, err = tx.Exec(ctx, g.SQL(writeSeen), []int64{p.id})
			}
			return act, nil, nil, err
		case e.Iss != ProxyIssuer || f.says(e): // another call came first
			return nil, nil, nil, nil
		}
		if err := tx.QueryRow(ctx, g.SQL(updateTold), p.id, e.Role, e.Admin, e.Groups, again).Scan(&f.version); err != nil {
			return nil, nil, nil, err
		}
		f.Role, f.Admin, f.Groups = e.Role, e.Admin, e.Groups
		switch e.Role {
		case assign.RoleManager, assign.RoleWorker, assign.RoleAgent:
			changes, err = g.regroup(ctx, tx, p.id, e.Role, e.Groups)
		default: // nobody with this role may wait for work
			ended, err = g.credentialsOf(ctx, tx, p.id)
		}
		if again {
			alternating, act = !unsettled, nil
		}
		return act, ended, changes, err
	})
	if err != nil {
		return found{}, err
	}
	if alternating {
		g.Log.Warn("proxies contradict each other about a user: their role or groups change back and forth; live channels are left until that is over", "user", f.User)
	}
	f.at = at
	g.cache.put(account{e.Iss, e.Sub}.key(), f)
	return f, nil
}

// settle commits the change of rights of users whose role and groups have stopped alternating. Without it, channels that were
// opened with the other proxy's rights would stay open.
func (w *Watch) settle(ctx context.Context) error {
	if !w.proxied.Load() {
		return nil
	}
	if _, err := w.DB.Exec(ctx, w.SQL(settleTold)); err != nil {
		return fmt.Errorf("settle what proxies say: %w", err)
	}
	return nil
}
