package web

import (
	"cmp"
	"context"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"getwork/assign"
)

// dev reports whether the server trusts the names that callers send. The server is then on a loopback address, and DevIdentity
// decides which names it answers to.
func (c *Config) dev() bool { return c.LogInBy == "dev" }

// probed are the paths that any Host and any network may ask for: load balancers probe nodes by their addresses.
var probed = []string{"/livez", "/readyz"}

// here refuses calls that are for another host, or that come over a network unencrypted. Without the first, a page whose
// name resolves to this server's address could read what the server shows that page's visitors. Whatever way the client has written
// the host, next finds the public URL's.
func (s *server) here(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		switch from := peer(r); {
		case s.dev() || s.PublicURL == nil || slices.Contains(probed, r.URL.Path):
		case !sameHost(s.PublicURL, r.Host):
			return assign.Refuse(assign.Misdirected, "this server is reached at %s, not at the host that was asked for", s.PublicURL)
		case r.TLS == nil && !from.IsLoopback() && !trusts(s.TrustedProxies, from):
			return assign.Refuse(assign.Misdirected, "this server takes calls over plain HTTP only from its proxies; use %s", s.PublicURL)
		default: // log-in and socket compare the host, too, and know the public one
			r = r.WithContext(r.Context())
			r.Host = s.PublicURL.Host
		}
		next.ServeHTTP(w, r)
		return nil
	})
}

// sameHost reports whether a Host is that of an origin. A client may write the scheme's own port, which an origin lacks.
func sameHost(origin *url.URL, host string) bool {
	own := map[string]string{"https": ":443", "http": ":80"}[origin.Scheme]
	return host != "" && (strings.EqualFold(host, origin.Host) || origin.Port() == "" && strings.EqualFold(host, origin.Host+own))
}

// takesNoCookie is the path that other servers post to, so calls to it are exempt from the check of the origin. They carry
// their own proof, and no cookie counts there.
const takesNoCookie = "/auth/backchannel"

// crossOrigin refuses calls that another site's page makes a browser send: commands, sockets, and reads of the API. A link
// on another page may lead anywhere, since a navigation changes nothing here, and shows the other page nothing.
func (s *server) crossOrigin(next http.Handler) http.Handler {
	elsewhere := assign.Refuse(assign.Forbidden, "this call comes from another site's page")
	refuse := s.handle(func(http.ResponseWriter, *http.Request) error { return elsewhere })
	guard := http.NewCrossOriginProtection()
	guard.SetDenyHandler(refuse)
	guarded := guard.Handler(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		reads := r.Method == http.MethodGet || r.Method == http.MethodHead
		socket := r.Header.Get("Upgrade") != ""
		switch {
		case r.URL.Path == takesNoCookie:
			next.ServeHTTP(w, r)
		case (!reads || socket) && !s.ownOrigin(r):
			refuse.ServeHTTP(w, r)
		case strings.HasPrefix(r.URL.Path, "/api/") && r.Header.Get("Sec-Fetch-Site") == "cross-site" && !opened(r):
			refuse.ServeHTTP(w, r)
		default:
			guarded.ServeHTTP(w, r)
		}
	})
}

// opened reports whether a person opens an address in a tab of their browser, by a link or by hand.
func opened(r *http.Request) bool {
	return r.Header.Get("Sec-Fetch-Mode") == "navigate" && r.Header.Get("Sec-Fetch-Dest") == "document" && r.Header.Get("Upgrade") == ""
}

// ownOrigin reports whether the calling page, if there is one, is this server's own. Its scheme counts, too: whoever can
// answer for http:// on the way could otherwise act as the page behind https://.
func (s *server) ownOrigin(r *http.Request) bool {
	sent := r.Header.Values("Origin")
	switch {
	case len(sent) == 0:
		return true
	case len(sent) > 1:
		return false
	case s.PublicURL != nil && sent[0] == s.PublicURL.String():
		return true
	}
	return (s.dev() || s.PublicURL == nil) && sent[0] == s.scheme(r)+"://"+r.Host
}

// scheme returns what the client speaks: to this server, or to the proxy in front of it.
func (c *Config) scheme(r *http.Request) string {
	if r.TLS != nil {
		return "https"
	}
	if told := r.Header.Get("X-Forwarded-Proto"); told != "" && trusts(c.TrustedProxies, peer(r)) {
		return told
	}
	return "http"
}

// secured sets the security headers of every answer.
func (s *server) secured(next http.Handler) http.Handler {
	policy := "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors " +
		cmp.Or(s.FrameAncestors, "'none'") +
		// Text becomes markup only through lit-html's templates, and never becomes a script.
		"; require-trusted-types-for 'script'; trusted-types lit-html"
	encrypted := !s.dev() && s.PublicURL != nil && s.PublicURL.Scheme == "https"
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", policy)
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "same-origin")
		logIn := strings.HasPrefix(r.URL.Path, "/auth/")
		if logIn { // its addresses hold codes
			h.Set("Referrer-Policy", "no-referrer")
		}
		if logIn || strings.HasPrefix(r.URL.Path, "/api/") {
			h.Set("Cache-Control", "no-store")
		}
		if encrypted {
			h.Set("Strict-Transport-Security", "max-age=31536000")
		}
		next.ServeHTTP(w, r)
	})
}

type addressKey struct{}

// ClientAddress returns the address that a request comes from, as logs, limits and the audit have it. Behind a trusted
// proxy it is the address that the proxy saw. It is not valid if the server doesn't know, as in some tests.
func ClientAddress(r *http.Request) netip.Addr {
	if a, known := r.Context().Value(addressKey{}).(netip.Addr); known {
		return a
	}
	return peer(r)
}

// addressed finds the client's address for the handlers behind it.
func (s *server) addressed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := client(r, s.TrustedProxies)
		next.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), addressKey{}, a)))
	})
}

// Peer returns the address at the other end of the connection.
func Peer(r *http.Request) netip.Addr { return peer(r) }

// peer returns the address at the other end of the connection.
func peer(r *http.Request) netip.Addr {
	p, _ := netip.ParseAddrPort(r.RemoteAddr)
	return p.Addr().Unmap().WithZone("")
}

// trusts reports whether an address is one of these proxies'.
func trusts(proxies []netip.Prefix, a netip.Addr) bool {
	for _, p := range proxies {
		if p.Contains(a) {
			return true
		}
	}
	return false
}

// maxHops bounds the proxies that one request is believed to have passed.
const maxHops = 20

// client returns the last address on a request's way that is no trusted proxy's. Each proxy appends its own client's
// address to X-Forwarded-For. So what stands left of the first stranger, seen from the right, was written by that
// stranger, who may have invented it. If a proxy appends something that is no address, it counts as the client itself.
func client(r *http.Request, proxies []netip.Prefix) netip.Addr {
	a := peer(r)
	if !trusts(proxies, a) {
		return a
	}
	way := strings.Split(strings.Join(r.Header.Values("X-Forwarded-For"), ","), ",")
	for i := len(way) - 1; i >= max(0, len(way)-maxHops); i-- {
		hop, err := parseHop(way[i])
		if err != nil {
			return a
		}
		if a = hop; !trusts(proxies, a) {
			return a
		}
	}
	return a
}

// parseHop reads an address of X-Forwarded-For. Some proxies write the port behind it.
func parseHop(text string) (netip.Addr, error) {
	text = strings.TrimSpace(text)
	if p, err := netip.ParseAddrPort(text); err == nil {
		return p.Addr().Unmap().WithZone(""), nil
	}
	a, err := netip.ParseAddr(strings.Trim(text, "[]"))
	return a.Unmap().WithZone(""), err
}
