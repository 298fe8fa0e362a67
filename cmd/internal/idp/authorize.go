package idp

import (
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	codeFor = time.Minute
	browser = "idp" // the cookie of somebody who is logged in here
)

var pick = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>Log in: the demo's identity provider</title>
  <style>
    body { font: 16px/1.5 system-ui, sans-serif; max-width: 26rem; margin: 4rem auto; padding: 0 1rem; }
    button { font: inherit; display: block; width: 100%; text-align: left; padding: .6rem 1rem; margin: .5rem 0; border: 1px solid; border-radius: .5rem; background: none; color: inherit; cursor: pointer; }
    small { display: block; opacity: .75; }
  </style>
</head>
<body>
  <h1>Who are you?</h1>
  <p>This is the demo's identity provider. A real one asks for a password here.</p>
  <form method="post" action="/authorize?{{.Query}}">
    {{range .People}}<button name="sub" value="{{.Sub}}"><b>{{.Name}}</b><small>{{.About}}</small></button>
    {{end}}
  </form>
</body>
</html>
`))

// asked checks an authorization request. A redirect to an unknown address would be a hole, so it is no redirect but an error.
func (p *Provider) asked(q url.Values) (*Client, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	c := p.clients[q.Get("client_id")]
	switch {
	case c == nil:
		return nil, errors.New("unknown client_id")
	case !slices.Contains(c.Redirects, q.Get("redirect_uri")):
		return nil, errors.New("redirect_uri is not registered")
	case q.Get("response_type") != "code" || !slices.Contains(strings.Fields(q.Get("scope")), "openid"):
		return nil, errors.New("response_type must be code, with scope openid")
	case q.Get("code_challenge_method") != "S256" || len(q.Get("code_challenge")) != 43:
		return nil, errors.New("PKCE with S256 is needed")
	case len(q.Get("state")) < 32 || len(q.Get("nonce")) < 32:
		return nil, errors.New("state and nonce are needed")
	}
	return c, nil
}

// authorizePage shows who one can be. A browser that was here before is sent back at once, unless it is to prove who it is.
func (p *Provider) authorizePage(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if _, err := p.asked(q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s := p.known(r); s != nil && q.Get("prompt") != "login" && q.Get("max_age") != "0" {
		http.Redirect(w, r, p.code(q, s), http.StatusSeeOther)
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	p.mu.Lock()
	defer p.mu.Unlock()
	_ = pick.Execute(w, struct {
		Query  template.URL
		People []*Person
	}{template.URL(q.Encode()), p.people})
}

// known returns the log-in of a browser.
func (p *Provider) known(r *http.Request) *session {
	c, err := r.Cookie(browser)
	if err != nil || p.Asks {
		return nil
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if s := p.sessions[c.Value]; s != nil && !s.over {
		return s
	}
	return nil
}

// authorized is the answer of somebody who picked a person.
func (p *Provider) authorized(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	if _, err := p.asked(q); err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s := p.logIn(r.PostFormValue("sub"))
	if s == nil {
		http.Error(w, "nobody is called so", http.StatusBadRequest)
		return
	}
	http.SetCookie(w, &http.Cookie{Name: browser, Value: s.sid, Path: "/", HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, p.code(q, s), http.StatusSeeOther)
}

// logIn begins a session of somebody; nil if nobody has that sub.
func (p *Provider) logIn(sub string) *session {
	p.mu.Lock()
	defer p.mu.Unlock()
	person := p.person(sub)
	if person == nil {
		return nil
	}
	s := &session{sid: random(), person: person, proved: p.Now()}
	p.sessions[s.sid] = s
	return s
}

// code makes a code, and returns where the browser takes it.
func (p *Provider) code(q url.Values, s *session) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	g := &grant{session: s, client: p.clients[q.Get("client_id")], redirect: q.Get("redirect_uri"), challenge: q.Get("code_challenge"),
		nonce: q.Get("nonce"), scope: q.Get("scope"), codeUntil: p.Now().Add(codeFor)}
	s.grants = append(s.grants, g)
	code := random()
	p.codes[code] = g
	back := url.Values{"code": {code}, "state": {q.Get("state")}, "iss": {p.Issuer}}
	if change := p.hooks().Back; change != nil {
		change(back)
	}
	return with(g.redirect, back)
}

// Authorize does what a browser does at the address that a client sends it to: it picks a person, and returns where the browser
// then goes.
func (p *Provider) Authorize(address, sub string) (callback string, err error) {
	u, err := url.Parse(address)
	if err != nil {
		return "", err
	}
	if _, err := p.asked(u.Query()); err != nil {
		return "", err
	}
	s := p.logIn(sub)
	if s == nil {
		return "", errors.New("nobody is called so")
	}
	return p.code(u.Query(), s), nil
}
