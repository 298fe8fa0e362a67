package serve

import (
	"fmt"
	"slices"
	"time"

	"getwork/assign/rights"
	"getwork/cmd/internal/command"
	"getwork/schema"
	"getwork/web"
	"getwork/web/identity"
	"getwork/web/identity/oidc"
)

// openRights makes the node's registry of rights, and the watch over those that end. Under --auth dev there is none: the node
// believes what it is told.
func (n *node) openRights(id string, name schema.Name) {
	if n.config.Auth == "dev" {
		return
	}
	registry := rights.New(rights.Config{Node: id, DB: n.pools.Router(), SQL: name.SQL, Channel: name.Channel(), Audit: n.audit, Log: n.log,
		Idle: n.config.SessionIdle, TokenMax: n.config.TokenMax, OwnerWithin: n.config.TokenOwnerWithin,
		Lock: n.engine.LockCredentials, Cancel: n.engine.EndCredentials, CancelEnded: n.engine.CancelEnded, Rebind: n.engine.Rebind, Regroup: n.engine.ChangeGroups})
	n.rights = rights.NewWatch(registry)
	n.proxy = n.config.openProxy(registry)
	n.attempts = web.NewAttempts()
}

// identityFigures returns what /metrics shows of how people and programs come in; nil: nothing.
func (n *node) identityFigures() *web.IdentityFigures {
	if n.rights == nil {
		return nil
	}
	f := &web.IdentityFigures{Attempts: n.attempts, Lag: n.rights.Lag}
	if n.logIns != nil {
		f.Sessions = n.rights.Alive
	}
	var sources []*oidc.Source
	for _, s := range []*oidc.Source{n.source, n.issuer} {
		if s != nil {
			sources = append(sources, s)
		}
	}
	if len(sources) > 0 {
		f.Up = func() bool { return !slices.ContainsFunc(sources, func(s *oidc.Source) bool { return !s.Up() }) }
		f.Fetches = func() (n int64) {
			for _, s := range sources {
				n += s.Fetches()
			}
			return n
		}
	}
	return f
}

// openLogIn prepares log-in at an OpenID provider. The provider need not answer now.
func (n *node) openLogIn() error {
	c := n.config
	if c.Auth != "oidc" {
		return nil
	}
	source, err := oidc.NewSource(oidc.SourceConfig{Issuer: c.OIDCIssuer, Roots: c.roots, Log: n.log})
	if err != nil {
		return command.AsUsage(fmt.Errorf("--oidc-issuer: %w", err))
	}
	provider, err := oidc.New(oidc.Config{Source: source, ClientID: c.OIDCClientID, Secrets: c.secrets, Scopes: c.scopes(), PublicURL: c.origin.String(),
		NameClaim: c.name, GroupsClaim: c.groups, Rules: c.rules, BackchannelNoExp: c.BackchannelNoExp, Once: n.rights.Once})
	if err != nil {
		return command.AsUsage(err)
	}
	n.source = source
	n.logIns = &identity.LogIns{Provider: provider, Rights: n.rights, Max: c.SessionMax, Stale: c.OIDCStale, Look: c.look, Log: n.log}
	return nil
}

// identify returns how this node learns who its callers are.
func (n *node) identify() web.Identify {
	if n.rights == nil {
		return web.DevIdentity
	}
	c := identity.Config{Rights: n.rights.Registry, Address: web.ClientAddress, Failed: web.NewAddressLimit(30), Untimely: web.NewAddressLimit(30), Log: n.log,
		Count: n.attempts.Count}
	if n.logIns != nil {
		c.Cookie = n.logIns.Cookie
	}
	if n.proxy != nil {
		c.Proxy = n.proxy.Named
	}
	if n.programs != nil {
		c.JWT = n.programs.Judge
	}
	return c.Identify()
}

// logInRoutes returns the addresses of the log-in, if there is one.
func (n *node) logInRoutes() (routes []web.Route) {
	if n.logIns == nil {
		return nil
	}
	h := &oidc.Handlers{Provider: n.logIns.Provider, Sessions: n.logIns, Address: web.ClientAddress, Problem: web.Refuser(n.log), Log: n.log, Count: n.attempts.Count,
		BadMessages: web.NewAddressLimit(badMessagesPerMinute).Allow}
	limits := map[string]*web.AddressLimit{"/auth/login": web.NewAddressLimit(logInsPerMinute), "/auth/callback": web.NewAddressLimit(logInsPerMinute)}
	for _, r := range h.Routes() {
		routes = append(routes, web.Route{Method: r.Method, Path: r.Path, Handler: r.Handler, Limit: limits[r.Path]})
	}
	terminals := identity.Terminals{Rights: n.rights.Registry, LogIn: n.logInPath(), Problem: web.Refuser(n.log), Log: n.log}
	walls := identity.Walls{Rights: n.rights.Registry, Cookie: n.logIns.Cookie, Keep: n.logIns.Provider.NewSessionCookie, Refuse: web.Refuser(n.log), Log: n.log}
	return slices.Concat(routes, terminals.Routes(), walls.Routes())
}

const (
	logInsPerMinute      = 30  // how many log-ins one address may begin, and end
	badMessagesPerMinute = 120 // how many log-out messages that are no good it may send
)

// heldFor is how long something live of a caller may last in any case.
func (n *node) heldFor(c *web.Caller) time.Duration { return identity.HeldFor(c, n.config.ProxyMax) }

// logInPath is where a browser logs in, or nothing. Under --auth dev the page itself asks for a name.
func (n *node) logInPath() string {
	switch {
	case n.config.Auth == "dev":
		return "/"
	case n.logIns == nil:
		return ""
	}
	return "/auth/login"
}
