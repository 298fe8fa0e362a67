package identity

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"crypto/tls"
	"errors"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/web"
	"getwork/web/grants"
)

// SecretHeader is where a proxy shows its secret.
const SecretHeader = "X-Getwork-Proxy-Secret"

// Proxy believes what a trusted proxy says of its users. A caller is the proxy if it calls from a trusted network, and also
// proves by a secret or a client certificate that it is not another machine there. From others these headers are not read.
type Proxy struct {
	Rights       *rights.Registry
	Trusted      []netip.Prefix
	Secrets      []string // any of which proves it; none: only a certificate does
	ClientName   string   // the name in its certificate, which TLS has verified; empty: only a secret proves it
	UserHeader   string
	GroupsHeader string
	Rules        grants.Rules
}

// Why a proxy is not believed, for the log.
const (
	whyPeer   = "peer"   // it calls from elsewhere
	whySecret = "secret" // it does not prove that it is the proxy
	whyNobody = "nobody" // it names no user
	whyGroups = "groups" // its groups can't be used
)

// vouchedKey is the context's key for why the proxy is not believed; empty: it is.
type vouchedKey struct{}

// Handler takes the proxy's secret off each request before anything else sees it, and notes whether it was right. It must stand around
// all other handlers: what has not passed it is not believed.
func (p *Proxy) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		shown := r.Header.Values(SecretHeader)
		for name := range r.Header {
			if twin(name, SecretHeader) || name == SecretHeader {
				delete(r.Header, name)
			}
		}
		why := whyPeer
		if from := web.Peer(r); slices.ContainsFunc(p.Trusted, func(n netip.Prefix) bool { return n.Contains(from) }) {
			why = whySecret
			if len(shown) == 1 && p.knows(shown[0]) || p.certified(r.TLS) {
				why = ""
			}
		}
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), vouchedKey{}, why)))
	})
}

// knows compares in constant time; sums, so that the length is no secret's.
func (p *Proxy) knows(shown string) (known bool) {
	sum := sha256.Sum256([]byte(shown))
	for _, s := range p.Secrets {
		own := sha256.Sum256([]byte(s))
		known = subtle.ConstantTimeCompare(sum[:], own[:]) == 1 || known
	}
	return known
}

// certified reports whether a client certificate that TLS has verified has the proxy's name, letter by letter: a wildcard is
// no name.
func (p *Proxy) certified(state *tls.ConnectionState) bool {
	if p.ClientName == "" || state == nil || len(state.VerifiedChains) == 0 {
		return false
	}
	c := state.VerifiedChains[0][0]
	if slices.ContainsFunc(c.DNSNames, func(name string) bool { return strings.EqualFold(name, p.ClientName) }) {
		return true
	}
	for _, u := range c.URIs {
		if u.String() == p.ClientName {
			return true
		}
	}
	return false
}

// twin reports whether a header could be taken for another: programs behind CGI see no difference between X-A and X_A, and a
// proxy that strips the one may leave the other.
func twin(name, of string) bool {
	if len(name) != len(of) || name == of {
		return false
	}
	for i := range len(name) {
		if a, b := lower(name[i]), lower(of[i]); a != b && (b != '-' || 'a' <= a && a <= 'z' || '0' <= a && a <= '9') {
			return false
		}
	}
	return true
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}

// Named returns the rights of the user whom a request's proxy names. A [rights.Rejection] says why there are none; a request that could
// name two users is refused ([assign.Invalid]).
func (p *Proxy) Named(r *http.Request) (*rights.Rights, error) {
	if why, noted := r.Context().Value(vouchedKey{}).(string); !noted || why != "" {
		return nil, refused(why, assign.Unauthenticated, "this server is reached through its proxy, which says who you are: go there, or send a token, Authorization: Bearer gw_…")
	}
	user, err := p.one(r, p.UserHeader)
	if err != nil {
		return nil, err
	}
	list, err := p.one(r, p.GroupsHeader)
	if err != nil {
		return nil, err
	}
	if user == "" {
		return nil, refused(whyNobody, assign.Unauthenticated, "the proxy did not say who you are: log in there, or send a token, Authorization: Bearer gw_…")
	}
	var groups []string
	for g := range strings.SplitSeq(list, ",") {
		if g = strings.TrimSpace(g); g != "" {
			groups = append(groups, g)
		}
	}
	e := rights.Entry{Sub: user, Name: user, From: web.ClientAddress(r)}
	given, err := p.Rules.Of(groups)
	switch {
	case errors.Is(err, grants.ErrNone): // which ends what they had
	case err != nil:
		return nil, refused(whyGroups, assign.Forbidden, "your account's groups can't be used here: %v; tell whoever runs getwork", err)
	}
	e.Role, e.Admin, e.Groups = assign.Role(given.Role), given.Admin, given.Groups
	found, err := p.Rights.Proxied(r.Context(), e)
	if err != nil {
		return nil, err
	}
	return &found, nil
}

// one returns the value of a header that may be there once; empty if it is not.
func (p *Proxy) one(r *http.Request, name string) (string, error) {
	for sent := range r.Header {
		if twin(sent, name) {
			return "", assign.RefuseField(name, "a request names its user once: %s can be taken for %s; the proxy must remove it", sent, name)
		}
	}
	values := r.Header.Values(name)
	if len(values) > 1 {
		return "", assign.RefuseField(name, "a request names its user once: %s came %d times; the proxy must replace what its clients send", name, len(values))
	}
	if len(values) == 0 {
		return "", nil
	}
	return strings.TrimSpace(values[0]), nil
}

func refused(why string, kind assign.Kind, format string, args ...any) error {
	return &rights.Rejection{Why: why, Refusal: assign.Refuse(kind, format, args...)}
}

// HeldFor is how long something that depends on a credential may last in any case; 0: as long as the credential. What a proxy
// says is asked again so often.
func HeldFor(c *web.Caller, proxyMax time.Duration) time.Duration {
	if c.By == "proxy" {
		return proxyMax
	}
	return 0
}
