package demo

import (
	"fmt"
	"regexp"
	"syscall"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// entersDemo logs somebody in, in the pane of a node: by the page's link, and at the provider.
func entersDemo(b *page.Browser, d *e2e.StartedDemo, node, who string) {
	b.T.Helper()
	provider := regexp.MustCompile(`identity provider of the demo's own, (http://[0-9.:]+),`).FindStringSubmatch(d.Printed())[1]
	awaitIn(b, node, `document.querySelector('#log-in a.button')?.textContent === 'Log in' && (document.querySelector('#log-in a.button').click(), true)`, e2e.Soon)
	awaitIn(b, provider, fmt.Sprintf(`[...document.querySelectorAll('button')].some((e) => e.textContent.startsWith(%q) && (e.click(), true))`, who), e2e.Soon)
	awaitIn(b, node, fmt.Sprintf(`document.querySelector('#name').textContent === %q`, who), e2e.Soon)
}

// pressIn clicks the element with that text in a node's pane.
func pressIn(b *page.Browser, node, selector, text string) {
	b.T.Helper()
	awaitIn(b, node, fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.textContent.trim() === %q && (e.click(), true))`, selector, text), e2e.Soon)
}

// Four people log in side by side in one browser, each at a node of their own. Ada signs Oliver out everywhere, and his pane
// is at the log-in within two seconds; Tracy stays until she does the same herself. A demo that is started again at other addresses still knows them.
func TestDemoLogIn(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	dir := e2e.DemoDir(t)
	b := page.NewBrowser(t, "")
	d := e2e.StartDemo(t, dir, "--nodes", "4", "--auth", "oidc")
	nodes := d.Ready()
	db := databaseOf(d)
	openDemo(b, d)
	for i, who := range []string{"Oliver", "Tracy", "Mia", "Ada"} {
		entersDemo(b, d, nodes[i], who)
	}
	awaitIn(b, nodes[2], `location.pathname === '/floor' && document.querySelector('#role').textContent === 'manager'`, e2e.Soon)
	awaitIn(b, nodes[0], `[...document.querySelectorAll('button')].some((e) => e.ariaLabel?.startsWith('Get Work: Verify') && (e.click(), true))`, e2e.Soon)
	var item string
	e2e.Await(t, "Oliver holds a loan", soonPlayed, func() bool {
		return db.QueryRow(t.Context(), `select item from getwork.work where user_name = 'Oliver' and state = 'held'`).Scan(&item) == nil
	})
	auditAround(b, t)

	pressIn(b, nodes[3], "a", "Oliver")
	pressIn(b, nodes[3], "button", "Sign out everywhere …")
	pressIn(b, nodes[3], "dialog button", "Sign out everywhere")
	awaitIn(b, nodes[0], `document.querySelector('#log-in h1')?.textContent === 'You are logged out'`, timeout.Scale(2*time.Second))
	entersDemo(b, d, nodes[0], "Oliver")
	awaitIn(b, nodes[0], fmt.Sprintf(`[...document.querySelectorAll('#work .key')].some((e) => e.textContent.includes(%q))`, item), e2e.Soon) // what he held is still his
	awaitIn(b, nodes[1], `document.querySelector('#chip').dataset.state === 'live' && (location.href = '/account', true)`, e2e.Soon)
	pressIn(b, nodes[1], "button", "Sign out everywhere …")
	pressIn(b, nodes[1], "dialog button", "Sign out everywhere")
	awaitIn(b, nodes[1], `document.querySelector('#log-in h1')`, timeout.Scale(2*time.Second))

	b.Click(`[data-scene=getwork] button`) // the crowd comes with tokens; a small bank has no loans for all
	b.Await(`document.querySelector('[data-scene=getwork]').dataset.state === 'done' && document.querySelector('[data-scene=getwork] .dots .dot[data-is=served]')`, soonPlayed)
	if err := d.Cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if status := d.Status(); status != 0 {
		t.Errorf("exit status %d after SIGTERM", status)
	}

	d = e2e.StartDemo(t, dir, "--auth", "oidc")
	nodes = d.Ready()
	openDemo(b, d)
	entersDemo(b, d, nodes[0], "Oliver")
	awaitIn(b, nodes[0], fmt.Sprintf(`[...document.querySelectorAll('#work .key')].some((e) => e.textContent.includes(%q))`, item), e2e.Soon)
}
