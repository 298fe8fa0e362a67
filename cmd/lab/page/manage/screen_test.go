package manage

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// screens is a page script that records requests for a screen lock or full screen, and refuses them if a test says so.
const screens = `(() => {
	if (!window.WakeLock) return; // about:blank
	const { requestFullscreen } = Element.prototype;
	const { request } = WakeLock.prototype;
	const locks = window.locks = [], asked = window.asked = [];
	const refused = async (what) => {
		asked.push(what);
		if (window.refusing ?? sessionStorage.refusing) throw new DOMException('not here', 'NotAllowedError');
	};
	Element.prototype.requestFullscreen = async function (...args) {
		await refused('full screen');
		return requestFullscreen.apply(this, args);
	};
	WakeLock.prototype.request = async function (...args) {
		await refused('wake lock');
		const lock = await request.apply(this, args);
		locks.push(lock);
		return lock;
	};
})()`

// onWall is a browser that shows a wall.
func onWall(t *testing.T, refusing bool) *page.Browser {
	t.Helper()
	b := page.NewDesktopBrowser(t, screens)
	s := e2e.NewSite(t, 1, "")
	s.Create(map[string]any{"name": "verify"})
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	if refusing {
		b.Eval(`(sessionStorage.refusing = 'yes', '')`)
	}
	b.Visit(s.Nodes[0].URL, "/wall", "Olga,observer")
	b.Shows(".wall-state", "Live")
	return b
}

// presses clicks as a hand does, since full screen needs a real click.
func presses(b *page.Browser, selector string) {
	b.T.Helper()
	// The controls appear for four seconds.
	b.Moving("the controls show themselves", func() bool {
		return b.Yes(`getComputedStyle(document.querySelector('.wall-controls')).opacity === '1'`)
	})
	b.Click(selector)
}

const awake = `locks.filter((lock) => !lock.released).length`

// The wall keeps the screen on, and the button makes it full screen; leaving the wall ends both.
func TestPageWallScreen(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := onWall(t, false)
	b.Await(awake+` === 1`, e2e.Soon)
	presses(b, ".wall-controls button")
	b.Await(`document.fullscreenElement && document.querySelector('.wall-controls button').textContent.includes('Leave full screen')`, e2e.Soon)
	presses(b, ".wall-controls button")
	b.Await(`!document.fullscreenElement && document.querySelector('.wall-controls button').textContent.trim() === 'Full screen'`, e2e.Soon)
	presses(b, ".wall-controls button")
	b.Await(`document.fullscreenElement`, e2e.Soon)
	if n := b.Eval(`String([` + awake + `, locks.length])`); n != "1,1" {
		t.Errorf("locks held, and granted: %s; want one", n)
	}
	b.Eval(`locks[0].release().then(() => {}), ''`) // as the browser does when the page is hidden
	b.Await(awake+` === 0`, e2e.Soon)
	b.Eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.Await(awake+` === 1`, e2e.Soon)
	b.Eval(`(document.querySelector('.wall-controls .back').click(), '')`)
	b.Await(`location.pathname === '/floor' && !document.fullscreenElement && `+awake+` === 0`, e2e.Soon)
	b.Eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.Await(`document.querySelector('[data-view=floor] h1')`, e2e.Soon)
	if n := b.Eval(`String(asked.length)`); n != b.Eval(`String(asked.filter((a) => a === 'full screen').length + 2)`) {
		t.Errorf("after the wall was left the page asked again: %s", b.Eval(`String(asked)`))
	}
}

// A lock that is granted after the wall was left is released, and so is the second of two.
func TestPageWallScreenLate(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := onWall(t, false)
	b.Await(awake+` === 1`, e2e.Soon)
	b.Eval(`(() => {
		const { request } = WakeLock.prototype;
		WakeLock.prototype.request = async function (...args) {
			await new Promise((f) => { window.give = f; });
			return request.apply(this, args);
		};
		return '';
	})()`)
	b.Eval(`locks[0].release().then(() => {}), ''`)
	b.Await(awake+` === 0`, e2e.Soon)
	b.Eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.Await(`window.give`, e2e.Soon)
	b.Eval(`(window.first = give, document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.Await(`give !== first`, e2e.Soon)
	b.Eval(`(first(), give(), '')`)
	b.Await(`locks.length === 3 && `+awake+` === 1`, e2e.Soon)
	b.Eval(`locks.at(-1).release(), locks.at(-2).release(), ''`)
	b.Await(awake+` === 0`, e2e.Soon)
	b.Eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.Eval(`(document.querySelector('.wall-controls .back').click(), '')`)
	b.Await(`document.querySelector('[data-view=floor] h1')`, e2e.Soon)
	b.Eval(`(give(), '')`)
	b.Await(`locks.length === 4 && `+awake+` === 0`, e2e.Soon)
}

// If a browser refuses both, as some do before the first click, the button asks again, and says that it can't. The wall
// goes on.
func TestPageWallScreenRefused(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := onWall(t, true)
	b.Await(`asked.join() === 'wake lock'`, e2e.Soon)
	presses(b, ".wall-controls button")
	b.Shows("#said", "This browser does not allow full screen here.")
	if is := b.Eval(`String(asked)`); is != "wake lock,wake lock,full screen" {
		t.Errorf("it asked for %s", is)
	}
	b.Shows(".wall-state", "Live")
	figure(b, "verify", "waiting", 0, e2e.Soon)
	b.Eval(`(window.refusing = '', '')`)
	presses(b, ".wall-controls button")
	b.Await(`document.fullscreenElement && `+awake+` === 1`, e2e.Soon)
	b.Eval(`(document.querySelector('.wall-controls .back').click(), '')`)
	b.Await(`document.querySelector('[data-view=floor] h1') && !document.fullscreenElement && `+awake+` === 0`, e2e.Soon)
}
