package page

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// undoLasts is a page script that keeps outcomes from being sent by themselves, until a test calls passes.
const undoLasts = `(() => {
	const { setTimeout: later, clearTimeout: never } = window, held = new Map();
	window.setTimeout = (f, ms, ...rest) => {
		const outbox = /\badd\b.*outbox\.js/.test(new Error().stack); // and not its retries
		const id = later(f, outbox ? 1e9 : ms, ...rest);
		if (outbox) held.set(id, f);
		return id;
	};
	window.clearTimeout = (id) => {
		held.delete(id);
		never(id);
	};
	window.passes = () => held.forEach((f, id) => held.delete(id) && f());
})()`

// unhurried is a page script with which an outcome may take more than three seconds to be sent before a log-out asks.
const unhurried = `(() => {
	const { setTimeout: later } = window;
	window.setTimeout = (f, ms, ...rest) => later(f, ms === 3000 && new Error().stack.includes('desk.js') ? 60_000 : ms, ...rest);
})();`

// slowHands is a page script with which any time may pass between the two keys of a sequence.
const slowHands = `(() => {
	const { setTimeout: later } = window;
	window.setTimeout = (f, ms, ...rest) => later(f, ms === 2000 && new Error().stack.includes('keys.js') ? 60_000 : ms, ...rest);
})();`

// dispositions returns the outcomes of all work, in order.
func (s *site) dispositions() string {
	s.T.Helper()
	return strings.Join(column[string](s, `select item || ' ' || state || coalesce(' ' || note, '') from getwork.work order by id`), ", ")
}

// disposes waits until the database has the outcomes of all work.
func (s *site) disposes(want string) {
	s.T.Helper()
	defer func() {
		if s.T.Failed() {
			s.T.Log("the work is ", s.dispositions())
		}
	}()
	e2e.Await(s.T, "the work is "+want, e2e.Soon, func() bool { return s.dispositions() == want })
}

// desk is a browser at the desk of Oliver, who holds that many of the items a, b, c, d, e of an inbox.
func desk(t *testing.T, script, lease string, held int) (*browser, *site) {
	t.Helper()
	b := newBrowser(t, script)
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "lease": lease})
	s.manages("POST", "/tasks/verify/items", []map[string]any{{"item": "a"}, {"item": "b"}, {"item": "c"}, {"item": "d"}, {"item": "e"}})
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	if held > 0 {
		s.Takes("Oliver", held)
	}
	b.works(held, e2e.Soon)
	return b, s
}

// focused waits until an element with that text has the focus.
func (b *browser) focused(text string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`document.activeElement.textContent.trim() === %q`, text), e2e.Soon)
}

// For five seconds an outcome can be undone with a button that counts them, and nothing is sent.
func TestPageUndo(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 3)
	b.typeNote("looked at")
	b.shows("#told", "New: ")
	b.press("#work li:first-child .complete")
	b.await(`document.querySelector('#told').textContent === ''`, e2e.Soon) // it is no longer marked as new
	b.shows("#work .going", "a: completed.")
	b.focused("b") // the next card
	b.shows("#heard", "a: completed.")
	b.await(`document.querySelector('#held').textContent === '2'`, e2e.Soon)
	b.await(`Number(document.querySelector('.undo .count').textContent) < 5`, e2e.Soon)
	b.press(".undo")
	b.focused("a")
	b.shows("#heard", "a: still yours.")
	b.eval(`(passes(), '')`)
	if got := s.dispositions(); got != "a held, b held, c held" {
		t.Error("after it was undone: ", got)
	}
	if note := b.eval(`document.querySelector('#work textarea').value`); note != "looked at" {
		t.Errorf("the note is %q", note)
	}
	b.press("#work li:first-child .complete")
	b.press(`#work li:nth-child(2) [data-return="4h"]`)
	b.shows("#work .going", "b: returned, not offered before ")
	b.eval(`(passes(), '')`)
	b.works(1, e2e.Soon)
	b.await(`document.querySelector('#heard').textContent === ''`, e2e.Soon) // it can no longer be undone
	b.focused("c")
	if got := s.dispositions(); got != "a completed looked at, b returned, c held" {
		t.Error("after it was sent: ", got)
	}
	b.shows("#recent", "completed")
	b.shows("#recent", "returned, not offered before ")
	b.do(chromedp.Reload())
	b.shows("#recent", "returned, not offered before ") // the tab remembers
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
	t.Parallel()
	b, s := desk(t, cuttable+outboxWaits, "1h", 2)
	b.press("#work li:first-child .complete")
	b.works(1, e2e.Soon)
	s.disposes("a completed, b held")
	ends := column[float64](s, `select 1000 * extract(epoch from lease_expires_at)::float8 from getwork.work where item = 'b'`)[0]
	e2e.Await(t, "the page knows how late it is", 3*e2e.Soon, func() bool {
		b.cutOff()
		return b.yes(`Math.abs(greeted) < 500`)
	})
	b.eval(fmt.Sprintf(`(() => {
		const { now } = Date;
		const ahead = %f - 3000 - now();
		Date.now = () => now() + ahead;
		document.querySelector('.complete').click();
		return '';
	})()`, ends))
	b.works(0, e2e.Soon)
	s.disposes("a completed, b completed")
	if is := b.eval(`String([waits.length, waits[0] === 5000, waits[1] < 3000])`); is != "2,true,true" {
		t.Errorf("so many waited, five seconds, and not until a lease's end in three: %s; they waited %s ms", is, b.eval(`String(waits)`))
	}
	if early := column[bool](s, `select closed_at < lease_expires_at and lease_expires_at - assigned_at < 1.5 * lease from getwork.work`); !early[0] || !early[1] {
		t.Error("it was not sent before the lease, which nobody extended, was over")
	}
}

