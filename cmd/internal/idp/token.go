package idp

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	jose "github.com/go-jose/go-jose/v4"
)

const tokenFor = 5 * time.Minute

// token redeems codes and refresh tokens.
func (p *Provider) token(w http.ResponseWriter, r *http.Request) {
	id, secret, ok := r.BasicAuth()
	id, bad := url.QueryUnescape(id)
	secret, worse := url.QueryUnescape(secret)
	grantType := r.PostFormValue("grant_type") // reads the body, for which nobody waits
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[id]
	if !ok || bad != nil || worse != nil || c == nil || subtle.ConstantTimeCompare([]byte(secret), []byte(c.Secret)) != 1 {
		refuse(w, http.StatusUnauthorized, "invalid_client")
		return
	}
	var g *grant
	switch grantType {
	case "authorization_code":
		g = p.redeem(c, r.PostFormValue("code"), r.PostFormValue("redirect_uri"), r.PostFormValue("code_verifier"))
	case "refresh_token":
		g = p.renew(c, r.PostFormValue("refresh_token"))
	default:
		refuse(w, http.StatusBadRequest, "unsupported_grant_type")
		return
	}
	if g == nil {
		refuse(w, http.StatusBadRequest, "invalid_grant")
		return
	}
	access := random()
	p.access[access] = g
	claims := p.claims(g, access)
	if grantType == "refresh_token" {
		delete(claims, "nonce")
	}
	body := map[string]any{"access_token": access, "token_type": "Bearer", "expires_in": int(tokenFor.Seconds()), "id_token": p.sign("", claims)}
	if slices.Contains(strings.Fields(g.scope), "offline_access") {
		g.refresh = random()
		p.refresh[g.refresh] = g
		body["refresh_token"] = g.refresh
	}
	if change := p.hooks().Token; change != nil {
		change(body)
	}
	answer(w, http.StatusOK, body)
}

// redeem returns what a code stands for. A code that comes again was stolen, so everything that was given for it ends.
func (p *Provider) redeem(c *Client, code, redirect, verifier string) *grant {
	g := p.codes[code]
	if g == nil || g.client != c || g.over {
		return nil
	}
	if g.redeemed {
		g.revoked = true
		return nil
	}
	sum := sha256.Sum256([]byte(verifier))
	if g.redirect != redirect || g.challenge != base64.RawURLEncoding.EncodeToString(sum[:]) || p.Now().After(g.codeUntil) {
		return nil
	}
	g.redeemed = true
	return g
}

// renew returns what a refresh token stands for. An old one that comes again was stolen, or its answer was lost: nobody knows,
// so the family ends.
func (p *Provider) renew(c *Client, token string) *grant {
	g := p.refresh[token]
	if g == nil || g.client != c || g.over || g.revoked {
		return nil
	}
	if g.refresh != token {
		g.revoked = true
		return nil
	}
	return g
}

// claims are those of an ID token. p.mu is held.
func (p *Provider) claims(g *grant, access string) map[string]any {
	sum := sha256.Sum256([]byte(access))
	now := p.Now()
	c := map[string]any{
		"iss": p.Issuer, "sub": g.person.Sub, "aud": g.client.ID, "exp": now.Add(tokenFor).Unix(), "iat": now.Unix(),
		"auth_time": g.proved.Unix(), "nonce": g.nonce, "sid": g.sid, "at_hash": base64.RawURLEncoding.EncodeToString(sum[:16]),
		"preferred_username": g.person.Name, "groups": g.person.Groups,
	}
	if change := p.hooks().Claims; change != nil {
		change(c)
	}
	return c
}

// sign signs claims. p.mu is held.
func (p *Provider) sign(typ string, claims map[string]any) string {
	header := map[string]any{"alg": p.key.Algorithm, "kid": p.key.KeyID}
	if typ != "" {
		header["typ"] = typ
	}
	h := p.hooks()
	if h.Header != nil {
		h.Header(header)
	}
	if h.Sign != nil {
		return h.Sign(p.key, header, claims)
	}
	return Signed(p.key, header, claims)
}

// Signed signs with a key, whatever the header says.
func Signed(key *jose.JSONWebKey, header, claims map[string]any) string {
	options := (&jose.SignerOptions{}).WithBase64(true)
	for name, value := range header {
		if name != "alg" {
			options = options.WithHeader(jose.HeaderKey(name), value)
		}
	}
	signer, err := jose.NewSigner(jose.SigningKey{Algorithm: jose.SignatureAlgorithm(key.Algorithm), Key: key.Key}, options)
	if err != nil {
		panic(err) // a header that can't be signed is a mistake of the test
	}
	payload, err := json.Marshal(claims)
	if err != nil {
		panic(err)
	}
	jws, err := signer.Sign(payload)
	if err != nil {
		panic(err)
	}
	text, err := jws.CompactSerialize()
	if err != nil {
		panic(err)
	}
	return text
}

// Sign returns a token with these claims, such as an access token for a program: issuer and times are added where they are
// missing.
func (p *Provider) Sign(typ string, claims map[string]any) string {
	now := p.Now()
	all := map[string]any{"iss": p.Issuer, "iat": now.Unix(), "exp": now.Add(tokenFor).Unix()}
	maps.Copy(all, claims)
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.sign(typ, all)
}

func (p *Provider) userInfo(w http.ResponseWriter, r *http.Request) {
	token, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	p.mu.Lock()
	g := p.access[token]
	var info map[string]any
	if g != nil {
		info = map[string]any{"sub": g.person.Sub, "preferred_username": g.person.Name, "groups": g.person.Groups}
	}
	p.mu.Unlock()
	if !ok || g == nil {
		refuse(w, http.StatusUnauthorized, "invalid_token")
		return
	}
	if change := p.hooks().UserInfo; change != nil {
		change(info)
	}
	answer(w, http.StatusOK, info)
}
