package page

import (
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
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

// A worker logs in by keyboard, gets two items by push, returns one until tomorrow, completes the other with a note,
// undoes that, and completes it all the same. Asked again, the page says why there is nothing, and until when.
func TestFirefoxWorker(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	open := gated(s)
	f.open(s.Nodes[0].URL)
	f.await(`document.activeElement.id === 'user'`, e2e.Soon)
	f.keys("Oliver" + keyEnter)
	f.state("live", e2e.Soon)
	f.eval(`(` + undoLasts + `, '')`)
	f.do("WebDriver:ExecuteScript", body(slowHands), nil)
	f.tabTo(css(`.task input[value="3"]`))
	f.keys(keyLeft)
	f.tabTo(called("button", "Get Work: verify"))
	f.keys(keyEnter)
	f.shows(".pending", "The query is running:")
	open()
	f.works(2)
	f.shows(".task .ended", "2 items now in your pipeline.")

	f.tabTo(called("button", "1"))
	f.tabTo(called("button", "Return until tomorrow, 9:00"))
	f.keys(keyEnter)
	f.shows("#work .going", "1: returned, not offered before tomorrow, 9:00")
	f.await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon) // the focus moves on
	f.keys("o")
	f.await(`document.activeElement.matches('textarea')`, e2e.Soon)
	f.keys("checked twice" + keyEscape)
	f.press("button", "Complete")
	f.shows("#work .going", "2: completed.")
	f.keys("u")
	f.await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon)
	f.await(`document.querySelector('#work textarea').value === 'checked twice'`, e2e.Soon)
	f.keys("c")
	f.shows("#work .going", "2: completed.")
	if got := s.dispositions(); got != "1 held, 2 held" {
		t.Error("before the seconds have passed: ", got)
	}
	f.eval(`(passes(), '')`)
	f.works(0)
	s.disposes("1 returned, 2 completed checked twice")
	f.shows("#recent", "returned, not offered before tomorrow, 9:00")
	at := column[string](s, `select to_json(available_at)#>>'{}' from getwork.work where item = '1'`)[0]
	if at := f.eval(fmt.Sprintf(`new Date(%q).toTimeString().slice(0, 5)`, at)); at != "09:00" {
		t.Errorf("it comes back at %s", at)
	}

	s.Takes("Tracy", 4)
	f.keys("g1")
	f.shows(".task .ended", "All that matches is with somebody already, or put off.")
	f.shows(".task .ended", "You put off 1 until tomorrow, 9:00")
}

// An outcome is sent when the user leaves the page before its seconds have passed. When the user comes back, the page
// is up to date, and works.
func TestFirefoxLeaves(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	leased(s, "1h", "a", "b")
	f.visit(s.Nodes[0].URL, "/", "Oliver")
	f.state("live", e2e.Soon)
	s.Takes("Oliver", 2)
	f.works(2)
	f.eval(`(` + undoLasts + `, '')`)
	f.press("#work li:first-child button", "Complete")
	f.shows("#work .going", "a: completed.")
	f.open(s.Nodes[0].URL + "/docs")
	s.disposes("a completed, b held")
	f.do("WebDriver:Back", map[string]any{}, nil)
	f.state("live", e2e.Soon)
	f.works(1)
	f.eval(`(` + undoLasts + `, '')`)
	f.press("#work button", "Complete")
	f.shows("#work .going", "b: completed.")
	f.open("about:blank")
	s.disposes("a completed, b completed")
}

