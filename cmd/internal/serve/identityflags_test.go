package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/command"
)

// checked returns a command whose identity is given and whose other settings are right, after its Check.
func checked(listen string, i Identity) (*Command, error) {
	if i.TokenMax == 0 {
		i.Tokens = Tokens{TokenMax: 8784 * time.Hour, TokenOwnerWithin: 720 * time.Hour}
	}
	c := &Command{DatabaseURL: "postgres://x", Listen: listen, MaxRuns: 1, MaxCalls: 1, MaxSockets: 1,
		DrainTimeout: time.Second, Retention: time.Hour, Identity: i, Queries: Queries{TrustQueryWriters: true}}
	return c, c.Check()
}

// Each wrong combination of flags is refused with one line that says what to do.
func TestIdentityFlagsRefused(t *testing.T) {
	t.Parallel()
	const here, elsewhere, public = "127.0.0.1:8080", "10.0.0.5:8080", "https://getwork.bank.example"
	proxies := []string{"10.1.2.0/24"}
	for _, tt := range []struct {
		listen string
		Identity
		says string
	}{
		{elsewhere, Identity{}, "give --auth token with --public-url"},
		{":8080", Identity{}, "--auth has no default"},
		{"127.0.0.2:8080", Identity{}, "--auth has no default"},
		{elsewhere, Identity{Auth: "dev"}, "only on a loopback address"},
		{"127.0.0.2:8080", Identity{Auth: "dev"}, "only on a loopback address"},
		{"127.0.0.1", Identity{}, "HOST:PORT"},
		{here, Identity{Auth: "token"}, "needs --public-url"},
		{here, Identity{Auth: "token", PublicURL: "getwork.bank.example"}, "must begin with https://"},
		{here, Identity{Auth: "token", PublicURL: "ftp://getwork.bank.example"}, "must begin with https://"},
		{here, Identity{Auth: "token", PublicURL: "https://"}, "must begin with https://"},
		{here, Identity{Auth: "token", PublicURL: "https:getwork.bank.example"}, "must begin with https://"},
		{here, Identity{Auth: "token", PublicURL: "https://getwork.bank.example/"}, "as in https://getwork.bank.example:"},
		{here, Identity{Auth: "token", PublicURL: "https://getwork.bank.example/getwork"}, "without a path"},
		{here, Identity{Auth: "token", PublicURL: "https://getwork.bank.example?"}, "without a path or a query"},
		{here, Identity{Auth: "token", PublicURL: "https://getwork.bank.example?a=b"}, "without a path or a query"},
		{here, Identity{Auth: "token", PublicURL: "https://getwork.bank.example#"}, "without a path or a query"},
		{here, Identity{Auth: "token", PublicURL: "https://mia:secret@getwork.bank.example"}, "must not hold a name or a password"},
		{here, Identity{Auth: "token", PublicURL: "https://mia:se cret@getwork.bank.example"}, "can't be read"},
		{here, Identity{Auth: "token", PublicURL: "http://getwork.bank.example"}, "must begin with https://"},
		{here, Identity{Auth: "token", PublicURL: "http://localhost.bank.example"}, "must begin with https://"},
		{here, Identity{Auth: "token", PublicURL: "https://getwork.bank.example."}, "no name that browsers send"},
		{here, Identity{Auth: "token", PublicURL: "https://münze.example"}, "xn--"},
		{here, Identity{Auth: "token", PublicURL: "https://a_b.example"}, "no name that browsers send"},
		{here, Identity{Auth: "token", PublicURL: "https://[fe80::1%25eth0]"}, "no name that browsers send"},
		{here, Identity{Auth: "token", PublicURL: public + ":"}, "no port that browsers send"},
		{here, Identity{Auth: "token", PublicURL: public + ":0443"}, "no port that browsers send"},
		{here, Identity{Auth: "token", PublicURL: public + ":0"}, "no port that browsers send"},
		{here, Identity{Auth: "token", PublicURL: "http://127.0.0.1:00"}, "no port that browsers send"},
		{here, Identity{Auth: "dev", PublicURL: public}, "leave it out"},
		{elsewhere, Identity{Auth: "token", PublicURL: public}, "--tls-cert and --tls-key, or --trusted-proxy"},
		{"0.0.0.0:80", Identity{Auth: "token", PublicURL: public}, "unencrypted"},
		{":80", Identity{Auth: "token", PublicURL: public}, "unencrypted"},
		{"[::]:80", Identity{Auth: "token", PublicURL: public}, "unencrypted"},
		{here, Identity{TLSCert: "cert.pem"}, "belong together"},
		{here, Identity{TLSKey: "key.pem"}, "belong together"},
		{here, Identity{Auth: "token", PublicURL: "http://127.0.0.1:8080", TLSCert: "cert.pem", TLSKey: "key.pem"}, "must begin with https://"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"0.0.0.0/0"}}, "would believe strangers"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"::/0"}}, "would believe strangers"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"0.0.0.0/1", "128.0.0.0/1"}}, "would believe strangers"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"::ffff:0.0.0.0/96"}}, "in their own form"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"10.1.2.3/24"}}, "10.1.2.0/24 or the address 10.1.2.3"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"proxy.bank.example"}}, "takes networks"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: []string{"10.1.2.0/24", ""}}, "empty network"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: proxies, MetricsListen: "9090"}, "--metrics-listen must be HOST:PORT"},
		{here, Identity{FrameAncestors: "http://a http://b"}, "must be an origin"},
		{here, Identity{FrameAncestors: "http://127.0.0.1:8083/page"}, "must be an origin"},
		{here, Identity{FrameAncestors: "https://other.example"}, "astray"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: proxies, FrameAncestors: "https://other.bank.example"}, "astray"},
		{elsewhere, Identity{Auth: "token", PublicURL: public, TrustedProxy: proxies, FrameAncestors: "http://127.0.0.1:8083"}, "astray"},
	} {
		_, err := checked(tt.listen, tt.Identity)
		var wrong command.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.says) || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%s %+v: %v\nwant one line with %q", tt.listen, tt.Identity, err, tt.says)
		}
		if err != nil && strings.Contains(err.Error(), "secret") {
			t.Errorf("a password is shown: %v", err)
		}
	}
}

