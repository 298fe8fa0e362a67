package desk

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// For five seconds an outcome can be undone with a button that counts them, and nothing is sent.
func TestPageUndo(t *testing.T) {
	t.Parallel()
	b, s := desk(t, page.UndoLasts, "1h", 3)
	b.TypeNote("looked at")
	b.Shows("#told", "New: ")
	b.Press("#work li:first-child .complete")
	b.Await(`document.querySelector('#told').textContent === ''`, e2e.Soon) // it is no longer marked as new
	b.Shows("#work .going", "a: completed.")
	focused(b, "b") // the next card
	b.Shows("#heard", "a: completed.")
	b.Await(`document.querySelector('#held').textContent === '2'`, e2e.Soon)
	b.Await(`Number(document.querySelector('.undo .count').textContent) < 5`, e2e.Soon)
	b.Press(".undo")
	focused(b, "a")
	b.Shows("#heard", "a: still yours.")
	b.Eval(`(passes(), '')`)
	if got := page.Dispositions(s); got != "a held, b held, c held" {
		t.Error("after the undo: ", got)
	}
	if note := b.Eval(`document.querySelector('#work textarea').value`); note != "looked at" {
		t.Errorf("the note is %q", note)
	}
	b.Press("#work li:first-child .complete")
	b.Press(`#work li:nth-child(2) [data-return="4h"]`)
	b.Shows("#work .going", "b: returned, not offered before ")
	b.Eval(`(passes(), '')`)
	b.Works(1, e2e.Soon)
	b.Await(`document.querySelector('#heard').textContent === ''`, e2e.Soon) // it can no longer be undone
	focused(b, "c")
	if got := page.Dispositions(s); got != "a completed looked at, b returned, c held" {
		t.Error("after it was sent: ", got)
	}
	b.Shows("#recent", "a")
	b.Shows("#recent", "returned, not offered before ")
	b.Do(chromedp.Reload())
	b.Shows("#recent", "returned, not offered before ") // the tab remembers
}

// outboxWaits is a page script that records how long outcomes wait, in ms, and how late the server's greeting was.
const outboxWaits = `(() => {
	const { setTimeout: later, WebSocket } = window;
	window.waits = [];
	window.WebSocket = class extends WebSocket {
		constructor(...how) {
			super(...how);
			this.addEventListener('message', ({ data }) => {
				const { type, hello } = JSON.parse(data);
				if (type === 'hello') window.greeted = Date.now() - Date.parse(hello.server_time);
			});
		}
	};
	window.setTimeout = (f, ms, ...rest) => {
		if (/\badd\b.*outbox\.js/.test(new Error().stack)) waits.push(ms);
		return later(f, ms, ...rest);
	};
})()`

// The five seconds pass by themselves, and end earlier if the lease does. Only by the page's clock is the lease's end
// near, so that a machine that stands still for a moment does not end a real lease.
func TestPageUndoEnds(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s := desk(t, page.Cuttable+outboxWaits, "1h", 2)
	b.Press("#work li:first-child .complete")
	b.Works(1, e2e.Soon)
	page.Disposes(s, "a completed, b held")
	ends := e2e.Column[float64](s, `select 1000 * extract(epoch from lease_expires_at)::float8 from getwork.work where item = 'b'`)[0]
	e2e.Await(t, "the page knows how late it is", 3*e2e.Soon, func() bool {
		cutOff(b)
		return b.Yes(`Math.abs(greeted) < 500`)
	})
	b.Eval(fmt.Sprintf(`(() => {
		const { now } = Date;
		const ahead = %f - 3000 - now();
		Date.now = () => now() + ahead;
		document.querySelector('.complete').click();
		return '';
	})()`, ends))
	b.Works(0, e2e.Soon)
	page.Disposes(s, "a completed, b completed")
	if is := b.Eval(`String([waits.length, waits[0] === 5000, waits[1] < 3000])`); is != "2,true,true" {
		t.Errorf("so many waited, five seconds, and not until a lease's end in three: %s; they waited %s ms", is, b.Eval(`String(waits)`))
	}
	if early := e2e.Column[bool](s, `select closed_at < lease_expires_at and lease_expires_at - assigned_at < 1.5 * lease from getwork.work`); !early[0] || !early[1] {
		t.Error("the outcome was not sent before the end of the lease, which nobody extended")
	}
}

