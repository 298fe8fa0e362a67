package ws

import (
	"encoding/base64"
	"net/http"
	"net/url"
	"strings"

	"getwork/assign"
)

// checkHandshake refuses a wrong handshake in the API's form: the library would answer in plain text, which no client of
// the API reads. It also requires the subprotocol, so that a client of a later protocol is not mistaken for one of this.
// The library checks again.
func checkHandshake(r *http.Request) error {
	switch key, err := base64.StdEncoding.DecodeString(r.Header.Get("Sec-WebSocket-Key")); {
	case !has(r.Header, "Upgrade", "websocket") || !has(r.Header, "Connection", "upgrade"):
		return assign.Refuse(assign.Invalid, "this address speaks WebSocket, subprotocol %s; send Connection: Upgrade and Upgrade: websocket", subprotocol)
	case r.Header.Get("Sec-WebSocket-Version") != "13":
		return assign.Refuse(assign.Invalid, "the version of WebSocket is 13 (RFC 6455): send Sec-WebSocket-Version: 13")
	case err != nil || len(key) != 16:
		return assign.Refuse(assign.Invalid, "Sec-WebSocket-Key is 16 random bytes in Base64")
	case !sameHost(r):
		return assign.Refuse(assign.Forbidden, "this call comes from another site's page")
	case !has(r.Header, "Sec-WebSocket-Protocol", subprotocol):
		return assign.Refuse(assign.Invalid, "name the subprotocol: Sec-WebSocket-Protocol: %s", subprotocol)
	}
	return nil
}

// has reports whether the value is one of a header's comma-separated values.
func has(h http.Header, name, want string) bool {
	for _, line := range h.Values(name) {
		for value := range strings.SplitSeq(line, ",") {
			if strings.EqualFold(strings.TrimSpace(value), want) {
				return true
			}
		}
	}
	return false
}

// sameHost reports whether the calling page, if there is one, came from the requested host.
func sameHost(r *http.Request) bool {
	origin := r.Header.Get("Origin")
	if origin == "" {
		return true
	}
	u, err := url.Parse(origin)
	return err == nil && strings.EqualFold(u.Host, r.Host)
}
