package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
)

// stops lists where the Tab key must stop, in order, and then records where it does. In a group of radio buttons that
// is the chosen one, or else any. While a dialog is open only its own elements count.
const stops = `(() => {
	const within = [...document.querySelectorAll('dialog[open]')].at(-1) ?? document;
	const all = [...within.querySelectorAll('a[href], button, input, select, textarea, summary, iframe, [contenteditable], [tabindex]')].filter((e) =>
		e.tabIndex >= 0 && !e.disabled && !e.closest('[inert], [hidden]') && e.checkVisibility({ visibilityProperty: true }) && e.type !== 'hidden');
	const group = (e) => (e.type === 'radio' && e.name ? all.filter((o) => o.type === 'radio' && o.name === e.name && o.form === e.form) : [e]);
	const wanted = all.filter((e) => group(e).some((o) => o.checked) && e.type === 'radio' ? e.checked : group(e)[0] === e);
	const name = (e) => e.tagName.toLowerCase() + ' ' + (e.getAttribute('aria-label') ?? e.labels?.[0]?.innerText ?? e.innerText ?? '').trim().slice(0, 60);
	const ring = (e) => {
		const shown = getComputedStyle(e).opacity === '0' ? e.nextElementSibling : e; // a radio button that is drawn by the element after it
		const { outlineStyle, outlineWidth } = getComputedStyle(shown);
		return outlineStyle !== 'none' && parseFloat(outlineWidth) >= 1;
	};
	window.walked = [];
	window.walk?.abort();
	window.walk = new AbortController();
	document.addEventListener('focusin', ({ target: e }) => {
		const scrolls = e.scrollWidth > e.clientWidth || e.scrollHeight > e.clientHeight;
		window.walked.push({ stop: wanted.findIndex((w) => group(w).includes(e)), name: name(e), ring: ring(e), scrolls });
	}, { signal: window.walk.signal });
	const start = within === document ? document.body : within;
	const before = start.getAttribute('tabindex');
	start.tabIndex = -1;
	start.focus({ preventScroll: true });
	if (before === null) start.removeAttribute('tabindex');
	window.walked = [];
	return JSON.stringify(wanted.map(name));
})()`

// stop is where the Tab key has stopped.
type stop struct {
	Stop    int // in the order of the page; -1: not an expected stop
	Name    string
	Ring    bool // it is visible
	Scrolls bool
}

// walk goes through the page with the Tab key, and back. It must stop once, visibly, at every element that can be used,
// in the order of the page.
func (b *browser) walk(t *testing.T) {
	t.Helper()
	var names []string
	if err := json.Unmarshal([]byte(b.eval(stops)), &names); err != nil {
		t.Fatal(err)
	}
	forth := b.tab(t, len(names))
	var back []stop
	if len(names) > 0 {
		b.eval(`(window.walked = [], '')`)
		back = b.tab(t, len(names)-1, chromedp.KeyModifiers(chromedp.ModifierShift))
	}
	walked(t, names, forth, back)
}

// walked returns what is wrong with a walk to everything with those names, and back.
func walked(t *testing.T, names []string, forth, back []stop) {
	t.Helper()
	for i, name := range names {
		if i >= len(forth) || forth[i].Stop != i {
			t.Fatalf("the Tab key does not stop at %q, the %d. of %q; it stops at %+v", name, i+1, names, forth)
		}
		if !forth[i].Ring {
			t.Errorf("the focus on %q can't be seen", name)
		}
		if last := len(names) - 1; i > 0 && (i > len(back) || back[i-1].Stop != last-i) {
			t.Fatalf("on the way back the Tab key does not stop at %q; it stops at %+v", names[last-i], back)
		}
	}
	if len(forth) > len(names) {
		t.Errorf("the Tab key stops at unexpected places: %+v", forth[len(names):])
	}
}

// tab presses the Tab key until it has stopped that often. A stop only for scrolling with the arrow keys does not
// count.
func (b *browser) tab(t *testing.T, times int, options ...chromedp.KeyOption) []stop {
	t.Helper()
	var found []stop
	for pressed := 0; len(found) < times && pressed < times+10; pressed += times - len(found) {
		b.do(chromedp.KeyEvent(strings.Repeat(kb.Tab, times-len(found)), options...))
		found = stopped(t, b.eval(`JSON.stringify(window.walked)`))
	}
	return found
}

func stopped(t *testing.T, text string) (found []stop) {
	t.Helper()
	var all []stop
	if err := json.Unmarshal([]byte(text), &all); err != nil {
		t.Fatal(err)
	}
	for _, s := range all {
		if s.Stop >= 0 || !s.Scrolls {
			found = append(found, s)
		}
	}
	return found
}

// tabTo presses the Tab key until the element of that role and name has the focus.
func (b *browser) tabTo(role, name string) {
	b.t.Helper()
	const most = 300
	for pressed := range most {
		if pressed%100 == 0 { // the element may be redrawn meanwhile
			b.with(role, name, `function () { window.goal = this; return this.checkVisibility() && !this.disabled; }`)
		}
		if b.eval(`String(document.activeElement === goal)`) == "true" {
			return
		}
		b.keys(kb.Tab)
	}
	b.t.Fatalf("the Tab key does not come to the %s %q; it is at %s", role, name, b.eval(`document.activeElement.outerHTML.slice(0, 300)`))
}

// enter goes to an element with the Tab key, and presses Enter there.
func (b *browser) enter(role, name string) {
	b.t.Helper()
	b.tabTo(role, name)
	b.keys(kb.Enter)
}

