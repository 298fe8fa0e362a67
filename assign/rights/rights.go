package rights

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/notify"
)

// Credential names the session, token, JWT or proxy that authenticated a user, as work_requested and the audit record it: a
// letter, a colon and an id (see the functions below). It is not a secret.
type Credential string

// ByToken returns the credential of a token.
func ByToken(id string) Credential { return Credential("t:" + id) }

// BySession returns the credential of a session; id is the public one.
func BySession(id string) Credential { return Credential("s:" + id) }

// ByJWT returns the credential of a principal who shows JSON web tokens. rebound is how often its name was given to another
// account: the new account's credential is another than the former one's, which has ended.
func ByJWT(principal int64, rebound int) Credential { return ofPrincipal("j:", principal, rebound) }

// ByProxy returns the same for a principal whom a proxy names.
func ByProxy(principal int64, rebound int) Credential { return ofPrincipal("p:", principal, rebound) }

// ofPrincipal returns j:ID or p:ID, followed by .REBOUND unless that is 0. selectCredentials, selectChanged and the database's function
// ended_among write or read the same form.
func ofPrincipal(kind string, principal int64, rebound int) Credential {
	c := kind + strconv.FormatInt(principal, 10)
	if rebound > 0 {
		c += "." + strconv.Itoa(rebound)
	}
	return Credential(c)
}

// principal returns the id of the principal in a credential by JWT or proxy, and its number of rebinds.
func (c Credential) principal() (id int64, rebound int, ok bool) {
	name, rebinds, again := strings.Cut(string(c[2:]), ".")
	id, err := strconv.ParseInt(name, 10, 64)
	if err == nil && again {
		rebound, err = strconv.Atoi(rebinds)
	}
	return id, rebound, err == nil
}

// Rights are what a credential allows at the time of reading.
type Rights struct {
	Credential Credential
	Principal  int64
	User       string
	Role       assign.Role // empty: the admin bit alone
	Admin      bool
	Groups     []string
	Scopes     []string // nil: all that the role may
	Tasks      []string // nil: all tasks

	Left   time.Duration // until it ends by itself, is idle for too long, or its owner must log in again, by the database's clock
	EndsAt time.Time     // when it ends whatever its user does; zero: not known, of a proxy
	IdleAt time.Time     // when a session ends unless its user does something first; zero: it does not
	AuthAt time.Time     // when they last proved who they are; zero: not known
	Parent []byte        // the session itself, or that of a token for a terminal
	Kind   string        // of a token: personal, service or cli; otherwise empty
	Wall   bool          // the session of a screen on a wall: counts and nothing else
	unused bool          // its last use is to be written anew
	parent Credential    // Parent as a credential; empty: there is none

	account string // of a JSON web token or a proxy: whose it is
	rebound int    // of the same: how often the principal's name was given to another account
	version string // of a proxy: the change of rights that it followed
}

// same reports whether two readings of one credential allow the same.
func (r *Rights) same(o *Rights) bool {
	return r.Role == o.Role && r.Admin == o.Admin && slices.Equal(r.Groups, o.Groups) && slices.Equal(r.Scopes, o.Scopes) && slices.Equal(r.Tasks, o.Tasks)
}

// Config is what a Rights registry needs.
type Config struct {
	Node    string
	DB      pg.Router
	SQL     func(string) string // puts the schema's name into a statement; nil: the schema is getwork
	Channel string              // of NOTIFY
	Audit   *audit.Writer       // nil: nothing is audited
	Log     *slog.Logger

	TokenMax    time.Duration // the longest life of a token; default 8784 h
	OwnerWithin time.Duration // a personal token works only if its owner logged in so lately; default 720 h
	Idle        time.Duration // how long a session lives without activity; default 30 m

	QueryAuthors string // the group whose managers may write queries; empty: all managers

	// The functions below are the engine's. A program without an engine leaves them nil: its changes are committed and announced, and
	// every node then does what Cancel and Regroup would have done (CancelEnded).

	// Lock locks the pending requests of these credentials, in the order of their ids. A transaction that calls more than one of the
	// following calls Lock first: each of them locks in that order by itself, but not one after the other.
	Lock func(ctx context.Context, tx pgx.Tx, credentials []string) error
	// Cancel cancels the pending requests of these credentials, in the transaction that ends them.
	Cancel func(ctx context.Context, tx pgx.Tx, credentials []string) ([]notify.Change, error)
	// Regroup gives the pending requests of these credentials other groups.
	Regroup func(ctx context.Context, tx pgx.Tx, credentials []string, groups []string) ([]notify.Change, error)
	// Rebind moves a user's pending requests from credentials that a log-in replaces to the new one.
	Rebind func(ctx context.Context, tx pgx.Tx, user string, from []string, to string, until time.Time) error
	// CancelEnded cancels what is pending under an ended credential: a click may have committed beside the end.
	CancelEnded func(ctx context.Context) error
}

// Registry reads and changes rights. Every node has one.
type Registry struct {
	Config
	tokens   records.Batcher[string, found]
	sessions records.Batcher[string, found]
	accounts records.Batcher[account, found]
	proxied  atomic.Bool // a proxy has named somebody here
	cache    cache
	uses     uses
	unknown  pace
	turns    turns
	watch    *Watch // nil until there is one
}

// lookSoon makes the watch of this node poll now. It never waits; several calls may cause one poll.
func (g *Registry) lookSoon() {
	if g.watch == nil {
		return
	}
	select {
	case g.watch.soon <- struct{}{}:
	default:
	}
}

// New returns a registry.
func New(c Config) *Registry {
	if c.SQL == nil {
		c.SQL = func(s string) string { return s }
	}
	for setting, absent := range map[*time.Duration]time.Duration{&c.TokenMax: 8784 * time.Hour, &c.OwnerWithin: 720 * time.Hour, &c.Idle: 30 * time.Minute} {
		if *setting == 0 {
			*setting = absent
		}
	}
	g := &Registry{Config: c}
	g.tokens.Read, g.sessions.Read, g.accounts.Read = g.readTokens, g.readSessions, g.readAccounts
	return g
}
