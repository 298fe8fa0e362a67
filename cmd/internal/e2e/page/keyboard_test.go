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
func (b *Browser) walk(t *testing.T) {
	t.Helper()
	var names []string
	if err := json.Unmarshal([]byte(b.Eval(stops)), &names); err != nil {
		t.Fatal(err)
	}
	forth := b.tab(t, len(names))
	var back []stop
	if len(names) > 0 {
		b.Eval(`(window.walked = [], '')`)
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
func (b *Browser) tab(t *testing.T, times int, options ...chromedp.KeyOption) []stop {
	t.Helper()
	var found []stop
	for pressed := 0; len(found) < times && pressed < times+10; pressed += times - len(found) {
		b.Do(chromedp.KeyEvent(strings.Repeat(kb.Tab, times-len(found)), options...))
		found = stopped(t, b.Eval(`JSON.stringify(window.walked)`))
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

// TabTo presses the Tab key until the element of that role and name has the focus.
func (b *Browser) TabTo(role, name string) {
	b.T.Helper()
	const most = 300
	for pressed := range most {
		if pressed%100 == 0 { // the element may be redrawn meanwhile
			b.with(role, name, `function () { window.goal = this; return this.checkVisibility() && !this.disabled; }`)
		}
		if b.Eval(`String(document.activeElement === goal)`) == "true" {
			return
		}
		b.Keys(kb.Tab)
	}
	b.T.Fatalf("the Tab key does not come to the %s %q; it is at %s", role, name, b.Eval(`document.activeElement.outerHTML.slice(0, 300)`))
}

// Enter goes to an element with the Tab key, and presses Enter there.
func (b *Browser) Enter(role, name string) {
	b.T.Helper()
	b.TabTo(role, name)
	b.Keys(kb.Enter)
}

// Keys presses keys as a keyboard does: if a page prevents a key's action, its character does not come.
func (b *Browser) Keys(keys string) {
	b.T.Helper()
	b.Do(chromedp.KeyEvent(keys, func(p *input.DispatchKeyEventParams) {
		if p.Type == input.DispatchKeyEventTypeKeyDown {
			p.Type = input.DispatchKeyEventTypeRawKeyDown
		}
	}))
}

// NoMouse fails the test if the mouse was used in the page.
const NoMouse = `for (const type of ['pointerdown', 'mousedown', 'touchstart']) addEventListener(type, (e) => { if (e.isTrusted) throw new Error('a mouse was used'); }, true)`

// logsIn logs in by keyboard: the name has the focus when the page opens.
func (b *Browser) logsIn(address, user, role string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(address))
	b.Await(`document.activeElement === document.querySelector('#user')`, e2e.Soon)
	b.Keys(user)
	b.TabTo("combobox", "Role")
	b.Keys(role[:1])
	b.Enter("button", "Continue")
	b.Await(fmt.Sprintf(`document.querySelector('#name').textContent === %q && document.querySelector('#view > *')`, user), e2e.Soon)
	b.State("live", e2e.Soon)
}

// A worker works without a mouse: logs in, gets work, completes with a note, undoes that, completes it all the same,
// returns until tomorrow, keeps, and sets to never.
func TestPageWorkerByKeyboard(t *testing.T) {
	t.Parallel()
	b := NewBrowser(t, NoMouse+";"+UndoLasts)
	s := e2e.NewSite(t, 1, "")
	Leased(s, "30m", "a", "b", "c", "d")
	b.logsIn(s.Nodes[0].URL, "Oliver", "worker")
	for !b.Yes(`document.activeElement.matches('.task summary')`) {
		b.Keys(kb.Tab)
	}
	b.Keys(kb.Enter)
	b.TabTo("radio", "3")
	b.Keys(kb.ArrowRight)
	b.Enter("button", "Get Work: verify")
	b.Works(4, e2e.Soon)
	became := func(item, want string) {
		t.Helper()
		b.Shows("#work .going", item+": ")
		b.Eval(`(passes(), '')`) // reaching the undo button takes more than five seconds
		s.Await(item+" becomes "+want, e2e.Soon, `select state || ' ' || coalesce(note, '') = $2 from getwork.work where item = $1`, item, want)
	}

	b.TabTo("button", "a") // where keys are shortcuts
	b.Keys("o")
	b.Await(`document.activeElement.matches('textarea')`, e2e.Soon)
	b.Keys("looked twice" + kb.Escape)
	b.TabTo("button", "Complete")
	b.Keys(kb.Enter)
	b.Enter("button", "Undo: a")
	b.Await(`document.activeElement.textContent.trim() === 'a'`, e2e.Soon) // it is back, and has the focus
	b.Await(`[...document.querySelectorAll('textarea')].some((e) => e.value === 'looked twice')`, e2e.Soon)
	b.Enter("button", "Complete")
	became("a", "completed looked twice")

	b.TabTo("button", "b")
	b.Enter("button", "Return")
	b.Enter("button", "Return until tomorrow, 9:00")
	became("b", "returned ")
	if at := b.Eval(fmt.Sprintf(`new Date(%q).toTimeString().slice(0, 5)`, e2e.Column[string](s, `select to_json(available_at)#>>'{}' from getwork.work where item = 'b'`)[0])); at != "09:00" {
		t.Errorf("it comes back at %s", at)
	}

	b.Enter("button", "Keep c")
	s.Await("the lease begins anew", e2e.Soon, `select lease_expires_at - assigned_at > lease from getwork.work where item = 'c'`)
	b.TabTo("button", "c")
	b.Enter("button", "More")
	b.TabTo("button", "Remove from queue")
	b.Keys(kb.Enter)
	b.Await(`document.activeElement.innerText.includes('Really remove it?')`, e2e.Soon)
	b.Keys(kb.Enter)
	became("c", "never ")

	b.Await(`document.activeElement.textContent.trim() === 'd'`, e2e.Soon)
	b.Keys("c") // and the same with single keys instead of buttons
	b.Await(`document.body.innerText.includes('completed')`, e2e.Soon)
	b.Keys("u")
	b.Await(`document.activeElement.textContent.trim() === 'd'`, e2e.Soon)
	b.Keys("xx")
	became("d", "never ")
}

// A manager works without a mouse: pauses a task, resumes it, finds out why an item is not handed out, and takes work
// back.
func TestPageManagerByKeyboard(t *testing.T) {
	t.Parallel()
	b := NewBrowser(t, NoMouse)
	s := e2e.NewSite(t, 1, "")
	Leased(s, "30m", "a", "b", "c", "d")
	s.Takes("Oliver", 2)
	b.logsIn(s.Nodes[0].URL, "Mary", "manager")
	b.Enter("link", "Tasks")
	b.Enter("button", "Pause verify")
	b.TabTo("button", "Resume verify")
	s.Await("it is paused", e2e.Soon, `select paused from getwork.task_state`)
	b.Keys(kb.Enter)
	s.Await("it is resumed", e2e.Soon, `select not paused from getwork.task_state`)

	b.Enter("link", "Items")
	b.TabTo("textbox", "Item")
	b.Keys("a" + kb.Enter)
	b.Sees("Oliver has it")

	b.Enter("button", "Release in bulk")
	b.TabTo("textbox", "Held by")
	b.Keys("Oliver")
	b.Enter("button", "Release 2 items")
	s.Await("it is back", e2e.Soon, `select count(*) = 2 from getwork.work where state = 'returned' and closed_by = 'Mary'`)
	b.Await(`!document.querySelector('dialog[open]') && document.activeElement !== document.body`, e2e.Soon)
}
