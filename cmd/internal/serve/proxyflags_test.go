package serve

import (
	"errors"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/command"
)

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
