package page

import (
	"fmt"
	"net/url"
	"strings"
	"testing"
	"time"

	"getwork/cmd/internal/e2e"
)

// css returns an expression for the first element of a selector.
func css(selector string) string { return fmt.Sprintf(`document.querySelector(%q)`, selector) }

// called returns an expression for a visible element of a selector with that name: one that begins so comes before one
// that contains it.
func called(selector, name string) string {
	return fmt.Sprintf(`((its, all) => all.find((e) => its(e).startsWith(%q)) ?? all.find((e) => its(e).includes(%[1]q)))(
		(e) => (e.ariaLabel ?? e.labels?.[0]?.innerText ?? e.innerText).replace(/\s+/g, ' ').trim(),
		[...document.querySelectorAll(%q)].filter((e) => e.checkVisibility()))`, name, selector)
}

// press clicks the element with that name.
func (f *firefox) press(selector, name string) {
	f.t.Helper()
	f.click(called(selector, name))
}

// visit opens a path of a node as a user, such as "Mary,manager", and waits for the view.
func (f *firefox) visit(address, path, user string) {
	f.t.Helper()
	name, _, _ := strings.Cut(user, ",")
	f.open("about:blank")
	f.open(address + path + "#log-in=" + url.PathEscape(user))
	f.await(fmt.Sprintf(`document.querySelector('#name')?.textContent === %q && document.querySelector('#view > *')`, name), e2e.Soon)
}

// state waits for the page's message about its connection to the server.
func (f *firefox) state(name string, within time.Duration) {
	f.t.Helper()
	f.await(fmt.Sprintf(`document.querySelector('#chip')?.dataset.state === %q`, name), within)
}

// shows waits until a visible element contains the given text, with each run of blanks as one.
func (f *firefox) shows(selector, text string) {
	f.t.Helper()
	f.await(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) =>
		e.checkVisibility() && e.innerText.replace(/\s+/g, ' ').includes(%q))`, selector, text), e2e.Soon)
}

// works waits until the pipeline has that many items.
func (f *firefox) works(n int) {
	f.t.Helper()
	f.await(fmt.Sprintf(`document.querySelectorAll('#work > li').length === %d`, n), e2e.Soon)
}

// tabTo presses the Tab key until the element of an expression has the focus.
func (f *firefox) tabTo(expression string) {
	f.t.Helper()
	f.await(expression, e2e.Soon)
	for range 100 {
		if f.eval(`String(document.activeElement === `+expression+`)`) == "true" {
			return
		}
		f.keys(keyTab)
	}
	f.t.Fatalf("the Tab key does not come to %s; it is at %s", expression, f.eval(`document.activeElement.outerHTML.slice(0, 300)`))
}

// If the socket is refused the page polls, says so, and gets its work; when a socket becomes possible the page uses it.
func TestFirefoxPolls(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	open := gated(s)
	address, allow := withoutSockets(t, s.Nodes[0])
	f.visit(address, "/", "Oliver")
	f.shows("#banner", "Push is gone; asking every ")
	f.press("button", "Get Work: verify")
	f.shows(".pending", "Asked for 3 at ")
	open()
	f.works(3)
	allow()
	f.eval(`(dispatchEvent(new Event('online')), '')`)
	f.state("live", 3*e2e.Soon)
	f.await(`document.querySelector('#banner').hidden`, e2e.Soon)
}

// The page's node is killed and comes back: so does the page, and the request is still answered.
func TestFirefoxNodeKilled(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	open := gated(s)
	f.visit(s.Nodes[0].URL, "/", "Oliver")
	f.state("live", e2e.Soon)
	f.press("button", "Get Work: verify")
	f.shows(".pending", "The query is running:")
	s.Nodes[0].Kill()
	f.shows("#banner", "the server can’t be reached. Your request stays; trying again")
	s.Nodes[0].Restart()
	f.state("live", 3*e2e.Soon)
	open()
	f.works(3)
}

// Firefox has trusted types since version 148. Without them the page is the same.
func TestFirefoxWithoutTrustedTypes(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, map[string]any{"dom.security.trusted_types.enabled": false})
	s := newSite(t, 2, "")
	evening := morning(s)
	f.visit(s.Nodes[0].URL, "/", "Mary,manager")
	if is := f.eval(`typeof trustedTypes`); is != "undefined" {
		t.Errorf("trustedTypes is %s", is)
	}
	for _, view := range followed {
		f.open(s.Nodes[0].URL + view.path)
		f.state("live", e2e.Soon)
		f.shows("body", view.before)
	}
	evening()
	f.shows(".tile", "Evening") // the wall, by push
}

// Faults of the page are noticed, and axe finds them: a test that can't fail would look the same as a good page.
func TestFirefoxHears(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	f.open(s.Nodes[0].URL)
	f.await(`document.querySelector('#user')?.checkVisibility()`, e2e.Soon)
	wrongs := map[string]string{
		`throw new Error('nobody caught it')`:              "nobody caught it",
		`Promise.reject(new Error('nobody waits for it'))`: "nobody waits for it",
		`new Image().src = 'http://127.0.0.1:1/'`:          "img-src",
	}
	if f.eval(`typeof trustedTypes`) == "object" {
		wrongs[`document.querySelector('#log-in').innerHTML = '<b>'`] = "require-trusted-types-for"
	}
	for wrong, says := range wrongs {
		f.eval(`(setTimeout(() => { ` + wrong + ` }), '')`)
		e2e.Await(t, says+" is heard", e2e.Soon, func() bool { return strings.Contains(f.said(), says) })
	}
	e2e.Await(t, "nothing else is heard", e2e.Soon, func() bool { return f.said() == "" })
	f.eval(`(document.querySelector('label[for=user]').remove(), '')`)
	f.do("WebDriver:ExecuteScript", body(axeSource), nil)
	if found := f.eval(axeRun); !strings.Contains(found, `"id":"label"`) {
		t.Errorf("a field without a label is not found: %s", found)
	}
}

// The demo's page shows three people, each on a node: Oliver clicks, and the manager sees what he holds.
func TestFirefoxDemo(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--nodes", "3")
	d.Ready()
	f.size(1400, 1600)
	f.open(d.Page())
	f.await(`document.querySelectorAll('iframe').length === 3`, e2e.Soon)
	within := func(i int, then func()) {
		t.Helper()
		f.do("WebDriver:SwitchToFrame", map[string]any{"id": i}, nil)
		then()
		f.do("WebDriver:SwitchToFrame", map[string]any{"id": nil}, nil)
	}
	for i, who := range []string{"Oliver", "Tracy", "Mia"} {
		within(i, func() {
			f.state("live", 2*e2e.Soon)
			f.shows("#name", who)
		})
	}
	within(0, func() {
		f.press("button", "Get Work: Verify")
		f.await(`document.querySelectorAll('#work h3').length > 0`, soonPlayed)
	})
	within(2, func() { f.shows("[data-part=held]", "Oliver") })
	f.shoot("demo 1400-light")
	f.audit(t)
}