// A manager watches the floor while others act at another node, finds out about an item, and makes a task: with a
// mistake in its query, which the page leads to, a preview, another version, and the way back. Nothing reloads the
// page.
func TestFirefoxManager(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 2, "")
	open := gated(s)
	f.visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	f.state("live", e2e.Soon)
	f.eval(`(window.same = true, '')`)
	f.shows("[data-part=waiting]", "Nobody waits.")
	s.Click("Oliver", 1, 2)
	f.shows("[data-part=waiting]", "Oliver verify 2")
	f.shows("[data-part=tasks]", "Running for 0:")
	s.Click("Tracy", 1, 1)
	f.shows("[data-part=waiting]", "Tracy verify 1")
	open()
	f.shows("[data-part=waiting]", "Nobody waits.")
	f.shows("[data-part=tasks]", "found 5 in ")
	f.press("[data-part=held] summary", "Oliver")
	f.shows("[data-user=Oliver] tbody a", "1")
	f.await(painted+`.includes('true')`, e2e.Soon)
	f.press("button", "As a table")
	f.await(`[...document.querySelectorAll('.history tbody tr')].reduce((asked, { cells }) =>
		asked + Number(cells[1].textContent), 0) === 2`, e2e.Soon)

	f.press("[data-user=Oliver] a", "1")
	f.shows("#verdict-verify", "Oliver has it, since ")
	f.fill(css("#item"), "5"+keyEnter)
	f.shows("#verdict-verify", "It can be handed out now.")

	f.press("#views a", "Tasks")
	f.press("a", "New task")
	f.fill(css("#set-name"), "second")
	f.fill(css("#set-query"), "select 'Zoë 𝄞' as who,\n  nothing as item")
	f.click(css("#save"))
	f.shows("#set-query-error", `column "nothing" does not exist`)
	f.await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	f.shows(".to-place", "Go to line 2, column 3")
	f.await(`getComputedStyle(document.querySelector('.sql-wrong')).textDecorationLine !== 'none'`, e2e.Soon)
	f.keys(strings.Repeat(keyDelete, len("nothing")) + "generate_series(1, 20)")
	f.await(`!document.querySelector('.sql-wrong')`, e2e.Soon)
	f.click(css("#save"))
	f.shows(".task-head", "version 1")
	f.await(`location.pathname === '/tasks/second'`, e2e.Soon)
	f.fill(css("#set-query"), "select g as item, g / 2 as half\nfrom generate_series(1, 20) g\norder by g")
	f.keys(keyCtrl + keyEnter)
	f.shows(".preview .stats", "20 rows given")
	f.await(`document.querySelectorAll('.rows tbody tr')[1].innerText.replace(/\s+/g, ' ').trim() === '2 2 1'`, e2e.Soon)
	f.keys(keyCtrl + "s")
	f.shows("#unsaved", "Nothing to save.")
	f.press("[role=tab]", "Versions")
	f.shows(".versions [data-version='2']", "Query: +3 −2 lines")
	f.click(css(".versions [data-version='2'] .compare"))
	f.shows(".compared .diff .del", "select 'Zoë 𝄞' as who,")
	f.shows(".compared .diff .ins", "order by g")
	f.click(css(".versions [data-version='1'] .restore"))
	f.click(css("dialog button[value=yes]"))
	f.shows(".versions [data-version='3']", "Query: +2 −3 lines")
	if got := s.versions("second"); got != 3 {
		t.Errorf("it is version %d", got)
	}
	if f.eval(`String(window.same)`) != "true" {
		t.Error("the page was loaded anew")
	}
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

