package desk

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// unhurried is a page script with which an outcome may take more than three seconds to be sent before a log-out asks.
const unhurried = `(() => {
	const { setTimeout: later } = window;
	window.setTimeout = (f, ms, ...rest) => later(f, ms === 3000 && new Error().stack.includes('desk.js') ? 60_000 : ms, ...rest);
})();`

// desk is a browser at the desk of Oliver, who holds that many of the items a, b, c, d, e of an inbox.
func desk(t *testing.T, script, lease string, held int) (*page.Browser, *e2e.Site) {
	t.Helper()
	b := page.NewBrowser(t, script)
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "lease": lease})
	page.Manages(s, "POST", "/tasks/verify/items", []map[string]any{{"item": "a"}, {"item": "b"}, {"item": "c"}, {"item": "d"}, {"item": "e"}})
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	if held > 0 {
		s.Takes("Oliver", held)
	}
	b.Works(held, e2e.Soon)
	return b, s
}

// focused waits until an element with that text has the focus.
func focused(b *page.Browser, text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`document.activeElement.textContent.trim() === %q`, text), e2e.Soon)
}

// at sets the browser's time zone.
func at(b *page.Browser, zone string) {
	b.T.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, emulation.SetTimezoneOverride, emulation.SetTimezoneOverrideParams{TimezoneID: zone})
		return err
	}))
}

// wrongClock is a page script for a machine whose clock is a day and an hour fast.
const wrongClock = `Date = class extends Date {
	constructor(...of) { super(...(of.length ? of : [Date.now()])); }
	static now() { return super.now() + 25 * 3600e3; }
}`

// What day it is, and when tomorrow's nine o'clock comes, the server's clock says. The reader's machine has the zone.
func TestPageTomorrowOnAWrongClock(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, wrongClock+";"+page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b")
	at(b, "Pacific/Kiritimati")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", 2)
	b.Works(2, e2e.Soon)
	b.Press(`#work li:nth-child(1) .complete`)
	b.Press(`#work li:nth-child(2) [data-return=tomorrow]`)
	b.Shows("#work .going", "b: returned, not offered before tomorrow, 9:00")
	b.Eval(`(passes(), '')`)
	b.Works(0, e2e.Soon)
	morning := e2e.Column[string](s, `
		select to_char(available_at at time zone 'Pacific/Kiritimati', 'HH24:MI ')
		  || ((available_at at time zone 'Pacific/Kiritimati')::date - (closed_at at time zone 'Pacific/Kiritimati')::date)
		from getwork.work where item = 'b'`)[0]
	if morning != "09:00 1" {
		t.Errorf("tomorrow at nine is %s", morning)
	}
	b.Shows("#recent", "not offered before tomorrow, 9:00") // and both were done today
	b.Await(`document.querySelectorAll('#recent li').length === 2`, e2e.Soon)
	now := `import(document.querySelector('script[type=module]').src.replace(/page.js.*/, 'now.js')).then(({ now, untilTomorrow }) => Math.abs(now() - Date.now() + 25 * 3600e3) < 60e3 && parseInt(untilTomorrow()) <= 34 * 3600 ? '' : [now(), untilTomorrow()].join())`
	if wrong, err := page.Run(b, chromedp.Evaluate[string](now, chromedp.EvalAwaitPromise)); err != nil || wrong != "" {
		t.Errorf("by the server's clock it is %s, %v", wrong, err)
	}
}

// Each preset is one click. Tomorrow depends on the reader's time zone; hours are as typed.
func TestPageReturns(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b", "c", "d")
	at(b, "Pacific/Kiritimati") // 14 hours before London
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", 4)
	b.Works(4, e2e.Soon)
	b.Press(`#work li:nth-child(1) [data-return="1h"]`)
	b.Press(`#work li:nth-child(2) [data-return="72h"]`)
	b.Press(`#work li:nth-child(3) [data-return=tomorrow]`)
	b.Shows("#work .going", "c: returned, not offered before tomorrow, 9:00")
	b.Press(`#work li:nth-child(4) [data-return=exact]`)
	b.Do(chromedp.SendKeys(chromedp.CSS("#work .exact input"), "1,5\r", chromedp.NodeVisible))
	b.Shows("#work .going", "d: returned, not offered before ")
	b.Eval(`(passes(), '')`)
	b.Works(0, e2e.Soon)
	got := e2e.Column[string](s, `select item || ' ' || after from getwork.work where item <> 'c' order by item`)
	if fmt.Sprint(got) != "[a 01:00:00 b 72:00:00 d 01:30:00]" {
		t.Error(got)
	}
	morning := e2e.Column[string](s, `
		select to_char(available_at at time zone 'Pacific/Kiritimati', 'HH24:MI ')
		  || ((available_at at time zone 'Pacific/Kiritimati')::date - (closed_at at time zone 'Pacific/Kiritimati')::date)
		from getwork.work where item = 'c'`)[0]
	if morning != "09:00 1" {
		t.Errorf("tomorrow at nine is %s", morning)
	}
	b.Shows("#recent", "not offered before tomorrow, 9:00")
	b.Press(".task .get")
	b.Shows(".task .ended", "You put off a until ") // the reason why no second one is offered
	b.Shows(".task .ended", "and 3 more")
}

