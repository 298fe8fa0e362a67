package oidc

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	jose "github.com/go-jose/go-jose/v4"
	"golang.org/x/oauth2"
)

const (
	discoverAgain = 10 * time.Second // after the provider did not answer
	readAgain     = 5 * time.Minute  // after it did
)

// Algorithms are the signatures that are accepted. None is symmetric: the key would be the client's secret, or, with a
// careless library, the provider's public key.
var Algorithms = []string{"RS256", "PS256", "ES256", "EdDSA"}

// everyAlgorithm has also those that --jwt-algs may name.
var everyAlgorithm = []string{"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"}

var joseAlgorithms = func() (all []jose.SignatureAlgorithm) {
	for _, a := range everyAlgorithm {
		all = append(all, jose.SignatureAlgorithm(a))
	}
	return all
}()

// SourceConfig has the settings of a [Source].
type SourceConfig struct {
	Issuer string         // as the provider writes it, byte for byte
	Roots  *x509.CertPool // who vouches for its certificate; nil: the system's
	Again  time.Duration  // how long to wait after it did not answer; default 10 s
	Within time.Duration  // how long a call may take; default 5 s
	Now    func() time.Time
	Log    *slog.Logger
}

// Source is an issuer: what its discovery document says, and its keys. A [Provider] and a [JWT] of one issuer share it.
type Source struct {
	SourceConfig
	client    *http.Client
	transport *transport
	keys      *keySet
	found     atomic.Pointer[metadata] // nil: discovery has not succeeded yet
	complaint atomic.Pointer[string]   // the last one that was logged
}

// metadata is what discovery says, after it was checked.
type metadata struct {
	Issuer      string   `json:"issuer"`
	Authorize   string   `json:"authorization_endpoint"`
	Token       string   `json:"token_endpoint"`
	UserInfo    string   `json:"userinfo_endpoint"`
	EndSession  string   `json:"end_session_endpoint"`
	Keys        string   `json:"jwks_uri"`
	Algorithms  []string `json:"id_token_signing_alg_values_supported"`
	NamesItself bool     `json:"authorization_response_iss_parameter_supported"`
	Clients     []string `json:"token_endpoint_auth_methods_supported"`
}

