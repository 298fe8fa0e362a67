package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/pg"
	"getwork/assign/rights"
)

// Role is [assign.Role].
type Role = assign.Role

// The roles; /openapi.json says for each operation which may call it.
const (
	Worker   = assign.RoleWorker
	Agent    = assign.RoleAgent
	Observer = assign.RoleObserver
	Manager  = assign.RoleManager
)

// Caller is the identity of a request's sender.
type Caller struct {
	Holder assign.Holder
	Role   Role     // empty: an admin whom nothing gives a role
	Groups []string // the user's groups
	Admin  bool     // may manage people, sessions and tokens, and read the audit

	By         string    // how they came in: dev, session, token, jwt or proxy
	Credential string    // what they came in with, as work_requested has it; empty under --auth dev
	Principal  int64     // whose it is; 0 under --auth dev
	EndsAt     time.Time // when it ends by itself; zero: it does not
	IdleAt     time.Time // when a session ends unless its user does something first; zero: it does not
	Scopes     []string  // what a token may be used for; nil: for everything that the role may
	Tasks      []string  // the only tasks that a token may be used for; nil: all
	Wall       bool      // it is a screen on a wall, which shows counts and nothing else

	Rights *rights.Rights // what the credential allowed when it was read; nil under --auth dev
}

// Who returns the caller as the engine knows it. Managers and observers need no group: routes say what each may do.
func (c *Caller) Who() assign.Who {
	return assign.Who{Holder: c.Holder, Groups: c.Groups, Anything: c.Role == Manager || c.Role == Observer, Program: c.Role == Agent, Picks: c.Role == Manager || c.Role == Agent, Counts: c.Wall, Tasks: c.Tasks, Credential: c.Credential}
}

// jwtLingers is how long a request may linger on after the JWT that it was made with: programs get short-lived ones.
const jwtLingers = 2 * time.Hour

// validUntil returns when a request that lingers so long ends, because what its user came in with does; zero: not for that
// reason. A proxy says of each call alone who makes it, so there it is only the request that ends.
func (c *Caller) validUntil(linger time.Duration) time.Time {
	switch {
	case c.By == "proxy" || c.EndsAt.IsZero():
		return time.Time{}
	case c.By == "jwt":
		return c.EndsAt.Add(min(linger, jwtLingers))
	}
	return c.EndsAt
}

// Identify returns a request's caller, or nil if the request names none; an error refuses the request. It must not read the body,
// and may be called twice for one request: see identityHolds.
type Identify func(*http.Request) (*Caller, error)

type callerKey struct{}

// CallerOf returns the request's caller, or nil if it names none.
func CallerOf(r *http.Request) *Caller {
	c, _ := r.Context().Value(callerKey{}).(*Caller)
	return c
}

func withCaller(r *http.Request, c *Caller) *http.Request {
	return r.WithContext(audit.WithActor(context.WithValue(r.Context(), callerKey{}, c), actorOf(r, c)))
}

// actorOf returns who sends a request, for the audit of what it does.
func actorOf(r *http.Request, c *Caller) audit.Actor {
	actor := audit.Actor{Address: ClientAddress(r)}
	if c != nil {
		actor.User, actor.By, actor.Credential = c.Holder.User, c.By, c.Credential
	}
	return actor
}

// devCookie names the cookie that holds the input of the log-in page. A browser keeps one set of cookies for all ports of a
// host, so the port is part of the name: a person can be Oliver on one node and Tracy on the next.
func devCookie(host string) string {
	if _, port, err := net.SplitHostPort(host); err == nil {
		return "getwork_user_" + port
	}
	return "getwork_user"
}