// A user can let the server wait for something to come. If the server loses the request, as by a restore, they read that, and can ask
// again.
func TestPageWaitsForWork(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, page.Cuttable)
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "inbox", "title": "Letters"})
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.Press(".task .get")
	b.Shows(".task .ended", "Nothing matches this task now. Ask again later, or wait for new items.")
	b.Press(".linger")
	b.Shows(".pending .phase", "for something to come.")
	s.Exec(`delete from getwork.work_requested where state = 'pending'`)
	cutOff(b)
	b.Shows(".task .ended", "Your request was lost on the server. Please ask again.")
	b.Press(".task .get")
	b.Press(".linger")
	b.Shows(".pending .phase", "for something to come.")
	page.Manages(s, "POST", "/tasks/inbox/items", []map[string]any{{"item": "letter 7"}})
	b.Works(1, e2e.Soon)
	b.Shows("#told", "New: letter 7.")
}

// Who gets items of an expired shelf reads when the list was made.
func TestPageTellsOfAnOldList(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Exec(`create table nap as select 0 as seconds; grant select on nap to public`)
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "query": "select i as item from generate_series(1, 9) i, (select pg_sleep(seconds) from nap) slept order by i",
		"fresh_for": "1h", "stale_for": "1h"})
	s.Takes("Tracy", 1)
	s.Exec(`update nap set seconds = 60`) // the refresh, which a node may begin at any time
	s.Exec(`update getwork.task_state set fresh_until = fresh_until - interval '70 minutes', expires_at = expires_at - interval '70 minutes'`)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.Press(".task .get")
	b.Works(3, e2e.Soon)
	b.Shows(".task .aged", "so it is older than usual. A newer one is on its way.")
}

// Two windows of one user show the same, including outcomes that wait in one of them. If that window dies, the work is
// held again.
func TestPageTwoWindows(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, s := desk(t, page.UndoLasts, "1h", 3)
	other := b.Window()
	other.Do(chromedp.Navigate(s.Nodes[0].URL))
	other.Works(3, e2e.Soon)
	third := b.Window() // which has no part in it, and must not pass it on
	third.Do(chromedp.Navigate(s.Nodes[0].URL))
	third.Works(3, e2e.Soon)
	third.Eval(`(window.undos = 0, new BroadcastChannel('getwork-desk').addEventListener('message', (e) => { if (e.data.undo) undos++; }), '')`)
	b.Press("#work li:first-child .complete")
	other.Shows("#work .going", "a: completed. In another tab.")
	other.Await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
	other.Press(".undo")
	b.Await(`document.querySelectorAll('#work .key').length === 3`, e2e.Soon)
	other.Await(`document.querySelectorAll('#work .key').length === 3`, e2e.Soon)
	b.Press("#work li:first-child .complete")
	other.Shows("#work .going", "a: completed.")
	b.Eval(`(passes(), '')`)
	other.Works(2, e2e.Soon)
	page.Disposes(s, "a completed, b held, c held")
	late := b.Window() // a window that opens later hears of waiting outcomes
	b.Press(`#work li:first-child [data-return="1h"]`)
	late.Do(chromedp.Navigate(s.Nodes[0].URL))
	late.Shows("#work .going", "b: returned, not offered before ")
	crashes(b)
	late.Await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
	page.Disposes(s, "a completed, b held, c held")
	if told := third.Eval(`String(undos)`); told != "1" {
		t.Errorf("one undo was told %s times", told)
	}
}

