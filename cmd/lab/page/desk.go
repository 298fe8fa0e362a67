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
	return fmt.Sprintf(`document.querySelectorAll('#work > li').length === %d`, n)
}

// GetsWorks waits until the pipeline has that many items, within the promised second.
func (b *Browser) GetsWorks(s *e2e.Site, n int) {
	s.T.Helper()
	b.Promptly(s, fmt.Sprintf("%d items in the pipeline", n), time.Second, func() bool { return b.Yes(hasWorks(n)) })
}

// GetWork selects a count, clicks, and waits until the page shows that the request is pending.
func (b *Browser) GetWork(count int) {
	b.T.Helper()
	b.Eval(fmt.Sprintf(`(document.querySelector('.task input[value="%d"]').click(), '')`, count))
	b.Click(".task form button")
	b.Await(`document.querySelector('.pending').checkVisibility()`, e2e.Soon)
}

// TypeNote types into the first card's note.
func (b *Browser) TypeNote(text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`(() => {
		(%s)('#work li:first-child summary');
		const item = document.querySelector('#work li:first-child');
		const details = item?.querySelector('details');
		if (details && !details.open) details.querySelector('summary').click(); // a restored draft has opened it
		const note = item?.querySelector('textarea');
		note?.focus();
		return !!note && document.activeElement === note;
	})()`, opens), e2e.Soon)
	b.Do(chromedp.KeyEvent(text))
	b.Await(fmt.Sprintf(`document.querySelector('#work li:first-child textarea').value.includes(%q)`, text), e2e.Soon)
}

// opens opens what an element is behind, as a person does: the item in the list, one of its menus, a task's options.
const opens = `((selector) => {
	if (/^#(help|log-out)$/.test(selector)) document.querySelector("#me-menu").showPopover();
	const row = selector.match(/^#work li:(first-child|last-child|nth-child\(\d+\))/)?.[0];
	const item = document.querySelector(row ?? '#work > .open');
	if (row) item?.querySelector('.key[aria-expanded=false]')?.click();
	const menu = /data-return|\.others/.test(selector) ? 'return' : /\.never/.test(selector) ? 'more' : '';
	if (menu) item?.querySelector('[data-menu=' + menu + '] > [aria-expanded=false]')?.click();
	if (/^\.task input/.test(selector)) document.querySelector('.task details').open = true;
})`

// Press clicks a button without a pointer, so that the page does not take it for a sign of presence.
func (b *Browser) Press(selector string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`(%s(%q), document.querySelector(%[2]q)?.checkVisibility() && !document.querySelector(%[2]q).disabled)`, opens, selector), e2e.Soon)
	b.Eval(fmt.Sprintf(`(document.querySelector(%q).click(), '')`, selector))
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