// Leaving is final: closing the page, going elsewhere in it, and logging out send the outcome at once.
func TestPageSendsWhenLeft(t *testing.T) {
	t.Parallel()
	b, s := desk(t, unhurried+undoLasts, "1h", 4)
	b.press("#work li:first-child .complete")
	b.do(chromedp.Navigate("about:blank"))
	s.disposes("a completed, b held, c held, d held")
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	b.works(3, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.press(`#views a[href="/wall"]`)
	s.disposes("a completed, b completed, c held, d held")
	b.eval(`(history.back(), '')`)
	b.works(2, e2e.Soon)
	b.typeNote("half read")
	b.press(`#views a[href="/wall"]`)
	b.await(`document.querySelector('[data-view=wall]')`, e2e.Soon)
	b.eval(`(history.back(), '')`)
	b.await(`document.querySelector('#work textarea').value === 'half read'`, e2e.Soon) // as it was left
	b.press("#work li:last-child .complete")
	b.eval(`(Object.defineProperty(document, 'hidden', { value: true }), document.dispatchEvent(new Event('visibilitychange')), '')`) // a phone that is put away
	s.disposes("a completed, b completed, c held, d completed")
	b.works(1, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.press("#log-out")
	b.await(`document.querySelector('#log-in').checkVisibility()`, e2e.Soon)
	s.disposes("a completed, b completed, c completed half read, d completed")
}

// Outcomes that can't be sent because the server is away are kept, and sent when it is back.
func TestPageKeepsWhatCantBeSent(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 2)
	b.typeNote("no line")
	b.press("#work li:first-child .complete")
	s.Nodes[0].Kill()
	b.eval(`(passes(), '')`)
	b.shows("#work .going", "The server can’t be reached now; it is sent as soon as it can be.")
	const leaving = `(() => {
		const e = new Event('beforeunload', { cancelable: true });
		window.dispatchEvent(e);
		return String(e.defaultPrevented);
	})()`
	if warned := b.eval(leaving); warned != "true" {
		t.Error("a user who leaves now isn't told that something was not sent")
	}
	s.Nodes[0].Restart()
	b.works(1, 3*e2e.Soon)
	s.disposes("a completed no line, b held")
}

// "Complete and next" asks at once if it may, so that nobody waits for the five seconds.
func TestPageCompleteAndNext(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 1)
	b.press(".next")
	b.shows("#work h3", "b")
	b.focused("b") // there was nothing else to go on with
	if got := s.dispositions(); got != "a held, b held" {
		t.Error("it asked, and sent as well: ", got)
	}
	b.press(".undo") // the next item stays
	b.await(`document.querySelectorAll('#work .next').length === 2`, e2e.Soon)
	b.eval(`(passes(), '')`)
	s.changes("verify", map[string]any{"max_open": 2}, 0)
	b.shows(".task", "You hold 2 of at most 2.")
	b.press(".next")
	b.shows("#work .going", "Then the next is asked for.")
	if n := column[int](s, `select count(*)::int from getwork.work_requested where user_name = 'Oliver'`)[0]; n != 2 {
		t.Errorf("%d requests; a third would have been barred", n)
	}
	b.eval(`(passes(), '')`)
	b.shows("#work h3", "c")
	b.press("#work li:last-child .next")
	b.press(".now") // for users who can't wait
	b.shows("#work h3", "d")
	s.disposes("a completed, b held, c completed, d held")
	s.changes("verify", map[string]any{"paused": true}, 0)
	b.shows(".task .counts", "paused")
	b.press(".next")
	b.eval(`(passes(), '')`)
	b.shows("#told", "There is no next: A manager has paused this task.")
}

