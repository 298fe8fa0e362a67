package look

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/lab/page"
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

// walk goes through the page with the Tab key, and back. It must stop once, visibly, at every element that can be used, in the order of
// the page. A list may be drawn anew meanwhile, so what is wrong is walked again; a flaw of the page is found each time.
func walk(b *page.Browser, t *testing.T) {
	t.Helper()
	for again := 2; ; again-- {
		var names []string
		if err := json.Unmarshal([]byte(b.Eval(stops)), &names); err != nil {
			t.Fatal(err)
		}
		forth := tab(b, t, len(names))
		var back []stop
		if len(names) > 0 {
			b.Eval(`(window.walked = [], '')`)
			back = tab(b, t, len(names)-1, chromedp.KeyModifiers(chromedp.ModifierShift))
		}
		wrong := walked(names, forth, back)
		if wrong == "" {
			return
		}
		if again == 0 {
			t.Error(wrong)
			return
		}
	}
}

// walked returns what is wrong with a walk to everything with those names, and back.
func walked(names []string, forth, back []stop) string {
	for i, name := range names {
		if i >= len(forth) || forth[i].Stop != i {
			return fmt.Sprintf("the Tab key does not stop at %q, the %d. of %q; it stops at %+v", name, i+1, names, forth)
		}
		if !forth[i].Ring {
			return fmt.Sprintf("the focus on %q can't be seen", name)
		}
		if last := len(names) - 1; i > 0 && (i > len(back) || back[i-1].Stop != last-i) {
			return fmt.Sprintf("on the way back the Tab key does not stop at %q; it stops at %+v", names[last-i], back)
		}
	}
	if len(forth) > len(names) {
		return fmt.Sprintf("the Tab key stops at unexpected places: %+v", forth[len(names):])
	}
	return ""
}

// tab presses the Tab key until it has stopped that often. A stop only for scrolling with the arrow keys does not
// count.
func tab(b *page.Browser, t *testing.T, times int, options ...chromedp.KeyOption) []stop {
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
