package access

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// denials is a page script that records calls that are denied, across all of the tab's pages, and how many calls are
// under way.
const denials = `(() => {
	const { fetch } = window;
	window.underWay = 0;
	window.fetch = async (...args) => {
		window.underWay++;
		try {
			const response = await fetch(...args);
			if (response.status === 403) sessionStorage.denied = (sessionStorage.denied ?? '') + args[1].method + ' ' + args[0] + '; ';
			return response;
		} finally {
			window.underWay--;
		}
	};
})()`

// pressesAll presses every button in the view, including those that appear, until there is nothing new. It confirms
// every dialog.
const pressesAll = `
	const pressed = new Set();
	const nameOf = (e) => [e.closest('[data-part], [data-user], [data-task], dialog')?.outerHTML.slice(0, 60), e.tagName, e.ariaLabel, e.textContent.trim().replace(/\d+/g, 'n'), e.value].join(' ');
	const next = () => [...document.querySelectorAll('dialog[open] :is(button, summary), #view :is(button, summary, input[type=checkbox], input[type=radio])')]
		.find((e) => e.checkVisibility() && e.ariaDisabled !== 'true' && !pressed.has(nameOf(e)));
	for (let e; pressed.size < 300;) {
		await until(() => (e = next()) || !window.underWay);
		if (!e) await new Promise((f) => requestAnimationFrame(() => requestAnimationFrame(f))); // so that an answer that has just come is drawn
		if (!(e ??= next())) {
			if (!window.underWay) break;
			continue;
		}
		pressed.add(nameOf(e));
		e.click();
		await new Promise((f) => requestAnimationFrame(() => setTimeout(f)));
	}
	for (const select of document.querySelectorAll('#view select')) {
		for (const option of select.options) {
			select.value = option.value;
			select.dispatchEvent(new Event('change', { bubbles: true }));
		}
	}
	await until(() => !window.underWay);
	return [...pressed].length;`

// there is what each view shows once it has read everything.
var there = map[string]string{"/": ".task .get", "/floor": "[data-part=held] [data-user] summary", "/people": "[data-user] button", "/limits": ".limits tbody", "/wall": ".tile[data-task]"}

// No call is denied to an observer, a worker or an agent, whatever they press in any view: there is no button that they
// may not use. An address that is not for them leads to one that is.
func TestPageRolesPressEverything(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	for _, role := range []struct {
		who, links string
		paths      map[string]string // where the addresses lead
		least      int               // the least number of buttons there
	}{
		{"Otto,observer", "Floor People Limits Wall", map[string]string{"/floor": "/floor", "/people": "/people", "/limits": "/limits", "/wall": "/wall",
			"/": "/floor", "/tasks": "/floor", "/tasks/verify": "/floor", "/items?item=1": "/floor"}, 5},
		{"Oliver,worker", "Desk Wall", map[string]string{"/": "/", "/wall": "/wall", "/floor": "/", "/tasks": "/", "/items?item=1": "/", "/people": "/", "/limits": "/"}, 10},
		{"Ann,agent", "Desk Wall", map[string]string{"/": "/", "/wall": "/wall", "/floor": "/", "/tasks": "/", "/items?item=1": "/", "/people": "/", "/limits": "/"}, 10},
	} {
		t.Run(role.who, func(t *testing.T) {
			b := page.NewBrowser(t, denials)
			s := e2e.NewSite(t, 1, "")
			s.Task("jobs", `select i as item from generate_series(1, 9) i`)
			s.Create(map[string]any{"name": "verify", "title": "Letters", "lease": "10m"})
			page.Manages(s, "POST", "/tasks/verify/items", []map[string]any{{"item": "a"}, {"item": "b"}, {"item": "c"}})
			s.Got(s.As("Tracy", 0), "jobs", 2)
			s.Disposed(s.As("Tracy", 0), s.Takes("Tracy", 1)[0], "return", "1h")
			s.Disposed(s.As("Uma", 0), s.Got(s.As("Uma", 0), "jobs", 1).Work[0], "return", "1h")
			s.Create(map[string]any{"name": "box"})
			if a, err := s.As("Victor", 0).Do(t.Context(), "POST", "/api/v1/tasks/box/requests", map[string]any{"count": 1, "linger": "1h"}); err != nil || a.Status != 202 {
				t.Fatal(a, err)
			}
			b.Visit(s.Nodes[0].URL, "/", role.who)
			b.State("live", e2e.Soon)
			if links := b.Eval(`[...document.querySelectorAll('#views a')].map((e) => e.textContent).join(' ')`); links != role.links {
				t.Errorf("the views are %s, want %s", links, role.links)
			}
			for path, leads := range role.paths {
				b.Opens(s.Nodes[0].URL + path)
				b.Await(fmt.Sprintf(`location.pathname === %q && document.querySelector(%q)`, leads, there[leads]), e2e.Soon)
				b.State("live", e2e.Soon)
				if path != leads {
					continue // all is pressed at the address itself
				}
				n := page.InPage[int](b, pressesAll)
				t.Logf("%s: %d pressed", path, n)
				if path == role.paths["/"] && n < role.least {
					t.Errorf("%d buttons were pressed, and there are more", n)
				}
			}
			if denied := b.Eval(`sessionStorage.denied ?? ''`); denied != "" {
				t.Errorf("denied: %s", denied)
			}
		})
	}
}

// An agent with a browser gets a worker's desk, gets work, and lets go of it.
func TestPageOfAnAgent(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	s.Create(map[string]any{"name": "verify", "title": "Letters", "lease": "10m", "max_attempts": 3})
	page.Manages(s, "POST", "/tasks/verify/items", []map[string]any{{"item": "a"}, {"item": "b"}})
	b.Visit(s.Nodes[0].URL, "/", "Ann,agent")
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('#role').textContent === 'agent'`, e2e.Soon)
	b.Shows("#tasks .name", "Letters")
	b.Press(`.task input[value="2"]`)
	b.Press(".task .get")
	b.Works(2, e2e.Soon)
	b.TypeNote("by hand")
	b.Press("#work li:first-child .complete")
	b.Press(`#work li:nth-child(2) [data-return="1h"]`)
	b.Eval(`(passes(), '')`)
	page.Disposes(s, "a completed by hand, b returned")
	b.Do(chromedp.Reload())
	b.Shows("#empty", "Your desk is clear.")
	b.Shows("#recent", "returned")
}
