package serve

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/certs"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/idp"
	"getwork/schema/schematest/timeout"
	"getwork/web/grants"
	"getwork/web/identity/oidc"
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

// withLogIn returns settings for --auth oidc that are right.
func withLogIn(t *testing.T) Identity {
	t.Helper()
	return Identity{Auth: "oidc", PublicURL: "http://127.0.0.1:0", LogIn: LogIn{OIDCIssuer: "https://idp.example", OIDCClientID: "getwork",
		OIDCClientSecretFile: secretFile(t, "0123456789abcdef\n"), OIDCScopes: "openid profile", OIDCNameClaim: "preferred_username", OIDCGroupsClaim: "groups",
		OIDCStale: time.Hour, Grant: []string{"worker=desk"}, TaskGroups: "all", SessionIdle: 30 * time.Minute, SessionMax: 10 * time.Hour}}
}

// Each wrong setting of --auth oidc is refused with one line.
func TestLogInFlags(t *testing.T) {
	t.Parallel()
	if _, err := checked("127.0.0.1:0", withLogIn(t)); err != nil {
		t.Fatalf("right settings: %v", err)
	}
	for _, tt := range []struct {
		says   string
		change func(*Identity)
	}{
		{"needs --public-url", func(i *Identity) { i.PublicURL = "" }},
		{"needs --oidc-issuer, --oidc-client-id and", func(i *Identity) { i.OIDCIssuer = "" }},
		{"needs --oidc-issuer, --oidc-client-id and", func(i *Identity) { i.OIDCClientID = "" }},
		{"needs --oidc-issuer, --oidc-client-id and", func(i *Identity) { i.OIDCClientSecretFile = "" }},
		{"no such file", func(i *Identity) { i.OIDCClientSecretFile = "/nowhere/secret" }},
		{"at least 16 characters", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, "") }},
		{"at least 16 characters", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, "0123456789abcde\n") }},
		{"at least 16 characters", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, "0123456789abcdef\nx\n") }},
		{"one line, or two", func(i *Identity) { i.OIDCClientSecretFile = secretFile(t, strings.Repeat("0123456789abcdef\n", 3)) }},
		{"needs --grant", func(i *Identity) { i.Grant = nil }},
		{"needs --grant", func(i *Identity) { i.Grant = []string{"\n"} }},
		{"ROLE is one of", func(i *Identity) { i.Grant = []string{"king=desk"} }},
		{"ROLE is one of", func(i *Identity) { i.Grant = []string{"worker=desk\nking=desk"} }},
		{"--session-idle must be from 5m", func(i *Identity) { i.SessionIdle = 4 * time.Minute }},
		{"--session-idle must be from 5m", func(i *Identity) { i.SessionIdle, i.SessionMax = 13*time.Hour, 24*time.Hour }},
		{"--session-max must be from --session-idle", func(i *Identity) { i.SessionMax = 29 * time.Minute }},
		{"to 24h", func(i *Identity) { i.SessionMax = 25 * time.Hour }},
		{"--oidc-stale must be", func(i *Identity) { i.OIDCStale = time.Second }},
		{"--oidc-name-claim", func(i *Identity) { i.OIDCNameClaim = "a..b" }},
		{"--oidc-groups-claim", func(i *Identity) { i.OIDCGroupsClaim = "" }},
		{"--oidc-ca-file: open", func(i *Identity) { i.OIDCCAFile = "/nowhere/ca.pem" }},
		{"has no certificate in PEM", func(i *Identity) { i.OIDCCAFile = i.OIDCClientSecretFile }},
		{"--proxy-max is for --auth proxy", func(i *Identity) { i.ProxyMax = time.Minute }},
		{"--token-max must be from 1h to 8784h", func(i *Identity) { i.Tokens = Tokens{8785 * time.Hour, time.Hour} }},
		{"--token-max must be from 1h to 8784h", func(i *Identity) { i.Tokens = Tokens{time.Second, time.Hour} }},
		{"--token-owner-within must be from 1h", func(i *Identity) { i.Tokens = Tokens{time.Hour, -time.Hour} }},
		{"not for --auth dev", func(i *Identity) { *i = Identity{Tokens: Tokens{time.Hour, time.Hour}} }},
		{"--oidc-issuer is for --auth oidc", func(i *Identity) { *i = Identity{LogIn: LogIn{OIDCIssuer: "https://idp.example"}} }},
	} {
		i := withLogIn(t)
		tt.change(&i)
		_, err := checked("127.0.0.1:0", i)
		var wrong command.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), tt.says) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), "0123456789") {
			t.Errorf("%v\nwant one line with %q", err, tt.says)
		}
	}
}

