package oidc

import (
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"getwork/assign"
	"getwork/web/grants"
)

const (
	mostJWT     = 16 << 10
	jwtLeeway   = 30 * time.Second
	jwtKept     = time.Minute // how long a verified token is believed without looking again
	mostJWTKept = 10_000
)

// JWTConfig has the settings of a [JWT]; NewJWT says what is wrong with them.
type JWTConfig struct {
	Source      *Source
	Audience    string
	Typ         string        // default at+jwt; JWT also takes tokens without one
	Max         time.Duration // between iat and exp; default 2 h
	Algorithms  []string      // default Algorithms
	NameClaim   Path
	GroupsClaim Path
	Rules       grants.Rules
}

// JWT judges access tokens that an issuer gave to programs.
type JWT struct {
	JWTConfig
	now func() time.Time

	mu   sync.Mutex
	kept map[[32]byte]*keptJWT
}

// keptJWT is a token that was verified.
type keptJWT struct {
	login *Login
	until time.Time
}

// CheckAlgorithms refuses a value of --jwt-algs that names none, a symmetric algorithm, or one that is not known.
func CheckAlgorithms(names []string) error {
	for _, a := range names {
		if !slices.Contains(everyAlgorithm, a) {
			return fmt.Errorf("--jwt-algs takes %s", strings.Join(everyAlgorithm, ", "))
		}
	}
	if len(names) == 0 {
		return errors.New("--jwt-algs is empty")
	}
	return nil
}

// NewJWT returns a judge of access tokens. Its source must run beside it.
func NewJWT(c JWTConfig) (*JWT, error) {
	if c.Algorithms == nil {
		c.Algorithms = Algorithms
	}
	if c.Typ == "" {
		c.Typ = "at+jwt"
	}
	if c.Max == 0 {
		c.Max = 2 * time.Hour
	}
	if err := CheckAlgorithms(c.Algorithms); err != nil {
		return nil, err
	}
	switch {
	case c.Audience == "" || c.Source == nil:
		return nil, errors.New("--jwt-issuer needs --jwt-audience, and the other way round")
	case len(c.Rules.Grants) == 0:
		return nil, errors.New("--jwt-issuer needs --grant: without one nobody has a role")
	case c.NameClaim.whole == "" || c.GroupsClaim.whole == "" || c.Rules.TaskGroups == "":
		return nil, errors.New("a setting of oidc.JWTConfig is missing")
	}
	c.Typ = strings.TrimPrefix(strings.ToLower(c.Typ), "application/")
	return &JWT{JWTConfig: c, now: c.Source.Now, kept: map[[32]byte]*keptJWT{}}, nil
}

// Verify judges an access token. The login has no admin bit, no session and no secrets. The error is a [Failure].
func (j *JWT) Verify(ctx context.Context, raw string) (*Login, error) {
	if len(raw) > mostJWT {
		return nil, badJWT("jwt-too-large")
	}
	now, key := j.now(), sha256.Sum256([]byte(raw))
	if l := j.known(key, now); l != nil {
		return l, nil
	}
	t, err := parseToken(raw)
	if err != nil {
		return nil, badJWT("jwt-form")
	}
	if reason := j.wrong(t, now); reason != "" {
		return nil, badJWT(reason)
	}
	if err := t.verify(ctx, j.Source.keys, false); err != nil {
		if errors.Is(err, errKeysAway) {
			return nil, away("keys-away", nil)
		}
		return nil, badJWT("jwt-signature")
	}
	l, f := j.login(t)
	if f != nil {
		return nil, f
	}
	j.keep(key, l, now)
	return l, nil
}

func badJWT(reason string) *Failure {
	return &Failure{Refusal: assign.Refuse(assign.Unauthenticated, "this access token is not accepted; the server's log says why"), Reason: reason}
}

