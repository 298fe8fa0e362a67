package idp

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

const event = "http://schemas.openid.net/event/backchannel-logout"

// endSession is where a client sends a browser that logged out there.
func (p *Provider) endSession(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	to := q.Get("post_logout_redirect_uri")
	p.mu.Lock()
	c := p.clients[q.Get("client_id")]
	registered := c != nil && (to == "" || slices.Contains(c.AfterOut, to))
	p.mu.Unlock()
	if !registered {
		http.Error(w, "unknown client_id, or post_logout_redirect_uri is not registered", http.StatusBadRequest)
		return
	}
	s := p.hinted(q.Get("id_token_hint"))
	if s == nil {
		s = p.known(r)
	}
	if s != nil {
		_ = p.end(r.Context(), func(other *session) bool { return other == s }) // who can't be notified is notified by nobody
	}
	http.SetCookie(w, &http.Cookie{Name: browser, Path: "/", MaxAge: -1})
	if to == "" {
		_, _ = fmt.Fprintln(w, "You are logged out.")
		return
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// hinted returns the log-in that an ID token is about; nil if this provider did not sign it.
func (p *Provider) hinted(token string) *session {
	jws, err := jose.ParseSignedCompact(token, []jose.SignatureAlgorithm{jose.ES256})
	if err != nil {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	payload, err := jws.Verify(p.key.Public())
	var claims struct {
		SID string `json:"sid"`
	}
	if err != nil || json.Unmarshal(payload, &claims) != nil {
		return nil
	}
	return p.sessions[claims.SID]
}

// LogOut ends all sessions of a person, and notifies the clients by back channel.
func (p *Provider) LogOut(ctx context.Context, sub string) error {
	return p.end(ctx, func(s *session) bool { return s.person.Sub == sub })
}

// end ends sessions, and sends their clients' messages.
func (p *Provider) end(ctx context.Context, which func(*session) bool) error {
	type message struct{ to, token string }
	var messages []message
	p.mu.Lock()
	for _, s := range p.sessions {
		if s.over || !which(s) {
			continue
		}
		s.over = true
		told := map[*Client]bool{}
		for _, g := range s.grants {
			if g.redeemed && !told[g.client] {
				told[g.client] = true
				for _, to := range g.client.Messages {
					messages = append(messages, message{to, p.sign("logout+jwt", p.over(g.client, s))})
				}
			}
		}
	}
	p.mu.Unlock()
	var all error
	for _, m := range messages {
		all = errors.Join(all, Send(ctx, m.to, m.token))
	}
	return all
}

// over are the claims of a log-out message. p.mu is held.
func (p *Provider) over(c *Client, s *session) map[string]any {
	now := p.Now()
	return map[string]any{
		"iss": p.Issuer, "aud": c.ID, "iat": now.Unix(), "exp": now.Add(2 * time.Minute).Unix(), "jti": random(),
		"sub": s.person.Sub, "sid": s.sid, "events": map[string]any{event: map[string]any{}},
	}
}

// LogoutToken returns a log-out message about a person's newest session with a client, after it was changed; change may be nil.
func (p *Provider) LogoutToken(client, sub string, change func(claims map[string]any)) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	newest := &session{person: &Person{Sub: sub}}
	for _, s := range p.sessions {
		if s.person.Sub == sub && s.proved.After(newest.proved) {
			newest = s
		}
	}
	claims := p.over(p.clients[client], newest)
	if newest.sid == "" {
		delete(claims, "sid")
	}
	if change != nil {
		change(claims)
	}
	return p.sign("logout+jwt", claims)
}

// Send sends a log-out message to a client.
func Send(ctx context.Context, to, token string) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, to, strings.NewReader(url.Values{"logout_token": {token}}.Encode()))
	if err != nil {
		return err
	}
	r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	response, err := http.DefaultClient.Do(r)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("the client answered the log-out message with %s", response.Status)
	}
	return nil
}