// The environment has one variable for all grants, with one on each line: a group's name may have commas and blanks.
func TestGrantsOnLines(t *testing.T) {
	t.Parallel()
	i := withLogIn(t)
	i.Grant = []string{"worker=CN=desk,OU=loans\r\n\nmanager=the chiefs \n", "admin=it"}
	c, err := checked("127.0.0.1:0", i)
	if err != nil {
		t.Fatal(err)
	}
	want := []grants.Grant{{Role: "worker", Group: "CN=desk,OU=loans"}, {Role: "manager", Group: "the chiefs "}, {Role: "admin", Group: "it"}}
	for n, g := range c.rules.Grants {
		if len(c.rules.Grants) != len(want) || g != want[n] {
			t.Fatalf("grants %q, want %q", c.rules.Grants, want)
		}
	}
}

// withTokens returns settings that take access tokens of an issuer, and are right.
func withTokens(issuer string) Identity {
	return Identity{Auth: "token", PublicURL: "http://127.0.0.1:0", LogIn: LogIn{Grant: idp.Grants, TaskGroups: "all", OIDCGroupsClaim: "groups"},
		AccessTokens: AccessTokens{JWTIssuer: issuer, JWTAudience: "https://work.example", JWTTyp: "at+jwt", JWTMax: 2 * time.Hour, JWTAlgs: oidc.Algorithms}}
}

// Each wrong setting for access tokens is refused with one line.
func TestJWTFlags(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*Identity){
		"belong together":            func(i *Identity) { i.JWTAudience = "" },
		"give both, or neither":      func(i *Identity) { i.JWTIssuer = "" },
		"not for --auth dev":         func(i *Identity) { i.Auth, i.PublicURL = "dev", "" },
		"needs --grant":              func(i *Identity) { i.Grant = nil },
		"--jwt-algs takes":           func(i *Identity) { i.JWTAlgs = []string{"RS256", "none"} },
		"--jwt-algs takes RS256":     func(i *Identity) { i.JWTAlgs = []string{"HS256"} },
		"--jwt-max must be":          func(i *Identity) { i.JWTMax = 25 * time.Hour },
		"--jwt-typ must not":         func(i *Identity) { i.JWTTyp = "" },
		"--jwt-name-claim":           func(i *Identity) { i.JWTNameClaim = "a..b" },
		"begins with https":          func(i *Identity) { i.JWTIssuer = "http://idp.example" },
		"--grant is for --auth oidc": func(i *Identity) { i.AccessTokens = AccessTokens{} },
		"--jwt-typ is for --jwt-iss": func(i *Identity) { i.AccessTokens = AccessTokens{JWTTyp: "JWT"} },
		"--jwt-algs is for":          func(i *Identity) { i.AccessTokens = AccessTokens{JWTAlgs: []string{"RS256"}} },
		"--task-groups is for":       func(i *Identity) { i.AccessTokens, i.LogIn = AccessTokens{}, LogIn{TaskGroups: "desk-"} },
		"token with --jwt-issuer; l": func(i *Identity) { i.SessionMax = time.Hour },
		"--oidc-ca-file: open":       func(i *Identity) { i.OIDCCAFile = "/nowhere/ca.pem" },
	} {
		i := withTokens("https://idp.example")
		change(&i)
		_, err := checked("127.0.0.1:0", i)
		var wrong command.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), says) || strings.ContainsAny(err.Error(), "\r\n") {
			t.Errorf("%v\nwant one line with %q", err, says)
		}
	}
}

// A program comes in with an access token of the issuer, with the token's rights and without the admin bit.
func TestJWTNode(t *testing.T) {
	t.Parallel()
	p, err := idp.Start(idp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	n := runs(t, Command{Identity: withTokens(p.Issuer), Queries: Queries{TrustQueryWriters: true}})
	ask := func(token string) (status int, me map[string]any) {
		r, err := http.NewRequestWithContext(t.Context(), "GET", n.url+"/api/v1/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", "Bearer "+token)
		response, err := plain.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer response.Body.Close()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			t.Fatal(err)
		}
		_ = json.Unmarshal(body, &me)
		return response.StatusCode, me
	}
	claims := func(name string, value any) map[string]any {
		return map[string]any{"sub": "batch-7", "aud": "https://work.example", "groups": []string{"loan-desk", "getwork-admins"}, name: value}
	}
	good := p.Sign("at+jwt", claims("x", 1))
	var me map[string]any
	timeout.Await(t, "the issuer is known", func() (known bool) {
		var status int
		status, me = ask(good)
		return status == 200
	})
	if me["user"] != "batch-7" || me["role"] != "worker" || me["admin"] != false || me["by"] != "jwt" || me["ends_at"] == nil {
		t.Errorf("me %v", me)
	}
	for what, c := range map[string]struct {
		token  string
		status int
	}{
		"another audience": {p.Sign("at+jwt", claims("aud", "https://other.example")), 401},
		"an ID token":      {p.Sign("JWT", claims("nonce", "n")), 401},
		"no grant":         {p.Sign("at+jwt", claims("groups", []string{})), 403},
		"only an admin":    {p.Sign("at+jwt", claims("groups", []string{"getwork-admins"})), 403},
		"a changed one":    {good[:len(good)-4] + "AAAA", 401},
	} {
		if status, answer := ask(c.token); status != c.status {
			t.Errorf("%s: %d %v, want %d", what, status, answer, c.status)
		}
	}
}

