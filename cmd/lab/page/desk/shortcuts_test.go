package desk

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// slowHands is a page script with which any time may pass between the two keys of a sequence.
const slowHands = `(() => {
	const { setTimeout: later } = window;
	window.setTimeout = (f, ms, ...rest) => later(f, ms === 2000 && new Error().stack.includes('keys.js') ? 60_000 : ms, ...rest);
})();`

// Every frequent action has a key, and the keys can be switched off.
func TestPageShortcuts(t *testing.T) {
	t.Parallel()
	b, s := desk(t, slowHands+page.UndoLasts, "1h", 0)
	b.Await(`document.querySelector('.task .name').textContent === 'verify'`, e2e.Soon)
	b.Keys("g1")
	b.Works(3, e2e.Soon)
	b.Keys("j")
	focused(b, "a")
	b.Keys("jk")
	focused(b, "a")
	b.Keys("otypedc\x1b")
	focused(b, "a") // and typed text becomes a note
	b.Keys("c")
	focused(b, "b")
	b.Keys("u")
	focused(b, "a")
	b.Await(`document.querySelector('#work textarea').value === 'typedc'`, e2e.Soon)
	b.Keys("xcx")
	b.Works(4, e2e.Soon)
	focused(b, "b")
	b.Keys("r")
	focused(b, "for 1 h")
	b.Keys("\r")
	focused(b, "c")
	b.Keys("d")
	b.Await(`document.activeElement.matches('.never.sure')`, e2e.Soon)
	b.Keys("d")
	focused(b, "d")
	b.Keys("e")
	s.Await("the lease begins anew", e2e.Soon, `select exists (select from getwork.work where item = 'd' and lease_expires_at - assigned_at > lease)`)
	b.Eval(`(passes(), '')`)
	b.Works(1, e2e.Soon)
	page.Disposes(s, "a completed typedc, b returned, c never, d held")
	b.Keys("w")
	b.Works(2, e2e.Soon)
	b.Keys("?")
	b.Await(`document.activeElement.closest('dialog')`, e2e.Soon)
	b.Shows("dialog", "And then the next one")
	b.Press("dialog input")
	b.Keys("\x1b")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	b.Eval(`(document.querySelector('.key').focus(), '')`)
	b.Keys("c?")
	b.Do(chromedp.Reload())
	b.Works(2, e2e.Soon)
	b.Eval(`(document.querySelector('.key').focus(), '')`)
	b.Keys("c?g1")
	if is := b.Eval(`String([document.querySelectorAll('#work .key').length, document.querySelectorAll('dialog[open], .pending').length, document.querySelector('.complete kbd').checkVisibility()])`); is != "2,0,false" {
		t.Errorf("keys are off: cards, opened elements, hints: %s", is)
	}
	b.Press("#help")
	b.Press("dialog input")
	b.Keys("\x1b")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon) // until then keys are no shortcuts
	b.Eval(`(document.querySelector('.key').focus(), '')`)
	b.Keys("c")
	b.Shows("#work .going", "completed.")
}

// On a keyboard without Latin letters the keys' places count.
func TestPageShortcutsOnCyrillic(t *testing.T) {
	t.Parallel()
	b, s := desk(t, slowHands+page.UndoLasts, "1h", 0)
	b.Await(`document.querySelector('.task .name').textContent === 'verify'`, e2e.Soon)
	b.Cyrillic("g1")
	b.Works(3, e2e.Soon)
	b.Cyrillic("j")
	focused(b, "a")
	b.Cyrillic("jk")
	focused(b, "a")
	b.Cyrillic("c")
	focused(b, "b")
	b.Cyrillic("u")
	focused(b, "a")
	b.Cyrillic("xcx")
	b.Works(4, e2e.Soon)
	focused(b, "b")
	b.Eval(`(passes(), '')`)
	b.Works(3, e2e.Soon)
	page.Disposes(s, "a completed, b held, c held, d held")
	keyOf := `import(document.querySelector('script[type=module]').src.replace(/page.js.*/, 'keys.js')).then(({ keyOf }) => [%s].map(([key, code, init]) => keyOf(new KeyboardEvent('keydown', { key, code, ...init }))).join(' '))`
	for presses, want := range map[string]string{
		`['c', 'KeyC'], [',', 'KeyM'], ["'", 'KeyQ'], ['¢', 'KeyC'], ['C', 'KeyC', { shiftKey: true }]`:                                   `c , ' ¢ C`, // AZERTY, Dvorak
		`['ש', 'KeyA'], ["'", 'KeyW'], ['?', 'Slash', { shiftKey: true }], ['1', 'Digit1'], ['Enter', 'Enter']`:                           `a w ? 1 Enter`,
		`['ش', 'KeyA'], ['؟', 'Slash', { shiftKey: true }], ['١', 'Digit1'], ['©', 'KeyC', { modifierAltGraph: true }], ['Dead', 'KeyE']`: `a ? 1 © Dead`,
		`['ั', 'KeyY'], ['С', 'KeyC'], ['С', 'KeyC', { shiftKey: true }], ['ъ', 'BracketRight'], ['x', 'KeyX'], ["'", 'KeyW']`:            `y c C ] x '`,
	} {
		if got, err := page.Run(b, chromedp.Evaluate[string](fmt.Sprintf(keyOf, presses), chromedp.EvalAwaitPromise)); err != nil || got != want {
			t.Errorf("%s are %q, %v; want %q", presses, got, err, want)
		}
	}
}

// A key that is held down acts once. The focus moves on by itself, so otherwise the key would act on every item.
func TestPageHeldKey(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, _ := desk(t, page.UndoLasts, "1h", 3)
	b.Eval(`(() => {
		document.querySelector('.key').focus();
		for (const repeat of [false, true, true]) document.activeElement.dispatchEvent(new KeyboardEvent('keydown', { key: 'c', repeat, bubbles: true, cancelable: true }));
		return '';
	})()`)
	b.Await(`document.querySelectorAll('.going').length === 1 && document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
}
