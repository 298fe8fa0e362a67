package client

import (
	"context"
	"net/http"

	"getwork/assign"
)

// The calls of this file exist where people log in, not under dev identity.

// Active keeps the caller's session alive.
func (c *Client) Active(ctx context.Context, options ...Option) error {
	return c.sendSafe(ctx, http.MethodPost, path("me", "active"), nil, nil, options)
}

// NewToken is the body of [Client.CreateToken].
type NewToken struct {
	Label     string          `json:"label"`                // what it is for
	Scopes    []string        `json:"scopes"`               // of read, work, push, manage
	Tasks     []string        `json:"tasks,omitempty"`      // the only ones that it may be used for; none: all
	ExpiresIn assign.Duration `json:"expires_in,omitempty"` // 0: the server's default
	Service   *Service        `json:"service,omitempty"`    // nil: it is the caller's own
}

// Service is a program that holds work under a name of its own.
type Service struct {
	User   string      `json:"user"`
	Role   assign.Role `json:"role"`
	Groups []string    `json:"groups,omitempty"` // of one that is new
}

// MadeToken is a token that was just made.
type MadeToken struct {
	Secret string `json:"token"` // what a [Client] has as Token; nobody can read it again
	assign.Token
}

// CreateToken makes a token. A caller who has come in by a token is refused, and so is one whose log-in is older than 15 minutes
// if the token is for a service or may manage. It is not repeated if the answer is lost: ListTokens shows whether there is one to end.
func (c *Client) CreateToken(ctx context.Context, n NewToken, options ...Option) (made MadeToken, err error) {
	err = c.send(ctx, http.MethodPost, path("tokens"), n, &made, options)
	return made, err
}

// ListTokens reads a user's tokens, and those that they made for services. An empty name means the caller; other people's are for
// administrators.
func (c *Client) ListTokens(ctx context.Context, user string, options ...Option) ([]assign.Token, error) {
	p, err := list[assign.Token](ctx, c, path("tokens"), "tokens", query("user", user), options)
	return p.Rows, err
}

// EndToken ends a token, given its id. Ending it again changes nothing.
func (c *Client) EndToken(ctx context.Context, id string, options ...Option) error {
	return c.sendSafe(ctx, http.MethodDelete, path("tokens", id), nil, nil, options)
}

// Session is a browser's log-in.
type Session struct {
	assign.Session
	Current bool `json:"current"` // it is the one that asks
}

// ListSessions reads a user's sessions. An empty name means the caller; other people's are for administrators.
func (c *Client) ListSessions(ctx context.Context, user string, options ...Option) ([]Session, error) {
	p, err := list[Session](ctx, c, path("sessions"), "sessions", query("user", user), options)
	return p.Rows, err
}

// EndSession ends a session, given its id. It is refused with [assign.NotFound] if none lives.
func (c *Client) EndSession(ctx context.Context, id string, options ...Option) error {
	return c.send(ctx, http.MethodDelete, path("sessions", id), nil, nil, options)
}

// EndSessions ends all sessions of a user, the caller's own if the name is empty.
func (c *Client) EndSessions(ctx context.Context, user string, options ...Option) error {
	return c.do(ctx, call{method: http.MethodDelete, path: api + path("sessions"), query: query("user", user), within: answerWithin, safe: true}, nil, options)
}

// UserFilter selects users; empty fields do not filter.
type UserFilter struct {
	Name   string
	Search string // a part of the name
	Part
}

// ListUsers reads everybody who has ever come in, and the services, by name. For administrators.
func (c *Client) ListUsers(ctx context.Context, f UserFilter, options ...Option) (Page[assign.User], error) {
	return list[assign.User](ctx, c, path("users"), "users", f.query("user", f.Name, "search", f.Search), options)
}

// BlockUser keeps a user out, or lets them in again. It returns the services that they made, whose tokens go on unless they end, too.
// For administrators.
func (c *Client) BlockUser(ctx context.Context, name string, to assign.UserChange, options ...Option) (u assign.ChangedUser, err error) {
	err = c.sendSafe(ctx, http.MethodPatch, path("users", name), to, &u, options)
	return u, err
}

// RebindUser gives a user's name, and what is held under it, to another account, and ends the name's sessions and tokens. For
// administrators.
func (c *Client) RebindUser(ctx context.Context, name, issuer, subject string, options ...Option) (u assign.User, err error) {
	err = c.send(ctx, http.MethodPost, path("users", name, "rebind"), map[string]string{"iss": issuer, "sub": subject}, &u, options)
	return u, err
}
