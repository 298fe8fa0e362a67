package rights

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"errors"
	"net/netip"
	"regexp"
	"time"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
)

// A screen on a wall has nobody who logs in. An administrator makes a link, and whoever opens it first has the screen's session.
//
// The session's row exists from the beginning, so that it is listed, and can be ended, like any other. Until the link is opened,
// its id is the hash of the link's code, which is no cookie's. Opening it is one update, of that id to the hash of a new cookie, so
// it happens once, on any node, and what is read in the table opens nothing.
const (
	// WallMost is the longest life of a screen's session.
	WallMost = 30 * 24 * time.Hour

	wallOpensFor = time.Hour
)

var wallCodeForm = regexp.MustCompile(`^[0-9A-Za-z_-]{43}$`)

// hashOfWall is what the row of a screen has in place of a cookie's hash. No cookie has a line break.
func hashOfWall(code string) []byte { return Hash("code of a wall\n" + code) }

const (
	insertWall = `
insert into getwork.session (id, public_id, principal, role, wall, ends_at, opens_until)
values ($1, $2, $3, 'observer', true, clock_timestamp() + $4::bigint * interval '1 microsecond',
  clock_timestamp() + least($4, $5)::bigint * interval '1 microsecond')
returning ends_at, opens_until`

	openWall = `
update getwork.session s
set id = $2, opens_until = null, active_at = clock_timestamp(), address = $3, agent = left($4, 200), changed = pg_current_xact_id()
from getwork.principal p
where s.id = $1 and s.opens_until > clock_timestamp() and s.ended_at is null and s.ends_at > clock_timestamp()
  and p.id = s.principal and p.blocked_at is null
returning p.id, p.name, s.public_id, s.ends_at`
)

// NewWall is a link for a screen.
type NewWall struct {
	ID         string    `json:"id"` // of its session
	User       string    `json:"user"`
	EndsAt     time.Time `json:"ends_at"`
	OpensUntil time.Time `json:"opens_until"`
}

// CreateWall returns the code of a link that begins a screen's session, once. The session is that of a service called user, and
// lasts for that time, counted from now.
func (g *Registry) CreateWall(ctx context.Context, user string, life time.Duration) (code string, made NewWall, err error) {
	if life < time.Minute || life > WallMost {
		return "", made, assign.RefuseField("expires_in", "a screen's session lasts for 1m to %s, not %s", assign.Duration(WallMost), assign.Duration(life))
	}
	if err := CheckName(user); err != nil {
		return "", made, err
	}
	err = g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		_, p, err := g.ownerOf(ctx, tx, NewToken{Service: user, Role: assign.RoleObserver})
		if err != nil {
			return nil, nil, err
		}
		var secret [32]byte
		_, _ = rand.Read(secret[:])
		code = base64.RawURLEncoding.EncodeToString(secret[:])
		made = NewWall{ID: publicID(), User: p.name}
		if err := tx.QueryRow(ctx, g.SQL(insertWall), hashOfWall(code), made.ID, p.id, life.Microseconds(), wallOpensFor.Microseconds()).Scan(&made.EndsAt, &made.OpensUntil); err != nil {
			return nil, nil, err
		}
		return &audit.Act{Act: "wall.create", Object: made.ID, Detail: map[string]any{"user": p.name, "expires_in": assign.Duration(life).String()}}, nil, nil
	})
	if err != nil {
		return "", NewWall{}, err
	}
	return code, made, nil
}

// OpenWall begins a screen's session, once. What the browser had before ends, as at a log-in. A [Rejection] says that the code is
// no good.
func (g *Registry) OpenWall(ctx context.Context, code, former string, from netip.Addr, agent string) (begun Begun, err error) {
	no := &Rejection{Why: WhyUnknown, Refusal: assign.Refuse(assign.LogInFailed, "this link can't be used: it is more than an hour old, or was opened before; ask an administrator for another one")}
	if !wallCodeForm.MatchString(code) || !utf8.ValidString(agent) {
		return begun, no
	}
	if !g.unknown.enter(ctx) {
		return begun, reject(WhyOverload, "")
	}
	defer func() { g.unknown.leave(!errors.Is(err, no)) }()
	err = g.change(entering(ctx), func(tx pgx.Tx) (*audit.Act, []string, error) {
		var secret [32]byte
		_, _ = rand.Read(secret[:])
		begun = Begun{Cookie: base64.RawURLEncoding.EncodeToString(secret[:])}
		id := Hash(begun.Cookie)
		var p principal
		var public string
		var address *netip.Addr
		if from.IsValid() {
			address = &from
		}
		err := tx.QueryRow(ctx, g.SQL(openWall), hashOfWall(code), id, address, agent).Scan(&p.id, &p.name, &public, &begun.Ends)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, no
		}
		if err != nil {
			return nil, nil, err
		}
		begun.User = p.name
		ended, acts, err := g.replace(ctx, tx, id, former, p, string(BySession(public)), begun.Ends, maxWalls, nil)
		return &audit.Act{Act: "wall.open", Object: public, Detail: map[string]any{"user": p.name}, Then: acts}, ended, err
	})
	if err != nil {
		return Begun{}, err
	}
	return begun, nil
}