// NewSource returns a source that has not asked its issuer yet; Run does. An error says what is wrong with the issuer's URL.
func NewSource(c SourceConfig) (*Source, error) {
	if err := checkIssuer(c.Issuer); err != nil {
		return nil, err
	}
	if c.Again == 0 {
		c.Again = discoverAgain
	}
	if c.Within == 0 {
		c.Within = callWithin
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	s := &Source{SourceConfig: c}
	s.client, s.transport = newClient(c.Roots, c.Within)
	s.keys = &keySet{now: c.Now, read: s.readKeys}
	return s, nil
}

// Run asks for the discovery document until ctx ends: at once, each 10 s until it is there, and then each 5 minutes, so that
// keys which the provider has withdrawn are forgotten.
func (s *Source) Run(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	for {
		wait := readAgain
		if err := s.discover(ctx); err != nil {
			wait = s.Again
			if text := err.Error(); ctx.Err() == nil {
				if last := s.complaint.Swap(&text); last == nil || *last != text {
					s.Log.Warn("the identity provider can't be used now; it is asked again each 10 s", "issuer", s.Issuer, "error", err)
				}
			}
		} else if s.complaint.Swap(nil) != nil {
			s.Log.Info("the identity provider answers", "issuer", s.Issuer)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(wait):
		}
	}
}

// Try asks for the discovery document and the keys once. Its error says what is wrong with the issuer.
func (s *Source) Try(ctx context.Context) error {
	defer s.client.CloseIdleConnections()
	return s.discover(ctx)
}

// Up reports whether the provider answered when it was last asked for anything.
func (s *Source) Up() bool { return s.found.Load() != nil && s.transport.up.Load() }

// Fetches returns how often keys were asked for.
func (s *Source) Fetches() int64 { return s.keys.fetches.Load() }

// discover reads the discovery document and the keys.
func (s *Source) discover(ctx context.Context) error {
	body, err := s.get(ctx, strings.TrimSuffix(s.Issuer, "/")+"/.well-known/openid-configuration", "")
	if err != nil {
		return fmt.Errorf("read its discovery document: %w", err)
	}
	m := &metadata{}
	if err := json.Unmarshal(body, m); err != nil {
		return errors.New("its discovery document is not JSON, or has a field of an unknown form")
	}
	if err := m.check(s.Issuer); err != nil {
		return err
	}
	known := s.found.Swap(m)
	if known == nil && len(m.Clients) > 0 && !slices.Contains(m.Clients, "client_secret_basic") {
		s.Log.Warn("the identity provider does not offer client_secret_basic, which getwork uses; log-ins will fail", "issuer", s.Issuer)
	}
	return s.keys.refresh(ctx)
}

// check checks the endpoints, and reduces the algorithms to those that are accepted.
func (m *metadata) check(issuer string) error {
	if m.Issuer != issuer {
		return errors.New("its discovery document is another issuer's; --oidc-issuer or --jwt-issuer must be written as the document has it, byte for byte")
	}
	plainHTTP := strings.HasPrefix(issuer, "http:")
	for _, e := range []struct {
		name, url string
		needed    bool
	}{
		{"authorization_endpoint", m.Authorize, true}, {"token_endpoint", m.Token, true}, {"jwks_uri", m.Keys, true},
		{"userinfo_endpoint", m.UserInfo, false}, {"end_session_endpoint", m.EndSession, false},
	} {
		if e.url == "" && !e.needed {
			continue
		}
		u, err := url.Parse(e.url)
		safe := err == nil && (u.Scheme == "https" || u.Scheme == "http" && plainHTTP && loopback(u.Hostname()))
		if !safe || u.Host == "" || u.User != nil || u.Fragment != "" {
			return fmt.Errorf("its discovery document has no %s with https", e.name)
		}
	}
	if m.Algorithms == nil {
		m.Algorithms = []string{"RS256"} // which every provider has
	}
	m.Algorithms = slices.DeleteFunc(slices.Clone(m.Algorithms), func(a string) bool { return !slices.Contains(Algorithms, a) })
	if len(m.Algorithms) == 0 {
		return fmt.Errorf("it signs with none of %s", strings.Join(Algorithms, ", "))
	}
	return nil
}

// get reads an address of the provider, with an access token or without.
func (s *Source) get(ctx context.Context, address, access string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, address, nil)
	if err != nil {
		return nil, err
	}
	r.Header.Set("Accept", "application/json")
	if access != "" {
		r.Header.Set("Authorization", "Bearer "+access)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, plain(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return nil, plain(err)
	case response.StatusCode != http.StatusOK:
		return nil, fmt.Errorf("it answers with status %d; redirects are not followed", response.StatusCode)
	}
	return body, nil
}

// with returns a context with which oauth2 and go-oidc use the source's client.
func (s *Source) with(ctx context.Context) context.Context {
	return context.WithValue(ctx, oauth2.HTTPClient, s.client)
}

// checkIssuer refuses an issuer that nobody could trust.
func checkIssuer(issuer string) error {
	u, err := url.Parse(issuer)
	switch {
	case err != nil || u.Host == "" || u.Opaque != "":
		return errors.New("an issuer is a URL such as https://login.example.com/realms/bank")
	case u.User != nil || u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || strings.HasSuffix(issuer, "#"):
		return errors.New("an issuer's URL has no user, no query and no fragment")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return nil
	}
	return errors.New("an issuer's URL begins with https; http is for one on this machine")
}

// loopback reports whether a host is this machine by its name, whatever a resolver says.
func loopback(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsLoopback()
}

// plain makes an error fit for the log: libraries put the provider's answer into theirs.
func plain(err error) error {
	var call *url.Error
	var late interface{ Timeout() bool }
	switch {
	case errors.Is(err, errTooLarge):
		return errTooLarge
	case errors.As(err, &late) && late.Timeout():
		return errors.New("it does not answer in time")
	case errors.As(err, &call):
		if u, bad := url.Parse(call.URL); bad == nil {
			return fmt.Errorf("%s://%s: %w", u.Scheme, u.Host, call.Err)
		}
		return call.Err
	}
	return errors.New("the answer is not the expected one")
}
