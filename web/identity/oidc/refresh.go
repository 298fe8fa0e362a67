package oidc

import (
	"context"
	"time"

	"golang.org/x/oauth2"
)

// refreshWithin is how long a refresh may take. The claim on the session lasts 75 s, of which a minute is for storing the answer.
// Another node that refreshed beside this one would use the same token, for which the provider ends the session.
const refreshWithin = 8 * time.Second

// Renewal is what the provider said of a session.
type Renewal struct {
	Login  *Login // who it is, and what they may now; the name may be missing. Nil: there is an error
	Sealed []byte // the refresh token for the next time. Nil: the old one stays
}

// Refresh asks the provider whether a session goes on, with what Seal returned for the session's row, and for whom it must be.
// It holds nothing and writes nothing. It goes on when ctx is cancelled, though not past its deadline: a node that ended in the
// middle would lose the token that the provider has just given. Only one node may do so for a session at a time, because a provider
// that changes the token at each use ends the session when an old one comes again. For the same reason Sealed is to be stored
// whatever the error is.
//
// If the error is a [Failure] whose Ends is true, the session is over: the provider said no, or means somebody else, or gives
// no role any more. After every other error the provider is to be asked again.
func (p *Provider) Refresh(ctx context.Context, sealed, id []byte, sub string) (Renewal, error) {
	ctx, cancel := withinClaim(ctx)
	defer cancel()
	var r Renewal
	m, err := p.Source.metadata()
	if err != nil {
		return r, err
	}
	old, err := p.sealer.open(sealsRefresh, string(id), sealed)
	if err != nil {
		return r, away("refresh-sealed", err)
	}
	tokens, err := p.client(m).TokenSource(p.Source.with(ctx), &oauth2.Token{RefreshToken: old}).Token()
	if err != nil {
		f := tokenFailure(err)
		f.Ends = f.Code == "invalid_grant"
		return r, f
	}
	if r.Sealed, err = p.Seal(id, tokens.RefreshToken); err != nil {
		return r, err
	}
	c, f := p.refreshed(ctx, m, tokens, sub)
	if f != nil {
		return r, f
	}
	if !c.is("sub", sub) {
		f := fail("subject", wordsProvider)
		f.Ends = true
		return r, f
	}
	if r.Login, f = p.login(ctx, m, c, tokens.AccessToken); f != nil {
		// Groups that can't be read are no groups: the old ones must not live on.
		f.Ends = f.Reason != "userinfo" && f.Reason != "userinfo-form"
		return r, f
	}
	return r, nil
}

// refreshed returns the claims after a refresh: of the new ID token, or, since a provider may leave that out, of the userinfo
// endpoint.
func (p *Provider) refreshed(ctx context.Context, m *metadata, tokens *oauth2.Token, sub string) (claims, *Failure) {
	if raw, _ := tokens.Extra("id_token").(string); raw != "" {
		return p.idToken(ctx, m, raw, tokens.AccessToken)
	}
	if m.UserInfo == "" {
		return nil, away("no-id-token", nil)
	}
	c, f := p.userInfo(ctx, m, sub, tokens.AccessToken)
	if f != nil && f.Reason == "userinfo-subject" {
		f.Ends = true
	}
	return c, f
}

// withinClaim returns a context that is not cancelled, and ends in time for the claim.
func withinClaim(ctx context.Context) (context.Context, context.CancelFunc) {
	end := time.Now().Add(refreshWithin)
	if deadline, ok := ctx.Deadline(); ok && deadline.Before(end) {
		end = deadline
	}
	return context.WithDeadline(context.WithoutCancel(ctx), end)
}
