package measure

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"getwork/cmd/internal/bench"
	"getwork/cmd/internal/bench/stage"
	"getwork/cmd/internal/idp"
	"getwork/ws/client"
)

func identityFigures(*stage.Env) []*bench.Figure {
	return bench.Ratios(slices.Concat(identityParts("session"), identityParts("token")))
}

func identityParts(kind string) (parts []bench.Part[stage.Cost]) {
	of := func(key, name string, goal *bench.Goal, of func(stage.Cost) float64) bench.Part[stage.Cost] {
		return bench.Part[stage.Cost]{Key: "identity_" + kind + "_" + key, Name: name + ", 64 users, by " + kind + " to under --auth dev", Same: "the same to itself", Goal: goal, Of: of}
	}
	return []bench.Part[stage.Cost]{
		of("rate", "Clicks per second", bench.AtLeast(0.95), func(c stage.Cost) float64 { return c.Rate }),
		of("cpu_node", "The node's CPU for a click", bench.AtMost(1.05), func(c stage.Cost) float64 { return c.Nodes }),
		of("cpu_database", "The database's CPU for a click", bench.AtMost(1.05), func(c stage.Cost) float64 { return c.Database }),
	}
}

// identity compares users who log in with users whom a node believes.
func identity(ctx context.Context, r *bench.Rounds) error {
	p, err := openProvider()
	if err != nil {
		return err
	}
	defer p.close()
	dev := *r.Env
	dev.DatabaseURL = r.PlainURL()
	clicks := func(ctx context.Context, e *stage.Env) (stage.Cost, error) {
		return e.FreshClicks(ctx, stage.FreshLoad{Users: 64, Nodes: 1, Items: stage.Sized(e, 150_000, 400_000), Window: stage.Sized(e, 2*time.Second, 8*time.Second)})
	}
	believed := func(ctx context.Context) (stage.Cost, error) { return clicks(ctx, &dev) }
	for range r.Each() {
		for _, kind := range []string{"session", "token"} {
			loggedIn := func(ctx context.Context) (stage.Cost, error) { return clicks(ctx, p.logIn(dev, kind == "token")) }
			if err := bench.Compare(ctx, r, identityParts(kind), loggedIn, believed); err != nil {
				return err
			}
		}
	}
	return nil
}

// provider is an identity provider for nodes, with the file of the secret that they share.
type provider struct {
	*idp.Provider
	folder, secret string
}

func openProvider() (p *provider, err error) {
	p = &provider{}
	if p.Provider, err = idp.Start(idp.Config{}); err != nil {
		return nil, err
	}
	p.folder, err = os.MkdirTemp("", "getwork-bench-")
	p.secret = filepath.Join(p.folder, "secret")
	if err == nil {
		err = os.WriteFile(p.secret, []byte("a secret of the bench, long enough\n"), 0o600)
	}
	if err != nil {
		p.close()
	}
	return p, err
}

func (p *provider) close() { _, _ = p.Close(), os.RemoveAll(p.folder) }

// logIn returns the Env for one stage whose users log in, each with a session or, if tokens is true, a token. Their sessions are rows
// like any other; the provider is never asked about them.
func (p *provider) logIn(e stage.Env, tokens bool) *stage.Env {
	e.NodeFlags = []string{"--auth", "oidc", "--public-url", "http://127.0.0.1:0", "--trust-query-writers", "--oidc-issuer", p.Issuer,
		"--oidc-client-id", "bench", "--oidc-client-secret-file", p.secret, "--grant", "worker=bench"}
	var mu sync.Mutex
	known := map[string]http.Header{} // by user
	e.LogIn = func(ctx context.Context, s *stage.Stage, user, role string) (h http.Header, err error) {
		mu.Lock()
		defer mu.Unlock()
		if known[user] == nil {
			if h, err = p.enter(ctx, s, user, role); err == nil && tokens && role == "worker" {
				h, err = exchange(ctx, s, h)
			}
			if err != nil {
				return nil, err
			}
			known[user] = h
		}
		return known[user], nil
	}
	return &e
}

const insertLogIn = `
with entered as (
  insert into getwork.principal (name, name_key, iss, sub, kind, role, seen_at)
  values ($1, $1, $2, $1, 'person', $3, clock_timestamp())
  returning id
)
insert into getwork.session (id, public_id, principal, role, admin, groups, idle_at, ends_at)
select $4, $5, id, $3, false, '{}', clock_timestamp() + interval '12 hours', clock_timestamp() + interval '12 hours'
from entered`

// enter logs a user in, and returns the session's headers when the first node knows it.
func (p *provider) enter(ctx context.Context, s *stage.Stage, user, role string) (http.Header, error) {
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	cookie := base64.RawURLEncoding.EncodeToString(secret[:])
	id := sha256.Sum256([]byte(cookie))
	if err := s.Exec(ctx, "log "+user+" in", []string{insertLogIn}, user, p.Issuer, role, id[:], cookie[:12]); err != nil {
		return nil, err
	}
	address, err := url.Parse(s.Nodes[0].URL)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Cookie": {"__Host-getwork-" + address.Port() + "=" + cookie}}
	_, err = s.Client(0).WhoAmI(ctx, stage.As(h)...)
	return h, err
}

// exchange makes a token of a session, and returns the token's headers when the first node knows it.
func exchange(ctx context.Context, s *stage.Stage, session http.Header) (http.Header, error) {
	made, err := s.Client(0).CreateToken(ctx, client.NewToken{Label: "bench", Scopes: []string{"read", "work"}}, stage.As(session)...)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Authorization": {"Bearer " + made.Secret}}
	_, err = s.Client(0).WhoAmI(ctx, stage.As(h)...)
	return h, err
}