// --oidc-ca-file says who vouches for the issuer's certificate, also without log-in.
func TestJWTIssuerAuthority(t *testing.T) {
	t.Parallel()
	a, dir := certs.New(t), t.TempDir()
	f := a.Write(dir, 2, time.Time{})
	pair, err := tls.LoadX509KeyPair(f.Cert, f.Key)
	if err != nil {
		t.Fatal(err)
	}
	var issuer *httptest.Server
	issuer = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		at := issuer.URL
		_ = json.NewEncoder(w).Encode(map[string]any{"issuer": at, "authorization_endpoint": at + "/a", "token_endpoint": at + "/t", "jwks_uri": at + "/jwks", "keys": []any{}})
	}))
	issuer.TLS = &tls.Config{Certificates: []tls.Certificate{pair}}
	issuer.Config.ErrorLog = log.New(t.Output(), "", 0)
	issuer.StartTLS()
	t.Cleanup(issuer.Close)
	ca := filepath.Join(dir, "ca.pem")
	replace(t, ca, a.PEM())
	for file, up := range map[string]float64{ca: 1, "": 0} {
		i := withTokens(issuer.URL)
		i.MetricsListen, i.OIDCCAFile = "127.0.0.1:0", file
		n := runs(t, Command{Identity: i, Queries: Queries{TrustQueryWriters: true}})
		timeout.Await(t, "the issuer was asked", func() bool {
			return n.figure(t, "getwork_idp_up") == 1 || n.said("the identity provider can't be used") > 0
		})
		if got := n.figure(t, "getwork_idp_up"); got != up {
			t.Errorf("with --oidc-ca-file %q: getwork_idp_up %v, want %v", file, got, up)
		}
	}
}

const proxySecret = "0123456789abcdef0123456789abcdef"

// behindProxy returns settings for --auth proxy that are right.
func behindProxy(t *testing.T) Identity {
	t.Helper()
	return Identity{Auth: "proxy", PublicURL: "http://127.0.0.1:0", TrustedProxy: []string{"127.0.0.1"}, LogIn: LogIn{Grant: []string{"worker=desk", "manager=chiefs"}, TaskGroups: "all"},
		Behind: Behind{ProxyUserHeader: "X-Forwarded-User", ProxyGroupsHeader: "X-Forwarded-Groups", ProxySecretFile: secretFile(t, proxySecret+"\n"), ProxyMax: 15 * time.Minute}}
}

func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

// certified has the proxy show a certificate over TLS.
func certified(i *Identity, ca, name string) {
	i.PublicURL, i.TLSCert, i.TLSKey, i.ProxyClientCA, i.ProxyClientName = "https://getwork.bank.example", "cert.pem", "key.pem", ca, name
}