// Any column that a query returns is readable.
func TestPageDetails(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `
		select i as item, 1234.50 * i as amount, false as checked, null as remark, repeat('All of this was said by the applicant. ', 20) as story,
		  date '2026-02-03' as submitted, timestamptz '2026-02-03 04:05:06Z' as seen, array[1, 2] as parts,
		  '{"iban": "CH93", "holder": {"name": "Ann", "born": "1980-01-31"}, "seen": [{"by": "x"}, {"by": "y"}]}'::jsonb as account
		from generate_series(1, 2) i order by i`)
	at(b, "Asia/Tokyo")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", 2)
	b.Works(2, e2e.Soon)
	shown := b.Eval(`[...document.querySelectorAll('.sheet dl div:not(.whole)')].map((e) => e.children[0].textContent + '=' + e.children[1].textContent).join('; ')`)
	for _, want := range []string{"Amount=1,234.50", "Checked=no", "Remark=–", "Submitted=Feb 3, 2026", "Seen=Feb 3, 2026, 1:05", "Parts=1, 2"} {
		if !strings.Contains(shown, want) {
			t.Errorf("the details lack %q: %s", want, shown)
		}
	}
	b.Await(`[...document.querySelectorAll('#work dd')].some((e) => e.title.includes('1:05:06') && e.title.includes('GMT+9'))`, e2e.Soon)
	account := b.Eval(`[...document.querySelectorAll('.sheet .whole dd')].find((e) => e.textContent.includes('CH93')).firstElementChild.textContent`)
	for _, want := range []string{"Iban: CH93\n", "Holder:\n  Born: Jan 31, 1980\n  Name: Ann", "Seen:\n  1.\n    By: x"} {
		if !strings.Contains(account, want) {
			t.Errorf("the account lacks %q: %s", want, account)
		}
	}
	tall := func() string {
		return b.Eval(`String(document.querySelector('#work .whole dd span').getBoundingClientRect().height > 100)`)
	}
	if tall() != "false" {
		t.Error("a long text takes up too much room")
	}
	b.Eval(`(document.querySelector('#work .whole dd button').focus(), '')`)
	b.Press("#work .whole dd button")
	b.Await(`document.activeElement.textContent === 'less'`, e2e.Soon)
	if tall() != "true" {
		t.Error("the text is not unfolded")
	}
}

// Of many items one is open, and it stays open and keeps the focus when others come.
func TestPageManyAreLines(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "max_request": 20, "query": `select i as item, 'Applicant ' || i as applicant from generate_series(1, 20) i order by i`})
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.Press(".task .name")
	b.Await(`document.querySelector('.how-many input').checkVisibility()`, e2e.Soon)
	b.Eval(`(document.querySelector('.how-many input').select(), '')`)
	b.Do(chromedp.SendKeys(chromedp.CSS(".how-many input"), "12\r", chromedp.NodeVisible))
	b.Works(12, e2e.Soon)
	const one = `document.querySelectorAll('#work .complete').length === 1 && document.querySelectorAll('#work .open').length === 1`
	b.Await(one, e2e.Soon)
	b.TypeNote("mine")
	s.Takes("Oliver", 1)
	b.Works(13, e2e.Soon)
	b.Await(one, e2e.Soon)
	if is := b.Eval(`document.activeElement.value`); is != "mine" {
		t.Errorf("the note %q lost the focus while it was written", is)
	}
	b.Shows("#work .compact .summary", "Applicant 13")
	b.Keys("\x1b" + "j")
	b.Await(one+` && document.querySelectorAll('#work .work')[1].matches('.open')`, e2e.Soon)
	b.Keys("c")
	focused(b, "3")
	b.Await(`document.querySelector('.sheet').dataset.row === document.activeElement.closest('li').id`, e2e.Soon) // a user who works through the list goes on in the next item
	b.Await(one, e2e.Soon)
}

// The title of a tab in the background shows that something has come.
func TestPageTitleTells(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b, s := desk(t, "", "1h", 0)
	b.Eval(`(Object.defineProperty(document, 'hidden', { value: true, configurable: true }), '')`)
	s.Takes("Oliver", 2)
	b.Await(`document.title === '2 new · Oliver · getwork'`, e2e.Soon)
	b.Eval(`(delete document.hidden, document.dispatchEvent(new Event('visibilitychange')), '')`)
	b.Await(`document.title === 'Oliver · getwork'`, e2e.Soon)
}

// A first-time user reads what to do.
func TestPageFirstTime(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL + "#log-in=Oliver"))
	b.Shows("#no-tasks", "A manager creates them")
	b.Shows("#empty", "Your desk is clear.")
	s.Task("verify", `select 1 as item`)
	b.Eval(`(document.dispatchEvent(new Event('visibilitychange')), '')`) // the user returns to the tab
	b.Shows("#tasks .name", "verify")
	b.Shows("#empty", "choose a task")
	b.Opens(s.Nodes[0].URL + "#log-in=Mia,manager")
	b.Shows("#tasks .name", "verify")
}

