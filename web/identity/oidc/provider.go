package oidc

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"time"

	"golang.org/x/oauth2"

	"getwork/web/grants"
)

// Config has the settings of a [Provider]; New says what is wrong with them.
type Config struct {
	Source      *Source
	ClientID    string
	Secrets     []string // as ParseSecrets returns them
	Scopes      []string // openid is added; offline_access asks for refresh tokens
	PublicURL   string   // the one origin that is served, such as https://work.example.com
	NameClaim   Path
	GroupsClaim Path
	Rules       grants.Rules

	BackchannelNoExp bool // accept logout tokens without exp

	Once Once
}

// Once reports whether what is used for the first time on any node, by inserting a row. The row may be removed after until.
type Once func(ctx context.Context, what [32]byte, until time.Time) (fresh bool, err error)

// Login is somebody who came in.
type Login struct {
	Iss, Sub string // who they are, for ever
	Name     string // what they are called
	grants.Rights
	SID      string    // what the provider calls its session; empty: it does not say
	AuthTime time.Time // when the provider last saw them prove who they are; zero: it does not say
	IssuedAt time.Time // of the ID token, by the provider's clock

	// Secrets. They go into the database sealed, by Provider.Seal, or not at all.
	Refresh string // empty: none
	IDToken string

	ReturnTo string    // where their browser goes next; a path here
	EndsAt   time.Time // of a JWT: its exp. A call within the leeway after that is still good; a live channel ends then
}

// Provider is getwork's side of one OpenID provider.
type Provider struct {
	Config
	public  *url.URL
	sealer  sealer
	cookies cookies
	now     func() time.Time
}

// New returns a provider. Its source must run beside it.
func New(c Config) (*Provider, error) {
	public, err := url.Parse(c.PublicURL)
	switch {
	case err != nil || public.Host == "" || public.Scheme != "https" && public.Scheme != "http":
		return nil, errors.New("log-in needs --public-url, such as https://work.example.com")
	case c.ClientID == "" || len(c.Secrets) == 0:
		return nil, errors.New("log-in needs --oidc-client-id and --oidc-client-secret-file")
	case len(c.Rules.Grants) == 0:
		return nil, errors.New("log-in needs --grant: without one nobody has a role")
	case c.NameClaim.whole == "" || c.GroupsClaim.whole == "" || c.Once == nil || c.Source == nil || c.Rules.TaskGroups == "":
		return nil, errors.New("a setting of oidc.Config is missing")
	}
	if !slices.Contains(c.Scopes, "openid") {
		c.Scopes = append([]string{"openid"}, c.Scopes...)
	}
	public.Path = ""
	return &Provider{Config: c, public: public, sealer: sealer{c.Secrets}, cookies: cookiesOf(public), now: c.Source.Now}, nil
}

// client returns the settings for calls of the provider's endpoints.
func (p *Provider) client(m *metadata) *oauth2.Config {
	return &oauth2.Config{
		ClientID:     p.ClientID,
		ClientSecret: p.Secrets[0],
		// Without a style oauth2 tries one and then the other, and a code is good for one try.
		Endpoint:    oauth2.Endpoint{AuthURL: m.Authorize, TokenURL: m.Token, AuthStyle: oauth2.AuthStyleInHeader},
		RedirectURL: p.public.String() + "/auth/callback",
		Scopes:      p.Scopes,
	}
}

// belongs is what a log-in's cookie belongs to: a cookie of the test system must not open in production, should the two share a
// secret.
func (p *Provider) belongs() string {
	return strings.Join([]string{p.Source.Issuer, p.ClientID, p.public.String()}, "\n")
}

// The purposes of sealing.
const (
	sealsLogIn   = "getwork log-in 1"
	sealsRefresh = "getwork refresh 1"
	sealsHint    = "getwork hint 1"
)

// Seal seals a session's refresh token for the database; id is the session row's.
func (p *Provider) Seal(id []byte, refresh string) ([]byte, error) {
	return p.sealer.seal(sealsRefresh, string(id), refresh)
}

// SealHint seals a session's ID token, which the provider is shown at log-out.
func (p *Provider) SealHint(id []byte, token string) ([]byte, error) {
	return p.sealer.seal(sealsHint, string(id), token)
}

// OpenHint opens what SealHint has sealed. What can't be opened is as good as none: the provider then asks the person whether
// to log out.
func (p *Provider) OpenHint(id, sealed []byte) string {
	token, err := p.sealer.open(sealsHint, string(id), sealed)
	if err != nil {
		return ""
	}
	return token
}

// metadata returns what discovery found, or says that it found nothing yet.
func (s *Source) metadata() (*metadata, error) {
	if m := s.found.Load(); m != nil {
		return m, nil
	}
	return nil, away("discovery", nil)
}

// LogoutURL returns where a browser goes to end its session at the provider too, or / if the provider has no such address. The
// hint is the ID token of the session, or empty.
func (p *Provider) LogoutURL(hint string) string {
	m := p.Source.found.Load()
	if m == nil || m.EndSession == "" {
		return "/"
	}
	u, err := url.Parse(m.EndSession)
	if err != nil {
		return "/"
	}
	q := u.Query()
	q.Set("client_id", p.ClientID)
	q.Set("post_logout_redirect_uri", p.public.String()+"/")
	if hint != "" && len(hint) <= mostHint {
		q.Set("id_token_hint", hint)
	}
	u.RawQuery = q.Encode()
	return u.String()
}

// mostHint keeps a URL short enough for proxies. An ID token with many groups is left out.
const mostHint = 3 << 10

// String names the provider in messages.
func (p *Provider) String() string { return fmt.Sprintf("the provider at %s", p.Source.Issuer) }
