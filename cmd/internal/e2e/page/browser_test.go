package page

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
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

// browser is a window of a real browser, with a profile of its own.
type browser struct {
	t    *testing.T
	ctx  context.Context
	lang string // pseudo, or empty: English

	mu   sync.Mutex
	said []string // the console's messages: violations of the page's policy, and exceptions
}

// newBrowser opens a window of Chromium, or skips the test if it is not installed. script runs before each page's own
// scripts.
func newBrowser(t *testing.T, script string) *browser {
	t.Helper()
	return newBrowserOf(t, &shared, script)
}

// newBrowserOf is newBrowser for a process of one's choice.
func newBrowserOf(t *testing.T, c *chromium, script string) *browser {
	t.Helper()
	b := &browser{t: t}
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
	b.do(func(ctx context.Context, tab *chromedp.Target) (chromedp.Void, error) {
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
func (b *browser) alwaysFocused() {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetFocusEmulationEnabled, emulation.SetFocusEmulationEnabledParams{Enabled: true})
		return err
	}))
}

// listen records messages that must not appear. Failed loads may: tests take nodes away.
func (b *browser) listen(event any) {
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

func (b *browser) do(steps ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, steps...); err != nil {
		b.t.Fatal(err)
	}
}

// click clicks an element once it is there, enabled, and stands still.
func (b *browser) click(selector string) {
	b.t.Helper()
	b.await(fmt.Sprintf(steady, fmt.Sprintf("(%s(%q), document.querySelector(%[2]q))", opens, selector)), e2e.Soon)
	b.do(chromedp.Click(chromedp.CSS(selector), chromedp.NodeVisible))
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

// eval evaluates an expression in the page.
func (b *browser) eval(expression string) string {
	b.t.Helper()
	v, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return v
}

// await waits until an expression is true in the page, even across a reload.
func (b *browser) await(expression string, within time.Duration) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout.Scale(within))
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	var last string // what was wrong at the last look
	for {
		wrong, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(looking, expression), chromedp.EvalAwaitPromise))
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
			b.t.Fatalf("not within %v: %s (last: %s, %v). The page shows:\n%s", within, expression, last, err, shown)
		case <-tick.C:
		}
	}
}

// looking looks in the page itself for half a second, since a call for each look takes a third of the tests' CPU. It is a
// promise of the empty string once the expression is true, else of what was wrong at the last look.
const looking = `(async () => {
	const look = () => { try { return (%s) ? '' : 'false'; } catch (e) { return String(e); } };
	let wrong = look();
	for (const end = performance.now() + 500; wrong && performance.now() < end; wrong = look()) await new Promise((f) => setTimeout(f, 20));
	return wrong;
})()`

// logIn opens the page and logs in by name.
func (b *browser) logIn(url, user string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url), chromedp.SendKeys(chromedp.ID("user"), user, chromedp.NodeVisible))
	b.eval(`(document.querySelector('#log-in-form button').click(), '')`) // no mouse, since the click reloads the page
	b.await(`document.querySelector('#tasks .task')`, e2e.Soon)
}

// state waits for the page's message about its connection to the server.
func (b *browser) state(name string, within time.Duration) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector('#chip').dataset.state === %q`, name), within)
}

// banner waits for the banner's text.
func (b *browser) banner(text string, within time.Duration) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.querySelector('#banner').checkVisibility() && %s.includes(%q)`, b.reads(`document.querySelector('#banner')`), text), within)
}

// works waits until the pipeline has that many items.
func (b *browser) works(n int, within time.Duration) {
	b.t.Helper()
	b.await(hasWorks(n), within)
}

func hasWorks(n int) string {
	return fmt.Sprintf(`document.querySelectorAll('#work > li').length === %d`, n)
}

// yes reports whether an expression is true in the page now.
func (b *browser) yes(expression string) bool {
	b.t.Helper()
	yes, err := chromedp.Run(b.ctx, chromedp.Evaluate[bool]("!!("+expression+")"))
	return err == nil && yes
}

// drawn is a promise that is fulfilled with the page's next frame, or after a second if there is none.
const drawn = `Promise.race([new Promise((f) => requestAnimationFrame(() => f(true))), new Promise((f) => setTimeout(f, 1000, true))])`

// promptly waits until something is true that is promised within a time. Delays caused by the machine count little: a
// turn in which the page, a node or the database is late with something cheap counts as a twentieth of a second.
func (s *site) promptly(b *browser, what string, within time.Duration, so func() bool) {
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

// getsWorks waits until the pipeline has that many items, within the promised second.
func (s *site) getsWorks(b *browser, n int) {
	s.T.Helper()
	s.promptly(b, fmt.Sprintf("%d items in the pipeline", n), time.Second, func() bool { return b.yes(hasWorks(n)) })
}

// notes records what elements show from now on, for showed: some texts appear only for a moment.
func (b *browser) notes(selector string) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`(() => {
		const shown = window.shown = new Set();
		const look = () => document.querySelectorAll(%q).forEach((e) => shown.add(e.innerText.replace(/\s+/g, ' ')));
		look();
		new MutationObserver(look).observe(document.body, { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`, selector))
}

// showed waits until a recorded text contains the given one.
func (b *browser) showed(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`[...shown].some((one) => one.includes(%q))`, text), e2e.Soon)
}

// getWork selects a count, clicks, and waits until the page shows that the request is pending.
func (b *browser) getWork(count int) {
	b.t.Helper()
	b.eval(fmt.Sprintf(`(document.querySelector('.task input[value="%d"]').click(), '')`, count))
	b.click(".task form button")
	b.await(`document.querySelector('.pending').checkVisibility()`, e2e.Soon)
}
