package oidc

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"time"

	coreos "github.com/coreos/go-oidc/v3/oidc"

	"getwork/assign"
)

const (
	mostLogout    = 64 << 10        // bytes of a log-out message
	logoutWithin  = 5 * time.Minute // between a logout token's making and its arrival, either clock being ahead
	logoutShortly = 2 * time.Minute // the same for one without exp
	logoutEvent   = "http://schemas.openid.net/event/backchannel-logout"
)

// LogOut is a provider's message that sessions are over.
type LogOut struct {
	Iss string
	SID string // the provider's session; empty: all sessions of Sub
	Sub string // may be empty if SID is not

	// Once is to be inserted in the transaction that ends the sessions; if it is there already, this is a replay, and nothing
	// ends. In a transaction of its own it would make the provider's second try, after this node died between the two, a
	// replay.
	Once  [32]byte
	Until time.Time

	IssuedAt time.Time // by the provider's clock; log-ins that are under way and no younger end, too
}

// Backchannel reads and verifies a provider's message that sessions are over. It reads no cookie: the provider's server sends it,
// not a browser.
func (p *Provider) Backchannel(w http.ResponseWriter, r *http.Request) (LogOut, error) {
	r.Body = http.MaxBytesReader(w, r.Body, mostLogout)
	if err := r.ParseForm(); err != nil {
		var large *http.MaxBytesError
		if errors.As(err, &large) {
			return LogOut{}, &Failure{Refusal: assign.Refuse(assign.TooLarge, "a log-out message has at most 64 KiB"), Reason: "logout-too-large"}
		}
		return LogOut{}, badLogout("logout-form")
	}
	if tokens := r.PostForm["logout_token"]; len(tokens) == 1 {
		return p.logoutToken(r, tokens[0])
	}
	return LogOut{}, badLogout("logout-form")
}

func badLogout(reason string) *Failure {
	return &Failure{Refusal: assign.Refuse(assign.Invalid, "the logout token is not accepted; this server's log says why"), Reason: reason}
}

// logoutToken verifies a logout token. Anybody may send one, so everything but the signature comes first: only a token that
// looks right can make this node fetch keys, and no more than once a minute.
func (p *Provider) logoutToken(r *http.Request, raw string) (LogOut, error) {
	m, err := p.Source.metadata()
	if err != nil {
		return LogOut{}, err
	}
	t, err := parseToken(raw)
	if err != nil {
		return LogOut{}, badLogout("logout-token-form")
	}
	o, reason := p.readLogout(m, t)
	if reason != "" {
		return LogOut{}, badLogout(reason)
	}
	keys := &asked{keySet: p.Source.keys}
	if !t.claims.has("exp") { // go-oidc wants one
		keys.err = t.verify(r.Context(), keys.keySet, false)
	} else {
		_, err = coreos.NewVerifier(p.Source.Issuer, keys, &coreos.Config{ClientID: p.ClientID, SupportedSigningAlgs: m.Algorithms, Now: p.now}).VerifyLogout(r.Context(), raw)
	}
	switch {
	case errors.Is(keys.err, errKeysAway):
		return LogOut{}, away("keys-away", nil)
	case keys.err != nil:
		return LogOut{}, badLogout("logout-signature")
	case err != nil:
		return LogOut{}, badLogout("logout-token")
	}
	return o, nil
}

// readLogout reads a logout token that is not verified yet, and returns what is wrong with it; empty if nothing is.
func (p *Provider) readLogout(m *metadata, t *token) (o LogOut, reason string) {
	is, _ := t.audience(p.ClientID)
	issued, badIat := t.claims.moment("iat")
	expires, badExp := t.claims.moment("exp")
	jti, badID := t.claims.text("jti")
	sid, badSID := t.claims.text("sid")
	var events map[string]map[string]json.RawMessage
	badEvents := json.Unmarshal(t.claims["events"], &events)
	now := p.now()
	within := logoutWithin
	if !t.claims.has("exp") {
		within = logoutShortly
	}
	age := max(now.Sub(issued), issued.Sub(now))
	switch {
	case !slices.Contains(m.Algorithms, t.algorithm):
		return o, "logout-algorithm"
	case t.kind != "logout+jwt":
		return o, "logout-typ"
	case !t.claims.is("iss", p.Source.Issuer):
		return o, "logout-issuer"
	case !is:
		return o, "logout-audience"
	case badEvents != nil || events[logoutEvent] == nil:
		return o, "logout-events"
	case t.claims.has("nonce"):
		return o, "logout-nonce" // an ID token
	case badExp != nil || t.claims.has("exp") && !now.Before(expires) || !t.claims.has("exp") && !p.BackchannelNoExp:
		return o, "logout-expired"
	case badIat != nil || issued.IsZero() || age > within:
		return o, "logout-issued-at"
	case badID != nil || jti == "":
		return o, "logout-jti"
	case badSID != nil || !storable(sid, 512) || t.claims.has("sid") && sid == "":
		return o, "logout-sid"
	}
	sub, err := t.claims.subject()
	if t.claims.has("sub") && err != nil || sub == "" && sid == "" {
		return o, "logout-subject"
	}
	return LogOut{
		Iss: p.Source.Issuer, SID: sid, Sub: sub, IssuedAt: issued,
		Once:  sha256.Sum256([]byte("log-out " + p.Source.Issuer + "\n" + jti)),
		Until: issued.Add(3 * logoutWithin), // later than that it is refused by its age
	}, ""
}