// A desk shows an item as its task wants it, in few controls: nine for the one in hand, and one for each that is held. The item is a few
// Tab stops away.
func TestPageItemInFocus(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "first", "title": "Z comes first", "position": 1})
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "title": "Verify", "lease": "1h",
		"query": `select i as item, 'Ann ' || i as borrower, 1234.50 * i as amount, 'CH9300762011623852957' as iban, i - 1 as wrong, 12.5 as off, 'javascript:alert(1)' as site, 'late' as state, 'x' as aside
			from generate_series(1, 9) i order by i`,
		"display": map[string]any{"title": "{borrower}, {amount}", "one": "loan", "many": "loans", "url": "https://loans.example/{item}/{state}", "fields": []map[string]any{
			{"column": "amount", "format": "money", "currency": "CHF"}, {"column": "wrong", "label": "Mistakes", "stands_out": "wrong > 0"},
			{"column": "off", "format": "percentage"}, {"column": "iban", "format": "iban"}, {"column": "site", "format": "link"},
			{"column": "state", "format": "badge", "badges": map[string]string{"late": "bad"}},
		}}})
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	s.Takes("Oliver", 4)
	b.Works(4, e2e.Soon)
	controls := b.Eval(`[...document.querySelectorAll('#work :is(a[href], button, input, summary, textarea, select)')].filter((e) => e.checkVisibility())
		.map((e) => e.className.split(' ')[0] || e.id || e.parentElement.dataset.menu || e.localName).join()`)
	if controls != "open-link,keep,summary,then,complete,never,note,later,return,key,key,key,key" {
		t.Errorf("the controls of four held items are %s", controls)
	}
	if order := b.Eval(`[...document.querySelectorAll('#tasks .name')].map((e) => e.textContent).join()`); order != "Z comes first,Verify" {
		t.Error("the tasks are ", order)
	}
	b.Press("#work li:nth-child(2) .key")
	b.Shows(".sheet .headline", "Ann 2, CHF\u00a02,469.00")
	shown := b.Eval(`[...document.querySelectorAll('.sheet > dl div')].map((e) => e.children[0].textContent + '=' + e.children[1].textContent).join('; ')`)
	if want := "Amount=CHF 2,469.00; Mistakes=1; Off=12.5%; Iban=CH93 0076 2011 6238 5295 7; Site=javascript:alert(1); State=late"; strings.ReplaceAll(shown, "\u00a0", " ") != want {
		t.Errorf("shown %s", shown)
	}
	if strong := b.Eval(`[...document.querySelectorAll('#work .stands dt')].map((e) => e.textContent).join()`); strong != "Mistakes" {
		t.Errorf("%q stands out", strong)
	}
	links := b.Eval(`[...document.querySelectorAll('#work a')].map((e) => [e.href, e.target, e.rel].join(' ')).join(', ')`)
	if links != "https://loans.example/2/late _blank noopener noreferrer" {
		t.Error("links: ", links)
	}
	b.Press(".keep")
	b.Shows(".lease .warning", "Kept until ")
	b.Do(chromedp.Reload())
	b.Works(4, e2e.Soon)
	b.Await(`!document.querySelector('#skip').hidden`, e2e.Soon)
	b.Keys("\t")
	b.Await(`document.activeElement.id === 'skip'`, e2e.Soon)
	b.Keys("\r\t")
	b.Await(`document.activeElement.closest('.sheet')`, e2e.Soon)
}

// On a telephone the item in hand comes first, then what else is there; the button for more stays at the bottom.
func TestPageOnATelephone(t *testing.T) {
	t.Parallel()
	b, s := desk(t, "", "1h", 0)
	b.As(page.Looks[2])
	b.Do(chromedp.Reload())
	b.Await(`document.querySelector('.next .primary').getBoundingClientRect().bottom <= innerHeight && document.querySelector('#empty').checkVisibility()`, e2e.Soon)
	s.Takes("Oliver", 3)
	b.Works(3, e2e.Soon)
	b.Await(`(([sheet, mine, tasks]) => sheet < mine && mine < tasks)(['.sheet', '.mine', '#tasks'].map((part) => document.querySelector(part).getBoundingClientRect().top))`, e2e.Soon)
	b.Press(".next .button")
	b.Await(`(({ top, bottom }) => top >= 0 && bottom <= innerHeight)(document.querySelector('#how').getBoundingClientRect())`, e2e.Soon)
}
