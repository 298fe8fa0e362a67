package page

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/schema/schematest/timeout"
)

// Browser is a window of a real browser, with a profile of its own.
type Browser struct {
	T    *testing.T
	ctx  context.Context
	Lang string // [Pseudo], or empty: English

	mu   sync.Mutex
	said []string // the console's messages: violations of the page's policy, and exceptions
}

// NewBrowser opens a window of Chromium, or skips the test if it is not installed. script runs before each page's own
// scripts.
func NewBrowser(t *testing.T, script string) *Browser {
	t.Helper()
	return newBrowserOf(t, &shared, script)
}

// NewDesktopBrowser is [NewBrowser] for the program that people have, which can keep a screen on.
func NewDesktopBrowser(t *testing.T, script string) *Browser {
	t.Helper()
	return newBrowserOf(t, &desktop, script)
}

func newBrowserOf(t *testing.T, c *chromium, script string) *Browser {
	t.Helper()
	b := &Browser{T: t}
	process, err := c.start()
	if errors.Is(err, exec.ErrNotFound) {
		t.Skipf("none of %s is on the PATH; on Debian: apt-get install %s", strings.Join(c.programs, ", "), c.programs[0])
	}
	if err != nil {
		t.Fatal(err)
	}
	// Not the test's own context, which ends before the clean-ups: they close the window in order.
	ctx, cancel := chromedp.NewContext(process, chromedp.WithNewBrowserContext())
	t.Cleanup(cancel)
	b.ctx = ctx
	b.alwaysFocused()
	b.Do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
		_, err := cdp.Call(ctx, tab, page.AddScriptToEvaluateOnNewDocument, page.AddScriptToEvaluateOnNewDocumentParams{Source: script})
		return chromedp.Void{}, err
	})
	if err := chromedp.Listen(b.ctx, b.listen); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if len(b.said) > 0 {
			t.Errorf("the browser's console said:\n%s", strings.Join(b.said, "\n"))
		}
	})
	return b
}

// alwaysFocused makes the window behave as if it had the focus, which otherwise only one of all tests' windows has.
func (b *Browser) alwaysFocused() {
	b.T.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
}

// listen records messages that must not appear. Failed loads may: tests take nodes away.
func (b *Browser) listen(event any) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch e := event.(type) {
	case *log.EventEntryAdded:
		if strings.Contains(e.Entry.Text, "Content Security Policy") || e.Entry.Source == "security" {
			b.said = append(b.said, e.Entry.Text)
		}
	case *runtime.EventExceptionThrown:
		b.said = append(b.said, fmt.Sprint(e.ExceptionDetails))
	}
}

// Context is the window's, for chromedp's own functions.
func (b *Browser) Context() context.Context { return b.ctx }

// Forgives removes those of the console's messages that contain a text, which would fail the test at its end, and reports whether
// there were any.
func (b *Browser) Forgives(text string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	before := len(b.said)
	b.said = slices.DeleteFunc(b.said, func(line string) bool { return strings.Contains(line, text) })
	return len(b.said) < before
}

// Do takes steps of chromedp, and fails the test if one fails.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.T.Fatal(err)
	}
}

// Click clicks an element once it is there, enabled, and stands still.
func (b *Browser) Click(selector string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(steady, fmt.Sprintf("(%s(%q), document.querySelector(%[2]q))", opens, selector)), e2e.Soon)
	b.Do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
}

// steady reports whether an element can be clicked, and has not moved since the last call.
const steady = `((e) => {
	if (!e || e.disabled || !e.checkVisibility()) return false;
	e.scrollIntoViewIfNeeded();
	const { x, y, width, height } = e.getBoundingClientRect();
	const now = [x, y, width, height].join(), before = e.stoodAt;
	e.stoodAt = now;
	return before === now;
})(%s)`

// Eval evaluates an expression in the page that is a text.
func (b *Browser) Eval(expression string) string {
	b.T.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.T.Fatalf("%s: %v", expression, err)
	}
	return v
}

// Await waits until an expression is true in the page, even across a reload.
func (b *Browser) Await(expression string, within time.Duration) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout.Scale(within))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last string // what was wrong at the last look
	for {
		wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(Looking, expression), chromedp.EvalAwaitPromise))
		if err == nil && wrong == "" {
			return
		}
		if err == nil {
			last = wrong
		}
		select {
		case <-ctx.Done():
			again, end := context.WithTimeout(b.ctx, 5*time.Second) // a page that has crashed never answers
			shown, _ := chromedp.Run(again, chromedp.Evaluate[string]("document.body.innerText"))
			end()
			b.T.Fatalf("not within %v: %s (last: %s, %v). The page shows:\n%s", within, expression, last, err, shown)
		case <-tick.C:
		}
	}
}

// Looking looks in the page itself for half a second, since a call for each look takes a third of the tests' CPU. It is a
// promise of the empty string once the expression is true, else of what was wrong at the last look.
const Looking = `(async () => {
	const look = () => { try { return (%s) ? '' : 'false'; } catch (e) { return String(e); } };
	let wrong = look();
	for (const end = performance.now() + 500; wrong && performance.now() < end; wrong = look()) await new Promise((f) => setTimeout(f, 20));
	return wrong;
})()`

// LogIn opens the page and logs in by name.
func (b *Browser) LogIn(url, user string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(url), chromedp.SendKeys(chromedp.ID("user"), user, chromedp.NodeVisible))
	b.Eval(`(document.querySelector('#log-in-form button').click(), '')`) // no mouse, since the click reloads the page
	b.Await(`document.querySelector('#tasks .task')`, e2e.Soon)
}

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

// Works waits until the pipeline has that many items.
func (b *Browser) Works(n int, within time.Duration) {
	b.T.Helper()
	b.Await(hasWorks(n), within)
}

func hasWorks(n int) string {
	return fmt.Sprintf(`document.querySelectorAll('#work > li').length === %d`, n)
}

// Yes reports whether an expression is true in the page now.
func (b *Browser) Yes(expression string) bool {
	b.T.Helper()
	yes, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// drawn is a promise that is fulfilled with the page's next frame, or after a second if there is none.
const drawn = `Promise.race([new Promise((f) => requestAnimationFrame(() => f(true))), new Promise((f) => setTimeout(f, 1000, true))])`

// Promptly waits until something is true that is promised within a time. Delays caused by the machine count little: a
// turn in which the page, a node or the database is late with something cheap counts as a twentieth of a second.
func (b *Browser) Promptly(s *e2e.Site, what string, within time.Duration, so func() bool) {
	s.T.Helper()
	const most = 50 * time.Millisecond
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
		_, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool](drawn, chromedp.EvalAwaitPromise))
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

// GetsWorks waits until the pipeline has that many items, within the promised second.
func (b *Browser) GetsWorks(s *e2e.Site, n int) {
	s.T.Helper()
	b.Promptly(s, fmt.Sprintf("%d items in the pipeline", n), time.Second, func() bool { return b.Yes(hasWorks(n)) })
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

// GetWork selects a count, clicks, and waits until the page shows that the request is pending.
func (b *Browser) GetWork(count int) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`(document.querySelector('.task input[value="%d"]').click(), '')`, count))
	b.Click(".task form button")
	b.Await(`document.querySelector('.pending').checkVisibility()`, e2e.Soon)
}
