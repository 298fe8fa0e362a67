package page

import (
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
)

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
