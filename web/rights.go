package web

import (
	"net/http"
	"time"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/rights"
)

// stepUp is how old a log-in may be for making a token that may manage, or one for a service. Such a token outlives the
// session, so a stolen session must not be enough to make one.
const stepUp = 15 * time.Minute

// withRights is for what exists only where people log in.
func (s *server) withRights(h handler) handler {
	if s.Rights != nil {
		return h
	}
	return func(http.ResponseWriter, *http.Request) error {
		return assign.Refuse(assign.NotFound, "under --auth dev there are no sessions, tokens or users: the server believes the names that it is told")
	}
}

// ownOr returns the user that ?user= names, the caller without it. Other people's sessions and tokens are not found without
// the admin bit.
func ownOr(r *http.Request) (user string, err error) {
	v, err := parameters(r)
	if err != nil {
		return "", err
	}
	c := CallerOf(r)
	switch user = v.Get("user"); {
	case !isText(user):
		return "", refuseField("user", "user is UTF-8 text without NUL")
	case user == "" || user == c.Holder.User:
		return c.Holder.User, nil
	case !c.Admin:
		return "", assign.Refuse(assign.NotFound, "there is nothing of %q that you may see", user)
	}
	return user, nil
}

// of returns the principal whose sessions and tokens the caller may end: their own; 0: anybody's.
func (c *Caller) of() int64 {
	if c.Admin {
		return 0
	}
	return c.Principal
}

// active keeps a session alive: the page says so when its user touches a key or the pointer. Identifying the call has
// recorded it.
func (s *server) active(w http.ResponseWriter, _ *http.Request) error {
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) listTokens(w http.ResponseWriter, r *http.Request) error {
	user, err := ownOr(r)
	if err != nil {
		return err
	}
	tokens, err := s.Rights.Tokens(r.Context(), user, "")
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, map[string]any{"tokens": append([]rights.ShownToken{}, tokens...)})
}

// createToken answers 201 with a new token, the only time that it is shown.
func (s *server) createToken(w http.ResponseWriter, r *http.Request) error {
	var body struct {
		Label     string           `json:"label"`
		Scopes    []string         `json:"scopes"`
		Tasks     []string         `json:"tasks"`
		ExpiresIn *assign.Duration `json:"expires_in"`
		Service   *struct {
			User   string   `json:"user"`
			Role   Role     `json:"role"`
			Groups []string `json:"groups"`
		} `json:"service"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	c := CallerOf(r)
	n := rights.NewToken{Label: body.Label, Scopes: body.Scopes, Tasks: body.Tasks, Role: c.Role, By: c.Principal, Manager: c.Role == Manager}
	if body.ExpiresIn != nil {
		if n.Expires = time.Duration(*body.ExpiresIn); n.Expires <= 0 {
			return refuseField("expires_in", `expires_in is a duration such as "2160h"`)
		}
	}
	if body.Service != nil {
		n.Service, n.Role = body.Service.User, body.Service.Role
		for _, g := range body.Service.Groups {
			if err := assign.CheckGroup(g); err != nil {
				return err
			}
		}
		n.Groups = body.Service.Groups
		if n.Service == "" {
			return refuseField("service.user", "name the service: it holds work under that name")
		}
	}
	if err := mayMakeToken(c, &n); err != nil {
		return err
	}
	token, made, err := s.Rights.CreateToken(r.Context(), n)
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, struct {
		Token string `json:"token"`
		rights.ShownToken
	}{token, made})
}

// mayMakeToken refuses callers with a token or a JWT. Otherwise a thief who copied one could make others that outlive it.
func mayMakeToken(c *Caller, n *rights.NewToken) error {
	terminal := c.Rights != nil && c.Rights.Kind == "cli"
	manages := false
	for _, scope := range n.Scopes {
		manages = manages || scope == rights.ScopeManage
	}
	switch {
	case c.By == "token" && !terminal || c.By == "jwt":
		return assign.Refuse(assign.Forbidden, "a token makes no tokens: log in, or use \"getwork token create --direct\" on the database")
	case n.Service != "" && !c.Admin:
		return assign.Refuse(assign.Forbidden, "only administrators make tokens for services; leave service out for a token of your own")
	case n.Service == "" && c.Role == "":
		return assign.Refuse(assign.Forbidden, "you are an administrator without a role, so a token of yours could do nothing; make one for a service")
	case !manages && n.Service == "":
		return nil
	case c.Rights == nil || c.Rights.AuthAt.IsZero() || time.Since(c.Rights.AuthAt) > stepUp:
		again := assign.Refuse(assign.Unauthenticated,
			"for this token you must have logged in within the last %d minutes: log in again, or use \"getwork token create --direct\" on the database", int(stepUp.Minutes()))
		if c.By != "proxy" { // who logs people in elsewhere
			again.LogIn = "/auth/login?again=1"
		}
		return again
	}
	return nil
}

func (s *server) endToken(w http.ResponseWriter, r *http.Request) error {
	id, err := segment(r, "id")
	if err != nil {
		return err
	}
	c := CallerOf(r)
	if err := s.Rights.EndToken(r.Context(), id, c.Holder.User, c.of()); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) listSessions(w http.ResponseWriter, r *http.Request) error {
	user, err := ownOr(r)
	if err != nil {
		return err
	}
	sessions, err := s.Rights.Sessions(r.Context(), user)
	if err != nil {
		return err
	}
	type listed struct {
		rights.ShownSession
		Current bool `json:"current"` // it is the one that asks
	}
	all := []listed{}
	for _, one := range sessions {
		all = append(all, listed{one, string(rights.BySession(one.ID)) == CallerOf(r).Credential})
	}
	return answer(w, http.StatusOK, map[string]any{"sessions": all})
}

// endSessions ends all sessions of the caller, or of ?user=.
func (s *server) endSessions(w http.ResponseWriter, r *http.Request) error {
	user, err := ownOr(r)
	if err != nil {
		return err
	}
	return s.end(w, r, rights.Ending{User: user})
}

func (s *server) endSession(w http.ResponseWriter, r *http.Request) error {
	id, err := segment(r, "id")
	if err != nil {
		return err
	}
	return s.end(w, r, rights.Ending{PublicID: id})
}

func (s *server) end(w http.ResponseWriter, r *http.Request, e rights.Ending) error {
	c := CallerOf(r)
	e.By, e.Of = c.Holder.User, c.of()
	ended, err := s.Rights.End(r.Context(), e)
	if err != nil {
		return err
	}
	if len(ended) == 0 && e.PublicID != "" {
		return assign.Refuse(assign.NotFound, "no live session has this id; GET /api/v1/sessions lists yours")
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func (s *server) listUsers(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	limit, err := queryNumber(r, "limit", pageSize, maxPageSize)
	if err != nil {
		return err
	}
	for _, field := range []string{"cursor", "user", "search"} {
		if !isText(v.Get(field)) {
			return refuseField(field, "%s is UTF-8 text without NUL", field)
		}
	}
	users, more, err := readPage(int(limit), func(limit int) ([]rights.User, error) {
		return s.Rights.Users(r.Context(), rights.Which{After: v.Get("cursor"), Name: v.Get("user"), Search: v.Get("search"), Limit: limit})
	})
	if err != nil {
		return err
	}
	body := map[string]any{"users": append([]rights.User{}, users...)}
	if more {
		body["next_cursor"] = users[len(users)-1].Name
	}
	return answer(w, http.StatusOK, body)
}

func (s *server) changeUser(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "name")
	if err != nil {
		return err
	}
	var body struct {
		Blocked      *bool `json:"blocked"`
		WithServices bool  `json:"with_services"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if body.Blocked == nil {
		return refuseField("blocked", `say whether they are to be blocked: {"blocked": true}`)
	}
	user, err := s.Rights.Block(r.Context(), name, assign.UserChange{Blocked: *body.Blocked, WithServices: body.WithServices})
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, user)
}

