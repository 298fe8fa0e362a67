package web

import (
	"context"
	"net/http"
	"net/netip"
	"strings"
)

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
