package bench

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"getwork/cmd/internal/idp"
)

// credentials have the users of a stage log in, so few that a node, which looks up fifty sessions a second that it has not seen, soon
// knows them. Their sessions are rows like any other; the provider is never asked about them.
type credentials struct {
	tokens bool // each shows a token of theirs, not the session
	idp    *idp.Provider
	secret string // a file

	mu    sync.Mutex
	known map[string]http.Header // by user, of this stage
}

func identityFigures(*Env) []*Figure {
	var all []*Figure
	for _, kind := range []string{"session", "token"} {
		for _, part := range []struct {
			key, name string
			goal      *Goal
		}{
			{"rate", "Clicks per second", atLeast(0.95)},
			{"cpu_node", "The node's CPU for a click", atMost(1.05)},
			{"cpu_database", "The database's CPU for a click", atMost(1.05)},
		} {
			key := "identity_" + kind + "_" + part.key
			all = append(all, &Figure{Key: key, Name: fmt.Sprintf("%s, 64 users, by %s to under --auth dev", part.name, kind), Unit: "x", Goal: part.goal},
				&Figure{Key: key + "_noise", Name: "the same to itself", Unit: "x"})
		}
	}
	return all
}

// identity compares users who log in with users whom a node believes. Each round takes sessions, tokens, no log-in twice, tokens
// and sessions again, so that a machine that gets slower or faster meanwhile favours none.
func identity(ctx context.Context, r *rounds) error {
	provider, secret, closes, err := openProvider()
	if err != nil {
		return err
	}
	defer closes()
	as := func(tokens bool) *Env {
		e := *r.Env
		e.DatabaseURL, e.logIns = r.plainURL(), &credentials{tokens: tokens, idp: provider, secret: secret, known: map[string]http.Header{}}
		return &e
	}
	dev := *r.Env
	dev.DatabaseURL = r.plainURL()
	for range r.each() {
		var costs [6]cost
		for i, e := range []*Env{as(false), as(true), &dev, &dev, as(true), as(false)} {
			l := freshLoad{users: 64, nodes: 1, items: sized(r.Env, 150_000, 400_000), window: sized(r.Env, 2*time.Second, 8*time.Second)}
			if costs[i], err = e.freshClicks(ctx, l); err != nil {
				return err
			}
		}
		for i, kind := range []string{"session", "token"} {
			a, a2, b, b2, key := costs[i], costs[5-i], costs[2], costs[3], "identity_"+kind+"_"
			r.addABBA(key+"rate", a.rate, b.rate, b2.rate, a2.rate)
			r.addABBA(key+"cpu_node", a.nodes, b.nodes, b2.nodes, a2.nodes)
			r.addABBA(key+"cpu_database", a.database, b.database, b2.database, a2.database)
		}
	}
	return nil
}

// openProvider starts a provider, and writes the secret that nodes share with it into a file.
func openProvider() (p *idp.Provider, secret string, closes func(), err error) {
	if p, err = idp.Start(idp.Config{}); err != nil {
		return nil, "", nil, err
	}
	dir, err := os.MkdirTemp("", "getwork-bench-")
	closes = func() { _, _ = p.Close(), os.RemoveAll(dir) }
	secret = filepath.Join(dir, "secret")
	if err == nil {
		err = os.WriteFile(secret, []byte("a secret of the bench, long enough\n"), 0o600)
	}
	if err != nil {
		closes()
	}
	return p, secret, closes, err
}

// flags are those of a node where users log in.
func (c *credentials) flags() []string {
	if c == nil {
		return nil
	}
	return []string{"--auth", "oidc", "--public-url", "http://127.0.0.1:0", "--trust-query-writers", "--oidc-issuer", c.idp.Issuer, "--oidc-client-id", "bench",
		"--oidc-client-secret-file", c.secret, "--grant", "worker=bench"}
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

// show returns the headers that a user shows. Where users log in it logs them in at the first call, and returns when the first
// node knows them.
func (s *stage) show(ctx context.Context, user, role string) (http.Header, error) {
	c := s.logIns
	if c == nil {
		h := http.Header{"X-Getwork-User": {user}}
		if role != "worker" {
			h.Set("X-Getwork-Role", role)
		}
		return h, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if h := c.known[user]; h != nil {
		return h, nil
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:])
	cookie := base64.RawURLEncoding.EncodeToString(secret[:])
	id := sha256.Sum256([]byte(cookie))
	if _, err := s.conn.Exec(ctx, s.sql(insertLogIn), user, c.idp.Issuer, role, id[:], cookie[:12]); err != nil {
		return nil, fmt.Errorf("log %s in: %w", user, err)
	}
	address, err := url.Parse(s.nodes[0].URL)
	if err != nil {
		return nil, err
	}
	h := http.Header{"Cookie": {"__Host-getwork-" + address.Port() + "=" + cookie}}
	if _, err = s.admitted(ctx, http.MethodGet, "/api/v1/me", "", h); err == nil && c.tokens && role == "worker" {
		if h, err = s.exchange(ctx, h); err == nil {
			_, err = s.admitted(ctx, http.MethodGet, "/api/v1/me", "", h)
		}
	}
	if err == nil {
		c.known[user] = h
	}
	return h, err
}

// exchange makes a token of a session.
func (s *stage) exchange(ctx context.Context, session http.Header) (http.Header, error) {
	text, err := s.admitted(ctx, http.MethodPost, "/api/v1/tokens", `{"label":"bench","scopes":["read","work"]}`, session)
	if err != nil {
		return nil, err
	}
	var made struct{ Token string }
	err = json.Unmarshal(text, &made)
	return http.Header{"Authorization": {"Bearer " + made.Token}}, err
}

// admitted makes a call, again and again while the node looks up too many whom it has not seen.
func (s *stage) admitted(ctx context.Context, method, path, body string, shown http.Header) ([]byte, error) {
	for {
		r, err := http.NewRequestWithContext(ctx, method, s.nodes[0].URL+path, strings.NewReader(body))
		if err != nil {
			return nil, err
		}
		r.Header = shown.Clone()
		r.Header.Set("Content-Type", "application/json")
		answer, err := caller.Do(r)
		if err != nil {
			return nil, err
		}
		text, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		switch {
		case err != nil:
			return nil, err
		case answer.StatusCode/100 == 2:
			return text, nil
		case answer.StatusCode != http.StatusServiceUnavailable:
			return nil, errors.New(method + " " + path + " is answered " + answer.Status)
		}
		sleep(ctx, 20*time.Millisecond)
	}
}

// knows logs the users of a load in, before it is measured.
func (s *stage) knows(ctx context.Context, users int) error {
	for i := range users {
		if _, err := s.show(ctx, fmt.Sprint("user ", i), "worker"); err != nil {
			return err
		}
	}
	return nil
}