// at sets the browser's time zone.
func (b *browser) at(zone string) {
	b.t.Helper()
	b.do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
		return err
	}))
}

// Each preset is one click. Tomorrow depends on the reader's time zone; hours are as typed.
func TestPageReturns(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, undoLasts)
	s := newSite(t, 1, "")
	leased(s, "1h", "a", "b", "c", "d")
	b.at("Pacific/Kiritimati") // 14 hours before London
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	s.Takes("Oliver", 4)
	b.works(4, e2e.Soon)
	b.press(`#work li:nth-child(1) [data-return="1h"]`)
	b.press(`#work li:nth-child(2) [data-return="72h"]`)
	b.press(`#work li:nth-child(3) [data-return=tomorrow]`)
	b.shows("#work .going", "c: returned, not offered before tomorrow, 9:00")
	b.press(`#work li:nth-child(4) [data-return=exact]`)
	b.do(chromedp.SendKeys(chromedp.CSS("#work .exact input"), "1,5\r", chromedp.NodeVisible))
	b.shows("#work .going", "d: returned, not offered before ")
	b.eval(`(passes(), '')`)
	b.works(0, e2e.Soon)
	got := column[string](s, `select item || ' ' || after from getwork.work where item <> 'c' order by item`)
	if fmt.Sprint(got) != "[a 01:00:00 b 72:00:00 d 01:30:00]" {
		t.Error(got)
	}
	morning := column[string](s, `
		select to_char(available_at at time zone 'Pacific/Kiritimati', 'HH24:MI ')
		  || ((available_at at time zone 'Pacific/Kiritimati')::date - (closed_at at time zone 'Pacific/Kiritimati')::date)
		from getwork.work where item = 'c'`)[0]
	if morning != "09:00 1" {
		t.Errorf("tomorrow at nine is %s", morning)
	}
	b.shows("#recent", "not offered before tomorrow, 9:00")
	b.press(".task form button")
	b.shows(".task .ended", "You put off a until ") // the reason why no second one is offered
	b.shows(".task .ended", "and 3 more")
}

// During a wait the bar moves, slows down, and never reaches its end; if nobody knows how long the wait is, the page
// says so.
func TestPageBar(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	open := gated(s)
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.getWork(1)
	b.await(`document.querySelector('progress').position === -1`, e2e.Soon)
	b.shows(".pending .asked", "Asked for 1 at ")
	b.await(`/^0:(0[4-9]|[1-9])/.test(document.querySelector('.pending .clock').textContent)`, e2e.Soon) // from now on that long is usual
	open()
	b.works(1, e2e.Soon)
	shut, err := s.DB.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(shut.Release)
	if _, err := shut.Exec(t.Context(), `select pg_advisory_lock(7)`); err != nil {
		t.Fatal(err)
	}
	b.eval(`(() => {
		const seen = window.seen = [];
		new MutationObserver(() => {
			const bar = document.querySelector('progress'), left = document.querySelector('.pending .left')?.textContent;
			if (bar?.position >= 0) seen.push([Number(left.match(/\d+/)?.[0] ?? 0), bar.position, left]);
		}).observe(document.querySelector('#tasks'), { subtree: true, childList: true, attributes: true, characterData: true });
		return '';
	})()`)
	b.getWork(2)
	b.await(`seen.some(([, , left]) => left.endsWith(' s more.'))`, e2e.Soon) // for some seconds
	b.shows(".pending .left", "This takes longer than usual.")
	b.await(`seen.filter(([left]) => left === 0).length >= 3`, e2e.Soon)
	b.await(`document.querySelector('progress').getAttribute('aria-valuetext') === 'This takes longer than usual.'`, e2e.Soon)
	const true3 = `(() => {
		const at = seen.map(([, position]) => position), late = seen.filter(([left]) => left === 0).map(([, position]) => position);
		const moved = at[at.length - 1] - at[0] > 0.3;
		return String([at.every((p, i) => i === 0 || p >= at[i - 1]), moved, late.every((p) => p > 0.7 && p < 0.97)]);
	})()`
	if is := b.eval(true3); is != "true,true,true" {
		t.Errorf("never back, moved, not at the end: %s: %s", is, b.eval(`JSON.stringify(seen)`))
	}
	if _, err := shut.Exec(t.Context(), `select pg_advisory_unlock(7)`); err != nil {
		t.Fatal(err)
	}
	b.works(3, e2e.Soon)
	b.await(`!document.querySelector('progress')`, e2e.Soon)
}

