package page

import (
	"context"
	"strings"
	"unicode"

	"github.com/chromedp/cdproto/cdp"
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

// Cyrillic presses the keys that have these letters and digits on a Latin keyboard, on one that is Russian.
func (b *Browser) Cyrillic(keys string) {
	b.T.Helper()
	there := map[rune]string{'c': "с", 'e': "у", 'g': "п", 'j': "о", 'k': "л", 'n': "т", 'o': "щ", 'r': "к", 's': "ы", 'u': "г", 'w': "ц", 'x': "ч"}
	for _, key := range keys {
		p := input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeRawKeyDown, Key: there[key], Code: "Key" + strings.ToUpper(string(key)), WindowsVirtualKeyCode: int64(unicode.ToUpper(key))}
		if p.Key == "" {
			p.Key, p.Code = string(key), "Digit"+string(key)
		}
		b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
			_, err := cdp.Call(ctx, tab, input.DispatchKeyEvent, p)
			if err == nil {
				p.Type = input.DispatchKeyEventTypeKeyUp
				_, err = cdp.Call(ctx, tab, input.DispatchKeyEvent, p)
			}
			return err
		}))
	}
}