func (s *server) rebindUser(w http.ResponseWriter, r *http.Request) error {
	name, err := segment(r, "name")
	if err != nil {
		return err
	}
	var body struct {
		Iss string `json:"iss"`
		Sub string `json:"sub"`
	}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	user, err := s.Rights.RebindUser(r.Context(), name, body.Iss, body.Sub)
	if err != nil {
		return err
	}
	return answer(w, http.StatusOK, user)
}

// createWall answers 201 with a link for a screen on a wall, the only time that it is shown. The code is behind the #: neither
// logs nor a program that opens links for somebody get it.
func (s *server) createWall(w http.ResponseWriter, r *http.Request) error {
	body := struct {
		User      string          `json:"user"`
		ExpiresIn assign.Duration `json:"expires_in"`
	}{"wall", assign.Duration(rights.WallMost)}
	if err := decode(w, r, &body); err != nil {
		return err
	}
	if s.LogInPath == "" {
		return assign.Refuse(assign.NotFound, "nobody logs in with a browser here, so a screen can't either; give its browser's program a token with the scope read")
	}
	code, made, err := s.Rights.CreateWall(r.Context(), body.User, time.Duration(body.ExpiresIn))
	if err != nil {
		return err
	}
	return answer(w, http.StatusCreated, struct {
		URL string `json:"url"`
		rights.NewWall
	}{s.PublicURL.String() + "/auth/wall#" + code, made})
}

// listAudit answers with who did what, newest first.
func (s *server) listAudit(w http.ResponseWriter, r *http.Request) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	filter := audit.Filter{Act: v.Get("act"), Actor: v.Get("actor")}
	for _, field := range []string{"act", "actor"} {
		if !isText(v.Get(field)) {
			return refuseField(field, "%s is UTF-8 text without NUL", field)
		}
	}
	before, limit, err := readCursor(r)
	if err != nil {
		return err
	}
	filter.Before = before
	rows, more, err := readPage(limit, func(limit int) ([]audit.Row, error) {
		filter.Limit = limit
		return s.Audit.List(r.Context(), filter)
	})
	if err != nil {
		return err
	}
	return answerPage(w, "audit", rows, more, func(row audit.Row) int64 { return row.N })
}