// The bar's pace, for waits of any length.
func TestPageBarIsTrue(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	const steps = `(async () => {
		const { progress } = await import('/static/views/desk/progress.js');
		const faults = [];
		for (const total of [0, 1, 900, 30e3, 3600e3]) {
			let before = -1, pace = Infinity;
			for (let x = 0; x <= 20; x += 0.01) {
				const done = progress(x * total, total);
				const step = done - before;
				if (done < before || done > 0.97 || !Number.isFinite(done)) faults.push([total, x, done]);
				if (total > 1 && before >= 0 && step > pace + 1e-9) faults.push([total, x, 'faster']);
				[before, pace] = [done, before < 0 ? Infinity : step];
			}
		}
		return JSON.stringify([faults.slice(0, 5), progress(15e3, 30e3), progress(-5, 1000)]);
	})()`
	got, err := chromedp.Run(b.ctx, chromedp.Evaluate[string](steps, chromedp.EvalAwaitPromise))
	if err != nil || got != "[[],0.45,0]" {
		t.Errorf("faults, half of the time, before it: %s %v", got, err)
	}
}

// A user can let the server wait for something to come.
func TestPageWaitsForWork(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "inbox", "title": "Letters"})
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.press(".task form button")
	b.shows(".task .ended", "Nothing matches this task now. Ask again later, or wait for some to come.")
	b.press(".linger")
	b.shows(".pending .phase", "for something to come.")
	s.manages("POST", "/tasks/inbox/items", []map[string]any{{"item": "letter 7"}})
	b.works(1, e2e.Soon)
	b.shows("#told", "New: letter 7.")
}

// Two windows of one user show the same, including outcomes that wait in one of them. If that window dies, the work is
// held again.
func TestPageTwoWindows(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 3)
	other := b.window()
	other.do(chromedp.Navigate(s.Nodes[0].URL))
	other.works(3, e2e.Soon)
	b.press("#work li:first-child .complete")
	other.shows("#work .going", "a: completed. In another tab.")
	other.await(`document.querySelectorAll('.complete').length === 2`, e2e.Soon)
	other.press(".undo")
	b.await(`document.querySelectorAll('.complete').length === 3`, e2e.Soon)
	other.await(`document.querySelectorAll('.complete').length === 3`, e2e.Soon)
	b.press("#work li:first-child .complete")
	other.shows("#work .going", "a: completed.")
	b.eval(`(passes(), '')`)
	other.works(2, e2e.Soon)
	s.disposes("a completed, b held, c held")
	late := b.window() // a window that opens later is told of waiting outcomes
	b.press(`#work li:first-child [data-return="1h"]`)
	late.do(chromedp.Navigate(s.Nodes[0].URL))
	late.shows("#work .going", "b: returned, not offered before ")
	b.crashes()
	late.await(`document.querySelectorAll('.complete').length === 2`, e2e.Soon)
	s.disposes("a completed, b held, c held")
}

