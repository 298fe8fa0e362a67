package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
)

// CSS returns an expression for the first element of a selector.
func CSS(selector string) string { return fmt.Sprintf(`document.querySelector(%q)`, selector) }

// Called returns an expression for a visible element of a selector with that name: one that begins so comes before one
// that contains it.
func Called(selector, name string) string {
	return fmt.Sprintf(`((its, all) => all.find((e) => its(e).startsWith(%q)) ?? all.find((e) => its(e).includes(%[1]q)))(
		(e) => (e.ariaLabel ?? e.labels?.[0]?.innerText ?? e.innerText).replace(/\s+/g, ' ').trim(),
		[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()))`, name, selector)
}

// Press clicks the element with that name.
func (f *Firefox) Press(selector, name string) {
	f.T.Helper()
	f.Click(Called(selector, name))
}

// Visit opens a path of a node as a user, such as "Mary,manager", and waits for the view.
func (f *Firefox) Visit(address, path, user string) {
	f.T.Helper()
	name, _, _ := strings.Cut(user, ",")
	f.Open("about:blank")
	f.Open(address + path + "#log-in=" + url.PathEscape(user))
	f.Await(fmt.Sprintf(`document.querySelector('#name')?.textContent === %q && document.querySelector('#view > *')`, name), e2e.Soon)
}

// State waits for the page's message about its connection to the server.
func (f *Firefox) State(name string, within time.Duration) {
	f.T.Helper()
	f.Await(fmt.Sprintf(`document.querySelector('#chip')?.dataset.state === %q`, name), within)
}

// Shows waits until a visible element contains the given text, with each run of blanks as one.
func (f *Firefox) Shows(selector, text string) {
	f.T.Helper()
	f.Await(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) =>
		e.checkVisibility() && e.innerText.replace(/\s+/g, ' ').includes(%q))`, selector, text), e2e.Soon)
}

// Works waits until the pipeline has that many items.
func (f *Firefox) Works(n int) {
	f.T.Helper()
	f.Await(fmt.Sprintf(`document.querySelectorAll('#work > li').length === %d`, n), e2e.Soon)
}

// TabTo presses the Tab key until the element of an expression has the focus.
func (f *Firefox) TabTo(expression string) {
	f.T.Helper()
	f.Await(expression, e2e.Soon)
	for range 100 {
		if f.Eval(`String(document.activeElement === `+expression+`)`) == "true" {
			return
		}
		f.Keys(KeyTab)
	}
	f.T.Fatalf("the Tab key does not come to %s; it is at %s", expression, f.Eval(`document.activeElement.outerHTML.slice(0, 300)`))
}

// If the socket is refused the page polls, says so, and gets its work; when a socket becomes possible the page uses it.
func TestFirefoxPolls(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	open := Gated(s)
	address, allow := WithoutSockets(t, s.Nodes[0])
	f.Visit(address, "/", "Oliver")
	f.Shows("#banner", "Push is gone; asking every ")
	f.Press("button", "Get Work: verify")
	f.Shows(".pending", "Asked for 3 at ")
	open()
	f.Works(3)
	allow()
	f.Eval(`(dispatchEvent(new Event('online')), '')`)
	f.State("live", 3*e2e.Soon)
	f.Await(`document.querySelector('#banner').hidden`, e2e.Soon)
}

// The page's node is killed and comes back: so does the page, and the request is still answered.
func TestFirefoxNodeKilled(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	open := Gated(s)
	f.Visit(s.Nodes[0].URL, "/", "Oliver")
	f.State("live", e2e.Soon)
	f.Press("button", "Get Work: verify")
	f.Shows(".pending", "The query is running:")
	s.Nodes[0].Kill()
	f.Shows("#banner", "the server can’t be reached. Your request stays; trying again")
	s.Nodes[0].Restart()
	f.State("live", 3*e2e.Soon)
	open()
	f.Works(3)
}

// Firefox has trusted types since version 148. Without them the page is the same.
func TestFirefoxWithoutTrustedTypes(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, map[string]any{"dom.security.trusted_types.enabled": false})
	s := e2e.NewSite(t, 2, "")
	evening := morning(s)
	f.Visit(s.Nodes[0].URL, "/", "Mary,manager")
	if is := f.Eval(`typeof trustedTypes`); is != "undefined" {
		t.Errorf("trustedTypes is %s", is)
	}
	for _, view := range followed {
		f.Open(s.Nodes[0].URL + view.path)
		f.State("live", e2e.Soon)
		f.Shows("body", view.before)
	}
	evening()
	f.Shows(".tile", "Evening") // the wall, by push
}

// Faults of the page are noticed, and axe finds them: a test that can't fail would look the same as a good page.
func TestFirefoxHears(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	f.Open(s.Nodes[0].URL)
	f.Await(`document.querySelector('#user')?.checkVisibility()`, e2e.Soon)
	wrongs := map[string]string{
		`throw new Error('nobody caught it')`:              "nobody caught it",
		`Promise.reject(new Error('nobody waits for it'))`: "nobody waits for it",
		`new Image().src = 'http://127.0.0.1:1/'`:          "img-src",
	}
	if f.Eval(`typeof trustedTypes`) == "object" {
		wrongs[`document.querySelector('#log-in').innerHTML = '<b>'`] = "require-trusted-types-for"
	}
	for wrong, says := range wrongs {
		f.Eval(`(setTimeout(() => { ` + wrong + ` }), '')`)
		e2e.Await(t, says+" is heard", e2e.Soon, func() bool { return strings.Contains(f.Said(), says) })
	}
	e2e.Await(t, "nothing else is heard", e2e.Soon, func() bool { return f.Said() == "" })
	f.Eval(`(document.querySelector('label[for=user]').remove(), '')`)
	if found := f.Axe(); !strings.Contains(found, `"id":"label"`) {
		t.Errorf("a field without a label is not found: %s", found)
	}
}

// The demo's page shows three people, each on a node: Oliver clicks, and the manager sees what he holds.
func TestFirefoxDemo(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--nodes", "3")
	d.Ready()
	f.Size(1400, 1600)
	f.Open(d.Page())
	f.Await(`document.querySelectorAll('iframe').length === 3`, e2e.Soon)
	within := func(i int, then func()) {
		t.Helper()
		f.Do("WebDriver:SwitchToFrame", map[string]any{"id": i}, nil)
		then()
		f.Do("WebDriver:SwitchToFrame", map[string]any{"id": nil}, nil)
	}
	for i, who := range []string{"Oliver", "Tracy", "Mia"} {
		within(i, func() {
			f.State("live", 2*e2e.Soon)
			f.Shows("#name", who)
		})
	}
	within(0, func() {
		f.Press("button", "Get Work: Verify")
		f.Await(`document.querySelectorAll('#work h3').length > 0`, soonPlayed)
	})
	within(2, func() { f.Shows("[data-part=held]", "Oliver") })
	f.Shoot("demo 1400-light")
	f.Audit(t)
}