// DevIdentity believes the header X-Getwork-User, or the log-in page's cookie. It is only for a server that listens on a
// loopback address. It refuses a Host that is not the machine's own, because any page on the internet can make its name
// resolve to 127.0.0.1.
func DevIdentity(r *http.Request) (*Caller, error) {
	if !localHost(r.Host) {
		return nil, assign.Refuse(assign.Misdirected,
			"with --auth dev this server answers to localhost, 127.0.0.1 and [::1], not to %q", r.Host)
	}
	user, role, groups := r.Header.Get("X-Getwork-User"), r.Header.Get("X-Getwork-Role"), r.Header.Get("X-Getwork-Groups")
	if user == "" {
		user, role, groups = fromCookie(r, role, groups)
	}
	if user == "" {
		return nil, nil
	}
	c := &Caller{Holder: assign.Holder{User: user, Instance: r.Header.Get("X-Getwork-Instance")}, Role: Role(role), By: "dev"}
	if c.Role == "" {
		c.Role = Worker
	}
	if err := assign.CheckRole(c.Role); err != nil {
		return nil, err
	}
	if err := assign.CheckUser(user); err != nil {
		return nil, err
	}
	var err error
	if c.Groups, err = splitGroups(groups); err != nil {
		return nil, err
	}
	return c, assign.CheckInstance(c.Holder.Instance)
}

// splitGroups reads a comma-separated list of groups; never nil.
func splitGroups(list string) ([]string, error) {
	groups := []string{}
	for g := range strings.SplitSeq(list, ",") {
		if g = strings.TrimSpace(g); g == "" {
			continue
		}
		if err := assign.CheckGroup(g); err != nil {
			return nil, err
		}
		groups = append(groups, g)
	}
	return groups, nil
}

// fromCookie reads the cookie; role and groups are the headers', which take precedence. An invalid cookie counts as none, so
// that its user can log in again.
func fromCookie(r *http.Request, role, groups string) (user, asRole, inGroups string) {
	cookie, err := r.Cookie(devCookie(r.Host))
	if err != nil {
		return "", role, groups
	}
	v, err := url.ParseQuery(cookie.Value)
	if err != nil || assign.CheckUser(v.Get("user")) != nil || assign.CheckRole(Role(v.Get("role"))) != nil {
		return "", role, groups
	}
	if _, err := splitGroups(v.Get("groups")); err != nil {
		return "", role, groups
	}
	if role == "" {
		role = v.Get("role")
	}
	if groups == "" {
		groups = v.Get("groups")
	}
	return v.Get("user"), role, groups
}

func localHost(host string) bool {
	name := host
	if h, _, err := net.SplitHostPort(host); err == nil {
		name = h
	}
	switch strings.ToLower(strings.Trim(name, "[]")) {
	case "localhost", "127.0.0.1", "::1":
		return true
	}
	return false
}

// logIn sets the cookie of the log-in page: {"user":"oliver","role":"worker","groups":"loans,desk"}.
func (s *server) logIn(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		User   string `json:"user"`
		Role   string `json:"role"`
		Groups string `json:"groups"`
	}
	if err := receive(w, r, maxLogInBody); err != nil {
		return err
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if err := assign.CheckUser(body.User); err != nil {
		return err
	}
	if body.Role == "" {
		body.Role = string(Worker)
	}
	if err := assign.CheckRole(Role(body.Role)); err != nil {
		return err
	}
	groups, err := splitGroups(body.Groups)
	if err != nil {
		return err
	}
	http.SetCookie(w, &http.Cookie{
		Name:     devCookie(r.Host),
		Value:    url.Values{"user": {body.User}, "role": {body.Role}, "groups": {strings.Join(groups, ",")}}.Encode(),
		Path:     "/",
		HttpOnly: true,
		SameSite: http.SameSiteStrictMode,
	})
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) logOut(w http.ResponseWriter, r *http.Request) error {
	http.SetCookie(w, &http.Cookie{Name: devCookie(r.Host), Path: "/", MaxAge: -1, HttpOnly: true, SameSite: http.SameSiteStrictMode})
	w.WriteHeader(http.StatusNoContent)
	return nil
}

