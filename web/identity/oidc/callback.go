package oidc

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"net/http"
	"net/url"
)

// Arrival is what a call-back came to.
type Arrival struct {
	Login    *Login       // nil: refused
	Cookie   *http.Cookie // removes the log-in's cookie; nil: there is none
	ReturnTo string       // where the browser wanted to go; for another try, too
}

// Callback judges what a browser brings back from the provider. The error is a [Failure], or one of Once.
func (p *Provider) Callback(r *http.Request) (Arrival, error) {
	a := Arrival{ReturnTo: "/"}
	q, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return a, fail("parameters", wordsAgain)
	}
	for _, name := range []string{"state", "code", "iss", "error"} {
		if len(q[name]) > 1 {
			return a, fail("parameters", wordsAgain)
		}
	}
	state := q.Get("state")
	if raw, err := base64.RawURLEncoding.DecodeString(state); err != nil || len(raw) != 32 || len(state) != 43 {
		return a, fail("state-form", wordsAgain)
	}
	l, err := p.begun(r, state, &a)
	if err != nil {
		return a, err
	}
	m, err := p.Source.metadata()
	if err != nil {
		return a, err
	}
	// Another provider's answer: a mix-up, or a look-alike.
	if q.Has("iss") && q.Get("iss") != p.Source.Issuer || m.NamesItself && !q.Has("iss") {
		return a, fail("iss-parameter", wordsProvider)
	}
	fresh, err := p.Once(r.Context(), sha256.Sum256([]byte("log-in "+state)), l.began().Add(2*logInWithin))
	if err != nil {
		return a, err
	}
	if !fresh {
		return a, fail("state-used", wordsAgain)
	}
	if q.Has("error") {
		return a, answered(q.Get("error"))
	}
	if q.Get("code") == "" {
		return a, fail("no-code", wordsProvider)
	}
	a.Login, err = p.exchange(r.Context(), m, l, q.Get("code"))
	return a, err
}

// begun opens the cookie of the log-in with this state, and has it removed: it is good for one try.
func (p *Provider) begun(r *http.Request, state string, a *Arrival) (*logIn, error) {
	cookie, err := r.Cookie(p.cookies.logInCookie(state))
	if err != nil {
		return nil, fail("no-cookie", wordsAgain)
	}
	a.Cookie = newCookie(cookie.Name, "", -1)
	l, err := p.openLogIn(cookie.Value)
	if err != nil {
		return nil, fail("cookie-sealed", wordsAgain)
	}
	a.ReturnTo = l.ReturnTo
	if age := p.now().Sub(l.began()); age > logInWithin || age < -ahead {
		return nil, fail("too-late", wordsAgain)
	}
	if subtle.ConstantTimeCompare([]byte(l.State), []byte(state)) != 1 {
		return nil, fail("state", wordsAgain)
	}
	return l, nil
}

// answered returns the failure for an error that the provider sent instead of a code.
func answered(code string) *Failure {
	f := fail("provider-refused", wordsDenied)
	if code == "server_error" || code == "temporarily_unavailable" {
		f = away("provider-refused", nil)
	}
	f.Code = codeOf(code)
	return f
}
