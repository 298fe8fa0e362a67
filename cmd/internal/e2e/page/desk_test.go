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

// A user can let the server wait for something to come.
func TestPageWaitsForWork(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "inbox", "title": "Letters"})
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.press(".task form button")
	b.shows(".task .ended", "Nothing matches this task now. Ask again later, or wait for new items.")
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
		t.Error("a long text takes up too much room")
	}
	b.eval(`(document.querySelector('#work .long dd button').focus(), '')`)
	b.press("#work .long dd button")
	b.await(`document.activeElement.textContent === 'less'`, e2e.Soon)
	if tall() != "true" {
		t.Error("the text is not unfolded")
	}
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
	b.shows("#no-tasks", "A manager creates them")
	b.shows("#empty", "You hold nothing.")
	s.Task("verify", `select 1 as item`)
	b.eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`) // the user returns to the tab
	b.shows("#tasks h3", "verify")
	b.shows("#empty", "press Get Work")
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.Nodes[0].URL+"#log-in=Mia,manager"))
	b.shows("#tasks h3", "verify")
}