// whoAmI answers with the caller, so that the page knows whom the cookie names, and until when.
func (s *server) whoAmI(w http.ResponseWriter, r *http.Request) error {
	c := CallerOf(r)
	open, limit := s.room(r.Context(), c)
	me := struct {
		User   string     `json:"user"`
		Role   Role       `json:"role,omitempty"`
		Groups []string   `json:"groups"`
		Admin  bool       `json:"admin"`
		By     string     `json:"by"`
		EndsAt *time.Time `json:"ends_at"`
		IdleAt *time.Time `json:"idle_at,omitempty"`
		LogOut bool       `json:"log_out"`
		Wall   bool       `json:"wall,omitempty"`

		Open    *int             `json:"open,omitempty"`
		MaxOpen *int             `json:"max_open,omitempty"`
		Away    **assign.Absence `json:"away,omitempty"` // absent while the database is away
	}{c.Holder.User, c.Role, append([]string{}, c.Groups...), c.Admin, c.By, orNil(c.EndsAt), orNil(c.IdleAt), c.By == "session" || c.By == "dev", c.Wall, open, limit, nil}
	if away, err := s.Records.Away(r.Context(), c.Holder.User); err == nil {
		me.Away = &away
	} else if !pg.Away(err) {
		return err
	}
	return answer(w, http.StatusOK, me)
}

func orNil(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

// follow calls end, once, when the caller's rights end or change, until it is released.
func (s *server) follow(c *Caller, end func(rights.End)) (release func()) {
	if s.Rights == nil || c.Rights == nil {
		return func() {}
	}
	var most time.Duration
	if s.HeldFor != nil {
		most = s.HeldFor(c)
	}
	return s.Rights.Follow(c.Rights, most, end)
}

// endOf is what a live channel hears of its end.
func endOf(why rights.End) *assign.Refusal {
	switch why {
	case rights.EndBlocked:
		return assign.Refuse(assign.Forbidden, "your account was blocked, or has no role any more; ask an administrator")
	case rights.EndChanged:
		return assign.Refuse(assign.Unavailable, "your rights have changed; reconnect")
	case rights.EndAway:
		return assign.Refuse(assign.Unavailable, "this node has lost the database; reconnect")
	}
	return assign.Refuse(assign.Unauthenticated, "your log-in has ended; log in again")
}

// callEndOf is what a call that waits hears of the end of its caller's rights.
func callEndOf(why rights.End) *assign.Refusal {
	switch why {
	case rights.EndChanged:
		return assign.Refuse(assign.Unavailable, "your rights have changed meanwhile; ask again")
	case rights.EndAway:
		return assign.Refuse(assign.Unavailable, "this node has lost the database; ask again")
	}
	return endOf(why)
}

// FollowSocket is follow for sockets: end gets the close code, one of package ws, and the reason. watch is nil under --auth dev.
func FollowSocket(watch *rights.Watch, heldFor func(*Caller) time.Duration, r *http.Request, end func(code int, reason string)) (release func()) {
	codes := map[rights.End]int{rights.EndOver: 4401, rights.EndBlocked: 4403, rights.EndChanged: 1012, rights.EndAway: 1013}
	s := &server{Config: Config{Rights: watch, HeldFor: heldFor}}
	return s.follow(CallerOf(r), func(why rights.End) { end(codes[why], endOf(why).Detail) })
}

// Route is an address of the log-in, for people who are not known yet.
type Route struct {
	Method, Path string
	Handler      http.Handler
	Limit        *AddressLimit // how often it may be asked for from one address; nil: always
}

// entered bounds how often an address may ask.
func (s *server) entered(route Route) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		if route.Limit != nil {
			if allowed, after := route.Limit.Allow(ClientAddress(r), 1); !allowed {
				limited := assign.Refuse(assign.RateLimited, "too many log-ins from this address; wait a minute")
				limited.After = after
				return limited
			}
		}
		if err := receive(w, r, maxLogInBody); err != nil {
			return err
		}
		route.Handler.ServeHTTP(w, r)
		return nil
	})
}