// Any column that a query returns is readable.
func TestPageDetails(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", `
		select i as item, 1234.50 * i as amount, false as checked, null as remark, repeat('All of this was said by the applicant. ', 20) as story,
		  date '2026-02-03' as submitted, timestamptz '2026-02-03 04:05:06Z' as seen, array[1, 2] as parts,
		  '{"iban": "CH93", "holder": {"name": "Ann", "born": "1980-01-31"}, "seen": [{"by": "x"}, {"by": "y"}]}'::jsonb as account
		from generate_series(1, 2) i order by i`)
	b.at("Asia/Tokyo")
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	s.Takes("Oliver", 2)
	b.works(2, e2e.Soon)
	shown := b.eval(`[...document.querySelectorAll('#work li:first-child dl div:not(.long)')].map((e) => e.children[0].textContent + '=' + e.children[1].textContent).join('; ')`)
	for _, want := range []string{"Amount=1,234.50", "Checked=no", "Remark=–", "Submitted=Feb 3, 2026", "Seen=Feb 3, 2026, 1:05", "Parts=1, 2"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the details lack %q: %s", want, shown)
		}
	}
	b.await(`[...document.querySelectorAll('#work dd')].some((e) => e.title.includes('1:05:06') && e.title.includes('GMT+9'))`, e2e.Soon)
	account := b.eval(`[...document.querySelectorAll('#work li:first-child .long dd')].find((e) => e.textContent.includes('CH93')).firstElementChild.textContent`)
	for _, want := range []string{"Iban: CH93\n", "Holder:\n  Born: Jan 31, 1980\n  Name: Ann", "Seen:\n  1.\n    By: x"} {
		if !strings.Contains(account, want) {
			t.Errorf("the account lacks %q: %s", want, account)
		}
	}
	tall := func() string {
		return b.eval(`String(document.querySelector('#work .long dd span').getBoundingClientRect().height > 100)`)
	}
	if tall() != "false" {
		t.Error("a long text takes much room")
	}
	b.eval(`(document.querySelector('#work .long dd button').focus(), '')`)
	b.press("#work .long dd button")
	b.await(`document.activeElement.textContent === 'less'`, e2e.Soon)
	if tall() != "true" {
		t.Error("it is not unfolded")
	}
}

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
	b.focused("Really never?x")
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
	if is := b.eval(`String([document.querySelectorAll('.complete').length, document.querySelectorAll('dialog, .pending').length, document.querySelector('.complete kbd').checkVisibility()])`); is != "2,0,false" {
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
	b.await(`document.querySelectorAll('.going').length === 1 && document.querySelectorAll('.complete').length === 2`, e2e.Soon)
}

// Many items are lines, each of which opens; a few items are all open. The current item stays as it is.
func TestPageManyAreLines(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "max_request": 20, "query": `select i as item, 'Applicant ' || i as applicant from generate_series(1, 20) i order by i`})
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.eval(`(document.querySelector('.how-many input').select(), '')`)
	b.do(chromedp.SendKeys(chromedp.CSS(".how-many input"), "12\r", chromedp.NodeVisible))
	b.works(12, e2e.Soon)
	b.await(`document.querySelectorAll('.complete').length === 12`, e2e.Soon)
	b.typeNote("mine")
	s.Takes("Oliver", 1)
	b.works(13, e2e.Soon)
	b.await(`document.querySelectorAll('.complete').length === 1`, e2e.Soon)
	if is := b.eval(`document.activeElement.value`); is != "mine" {
		t.Errorf("the note %q lost the focus while it was written", is)
	}
	b.shows("#work .compact .summary", "Applicant 13")
	b.keys("\x1b" + "j\r")
	b.await(`document.querySelectorAll('.complete').length === 2`, e2e.Soon)
	b.keys("c")
	b.focused("3")
	b.await(`document.activeElement.closest('li').querySelector('.complete')`, e2e.Soon) // a user who works through the list goes on in the next item
	b.do(chromedp.KeyEvent("\r"))
	b.await(`document.querySelectorAll('.complete').length === 1`, e2e.Soon)
}

// The title of a tab in the background tells that something has come.
func TestPageTitleTells(t *testing.T) {
	t.Parallel()
	b, s := desk(t, "", "1h", 0)
	b.eval(`(Object.defineProperty(document, 'hidden', { value: true, configurable: true }), '')`)
	s.Takes("Oliver", 2)
	b.await(`document.title === '2 new · Oliver · getwork'`, e2e.Soon)
	b.eval(`(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.await(`document.title === 'Oliver · getwork'`, e2e.Soon)
}

// A first-time user is told what to do.
func TestPageFirstTime(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	b.do(chromedp.Navigate(s.Nodes[0].URL + "#log-in=Oliver"))
	b.shows("#no-tasks", "A manager makes them")
	b.shows("#empty", "You hold nothing.")
	s.Task("verify", `select 1 as item`)
	b.eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`) // the user returns to the tab
	b.shows("#tasks h3", "verify")
	b.shows("#empty", "press Get Work")
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.Nodes[0].URL+"#log-in=Mia,manager"))
	b.shows("#tasks h3", "verify")
}
