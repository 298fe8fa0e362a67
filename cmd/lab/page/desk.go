package page

import (
	"context"
	"fmt"
	"net/url"
	"strings"
	"time"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// LogIn opens the page as a user who is a worker, and waits for their tasks. A link logs in, since the form is a second page to
// load, which costs more CPU than most of what tests do then.
func (b *Browser) LogIn(address, user string) {
	b.T.Helper()
	b.Opens(address + "#log-in=" + url.PathEscape(user))
	b.Await(`document.querySelector('#tasks .task')`, e2e.Soon)
}

// LogInByForm is [Browser.LogIn] by the page's form.
func (b *Browser) LogInByForm(url, user string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(url), chromedp.SendKeys(chromedp.ID("user"), user, chromedp.NodeVisible))
	b.Eval(`(document.querySelector('#log-in-form button').click(), '')`) // no mouse, since the click reloads the page
	b.Await(`document.querySelector('#tasks .task')`, e2e.Soon)
}

// Works waits until the pipeline has that many items.
func (b *Browser) Works(n int, within time.Duration) {
	b.T.Helper()
	b.Await(hasWorks(n), within)
}

func hasWorks(n int) string {
	return fmt.Sprintf(`document.querySelectorAll('#work .work').length === %d`, n)
}

// GetsWorks waits until the pipeline has that many items, within the promised second.
func (b *Browser) GetsWorks(s *e2e.Site, n int) {
	s.T.Helper()
	b.Promptly(s, fmt.Sprintf("%d items in the pipeline", n), time.Second, func() bool { return b.Yes(hasWorks(n)) })
}

// GetWork selects a count, clicks, and waits until the page shows that the request is pending.
func (b *Browser) GetWork(count int) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`(%s('.task input[value="%d"]').click(), '')`, aims, count))
	b.Click(".task .get")
	b.Await(`document.querySelector('.pending').checkVisibility()`, e2e.Soon)
}

// TypeNote types into the first card's note.
func (b *Browser) TypeNote(text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`(() => {
		const note = %s('#work li:first-child textarea');
		note?.focus();
		return !!note && document.activeElement === note;
	})()`, aims), e2e.Soon)
	b.Do(chromedp.KeyEvent(text))
	b.Await(fmt.Sprintf(`document.querySelector('.sheet textarea').value.includes(%q)`, text), e2e.Soon)
}

// aims returns an element, and first opens what it is behind, as a person does: an item on the desk, one of its menus, a task's options. Items
// are counted as they came: #work li:nth-child(2) .complete is of the second one, wherever it lies. .next is .complete with the next.
const aims = `((selector) => {
	if (/^#(help|log-out)$/.test(selector)) document.querySelector('#me-menu').showPopover();
	const at = document.querySelector(selector), panel = at?.closest('.panel[hidden]'); // of a task's page
	if (panel) document.getElementById(panel.id.replace('panel-', 'tab-')).click();
	at?.closest('.page [popover]:not(:popover-open)')?.showPopover();
	const [, nth, n, rest] = selector.match(/^#work li:(first-child|last-child|nth-child\((\d+)\))(.*)$/) ?? [];
	const rows = [...document.querySelectorAll('#work .work')].sort((a, b) => a.id.slice(5) - b.id.slice(5));
	const row = nth && rows.at(nth === 'last-child' ? -1 : (n ?? 1) - 1);
	if (nth && !row) return null;
	if (row && /^( \.(key|undo|now|again|dismiss))?$/.test(rest)) return rest ? row.querySelector(rest) : row;
	row?.querySelector('.key[aria-expanded=false]')?.click();
	if (row && document.querySelector('.sheet').dataset.row !== row.id) return null; // it is drawn in the next frame
	const menu = /data-return|\.others/.test(selector) ? 'return' : /data-later/.test(selector) && 'later';
	if (menu) document.querySelector('.sheet [data-menu=' + menu + '] > [aria-expanded=false]')?.click();
	const acts = selector.match(/^(\[data-task=[^\]]+\]) \.(pause|let-go|pick-task)/)?.[1]; // on the floor
	if (acts) document.querySelector(acts + ' [popover]:not(:popover-open)')?.showPopover();
	if (/^\.task input/.test(selector)) document.querySelector('.task .name[aria-expanded=false]')?.click();
	const then = document.querySelector('.sheet .then');
	if (then && /\.(next|complete)$/.test(selector) && then.checked !== selector.endsWith('.next')) then.click();
	return document.querySelector((row ? '.sheet' + rest : selector).replace(/\.next$/, '.complete'));
})`

// Press clicks a button without a pointer, so that the page does not take it for a sign of presence.
func (b *Browser) Press(selector string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`(() => { const to = %s(%q); return to?.checkVisibility() && !to.disabled; })()`, aims, selector), e2e.Soon)
	b.Await(fmt.Sprintf(`(() => { const to = %s(%q); return to ? (to.click(), true) : false; })()`, aims, selector), e2e.Soon)
}

// LeavesUnasked leaves, and fails the test if the browser asks.
func (b *Browser) LeavesUnasked() {
	b.AnswersYes(func() { b.T.Error("the browser asks whether to leave") })
}

// AnswersYes answers the browser's question whether to leave, and calls asked each time.
func (b *Browser) AnswersYes(asked func()) {
	b.T.Helper()
	err := chromedp.Listen(b.ctx, func(event any) {
		if _, question := event.(*page.EventJavascriptDialogOpening); !question {
			return
		}
		asked()
		go func() { // a listener must not wait
			_ = chromedp.Do(b.ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
				_, err := cdp.Call(ctx, tab, page.HandleJavaScriptDialog, page.HandleJavaScriptDialogParams{Accept: true})
				return err
			}))
		}()
	})
	if err != nil {
		b.T.Fatal(err)
	}
}

// LeftNothing checks that neither the page nor the browser's storage for it has any of these texts.
func (b *Browser) LeftNothing(texts ...string) {
	b.T.Helper()
	all := b.Eval(`JSON.stringify([sessionStorage, localStorage]) + document.body.innerText + [...document.querySelectorAll('textarea')].map((e) => e.value)`)
	for _, text := range texts {
		if strings.Contains(all, text) {
			b.T.Errorf("%q is still there: %s", text, all)
		}
	}
}