// What is right is accepted, and read as browsers write it.
func TestIdentityFlags(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		listen string
		Identity
		auth, origin string
	}{
		{"127.0.0.1:0", Identity{}, "dev", ""},
		{"[::1]:0", Identity{}, "dev", ""},
		{"localhost:0", Identity{FrameAncestors: "http://127.0.0.1:8083"}, "dev", ""},
		{"localhost:0", Identity{Auth: "dev", PublicURL: "https://localhost:8443"}, "dev", "https://localhost:8443"},
		{"127.0.0.2:0", Identity{Auth: "token", PublicURL: "http://127.0.0.2:8080"}, "token", "http://127.0.0.2:8080"},
		{"127.0.0.1:0", Identity{Auth: "token", PublicURL: "HTTPS://GetWork.Bank.example:443"}, "token", "https://getwork.bank.example"},
		{"127.0.0.1:0", Identity{Auth: "token", PublicURL: "http://127.0.0.1:0"}, "token", "http://127.0.0.1:0"},
		{"127.0.0.1:0", Identity{Auth: "token", PublicURL: "http://localhost:80"}, "token", "http://localhost"},
		{"127.0.0.1:0", Identity{Auth: "token", PublicURL: "http://[0:0::1]:443"}, "token", "http://[::1]:443"},
		{"10.0.0.5:0", Identity{Auth: "token", PublicURL: "https://x:8443", FrameAncestors: "https://x:8443",
			TrustedProxy: []string{"10.0.0.0/8", " 10.1.2.3", "fc00::/7"}}, "token", "https://x:8443"},
	} {
		c, err := checked(tt.listen, tt.Identity)
		origin := ""
		if c.origin != nil {
			origin = c.origin.String()
		}
		if err != nil || c.Auth != tt.auth || origin != tt.origin || len(c.proxies) != len(c.TrustedProxy) {
			t.Errorf("%s %+v: %v, --auth %s at %q behind %v", tt.listen, tt.Identity, err, c.Auth, origin, c.proxies)
		}
	}
}