// Each wrong setting of --auth proxy is refused with one line, which never has the secret.
func TestProxyFlags(t *testing.T) {
	t.Parallel()
	for says, change := range map[string]func(*Identity){
		"needs --trusted-proxy":         func(i *Identity) { i.TrustedProxy = nil },
		"needs --proxy-secret-file":     func(i *Identity) { i.ProxySecretFile = "" },
		"name belong together":          func(i *Identity) { i.ProxyClientCA = "ca.pem" },
		"whoever else has":              func(i *Identity) { i.ProxyClientName = "proxy.bank.example" },
		"needs --tls-cert and":          func(i *Identity) { i.ProxyClientCA, i.ProxyClientName = "ca.pem", "proxy.bank.example" },
		"needs --public-url":            func(i *Identity) { i.PublicURL = "" },
		"needs --grant":                 func(i *Identity) { i.Grant = nil },
		"ROLE is one of":                func(i *Identity) { i.Grant = []string{"king=desk"} },
		"a group with a comma":          func(i *Identity) { i.Grant = []string{"worker=CN=a,OU=b"} },
		"would believe strangers":       func(i *Identity) { i.TrustedProxy = []string{"0.0.0.0/0"} },
		"from 1m to 24h":                func(i *Identity) { i.ProxyMax = time.Second },
		"must be two headers":           func(i *Identity) { i.ProxyUserHeader = "x-forwarded-GROUPS" },
		"a header of the proxy's own":   func(i *Identity) { i.ProxyUserHeader = "X_Forwarded_User" },
		"such as X-Forwarded-User":      func(i *Identity) { i.ProxyUserHeader = "Host" },
		"not \"X-Forwarded-For\"":       func(i *Identity) { i.ProxyGroupsHeader = "X-Forwarded-For" },
		"32 characters":                 func(i *Identity) { i.ProxySecretFile = secretFile(t, proxySecret[1:]+"\n") },
		"without blanks":                func(i *Identity) { i.ProxySecretFile = secretFile(t, proxySecret+" x\n") },
		"on each line":                  func(i *Identity) { i.ProxySecretFile = secretFile(t, "") },
		"one line, or two":              func(i *Identity) { i.ProxySecretFile = secretFile(t, strings.Repeat(proxySecret+"\n", 3)) },
		"no such file":                  func(i *Identity) { i.ProxySecretFile = "/nowhere/secret" },
		"or a URI as in":                func(i *Identity) { certified(i, "ca.pem", "*.bank.example") },
		"not \"proxy bank\"":            func(i *Identity) { certified(i, "ca.pem", "proxy bank") },
		"--proxy-client-ca: open":       func(i *Identity) { certified(i, "/nowhere/ca.pem", "proxy.bank.example") },
		"has no certificate in PEM":     func(i *Identity) { certified(i, i.ProxySecretFile, "spiffe://bank.example/proxy") },
		"client-ca is for --auth proxy": func(i *Identity) { certified(i, "ca.pem", ""); i.Auth, i.ProxySecretFile = "token", "" },
		"--oidc-issuer is for":          func(i *Identity) { i.OIDCIssuer = "https://idp.example" },
		"is for --auth proxy, and":      func(i *Identity) { i.Auth = "token" },
		"is for --auth proxy, and this": func(i *Identity) { i.Auth = "dev"; i.LogIn = LogIn{} },
		"--proxy-user-header is for":    func(i *Identity) { i.Auth, i.Behind = "token", Behind{ProxyUserHeader: "Remote-User"} },
		"--proxy-max is for --auth p":   func(i *Identity) { i.Auth, i.Behind = "token", Behind{ProxyMax: time.Minute} },
		"--oidc-scopes is for":          func(i *Identity) { i.OIDCScopes = "openid" },
		"--session-idle is for":         func(i *Identity) { i.SessionIdle = time.Hour },
		"--session-max is for":          func(i *Identity) { i.SessionMax = time.Hour },
		"--oidc-stale is for":           func(i *Identity) { i.OIDCStale = 2 * time.Hour },
		"--oidc-ca-file is for":         func(i *Identity) { i.OIDCCAFile = "ca.pem" },
		"--backchannel-no-exp is for":   func(i *Identity) { i.BackchannelNoExp = true },
		"--jwt-max is for --jwt-issuer": func(i *Identity) { i.JWTMax = time.Hour },
	} {
		i := behindProxy(t)
		change(&i)
		_, err := checked("127.0.0.1:0", i)
		var wrong command.UsageError
		if !errors.As(err, &wrong) || !strings.Contains(err.Error(), says) || strings.ContainsAny(err.Error(), "\r\n") || strings.Contains(err.Error(), proxySecret) {
			t.Errorf("%v\nwant one line with %q", err, says)
		}
	}
	for _, text := range []string{proxySecret, proxySecret + "\r\n", proxySecret + "\n" + proxySecret + "2\n"} {
		if _, err := proxySecrets(text); err != nil {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// A whole node believes its proxy, and nobody else.
func TestProxyNode(t *testing.T) {
	t.Parallel()
	n := runs(t, Command{Identity: behindProxy(t), Queries: Queries{TrustQueryWriters: true}})
	for secret, want := range map[string]int{proxySecret: 200, proxySecret[1:]: 401, "": 401} {
		r, err := http.NewRequestWithContext(t.Context(), "GET", n.url+"/api/v1/me", nil)
		if err != nil {
			t.Fatal(err)
		}
		for name, value := range map[string]string{"X-Getwork-Proxy-Secret": secret, "X-Forwarded-User": "Oliver", "X-Forwarded-Groups": "desk"} {
			r.Header.Set(name, value)
		}
		response, err := plain.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if response.StatusCode != want {
			t.Errorf("with the secret %q: %d, want %d", secret, response.StatusCode, want)
		}
	}
}
