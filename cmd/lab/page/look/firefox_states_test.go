package look

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// firefoxStates are the states to look at in Firefox, too: each view, and whatever a browser may show in its own way.
var firefoxStates = []struct {
	name, user, path string
	reach            func(*page.Firefox, *e2e.Site)
}{
	{"log-in", "", "", way("Who are you?")},
	{"desk", "Oliver", "/", way("Your desk is clear.")},
	{"desk help", "Oliver", "/", way("And then the next one", "button", "Oliver", "button", "Keyboard shortcuts")},
	{"desk pending", "Pia", "/", way("ago.", "button", "Get Work: verify")},
	{"desk with work", "Wanda", "/", func(f *page.Firefox, s *e2e.Site) {
		s.Got(s.As("Wanda", 0), verifying, 2)
		way("March. Salary")(f, s)
		f.Eval(`(document.querySelector('.sheet summary').scrollIntoView({ block: 'center' }), '')`) // from behind the ways to end it, which stay in view
		way("Statement seen", "summary", "1 more detail")(f, s)
		f.Click(page.CSS("[data-menu=return] > button"))
		f.Press("button", "other …")
	}},
	{"desk dense", "Dora", "/", func(f *page.Firefox, s *e2e.Site) {
		s.Got(s.As("Dora", 0), "many", 20)
		f.Works(20)
	}},
	{"floor", "Mary,manager", "/floor", func(f *page.Firefox, s *e2e.Site) {
		way("Uma")(f, s)
		for _, scheme := range []string{"light", "dark", "light"} { // the charts change their colours with everything else
			f.Scheme(scheme)
			f.Await(page.Painted+` === 'true,true,true,true,true'`, e2e.Soon)
		}
	}},
	{"floor table", "Olga,observer", "/floor", way("Uma", "button", "1 hour", "button", "As a table", "summary", "Viktor")},
	{"floor release", "Mary,manager", "/floor", way("L-20", "button", "Actions for Verify", "button", "Release what is held of Verify")},
	{"tasks", "Mary,manager", "/tasks", way("Paused for the audit")},
	{"task new", "Mary,manager", "/tasks?new=1", way("New task")},
	{"task", "Mary,manager", "/tasks/" + verifying, way("from generate_series")},
	{"task error", "Mary,manager", "/tasks/none-left", func(f *page.Firefox, s *e2e.Site) {
		f.Fill(page.CSS("#set-query"), "select 1 as item\nfrom nowhere")
		way("does not exist", "button", "Save")(f, s)
	}},
	{"task preview", "Mary,manager", "/tasks/" + verifying, way("Applicant", "button", "Preview")},
	{"task versions", "Mary,manager", "/tasks/verify", way("10m", ".tabs a", "Versions", "button", "What version 2 changed")},
	{"task runs", "Mary,manager", "/tasks/" + verifying, way("finished", ".tabs a", "Runs")},
	{"items", "Mary,manager", "/items", way("Find")},
	{"item held", "Mary,manager", "/items?task=" + verifying + "&item=L-2069", way("Tracy")},
	{"item put off", "Mary,manager", "/items?item=L-2055", way("March statement")},
	{"item let go", "Mary,manager", "/items?task=" + verifying + "&item=L-2069", way("Never again", "button", "Let go")},
	{"people", "Olga,observer", "/people", func(f *page.Firefox, s *e2e.Site) {
		way("Viktor")(f, s)
		f.Await(`((list) => list.options.length > 1 && list.offsetWidth > 250)(document.querySelector('#view select'))`, e2e.Soon)
	}},
	{"person", "Mary,manager", "/people", way("L-20", "button", "Viktor")},
	{"webhooks", "Mary,manager", "/webhooks", hookedWay("/webhooks", way("6 failures in a row", "button", "New web hook"))},
	{"webhook", "Mary,manager", "/webhooks?hook=2", hookedWay("/webhooks?hook=2", way("no answer within 10s"))},
	{"webhook new secret", "Mary,manager", "/webhooks?hook=1", hookedWay("/webhooks?hook=1", way("The former secret signs, too:", "button", "New secret"))},
	{"wall", "Olga,observer", "/wall?task=" + verifying + ",verify,documents,resting", way("A run found 40")},
}

// way leads to a state: it clicks elements, given as selector and name in turn, until a text is visible.
func way(text string, what ...string) func(*page.Firefox, *e2e.Site) {
	return func(f *page.Firefox, _ *e2e.Site) {
		f.T.Helper()
		for i := 0; i < len(what); i += 2 {
			f.Press(what[i], what[i+1])
		}
		f.Await(fmt.Sprintf(`document.body.innerText.includes(%q)`, text), e2e.Soon)
	}
}

// hookedWay is for states with web hooks. If there were none, the path is opened anew.
func hookedWay(path string, then func(*page.Firefox, *e2e.Site)) func(*page.Firefox, *e2e.Site) {
	return func(f *page.Firefox, s *e2e.Site) {
		f.T.Helper()
		if hooked(s) {
			f.Open(s.Nodes[0].URL + path)
		}
		then(f, s)
	}
}

