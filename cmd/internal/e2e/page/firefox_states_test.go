package page

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
)

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
		way("March. Salary", "summary", "Note")(f, s)
		f.click(css("[data-menu=return] > button"))
		f.press("button", "other …")
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
	{"webhooks", "Mary,manager", "/webhooks", func(f *firefox, s *site) {
		s.hooked()
		f.open(s.Nodes[0].URL + "/webhooks")
		way("6 failures in a row", "button", "New web hook")(f, s)
	}},
	{"webhook", "Mary,manager", "/webhooks?hook=2", way("no answer within 10s")},
	{"webhook new secret", "Mary,manager", "/webhooks?hook=1", way("The former secret signs, too:", "button", "New secret")},
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
			f.await(explained, e2e.Soon)
			f.looks(t, n, what.name)
		})
	}
}

// looks looks at the n-th state on a screen or on a telephone.
func (f *firefox) looks(t *testing.T, n int, name string) {
	t.Helper()
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
			f.shoot(name + " " + l.name)
			if l.scheme == "dark" {
				return
			}
			if allLooks || n%4 == 0 { // axe sees the same in both browsers
				f.audit(t)
			}
			if wide := f.eval(tooWide); wide != "" {
				t.Error("the page scrolls sideways: ", wide)
			}
			if f.eval(`document.querySelector('.menu [aria-expanded=true]') ? 'open' : ''`) == "" { // leaving a menu closes it
				f.walk(t)
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

// covered returns the element with the focus if none of it is visible, and otherwise "". Once the Tab key has gone through
// Firefox's own bars, its page goes on without having the focus, and the link that is shown while it has the focus isn't.
const covered = `((e) => {
	if (e.matches('.skip') && !document.hasFocus()) return '';
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
				const look = `JSON.stringify({ Covered: ` + covered + `, Last: document.activeElement.outerHTML.slice(0, 160),
					Through: [begin, document.body].includes(document.activeElement) })`
				through := false
				for n := 0; n < 20 || n < 200 && !through; n++ {
					f.keys(key)
					var is struct {
						Covered, Last string
						Through       bool
					}
					if err := json.Unmarshal([]byte(f.eval(look)), &is); err != nil {
						t.Fatal(err)
					}
					if is.Covered != "" {
						t.Errorf("%s, %d pixels wide: the element with the focus, %s, is not visible after %s", path, l.width, is.Covered, last)
					}
					last, through = is.Last, is.Through
				}
			}
		}
	}
	f.click(css("#tab-tasks")) // on a telephone
	f.await(`document.querySelector('#tasks').checkVisibility() && !document.querySelector('#work').checkVisibility()`, e2e.Soon)
	f.click(css("#tab-pipeline"))
	f.await(`document.querySelector('#work .complete').checkVisibility() && !document.querySelector('#tasks').checkVisibility()`, e2e.Soon)
}
