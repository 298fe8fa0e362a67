package page

import (
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/idp"
	"getwork/schema/schematest"
)

// bank is a site where people log in at an identity provider. Its first node, under --auth dev, is for the test's own steps; people
// use the one at url.
type bank struct {
	*site
	idp  *idp.Provider
	url  string
	node *cluster.Node
}

// subs are the provider's names of the people in the tests.
var subs = map[string]string{"Oliver": "0001", "Tracy": "0002", "Mia": "0003", "Ada": "0004", "Boris": "0005", "Otto": "0006"}

// newBank starts the two nodes and the provider.
func newBank(t *testing.T, args ...string) *bank {
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
	b := &bank{site: newSite(t, 1, schematest.Plain(t)), idp: p}
	all := []string{"--auth", "oidc", "--public-url", "http://127.0.0.1:0", "--trust-query-writers",
		"--oidc-issuer", p.Issuer, "--oidc-client-id", "getwork", "--oidc-client-secret-file", secret, "--grant", "observer=loan-audit"}
	for _, grant := range idp.Grants {
		all = append(all, "--grant", grant)
	}
	b.node = cluster.Start(t, 1, cluster.Options{DatabaseURL: b.URL, Args: append(all, args...)})[0]
	b.url = b.node.URL
	p.Register(idp.Client{ID: "getwork", Secret: words, Redirects: []string{b.url + "/auth/callback"}, AfterOut: []string{b.url + "/"},
		Messages: []string{b.url + "/auth/backchannel"}})
	return b
}

// comesIn opens an address, and logs in at the provider by the page's link.
func (b *browser) comesIn(at *bank, path, user string) {
	b.t.Helper()
	b.do(chromedp.Navigate(at.url + path))
	b.follows("Log in")
	b.picks(user)
}

// follows follows the link of the page for those who are not logged in.
func (b *browser) follows(link string) {
	b.t.Helper()
	b.shows("#log-in a", link)
	b.eval(`(document.querySelector('#log-in a').click(), '')`)
}

// picks is a log-in at the provider, and waits until the page has come back.
func (b *browser) picks(user string) {
	b.t.Helper()
	pick := fmt.Sprintf(`button[value="%s"]`, subs[user])
	b.await(fmt.Sprintf(`document.querySelector('%s')`, pick), e2e.Soon)
	b.eval(fmt.Sprintf(`(document.querySelector('%s').click(), '')`, pick))
	b.await(fmt.Sprintf(`document.querySelector('button#who #name')?.textContent === %q && document.querySelector('#view > *')`, user), e2e.Soon)
}

// throwsOut ends all sessions of a person at the provider, which tells the node.
func (at *bank) throwsOut(user string) {
	at.T.Helper()
	if err := at.idp.LogOut(at.T.Context(), subs[user]); err != nil {
		at.T.Fatal(err)
	}
}

// provedLongAgo makes all log-ins an hour old, for a page of somebody who may make tokens that manage.
func (at *bank) provedLongAgo(b *browser) {
	at.T.Helper()
	at.Exec(`update getwork.session set auth_time = clock_timestamp() - interval '1 hour', changed = pg_current_xact_id() where ended_at is null`)
	inPage[any](b, `await until(async () => (await fetch('/api/v1/tokens', { method: 'POST', headers: { 'Content-Type': 'application/json' },
		body: '{"label": "", "scopes": ["manage"]}' })).status === 401)`) // the node keeps what it has read for a second
}

// opensAt opens an address as a user, whoever was logged in before; nobody: empty.
func (b *browser) opensAt(at *bank, path, user string) {
	b.t.Helper()
	b.do(chromedp.Navigate(at.url + "/livez"))
	inPage[any](b, `await fetch('/auth/logout', { method: 'POST' }); sessionStorage.clear()`)
	if user == "" {
		b.do(chromedp.Navigate(at.url + path))
		b.shows("#log-in a", "Log in")
		return
	}
	b.do(chromedp.Navigate(at.url + "/auth/login?again=1&return_to=" + url.QueryEscape(path)))
	b.picks(user)
}