// Leaving is final: closing the page, going elsewhere in it, and logging out send the outcome at once.
func TestPageSendsWhenLeft(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s := desk(t, unhurried+page.UndoLasts, "1h", 4)
	b.Press("#work li:first-child .complete")
	b.Do(chromedp.Navigate("about:blank"))
	page.Disposes(s, "a completed, b held, c held, d held")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	b.Works(3, e2e.Soon)
	b.Press("#work li:first-child .complete")
	b.Press(`#views a[href="/wall"]`)
	page.Disposes(s, "a completed, b completed, c held, d held")
	b.Eval(`(history.back(), '')`)
	b.Works(2, e2e.Soon)
	b.TypeNote("half read")
	b.Press(`#views a[href="/wall"]`)
	b.Await(`document.querySelector('[data-view=wall]')`, e2e.Soon)
	b.Eval(`(history.back(), '')`)
	b.Await(`document.querySelector('#work textarea').value === 'half read'`, e2e.Soon) // as it was left
	b.Press("#work li:last-child .complete")
	b.Eval(`(Object.defineProperty(document, 'hidden', { value: true }), document.dispatchEvent(new Event('visibilitychange')), '')`) // a phone that is put away
	page.Disposes(s, "a completed, b completed, c held, d completed")
	b.Works(1, e2e.Soon)
	b.Press("#work li:first-child .complete")
	b.Press("#log-out")
	b.Await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	page.Disposes(s, "a completed, b completed, c completed half read, d completed")
}

// Outcomes that can't be sent because the server is away are kept, and sent when it is back.
func TestPageKeepsWhatCantBeSent(t *testing.T) {
	t.Parallel()
	b, s := desk(t, page.UndoLasts, "1h", 2)
	b.TypeNote("no line")
	b.Press("#work li:first-child .complete")
	s.Nodes[0].Kill()
	b.Eval(`(passes(), '')`)
	b.Shows("#work .going", "The server can’t be reached now; it is sent as soon as it can be.")
	const leaving = `(() => {
		const e = new Event('beforeunload', { cancelable: true });
		window.dispatchEvent(e);
		return String(e.defaultPrevented);
	})()`
	if warned := b.Eval(leaving); warned != "true" {
		t.Error("a user who leaves now isn't told that something was not sent")
	}
	s.Nodes[0].Restart()
	b.Works(1, 3*e2e.Soon)
	page.Disposes(s, "a completed no line, b held")
}

// "Complete and next" asks at once if it may, so that nobody waits for the five seconds.
func TestPageCompleteAndNext(t *testing.T) {
	t.Parallel()
	b, s := desk(t, page.UndoLasts, "1h", 1)
	b.Press(".next")
	b.Shows("#work .key", "b")
	focused(b, "b") // there was nothing else to go on with
	if got := page.Dispositions(s); got != "a held, b held" {
		t.Error("the page asked, and sent all the same: ", got)
	}
	b.Press(".undo") // the next item stays
	b.Await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
	b.Eval(`(passes(), '')`)
	page.Changes(s, "verify", map[string]any{"max_open": 2}, 0)
	b.Press(".task .name[aria-expanded]")
	b.Shows(".task", "You hold 2 of at most 2.")
	b.Press(".next")
	b.Shows("#work .going", "Then the next is asked for.")
	if n := e2e.Column[int](s, `select count(*)::int from getwork.work_requested where user_name = 'Oliver'`)[0]; n != 2 {
		t.Errorf("%d requests; a third would have been barred", n)
	}
	b.Eval(`(passes(), '')`)
	b.Shows("#work .key", "c")
	b.Press("#work li:last-child .next")
	b.Press("#work .now") // for users who can't wait
	b.Shows("#work .key", "d")
	page.Disposes(s, "a completed, b held, c completed, d held")
	page.Changes(s, "verify", map[string]any{"paused": true}, 0)
	b.Shows(".task .tag", "paused")
	b.Press(".next")
	b.Eval(`(passes(), '')`)
	b.Shows("#told", "There is no next: A manager has paused this task.")
}
