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
	"github.com/chromedp/cdproto/network"
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

	mu    sync.Mutex
	said  []string // the console's messages: violations of the page's policy, and exceptions
	loads []string // what it could not load, which is logged if the test fails
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
	b.open()
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
		if t.Failed() && len(b.loads) > 0 {
			t.Logf("the browser's failed loads:\n%s", strings.Join(b.loads, "\n"))
		}
	})
	return b
}

// open opens the window, and makes it behave as if it had the focus, which otherwise only one of all tests' windows has.
func (b *Browser) open() {
	b.T.Helper()
	if err := chromedp.Do(b.ctx); err != nil { // not by Do: the window would answer nothing after the end of that context
		b.T.Fatal(err)
	}
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
		if e.Entry.Source == "network" {
			b.loads = append(b.loads, e.Entry.URL+": "+e.Entry.Text)
		}
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

// patience bounds what the browser may take for a step. Once in a while Chromium never answers, and the whole package would wait
// until the time-out of go test.
const patience = 3 * e2e.Soon

// Run takes a step of chromedp that has a result. It fails if the step takes longer than patience.
func Run[T any](b *Browser, step chromedp.Action[T]) (T, error) {
	ctx, cancel := context.WithTimeout(b.ctx, timeout.Scale(patience))
	defer cancel()
	return chromedp.Run(ctx, step)
}

// Do takes steps of chromedp, and fails the test if one fails, or if they take longer than patience.
func (b *Browser) Do(steps ...chromedp.Action[chromedp.Void]) {
	b.T.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, timeout.Scale(patience))
	defer cancel()
	if err := chromedp.Do(ctx, steps...); err != nil {
		b.T.Fatal(err)
	}
}

// Click clicks an element once it is there, enabled, and stands still.
func (b *Browser) Click(selector string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(steady, fmt.Sprintf("%s(%q)", aims, selector)), e2e.Soon)
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
	v, err := Run(b, chromedp.Evaluate[string](expression))
	if err != nil {
		b.T.Fatalf("%.500s: %v", expression, err) // it may be a library
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
	var last string // what the last look saw
	for {
		seen, err := chromedp.Run(ctx, chromedp.Evaluate[string](fmt.Sprintf(Looking, expression), chromedp.EvalAwaitPromise))
		if err == nil && seen == "true" {
			return
		}
		if err == nil {
			last = seen
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

// Looking looks in the page itself for half a second, since a call for each time takes a third of the tests' CPU. It is a
// promise of "true" once the expression is true, else of what was wrong the last time. Firefox returns null for a page that
// goes away meanwhile: nothing that reads as an empty text may mean true.
const Looking = `(async (look) => {
	let seen = look();
	for (const end = performance.now() + 500; seen !== 'true' && performance.now() < end; seen = look()) await new Promise((f) => setTimeout(f, 20));
	return seen;
})(() => { try { return String(Boolean((%s))); } catch (e) { return String(e); } })`

// Window opens another window of the same browser, with the same log-in.
func (b *Browser) Window() *Browser {
	b.T.Helper()
	ctx, cancel := chromedp.NewContext(b.ctx, chromedp.WithNewWindow(true))
	other := &Browser{T: b.T, ctx: ctx}
	b.T.Cleanup(cancel)
	other.open()
	if err := chromedp.Listen(ctx, b.listen); err != nil {
		b.T.Fatal(err)
	}
	return other
}

// Cached switches the browser's cache on or off.
func (b *Browser) Cached(yes bool) {
	b.T.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, network.SetCacheDisabled, network.SetCacheDisabledParams{CacheDisabled: !yes})
		return err
	}))
}
