package page

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// Every frequent action has a key, and the keys can be switched off.
func TestPageShortcuts(t *testing.T) {
	t.Parallel()
	b, s := desk(t, slowHands+undoLasts, "1h", 0)
	b.await(`document.querySelector('.task h3').textContent === 'verify'`, e2e.Soon)
	b.keys("g1")
	b.works(3, e2e.Soon)
	b.keys("j")
	b.focused("a")
	b.keys("jk")
	b.focused("a")
	b.keys("otypedc\x1b")
	b.focused("a") // and typed text becomes a note
	b.keys("c")
	b.focused("b")
	b.keys("u")
	b.focused("a")
	b.await(`document.querySelector('#work textarea').value === 'typedc'`, e2e.Soon)
	b.keys("n")
	b.works(4, e2e.Soon)
	b.focused("b")
	b.keys("r")
	b.focused("for 1 h")
	b.keys("\r")
	b.focused("c")
	b.keys("x")
	b.focused("Really remove it?x")
	b.keys("x")
	b.focused("d")
	b.keys("e")
	s.Await("the lease begins anew", e2e.Soon, `select exists (select from getwork.work where item = 'd' and lease_expires_at - assigned_at > lease)`)
	b.eval(`(passes(), '')`)
	b.works(1, e2e.Soon)
	s.disposes("a completed typedc, b returned, c never, d held")
	b.keys("w")
	b.works(2, e2e.Soon)
	b.keys("?")
	b.await(`document.activeElement.closest('dialog')`, e2e.Soon)
	b.shows("dialog", "Complete and next")
	b.press("dialog input")
	b.keys("\x1b")
	b.await(`!document.querySelector('dialog')`, e2e.Soon)
	b.eval(`(document.querySelector('.key').focus(), '')`)
	b.keys("c?")
	b.do(chromedp.Reload())
	b.works(2, e2e.Soon)
	b.eval(`(document.querySelector('.key').focus(), '')`)
	b.keys("c?g1")
	if is := b.eval(`String([document.querySelectorAll('#work .key').length, document.querySelectorAll('dialog, .pending').length, document.querySelector('.complete kbd').checkVisibility()])`); is != "2,0,false" {
		t.Errorf("keys are off: cards, opened elements, hints: %s", is)
	}
	b.press("#help")
	b.press("dialog input")
	b.keys("\x1b")
	b.await(`!document.querySelector('dialog')`, e2e.Soon) // until then keys are no shortcuts
	b.eval(`(document.querySelector('.key').focus(), '')`)
	b.keys("c")
	b.shows("#work .going", "completed.")
}

// A key that is held down acts once. The focus moves on by itself, so otherwise the key would act on every item.
func TestPageHeldKey(t *testing.T) {
	t.Parallel()
	b, _ := desk(t, undoLasts, "1h", 3)
	b.eval(`(() => {
		document.querySelector('.key').focus();
		for (const repeat of [false, true, true]) document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'c', repeat, bubbles: true, cancelable: true }));
		return '';
	})()`)
	b.await(`document.querySelectorAll('.going').length === 1 && document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
}
