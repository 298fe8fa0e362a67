package oidc

import (
	"net/url"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

const mostReturnTo = 2048

// returnTo returns the path of this server where a browser goes after a log-in, or / for everything that could lead
// elsewhere: a link from anywhere may name it. Browsers take a backslash for a slash, and drop tabs and line breaks.
// Addresses of the log-in itself are left out as well, since with the provider's session they would go round for ever.
func returnTo(s string) string {
	if len(s) > mostReturnTo || !strings.HasPrefix(s, "/") || len(s) > 1 && (s[1] == '/' || s[1] == '\\') || !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) {
		return "/"
	}
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "" || u.Host != "" || u.User != nil {
		return "/"
	}
	clean := path.Clean(strings.ReplaceAll(u.Path, `\`, "/")) // as browsers do
	for _, own := range []string{"/auth/login", "/auth/callback", "/auth/logout", "/auth/backchannel"} {
		if clean == own {
			return "/"
		}
	}
	return s
}