// wrong returns what is wrong with a token but its signature; empty if nothing is. It comes before the signature, since
// anybody may send a token, and only one that looks right may cost a fetch of keys.
func (j *JWT) wrong(t *token, now time.Time) string {
	for _, name := range []string{"jku", "x5u", "jwk", "crit"} {
		if t.header.has(name) {
			return "jwt-header" // it brings its own key, or wants something that is not understood
		}
	}
	if kid, err := t.header.text("kid"); err != nil || len(kid) > 256 {
		return "jwt-header"
	}
	is, _ := t.audience(j.Audience)
	expires, badExp := t.claims.moment("exp")
	issued, badIat := t.claims.moment("iat")
	before, badNbf := t.claims.moment("nbf")
	switch {
	case cmp.Or(t.kind, "jwt") != j.Typ: // some issuers send no typ
		return "jwt-typ"
	case !slices.Contains(j.Algorithms, t.algorithm):
		return "jwt-algorithm"
	case !t.claims.is("iss", j.Source.Issuer):
		return "jwt-issuer"
	case !is:
		return "jwt-audience"
	case t.claims.has("nonce") || t.claims.has("at_hash"):
		return "jwt-id-token" // one that was made to log in somewhere
	case badExp != nil || badIat != nil || badNbf != nil || expires.IsZero() || issued.IsZero():
		return "jwt-times"
	case !now.Before(expires.Add(jwtLeeway)):
		return "jwt-expired"
	case issued.Sub(now) > jwtLeeway || before.Sub(now) > jwtLeeway:
		return "jwt-not-yet"
	case expires.Sub(issued) > j.Max || expires.Before(issued):
		return "jwt-too-long"
	}
	if _, err := t.claims.subject(); err != nil {
		return "jwt-subject"
	}
	return ""
}

// login reads who a verified token is about. A program has no admin bit: whoever manages people logs in.
func (j *JWT) login(t *token) (*Login, *Failure) {
	l := &Login{Iss: j.Source.Issuer}
	l.Sub, _ = t.claims.subject()
	l.EndsAt, _ = t.claims.moment("exp")
	name, named := j.NameClaim.in(t.claims)
	if !named {
		return nil, badJWT("jwt-name-missing")
	}
	var err error
	if l.Name, err = text(name); err != nil || l.Name == "" {
		return nil, badJWT("jwt-name-form")
	}
	groups, found := j.GroupsClaim.in(t.claims)
	switch {
	case j.GroupsClaim.elsewhere(t.claims):
		return nil, badJWT("jwt-groups-elsewhere")
	case !found:
		return nil, badJWT("jwt-groups-missing")
	}
	all, err := list(groups)
	if err != nil {
		return nil, badJWT("jwt-groups-form")
	}
	if l.Rights, err = j.Rules.Of(all); err == nil && l.Role == "" {
		err = grants.ErrNone
	}
	switch {
	case errors.Is(err, grants.ErrNone):
		return nil, rightsFailure(err)
	case err != nil:
		return nil, badJWT("jwt-groups")
	}
	l.Admin = false
	return l, nil
}

// known returns what a token said when it was verified within the last minute.
func (j *JWT) known(key [32]byte, now time.Time) *Login {
	j.mu.Lock()
	defer j.mu.Unlock()
	k := j.kept[key]
	if k == nil || !now.Before(k.until) || k.until.Sub(now) > jwtKept {
		return nil
	}
	l := *k.login
	l.Groups = slices.Clone(l.Groups)
	return &l
}

// keep keeps a verified token, never past its end. When there are too many, those that are over go, and if that does not help,
// all: then they are verified again.
func (j *JWT) keep(key [32]byte, l *Login, now time.Time) {
	until := now.Add(jwtKept)
	if l.EndsAt.Before(until) {
		until = l.EndsAt
	}
	if !now.Before(until) {
		return
	}
	copied := *l
	copied.Groups = slices.Clone(l.Groups)
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.kept) >= mostJWTKept {
		for key, k := range j.kept {
			if !now.Before(k.until) {
				delete(j.kept, key)
			}
		}
	}
	if len(j.kept) >= mostJWTKept {
		clear(j.kept)
	}
	j.kept[key] = &keptJWT{&copied, until}
}