// keys presses keys as a keyboard does: if a page prevents a key's action, its character does not come.
func (b *browser) keys(keys string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(keys, func(p *input.DispatchKeyEventParams) {
		if p.Type == input.DispatchKeyEventTypeKeyDown {
			p.Type = input.DispatchKeyEventTypeRawKeyDown
		}
	}))
}

// noMouse fails the test if the mouse was used in the page.
const noMouse = `for (const type of ['pointerdown', 'mousedown', 'touchstart']) addEventListener(type, (e) => { if (e.isTrusted) throw new Error('a mouse was used'); }, true)`

// logsIn logs in by keyboard: the name has the focus when the page opens.
func (b *browser) logsIn(address, user, role string) {
	b.t.Helper()
	b.do(chromedp.Navigate(address))
	b.await(`document.activeElement === document.querySelector('#user')`, e2e.Soon)
	b.keys(user)
	b.tabTo("combobox", "Role")
	b.keys(role[:1])
	b.enter("button", "Continue")
	b.await(fmt.Sprintf(`document.querySelector('#name').textContent === %q && document.querySelector('#view > *')`, user), e2e.Soon)
	b.state("live", e2e.Soon)
}

// A worker works without a mouse: logs in, gets work, completes with a note, undoes that, completes it all the same,
// returns until tomorrow, keeps, and sets to never.
func TestPageWorkerByKeyboard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, noMouse+";"+undoLasts)
	s := newSite(t, 1, "")
	leased(s, "30m", "a", "b", "c", "d")
	b.logsIn(s.Nodes[0].URL, "Oliver", "worker")
	for !b.yes(`document.activeElement.matches('.task summary')`) {
		b.keys(kb.Tab)
	}
	b.keys(kb.Enter)
	b.tabTo("radio", "3")
	b.keys(kb.ArrowRight)
	b.enter("button", "Get Work: verify")
	b.works(4, e2e.Soon)
	became := func(item, want string) {
		t.Helper()
		b.shows("#work .going", item+": ")
		b.eval(`(passes(), '')`) // reaching the undo button takes more than five seconds
		s.Await(item+" becomes "+want, e2e.Soon, `select state || ' ' || coalesce(note, '') = $2 from getwork.work where item = $1`, item, want)
	}

	b.tabTo("button", "a") // where keys are shortcuts
	b.keys("o")
	b.await(`document.activeElement.matches('textarea')`, e2e.Soon)
	b.keys("looked twice" + kb.Escape)
	b.tabTo("button", "Complete")
	b.keys(kb.Enter)
	b.enter("button", "Undo: a")
	b.await(`document.activeElement.textContent.trim() === 'a'`, e2e.Soon) // it is back, and has the focus
	b.await(`[...document.querySelectorAll('textarea')].some((e) => e.value === 'looked twice')`, e2e.Soon)
	b.enter("button", "Complete")
	became("a", "completed looked twice")

	b.tabTo("button", "b")
	b.enter("button", "Return")
	b.enter("button", "Return until tomorrow, 9:00")
	became("b", "returned ")
	if at := b.eval(fmt.Sprintf(`new Date(%q).toTimeString().slice(0, 5)`, column[string](s, `select to_json(available_at)#>>'{}' from getwork.work where item = 'b'`)[0])); at != "09:00" {
		t.Errorf("it comes back at %s", at)
	}

	b.enter("button", "Keep c")
	s.Await("the lease begins anew", e2e.Soon, `select lease_expires_at - assigned_at > lease from getwork.work where item = 'c'`)
	b.tabTo("button", "c")
	b.enter("button", "More")
	b.tabTo("button", "Remove from queue")
	b.keys(kb.Enter)
	b.await(`document.activeElement.innerText.includes('Really remove it?')`, e2e.Soon)
	b.keys(kb.Enter)
	became("c", "never ")

	b.await(`document.activeElement.textContent.trim() === 'd'`, e2e.Soon)
	b.keys("c") // and the same with single keys instead of buttons
	b.await(`document.body.innerText.includes('completed')`, e2e.Soon)
	b.keys("u")
	b.await(`document.activeElement.textContent.trim() === 'd'`, e2e.Soon)
	b.keys("xx")
	became("d", "never ")
}

// A manager works without a mouse: pauses a task, resumes it, finds out why an item is not handed out, and takes work
// back.
func TestPageManagerByKeyboard(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, noMouse)
	s := newSite(t, 1, "")
	leased(s, "30m", "a", "b", "c", "d")
	s.Takes("Oliver", 2)
	b.logsIn(s.Nodes[0].URL, "Mary", "manager")
	b.enter("link", "Tasks")
	b.enter("button", "Pause verify")
	b.tabTo("button", "Resume verify")
	s.Await("it is paused", e2e.Soon, `select paused from getwork.task_state`)
	b.keys(kb.Enter)
	s.Await("it is resumed", e2e.Soon, `select not paused from getwork.task_state`)

	b.enter("link", "Items")
	b.tabTo("textbox", "Item")
	b.keys("a" + kb.Enter)
	b.sees("Oliver has it")

	b.enter("button", "Release in bulk")
	b.tabTo("textbox", "Held by")
	b.keys("Oliver")
	b.enter("button", "Release 2 items")
	s.Await("it is back", e2e.Soon, `select count(*) = 2 from getwork.work where state = 'returned' and closed_by = 'Mary'`)
	b.await(`!document.querySelector('dialog[open]') && document.activeElement !== document.body`, e2e.Soon)
}
