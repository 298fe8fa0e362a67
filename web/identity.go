package web

import (
	"context"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"getwork/assign"
)

// Role says what a caller may do.
type Role string

// The roles; /openapi.json says for each operation which may call it.
const (
	Worker   Role = "worker"
	Agent    Role = "agent"
	Observer Role = "observer"
	Manager  Role = "manager"
)

var roles = []Role{Worker, Agent, Observer, Manager}

func checkRole(r Role) error {
	if !slices.Contains(roles, r) {
		return refuseField("role", "a role is worker, agent, observer or manager, not %q", r)
	}
	return nil
}

// Caller is the identity of a request's sender.
type Caller struct {
	Holder assign.Holder
	Role   Role
	Groups []string // the user's groups
}

// Who returns the caller as the engine knows it. Managers and observers need no group: routes say what each may do.
func (c *Caller) Who() assign.Who {
	return assign.Who{Holder: c.Holder, Groups: c.Groups, Anything: c.Role == Manager || c.Role == Observer}
}

// Identify returns a request's caller, or nil if the request names none; an error refuses the request.
type Identify func(*http.Request) (*Caller, error)

type callerKey struct{}

// CallerOf returns the request's caller, or nil if it names none.
func CallerOf(r *http.Request) *Caller {
	c, _ := r.Context().Value(callerKey{}).(*Caller)
	return c
}

func withCaller(r *http.Request, c *Caller) *http.Request {
	return r.WithContext(context.WithValue(r.Context(), callerKey{}, c))
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
	c := &Caller{Holder: assign.Holder{User: user, Instance: r.Header.Get("X-Getwork-Instance")}, Role: Role(role)}
	if c.Role == "" {
		c.Role = Worker
	}
	if err := checkRole(c.Role); err != nil {
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
	if err != nil || assign.CheckUser(v.Get("user")) != nil || checkRole(Role(v.Get("role"))) != nil {
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
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if err := assign.CheckUser(body.User); err != nil {
		return err
	}
	if body.Role == "" {
		body.Role = string(Worker)
	}
	if err := checkRole(Role(body.Role)); err != nil {
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

// whoAmI answers with the caller, so that the page knows whom the cookie names.
func (s *server) whoAmI(w http.ResponseWriter, r *http.Request) error {
	c := CallerOf(r)
	return answer(w, http.StatusOK, map[string]any{"user": c.Holder.User, "role": c.Role, "groups": c.Groups})
}
