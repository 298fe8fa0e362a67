package page

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/idp"
	"getwork/schema/schematest"
)

// Bank is a site where people log in at an identity provider. Its first node, under --auth dev, is for the test's own steps; people
// use the other one, at its address.
type Bank struct {
	*e2e.Site
	IDP     *idp.Provider
	Address string
	Node    *cluster.Node
}

// Subs are the provider's names of the people in the tests.
var Subs = map[string]string{"Oliver": "0001", "Tracy": "0002", "Mia": "0003", "Ada": "0004", "Boris": "0005", "Otto": "0006"}

// NewBank starts the two nodes and the provider.
func NewBank(t *testing.T, args ...string) *Bank {
	t.Helper()
	people := append([]idp.Person{}, idp.People...)
	people = append(people,
		idp.Person{Sub: "0005", Name: "Boris", Groups: []string{"loan-managers", "getwork-admins"}, About: "manages work and people"},
		idp.Person{Sub: "0006", Name: "Otto", Groups: []string{"loan-audit"}, About: "watches"})
	p, err := idp.Start(idp.Config{People: people})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.Close() })
	const words = "a secret of the tests, long enough"
	secret := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(secret, []byte(words+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	b := &Bank{Site: e2e.NewSite(t, 1, schematest.Plain(t)), IDP: p}
	all := []string{"--auth", "oidc", "--public-url", "http://127.0.0.1:0", "--trust-query-writers",
		"--oidc-issuer", p.Issuer, "--oidc-client-id", "getwork", "--oidc-client-secret-file", secret, "--grant", "observer=loan-audit"}
	for _, grant := range idp.Grants {
		all = append(all, "--grant", grant)
	}
	b.Node = cluster.Start(t, 1, cluster.Options{DatabaseURL: b.URL, Args: append(all, args...)})[0]
	b.Address = b.Node.URL
	p.Register(idp.Client{ID: "getwork", Secret: words, Redirects: []string{b.Address + "/auth/callback"}, AfterOut: []string{b.Address + "/"},
		Messages: []string{b.Address + "/auth/backchannel"}})
	return b
}

// Picks is a log-in at the provider, and waits until the page has come back.
func (b *Browser) Picks(user string) {
	b.T.Helper()
	pick := fmt.Sprintf(`button[value="%s"]`, Subs[user])
	b.Await(fmt.Sprintf(`document.querySelector('%s')`, pick), e2e.Soon)
	b.Eval(fmt.Sprintf(`(document.querySelector('%s').click(), '')`, pick))
	b.Await(fmt.Sprintf(`document.querySelector('button#who #name')?.textContent === %q && document.querySelector('#view > *')`, user), e2e.Soon)
}

// ThrowsOut ends all sessions of a person at the provider, which notifies the node.
func (at *Bank) ThrowsOut(user string) {
	at.T.Helper()
	if err := at.IDP.LogOut(at.T.Context(), Subs[user]); err != nil {
		at.T.Fatal(err)
	}
}

// ProvedLongAgo makes all log-ins an hour old, for a page of somebody who may make tokens that manage.
func (at *Bank) ProvedLongAgo(b *Browser) {
	at.T.Helper()
	at.Exec(`update getwork.session set auth_time = clock_timestamp() - interval '1 hour', changed = pg_current_xact_id() where ended_at is null`)
	InPage[any](b, `await until(async () => (await fetch('/api/v1/tokens', { method: 'POST', headers: { 'Content-Type': 'application/json' },
		body: '{"label": "", "scopes": ["manage"]}' })).status === 401)`) // the node keeps what it has read for a second
}