// Every view, on a screen and on a telephone, in light and dark: nobody scrolls sideways, axe finds nothing serious,
// everything can be reached by keyboard, and the console is silent. Pictures are taken for people to look at.
func TestFirefoxStates(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	f := page.NewFirefox(t, map[string]any{"ui.prefersReducedMotion": 1, "ui.useOverlayScrollbars": 1})
	s := e2e.NewSite(t, 1, "")
	day(s)
	for n, what := range firefoxStates {
		t.Run(what.name, func(t *testing.T) {
			defer func(before *testing.T) { f.T, s.T = before, before }(f.T)
			f.T, s.T = t, t
			f.Size(page.Looks[0].Width, page.Looks[0].Height)
			if what.user == "" {
				f.Open(s.Nodes[0].URL)
			} else {
				f.Visit(s.Nodes[0].URL, what.path, what.user)
				f.State("live", e2e.Soon)
			}
			what.reach(f, s)
			f.Await(explained, e2e.Soon)
			lookAt(f, t, n, what.name)
		})
	}
}

// lookAt looks at the n-th state on a screen or on a telephone.
func lookAt(f *page.Firefox, t *testing.T, n int, name string) {
	t.Helper()
	for _, l := range page.Looks {
		if l.Scheme == "dark" && page.Shots == "" {
			continue // colours are the same everywhere; only the browser's own fields differ
		}
		if !allLooks && l != page.Looks[2*(n%2)] {
			continue // Chromium covers both
		}
		t.Run(l.Name, func(t *testing.T) {
			f.Size(l.Width, l.Height)
			f.Scheme(l.Scheme)
			f.Eval(`(document.activeElement?.blur(), '')`)
			f.Eval(`new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(''))))`)
			f.Eval(`(document.querySelectorAll('*').forEach((e) => e.scrollTo(0, 0)), '')`)
			f.Shoot(name + " " + l.Name)
			if l.Scheme == "dark" {
				return
			}
			if allLooks || n%4 == 0 { // axe sees the same in both browsers
				f.Audit(t)
			}
			if wide := f.Eval(tooWide); wide != "" {
				t.Error("the page scrolls sideways: ", wide)
			}
			if f.Eval(`document.querySelector('.menu [aria-expanded=true]') ? 'open' : ''`) == "" { // leaving a menu closes it
				walkFirefox(f, t)
			}
		})
	}
}

// walkFirefox goes through the page with the Tab key, and back.
func walkFirefox(f *page.Firefox, t *testing.T) {
	t.Helper()
	var names []string
	if err := json.Unmarshal([]byte(f.Eval(stops)), &names); err != nil {
		t.Fatal(err)
	}
	tab := func(times int, key string) (found []stop) {
		for pressed := 0; len(found) < times && pressed < times+10; pressed += times - len(found) {
			f.Keys(strings.ReplaceAll(key, page.KeyTab, strings.Repeat(page.KeyTab, times-len(found))))
			found = stopped(t, f.Eval(`JSON.stringify(window.walked)`))
		}
		return found
	}
	forth := tab(len(names), page.KeyTab)
	f.Eval(`(window.walked = [], '')`)
	if wrong := walked(names, forth, tab(max(0, len(names)-1), page.KeyShift+page.KeyTab)); wrong != "" {
		t.Error(wrong)
	}
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
	schematest.Thorough(t)
	t.Parallel()
	f := page.NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i order by i`)
	s.Takes("Mary", 5)
	for _, l := range []page.Look{page.Looks[0], page.Looks[2]} {
		f.Size(l.Width, l.Height)
		for _, path := range []string{"/tasks/verify", "/"} {
			f.Visit(s.Nodes[0].URL, path, "Mary,manager")
			f.Await(`document.querySelector('#save, #work .complete')`, e2e.Soon)
			last := ""
			for _, key := range []string{page.KeyTab, page.KeyShift + page.KeyTab} {
				f.Eval(`(window.begin = document.activeElement, '')`)
				const look = `JSON.stringify({ Covered: ` + covered + `, Last: document.activeElement.outerHTML.slice(0, 160),
					Through: [begin, document.body].includes(document.activeElement) })`
				through := false
				for n := 0; n < 20 || n < 200 && !through; n++ {
					f.Keys(key)
					var is struct {
						Covered, Last string
						Through       bool
					}
					if err := json.Unmarshal([]byte(f.Eval(look)), &is); err != nil {
						t.Fatal(err)
					}
					if is.Covered != "" {
						t.Errorf("%s, %d pixels wide: the element with the focus, %s, is not visible after %s", path, l.Width, is.Covered, last)
					}
					last, through = is.Last, is.Through
				}
			}
		}
	}
	// On a telephone the bar below leads to the end of the item in hand.
	f.Press("button", "Finish this")
	f.Await(`(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(document.querySelector('#work .complete').getBoundingClientRect())`, e2e.Soon)
}
