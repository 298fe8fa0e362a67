package page

import (
	"fmt"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// State waits for the page's message about its connection to the server.
func (b *Browser) State(name string, within time.Duration) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`document.querySelector('#chip').dataset.state === %q`, name), within)
}

// Banner waits for the banner's text.
func (b *Browser) Banner(text string, within time.Duration) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`document.querySelector('#banner').checkVisibility() && %s.includes(%q)`, b.reads(`document.querySelector('#banner')`), text), within)
}

// Yes reports whether an expression is true in the page now.
func (b *Browser) Yes(expression string) bool {
	b.T.Helper()
	yes, err := Run(b, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// drawn is a promise that is fulfilled with the page's next frame, or after a second if there is none.
const drawn = `Promise.race([new Promise((f) => requestAnimationFrame(() => f(true))), new Promise((f) => setTimeout(f, 1000, true))])`

// Promptly waits until something is true that is promised within a time. Delays caused by the machine count little: a
// turn in which the page, a node or the database is late with something cheap counts as a twentieth of a second. Like all
// times of tests, within is longer on a machine that is said to be slow.
func (b *Browser) Promptly(s *e2e.Site, what string, within time.Duration, so func() bool) {
	s.T.Helper()
	const most = 50 * time.Millisecond
	within = timeout.Scale(within)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	first := time.Now()
	for spent := time.Duration(0); ; {
		began := time.Now()
		if so() {
			return
		}
		if spent > within {
			s.T.Fatalf("not within %v, though the machine did not stand still: %s (%v by the clock)", within, what, time.Since(first))
		}
		_, err := Run(b, chromedp.Evaluate[bool](drawn, chromedp.EvalAwaitPromise))
		for i := range s.Nodes {
			if err == nil {
				_, err = s.As("Oliver", i).Do(s.T.Context(), "GET", "/livez", nil)
			}
		}
		if err == nil {
			_, err = s.DB.Exec(s.T.Context(), `select`)
		}
		if err != nil {
			s.T.Fatal(err)
		}
		<-tick.C
		spent += min(time.Since(began), most)
	}
}

// Notes records what elements show from now on, for [Browser.Showed]: some texts appear only for a moment.
func (b *Browser) Notes(selector string) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`(() => {
		const shown = window.shown = new Set();
		const look = () => document.querySelectorAll(%q).forEach((e) => shown.add(e.innerText.replace(/\s+/g, ' ')));
		look();
		new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`, selector))
}

// Showed waits until a recorded text contains the given one.
func (b *Browser) Showed(text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`[...shown].some((one) => one.includes(%q))`, text), e2e.Soon)
}

// Sees waits until the page shows a text, anywhere.
func (b *Browser) Sees(text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`%s.includes(%q)`, b.reads(`document.body`), text), e2e.Soon)
}

// Shows waits until an element's text contains the given part.
func (b *Browser) Shows(selector, text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`[...document.querySelectorAll(%q)].some((e) => e.checkVisibility() && %s.includes(%q))`, selector, b.readsIn(`e.textContent`), text), e2e.Soon)
}

// Painted reports for each of the last hours' charts whether it draws something, in a colour that differs from what is behind it.
const Painted = `[...document.querySelectorAll('[data-part=charts] [data-chart]')].map((c) => [...c.querySelectorAll('rect, polyline')].some((e) => {
	const { width } = e.getBoundingClientRect(), style = getComputedStyle(e), paper = getComputedStyle(document.body).backgroundColor;
	return width > 1 && [style.fill, style.stroke].some((colour) => colour.startsWith('rgb') && colour !== paper);
})).join()`
