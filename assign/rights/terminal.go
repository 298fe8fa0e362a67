package rights

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"regexp"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/audit"
)

// A terminal logs in with its user's browser. It makes up a verifier, and shows the browser its SHA-256, the challenge. The
// user approves, by their session, and gets a code, which the browser takes to the terminal. The terminal shows code and
// verifier, and gets a token, which has its session's rights and ends with it.
//
// The code is a row of token that can't be used as one: its hash is not a token's but that of the code and the challenge, and
// it expires in a minute. Redeeming it is one update, of that hash to the new token's, so it happens once, on any node, and
// needs no key that nodes would have to share. Only somebody who is logged in causes a row, and what is read in it opens
// nothing. A stolen code is of no use without the verifier, which never left the terminal.
const (
	codeFor      = time.Minute
	maxTerminals = 20 // live tokens of one session
)

var (
	challengeForm = regexp.MustCompile(`^[0-9A-Za-z_-]{43}$`)
	codeForm      = regexp.MustCompile(`^[0-9A-Za-z]{12}\.[0-9A-Za-z_-]{43}$`)
)

// Challenge returns the challenge of a verifier.
func Challenge(verifier string) string {
	sum := sha256.Sum256([]byte(verifier))
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// CheckTerminal refuses a challenge or a label that no terminal of ours sends.
func CheckTerminal(challenge, label string) error {
	switch {
	case !challengeForm.MatchString(challenge):
		return assign.RefuseField("challenge", "this is not how a terminal asks to log in; run `getwork login` again")
	case label == "" || len(label) > 100 || !utf8.ValidString(label) || strings.ContainsFunc(label, func(r rune) bool { return !unicode.IsPrint(r) }):
		return assign.RefuseField("label", "label says which terminal asks, in 1 to 100 bytes of text on one line")
	}
	return nil
}

// hashOfCode is what the row of a code has in place of a token's hash. No token has this form.
func hashOfCode(code, challenge string) []byte {
	return Hash("code of a terminal\n" + code + "\n" + challenge)
}

const (
	countTerminals = `
select count(t.id), bool_and(s.ended_at is null and least(s.ends_at, s.idle_at) > clock_timestamp()) and bool_and(p.blocked_at is null)
from getwork.session s join getwork.principal p on p.id = s.principal
left join getwork.token t on t.parent = s.id and t.ended_at is null and t.expires_at > clock_timestamp()
where s.id = $1`

	// Approvals of one session wait for each other, or two could count the same number of terminals and exceed maxTerminals.
	lockSession = `select true from getwork.session where id = $1 for no key update`

	// If a code is redeemed twice at once, the second update waits for the first, and then finds another hash.
	redeemCode = `
update getwork.token t
set hash = $3, expires_at = s.ends_at, changed = pg_current_xact_id()
from getwork.session s join getwork.principal p on p.id = s.principal
where t.id = $1 and t.hash = $2 and t.kind = 'cli' and t.ended_at is null and t.expires_at > clock_timestamp() and s.id = t.parent
  and s.ended_at is null and least(s.ends_at, s.idle_at) > clock_timestamp() and p.blocked_at is null
returning p.name, 's:' || s.public_id, t.label, coalesce(s.role, ''), s.admin, s.ends_at`
)

// ApproveTerminal returns a code with which the terminal that made the challenge gets a token of this session, within a minute. It
// refuses a session that has ended ([Rejection]) or has too many terminals ([assign.InUse]), and a
// user who made too many tokens within the hour ([assign.RateLimited]).
func (g *Registry) ApproveTerminal(ctx context.Context, session *Rights, challenge, label string) (code string, err error) {
	if err := CheckTerminal(challenge, label); err != nil {
		return "", err
	}
	err = g.change(ctx, func(tx pgx.Tx) (*audit.Act, []string, error) {
		var known bool
		if err := tx.QueryRow(ctx, g.SQL(lockSession), session.Parent).Scan(&known); err != nil && !errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, err
		}
		var live int
		var lives *bool
		switch err := tx.QueryRow(ctx, g.SQL(countTerminals), session.Parent).Scan(&live, &lives); {
		case err != nil:
			return nil, nil, err
		case !known || lives == nil || !*lives:
			return nil, nil, reject(WhyEnded, session.User)
		case live >= maxTerminals:
			return nil, nil, assign.Refuse(assign.InUse, "%d terminals use this log-in, which is as many as may; log out of some of them with `getwork logout`", live)
		}
		if err := g.checkPace(ctx, tx, session.Principal); err != nil {
			return nil, nil, err
		}
		var secret [32]byte
		_, _ = rand.Read(secret[:])
		id := publicID()
		code = id + "." + base64.RawURLEncoding.EncodeToString(secret[:])
		role := session.Role
		if role == "" {
			role = assign.RoleWorker // the column wants one; what counts is the session's
		}
		if _, err := tx.Exec(ctx, g.SQL(insertToken), id, hashOfCode(code, challenge), "cli", session.Principal, session.Parent, label, role, session.Admin, Scopes, nil,
			session.Principal, codeFor.Microseconds()); err != nil {
			return nil, nil, err
		}
		return &audit.Act{Act: "terminal.approve", Object: id, Detail: map[string]any{"user": session.User, "label": label}}, nil, nil
	})
	if err != nil {
		return "", err
	}
	return code, nil
}

// Terminal is the token that a terminal got, and whom it stands for.
type Terminal struct {
	Token  string      `json:"token"`
	ID     string      `json:"id"`
	User   string      `json:"user"`
	Role   assign.Role `json:"role,omitempty"`
	Admin  bool        `json:"admin"`
	EndsAt time.Time   `json:"ends_at"`
}

// RedeemCode returns a terminal's token for its code, once. A [Rejection] says that the code is no good.
func (g *Registry) RedeemCode(ctx context.Context, code, verifier string) (got Terminal, err error) {
	no := &Rejection{Why: WhyUnknown, Refusal: assign.Refuse(assign.LogInFailed, "this code can't be used: it is more than a minute old, was used already, or is for another terminal; run `getwork login` again")}
	if !codeForm.MatchString(code) || len(verifier) != 43 {
		return got, no
	}
	if !g.unknown.enter(ctx) {
		return got, reject(WhyOverload, "")
	}
	defer func() { g.unknown.leave(!errors.Is(err, no)) }()
	err = g.change(entering(ctx), func(tx pgx.Tx) (*audit.Act, []string, error) {
		id := code[:idLength]
		secret := newTokenOf(id)
		var credential, label string
		got = Terminal{Token: secret, ID: id}
		err := tx.QueryRow(ctx, g.SQL(redeemCode), id, hashOfCode(code, Challenge(verifier)), Hash(secret)).Scan(&got.User, &credential, &label, &got.Role, &got.Admin, &got.EndsAt)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil, nil, no
		}
		return &audit.Act{Act: "token.create", Actor: got.User, Object: id, Detail: map[string]any{"kind": "cli", "user": got.User, "label": label, "session": credential}}, nil, err
	})
	if err != nil {
		return Terminal{}, err
	}
	return got, nil
}
