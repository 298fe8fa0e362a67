package story

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/idp"
	"getwork/cmd/lab/liar"
	"getwork/schema/schematest"
)

// logIns is a node where people log in at an identity provider.
type logIns struct {
	*cluster.Node
	idp      *liar.Provider
	database string
	metrics  string // the address of its figures
}

const (
	clientSecret  = "a secret of the tests, long enough"
	tokenAudience = "https://work.example" // of access tokens
)

// newLogIns starts the two. Rows of the database's schema belong to the node's own login.
func newLogIns(t *testing.T, args ...string) *logIns {
	t.Helper()
	p, err := liar.Start(idp.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(clientSecret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	all := []string{"--auth", "oidc", "--public-url", "http://127.0.0.1:0", "--trust-query-writers", "--metrics-listen", "127.0.0.1:0",
		"--oidc-issuer", p.Issuer, "--oidc-client-id", "getwork", "--oidc-client-secret-file", secret, "--oidc-scopes", "openid profile offline_access", "--jwt-issuer", p.Issuer, "--jwt-audience", tokenAudience}
	for _, grant := range idp.Grants {
		all = append(all, "--grant", grant)
	}
	l := &logIns{idp: p, database: schematest.Plain(t)}
	l.Node = cluster.Start(t, 1, cluster.Options{DatabaseURL: l.database, Args: append(all, args...)})[0]
	if at := regexp.MustCompile(`(?m)^metrics on (.*)$`).FindStringSubmatch(l.Output()); at != nil {
		l.metrics = at[1]
	}
	p.Register(idp.Client{ID: "getwork", Secret: clientSecret, Redirects: []string{l.URL + "/auth/callback"}, AfterOut: []string{l.URL + "/"},
		Messages: []string{l.URL + "/auth/backchannel"}})
	return l
}