// firefoxStates are the states to look at in Firefox, too: each view, and whatever a browser may show in its own way.
var firefoxStates = []struct {
	name, user, path string
	reach            func(*firefox, *site)
}{
	{"log-in", "", "", way("Who are you?")},
	{"desk", "Oliver", "/", way("You hold nothing.")},
	{"desk help", "Oliver", "/", way("Complete and next", "button", "Keyboard shortcuts")},
	{"desk pending", "Pia", "/", way("ago.", "button", "Get Work: verify")},
	{"desk with work", "Wanda", "/", func(f *firefox, s *site) {
		s.Got(s.As("Wanda", 0), verifying, 2)
		way("March. Salary", "summary", "Note", "button", "other …")(f, s)
	}},
	{"desk dense", "Dora", "/", func(f *firefox, s *site) {
		s.Got(s.As("Dora", 0), "many", 20)
		f.works(20)
	}},
	{"floor", "Mary,manager", "/floor", func(f *firefox, s *site) {
		way("Uma")(f, s)
		for _, scheme := range []string{"light", "dark", "light"} { // the charts change their colours with everything else
			f.scheme(scheme)
			f.await(painted+` === 'true,true,true,true,true'`, e2e.Soon)
		}
	}},
	{"floor table", "Olga,observer", "/floor", way("Uma", "button", "1 hour", "button", "As a table", "summary", "Viktor")},
	{"floor release", "Mary,manager", "/floor", way("L-20", "button", "Release what is held of Verify")},
	{"tasks", "Mary,manager", "/tasks", way("Paused for the audit")},
	{"task new", "Mary,manager", "/tasks?new=1", way("New task")},
	{"task", "Mary,manager", "/tasks/" + verifying, way("from generate_series")},
	{"task error", "Mary,manager", "/tasks/none-left", func(f *firefox, s *site) {
		f.fill(css("#set-query"), "select 1 as item\nfrom nowhere")
		way("does not exist", "button", "Save")(f, s)
	}},
	{"task preview", "Mary,manager", "/tasks/" + verifying, way("Applicant", "button", "Preview")},
	{"task versions", "Mary,manager", "/tasks/verify", way("10m", "[role=tab]", "Versions", "button", "What version 2 changed")},
	{"task runs", "Mary,manager", "/tasks/" + verifying, way("finished", "[role=tab]", "Runs")},
	{"items", "Mary,manager", "/items", way("Find")},
	{"item held", "Mary,manager", "/items?task=" + verifying + "&item=L-2069", way("Tracy")},
	{"item put off", "Mary,manager", "/items?item=L-2055", way("March statement")},
	{"item let go", "Mary,manager", "/items?task=" + verifying + "&item=L-2069", way("Never again", "button", "Let go")},
	{"people", "Olga,observer", "/people", func(f *firefox, s *site) {
		way("Viktor")(f, s)
		f.await(`((list) => list.options.length > 1 && list.offsetWidth > 250)(document.querySelector('#view select'))`, e2e.Soon)
	}},
	{"person", "Mary,manager", "/people", way("L-20", "button", "Viktor")},
	{"wall", "Olga,observer", "/wall?task=" + verifying + ",verify,documents,resting", way("A run found 40")},
}

// way leads to a state: it clicks elements, given as selector and name in turn, until a text is visible.
func way(text string, what ...string) func(*firefox, *site) {
	return func(f *firefox, _ *site) {
		f.t.Helper()
		for i := 0; i < len(what); i += 2 {
			f.press(what[i], what[i+1])
		}
		f.await(fmt.Sprintf(`document.body.innerText.includes(%q)`, text), e2e.Soon)
	}
}

