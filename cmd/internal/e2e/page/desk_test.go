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

// Who gets items of an expired shelf is told when the list was made.
func TestPageTellsOfAnOldList(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Exec(`create table nap as select 0 as seconds; grant select on nap to public`)
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "query": "select i as item from generate_series(1, 9) i, (select pg_sleep(seconds) from nap) slept order by i",
		"fresh_for": "1h", "stale_for": "1h"})
	s.Takes("Tracy", 1)
	s.Exec(`update nap set seconds = 60`) // the refresh, which a node may begin at any time
	s.Exec(`update getwork.task_state set fresh_until = fresh_until - interval '70 minutes', expires_at = expires_at - interval '70 minutes'`)
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.press(".task form button")
	b.works(3, e2e.Soon)
	b.shows(".task .aged", "so it is older than usual. A newer one is on its way.")
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
	other.await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
	other.press(".undo")
	b.await(`document.querySelectorAll('#work .key').length === 3`, e2e.Soon)
	other.await(`document.querySelectorAll('#work .key').length === 3`, e2e.Soon)
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
	late.await(`document.querySelectorAll('#work .key').length === 2`, e2e.Soon)
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

// Of many items one is open, and it stays open and keeps the focus when others come.
func TestPageManyAreLines(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "max_request": 20, "query": `select i as item, 'Applicant ' || i as applicant from generate_series(1, 20) i order by i`})
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	b.press(".task summary")
	b.await(`document.querySelector('.how-many input').checkVisibility()`, e2e.Soon)
	b.eval(`(document.querySelector('.how-many input').select(), '')`)
	b.do(chromedp.SendKeys(chromedp.CSS(".how-many input"), "12\r", chromedp.NodeVisible))
	b.works(12, e2e.Soon)
	const one = `document.querySelectorAll('#work .complete').length === 1 && document.querySelectorAll('#work > .open').length === 1`
	b.await(one, e2e.Soon)
	b.typeNote("mine")
	s.Takes("Oliver", 1)
	b.works(13, e2e.Soon)
	b.await(one, e2e.Soon)
	if is := b.eval(`document.activeElement.value`); is != "mine" {
		t.Errorf("the note %q lost the focus while it was written", is)
	}
	b.shows("#work .compact .summary", "Applicant 13")
	b.keys("\x1b" + "j")
	b.await(one+` && document.querySelector('#work > :nth-child(2)').matches('.open')`, e2e.Soon)
	b.keys("c")
	b.focused("3")
	b.await(`document.activeElement.closest('li').querySelector('.complete')`, e2e.Soon) // a user who works through the list goes on in the next item
	b.await(one, e2e.Soon)
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

// A desk shows an item as its task wants it, in few controls: four held items have at most twelve. The pipeline is a few Tab
// stops away.
func TestPageItemInFocus(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.manages("POST", "/tasks", map[string]any{"name": "first", "title": "Z comes first", "position": 1})
	s.manages("POST", "/tasks", map[string]any{"name": "verify", "title": "Verify", "lease": "1h",
		"query": `select i as item, 'Ann ' || i as borrower, 1234.50 * i as amount, 'CH9300762011623852957' as iban, i - 1 as wrong, 12.5 as off, 'javascript:alert(1)' as site, 'late' as state, 'x' as aside
			from generate_series(1, 9) i order by i`,
		"display": map[string]any{"title": "{borrower}, {amount}", "one": "loan", "many": "loans", "url": "https://loans.example/{item}/{state}", "fields": []map[string]any{
			{"column": "amount", "format": "money", "currency": "CHF"}, {"column": "wrong", "label": "Mistakes", "stands_out": "wrong > 0"},
			{"column": "off", "format": "percentage"}, {"column": "iban", "format": "iban"}, {"column": "site", "format": "link"},
			{"column": "state", "format": "badge", "badges": map[string]string{"late": "bad"}},
		}}})
	b.logIn(s.Nodes[0].URL, "Oliver")
	b.state("live", e2e.Soon)
	s.Takes("Oliver", 4)
	b.works(4, e2e.Soon)
	const controls = `[...document.querySelectorAll('.pipeline :is(a[href], button, input, summary, textarea, select)')].filter((e) => e.checkVisibility()).length`
	if n := b.eval(`String(` + controls + `)`); n != "12" {
		t.Errorf("four held items have %s controls, want 12", n)
	}
	if order := b.eval(`[...document.querySelectorAll('#tasks h3')].map((e) => e.textContent).join()`); order != "Z comes first,Verify" {
		t.Error("the tasks are ", order)
	}
	b.press("#work li:nth-child(2) .key")
	b.shows("#work > .open .headline", "Ann 2, CHF\u00a02,469.00")
	shown := b.eval(`[...document.querySelectorAll('#work .open .pane > dl div')].map((e) => e.children[0].textContent + '=' + e.children[1].textContent).join('; ')`)
	if want := "Amount=CHF 2,469.00; Mistakes=1; Off=12.5%; Iban=CH93 0076 2011 6238 5295 7; Site=javascript:alert(1); State=late"; strings.ReplaceAll(shown, "\u00a0", " ") != want {
		t.Errorf("shown %s", shown)
	}
	if strong := b.eval(`[...document.querySelectorAll('#work .strong dt')].map((e) => e.textContent).join()`); strong != "Mistakes" {
		t.Errorf("%q stands out", strong)
	}
	links := b.eval(`[...document.querySelectorAll('.pipeline a')].map((e) => [e.href, e.target, e.rel].join(' ')).join(', ')`)
	if links != "https://loans.example/2/late _blank noopener noreferrer" {
		t.Error("links: ", links)
	}
	b.press(".keep")
	b.shows(".lease .warning", "Kept until ")
	b.do(chromedp.Reload())
	b.works(4, e2e.Soon)
	b.await(`!document.querySelector('#skip').hidden`, e2e.Soon)
	b.keys("\t")
	b.await(`document.activeElement.id === 'skip'`, e2e.Soon)
	b.keys("\r\t")
	b.await(`document.activeElement.matches('#work .key')`, e2e.Soon)
}

// On a telephone tasks and pipeline are tabs. What arrives while the tasks are shown is announced, and leads to the pipeline,
// which comes first as soon as it has something.
func TestPageTabs(t *testing.T) {
	t.Parallel()
	b, s := desk(t, "", "1h", 0)
	b.as(looks[2])
	b.do(chromedp.Reload())
	b.await(`document.querySelector('.desk').dataset.tab === 'tasks' && document.querySelector('#tab-tasks').getAttribute('aria-selected') === 'true'`, e2e.Soon)
	s.Takes("Oliver", 3)
	b.shows(".notice", "3 items arrived")
	b.await(`!document.querySelector('#work').checkVisibility() && document.querySelector('#tab-pipeline .count').textContent === '3'`, e2e.Soon)
	b.press(".notice button")
	b.await(`document.activeElement.textContent === 'a' && document.activeElement.checkVisibility() && !document.querySelector('#tasks').checkVisibility()`, e2e.Soon)
	b.press("#tab-tasks")
	b.await(`document.querySelector('#tasks').checkVisibility() && !document.querySelector('.notice button')`, e2e.Soon)
	b.do(chromedp.Reload())
	b.await(`document.querySelector('#work .complete')?.checkVisibility()`, e2e.Soon)
}
