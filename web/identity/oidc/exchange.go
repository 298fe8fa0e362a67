package oidc

import (
	"context"
	"crypto/subtle"
	"errors"
	"slices"
	"time"

	coreos "github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"getwork/web/grants"
)

const (
	ahead    = 5 * time.Minute  // how far a provider's clock may be ahead
	authSkew = 10 * time.Second // between two stamps of one provider
)

// exchange redeems a code, and judges the tokens.
func (p *Provider) exchange(ctx context.Context, m *metadata, l *logIn, code string) (*Login, error) {
	tokens, err := p.client(m).Exchange(p.Source.with(ctx), code, oauth2.VerifierOption(l.Verifier))
	if err != nil {
		return nil, tokenFailure(err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	c, f := p.idToken(ctx, m, raw, tokens.AccessToken)
	if f != nil {
		return nil, f
	}
	if nonce, err := c.text("nonce"); err != nil || subtle.ConstantTimeCompare([]byte(nonce), []byte(l.Nonce)) != 1 {
		return nil, fail("nonce", wordsProvider)
	}
	login, f := p.login(ctx, m, c, tokens.AccessToken)
	if f != nil {
		return nil, f
	}
	switch {
	case login.Name == "":
		return nil, forbid("name-missing", wordsName)
	case !p.provedAnew(l, c):
		return nil, fail("auth-time", wordsProvider)
	}
	login.IDToken, login.ReturnTo = raw, l.ReturnTo
	if slices.Contains(p.Scopes, coreos.ScopeOfflineAccess) {
		login.Refresh = tokens.RefreshToken
	}
	return login, nil
}

// provedAnew reports whether somebody who was to prove anew who they are did so since the log-in began. Both stamps are the
// provider's, so that its clock does not matter. If it leaves auth_time out, the session manages no tokens, and whoever tries
// reads why.
func (p *Provider) provedAnew(l *logIn, c claims) bool {
	if !l.Again || !c.has("auth_time") {
		return true
	}
	issued, bad := c.moment("iat")
	proved, worse := c.moment("auth_time")
	return bad == nil && worse == nil && issued.Sub(proved) <= p.now().Sub(l.began())+authSkew
}

// idToken verifies an ID token that came from the token endpoint with an access token, and returns its claims. All is checked
// by exact names first, so that the reason of a refusal is known. go-oidc then checks it its own way, signature included.
func (p *Provider) idToken(ctx context.Context, m *metadata, raw, access string) (claims, *Failure) {
	if raw == "" {
		return nil, fail("no-id-token", wordsProvider)
	}
	t, err := parseToken(raw)
	if err != nil {
		return nil, fail("id-token-form", wordsProvider)
	}
	if reason := p.wrongIDToken(m, t, access); reason != "" {
		return nil, fail(reason, wordsProvider)
	}
	keys := &asked{keySet: p.Source.keys, own: true}
	verified, err := coreos.NewVerifier(p.Source.Issuer, keys, &coreos.Config{ClientID: p.ClientID, SupportedSigningAlgs: m.Algorithms, Now: p.now}).Verify(ctx, raw)
	switch {
	case keys.err != nil:
		return nil, keysFailure(keys.err)
	case err != nil:
		return nil, fail("id-token", wordsProvider)
	}
	var signed claims
	if err := verified.Claims(&signed); err != nil || !signed.is("sub", verified.Subject) {
		return nil, fail("id-token-form", wordsProvider)
	}
	return signed, nil
}

// wrongIDToken returns what is wrong with an ID token but its signature; empty if nothing is.
func (p *Provider) wrongIDToken(m *metadata, t *token, access string) string {
	is, others := t.audience(p.ClientID)
	expires, badExp := t.claims.moment("exp")
	issued, badIat := t.claims.moment("iat")
	proved, badAuth := t.claims.moment("auth_time")
	now := p.now()
	switch {
	case !slices.Contains(m.Algorithms, t.algorithm):
		return "algorithm"
	case !t.claims.is("iss", p.Source.Issuer):
		return "issuer"
	case !is:
		return "audience"
	case (others || t.claims.has("azp")) && !t.claims.is("azp", p.ClientID):
		return "azp"
	case badExp != nil || !now.Before(expires):
		return "expired"
	case badIat != nil || issued.IsZero() || issued.Sub(now) > ahead:
		return "issued-at"
	case badAuth != nil || proved.Sub(now) > ahead:
		return "auth-time"
	case t.claims.has("at_hash") && !t.claims.is("at_hash", atHash(t.algorithm, access)):
		return "at-hash"
	}
	if _, err := t.claims.subject(); err != nil {
		return "subject"
	}
	if sid, err := t.claims.text("sid"); err != nil || !storable(sid, 512) {
		return "sid"
	}
	return ""
}

// login reads from the claims who somebody is, and what they may. The userinfo endpoint is asked only if the claims have no
// groups. The name is empty if there is none.
func (p *Provider) login(ctx context.Context, m *metadata, c claims, access string) (*Login, *Failure) {
	sub, err := c.subject()
	if err != nil {
		return nil, fail("subject", wordsProvider)
	}
	l := &Login{Iss: p.Source.Issuer, Sub: sub}
	groups, found := p.GroupsClaim.in(c)
	name, named := p.NameClaim.in(c)
	elsewhere := p.GroupsClaim.elsewhere(c)
	if !found && !elsewhere && m.UserInfo != "" {
		info, f := p.userInfo(ctx, m, sub, access)
		if f != nil {
			return nil, f
		}
		groups, found = p.GroupsClaim.in(info)
		elsewhere = p.GroupsClaim.elsewhere(info)
		if !named {
			name, named = p.NameClaim.in(info)
		}
	}
	switch {
	case elsewhere:
		return nil, fail("groups-elsewhere", wordsTooMany)
	case !found:
		return nil, fail("groups-missing", wordsGroups)
	}
	if named {
		if l.Name, err = text(name); err != nil {
			return nil, forbid("name-form", wordsName)
		}
	}
	all, err := list(groups)
	if err != nil {
		return nil, fail("groups-form", wordsGroups)
	}
	if l.Rights, err = p.Rules.Of(all); err != nil {
		f := rightsFailure(err)
		if errors.Is(err, grants.ErrNone) {
			f.Sub = sub
		}
		return nil, f
	}
	l.SID, _ = c.text("sid")
	l.IssuedAt, _ = c.moment("iat")
	if l.AuthTime, _ = c.moment("auth_time"); l.AuthTime.After(p.now()) {
		l.AuthTime = p.now()
	}
	return l, nil
}

// userInfo asks the userinfo endpoint about the person whom an ID token names.
func (p *Provider) userInfo(ctx context.Context, m *metadata, sub, access string) (claims, *Failure) {
	body, err := p.Source.get(ctx, m.UserInfo, access)
	if err != nil {
		return nil, away("userinfo", err)
	}
	info, err := parseClaims(body)
	switch {
	case err != nil:
		return nil, fail("userinfo-form", wordsProvider)
	case !info.is("sub", sub):
		return nil, fail("userinfo-subject", wordsProvider)
	}
	return info, nil
}