// Every view, on a screen and on a telephone, in light and dark: nobody scrolls sideways, axe finds nothing serious,
// everything can be reached by keyboard, and the console is silent. Pictures are taken for people to look at.
func TestFirefoxStates(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, map[string]any{"ui.prefersReducedMotion": 1, "ui.useOverlayScrollbars": 1})
	s := newSite(t, 1, "")
	s.day()
	for n, what := range firefoxStates {
		t.Run(what.name, func(t *testing.T) {
			defer func(before *testing.T) { f.t, s.T = before, before }(f.t)
			f.t, s.T = t, t
			f.size(looks[0].width, looks[0].height)
			if what.user == "" {
				f.open(s.Nodes[0].URL)
			} else {
				f.visit(s.Nodes[0].URL, what.path, what.user)
				f.state("live", e2e.Soon)
			}
			what.reach(f, s)
			for _, l := range looks {
				if l.scheme == "dark" && shots == "" {
					continue // colours are the same everywhere; only the browser's own fields differ
				}
				if !allLooks && l != looks[2*(n%2)] {
					continue // Chromium covers both
				}
				t.Run(l.name, func(t *testing.T) {
					f.size(l.width, l.height)
					f.scheme(l.scheme)
					f.eval(`(document.activeElement?.blur(), '')`)
					f.eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(''))))`)
					f.eval(`(document.querySelectorAll('*').forEach((e) => e.scrollTo(0, 0)), '')`)
					f.shoot(what.name + " " + l.name)
					if l.scheme == "dark" {
						return
					}
					f.audit(t)
					if wide := f.eval(tooWide); wide != "" {
						t.Error("the page scrolls sideways: ", wide)
					}
					f.walk(t)
				})
			}
		})
	}
}

// shoot takes a picture of the page.
func (f *firefox) shoot(name string) {
	f.t.Helper()
	if shots == "" {
		return
	}
	png := f.screenshot()
	err := os.MkdirAll(shots, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(shots, "firefox-"+strings.ReplaceAll(name, " ", "-")+".png"), png, 0o644)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// audit runs axe on the page.
func (f *firefox) audit(t *testing.T) {
	t.Helper()
	if f.eval(`typeof axe`) == "undefined" {
		f.do("WebDriver:ExecuteScript", body(axeSource), nil)
	}
	judge(t, f.eval(axeRun))
}

// walk goes through the page with the Tab key, and back.
func (f *firefox) walk(t *testing.T) {
	t.Helper()
	var names []string
	if err := json.Unmarshal([]byte(f.eval(stops)), &names); err != nil {
		t.Fatal(err)
	}
	tab := func(times int, key string) (found []stop) {
		for pressed := 0; len(found) < times && pressed < times+10; pressed += times - len(found) {
			f.keys(strings.ReplaceAll(key, keyTab, strings.Repeat(keyTab, times-len(found))))
			found = stopped(t, f.eval(`JSON.stringify(window.walked)`))
		}
		return found
	}
	forth := tab(len(names), keyTab)
	f.eval(`(window.walked = [], '')`)
	walked(t, names, forth, tab(max(0, len(names)-1), keyShift+keyTab))
}

// covered returns the element with the focus if none of it is visible, and otherwise "".
const covered = `((e) => {
	const { left, width, top, height } = e.getBoundingClientRect();
	const seen = [0.05, 0.5, 0.95].some((part) => {
		const there = document.elementFromPoint(left + width / 2, top + part * height);
		return there && (e.contains(there) || there.contains(e) || [...e.labels ?? []].some((l) => l.contains(there)));
	});
	return seen || e === document.body ? '' : e.outerHTML.slice(0, 160);
})(document.activeElement)`

// The element with the focus is always visible to keyboard users: no bar covers it. Firefox scrolls only to elements
// outside of the window.
func TestFirefoxFocusIsSeen(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i order by i`)
	s.Takes("Mary", 5)
	for _, l := range []look{looks[0], looks[2]} {
		f.size(l.width, l.height)
		for _, path := range []string{"/tasks/verify", "/"} {
			f.visit(s.Nodes[0].URL, path, "Mary,manager")
			f.await(`document.querySelector('#save, #work .complete')`, e2e.Soon)
			last := ""
			for _, key := range []string{keyTab, keyShift + keyTab} {
				f.eval(`(window.begin = document.activeElement, '')`)
				const through = `String([begin, document.body].includes(document.activeElement))`
				for n := 0; n < 20 || n < 200 && f.eval(through) == "false"; n++ {
					f.keys(key)
					if what := f.eval(covered); what != "" {
						t.Errorf("%s, %d pixels wide: the element with the focus, %s, is not visible after %s", path, l.width, what, last)
					}
					last = f.eval(`document.activeElement.outerHTML.slice(0, 160)`)
				}
			}
		}
	}
	f.click(css(".jump")) // on a telephone
	const there = `(({ left, top, height }) => document.elementFromPoint(left + 9, top + height / 2)?.id)(
		document.activeElement.getBoundingClientRect())`
	f.await(there+` === 'pipeline-title'`, e2e.Soon) // and not the link, which stays in view
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
