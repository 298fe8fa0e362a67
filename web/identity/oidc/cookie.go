package oidc

import (
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	logInWithin  = 10 * time.Minute // between a log-in's start and its end
	mostLogIns   = 5                // under way in one browser
	mostLogInLen = 5 << 10          // bytes of their cookies together: a proxy refuses a request with too long a header
)

// cookies are the names of the cookies of one public URL. All have __Host-: another host of the domain can't set them, and
// they go to this host alone.
//
// On plain HTTP that is possible for loopback only. Chromium 156 and Firefox 153 take cookies with Secure and __Host- there,
// from 127.0.0.1, localhost and [::1]; Safari does not. All ports of a host share cookies, so the port is part of the name.
type cookies struct{ session, logIn string }

func cookiesOf(public *url.URL) cookies {
	c := cookies{session: "__Host-getwork", logIn: "__Host-getwork-in-"}
	if port := public.Port(); port != "" && loopback(public.Hostname()) {
		c.session += "-" + port
	}
	return c
}

// SessionCookie returns the name of the cookie that has a session's secret.
func (p *Provider) SessionCookie() string { return p.cookies.session }

// NewSessionCookie returns a session's cookie, or with an empty value what removes it.
func (p *Provider) NewSessionCookie(value string, ends time.Time) *http.Cookie {
	c := newCookie(p.cookies.session, value, -1)
	if value != "" {
		c.MaxAge = max(1, int(ends.Sub(p.now()).Seconds()))
	}
	return c
}

// newCookie returns a cookie. Lax, not Strict: a browser that comes from the provider's page, or from a link in a mail, must be
// known at once.
func newCookie(name, value string, seconds int) *http.Cookie {
	return &http.Cookie{Name: name, Value: value, Path: "/", MaxAge: seconds, Secure: true, HttpOnly: true, SameSite: http.SameSiteLaxMode}
}

// logInCookie returns the name of the cookie of the log-in with this state.
func (c cookies) logInCookie(state string) string { return c.logIn + state[:8] }

// crowded returns what removes the oldest log-ins of a browser, so that with one more of this size there are not too many.
// Those that can't be opened go first.
func (p *Provider) crowded(r *http.Request, size int) (gone []*http.Cookie) {
	type one struct {
		name  string
		began time.Time
		size  int
	}
	var all []one
	for _, c := range r.Cookies() {
		if !strings.HasPrefix(c.Name, p.cookies.logIn) {
			continue
		}
		o := one{name: c.Name, size: len(c.Name) + len(c.Value)}
		if l, err := p.openLogIn(c.Value); err == nil {
			o.began = l.began()
		}
		size += o.size
		all = append(all, o)
	}
	slices.SortStableFunc(all, func(a, b one) int { return a.began.Compare(b.began) })
	for len(all) > 0 && (len(all) >= mostLogIns || size > mostLogInLen || p.now().Sub(all[0].began) > logInWithin) {
		gone = append(gone, newCookie(all[0].name, "", -1))
		size -= all[0].size
		all = all[1:]
	}
	return gone
}
