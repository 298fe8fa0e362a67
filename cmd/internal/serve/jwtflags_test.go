package serve

import (
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/certs"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/idp"
	"getwork/schema/schematest/timeout"
	"getwork/web/identity/oidc"
)

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
