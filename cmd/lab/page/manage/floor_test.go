package manage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// floor waits until a part of the floor (tasks, waiting, held or charts) contains a text or, if it begins with "!",
// does not.
func floor(b *page.Browser, name, text string, within time.Duration) {
	b.T.Helper()
	b.Await(onFloor(name, text), within)
}

func onFloor(name, text string) string {
	text, not := strings.CutPrefix(text, "!")
	return fmt.Sprintf(`document.querySelector('[data-part=%s]')?.innerText.replaceAll(/\s+/g, ' ').includes(%q) === %v`, name, text, !not)
}

// unfold shows what a user holds. It uses no pointer, since a message of the page may cover the place for a while.
func unfold(b *page.Browser, user string) {
	b.T.Helper()
	b.Press(fmt.Sprintf(`[data-user=%q] summary`, user))
	b.Await(fmt.Sprintf(`document.querySelector('[data-part=held] [data-user=%q] .holds li')`, user), e2e.Soon)
}

// counts waits until a task's row has these figures.
func counts(b *page.Browser, task, want string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`['left', 'waiting', 'held', 'today'].map((of) => of + ' ' + document.querySelector('[data-task=%s] [data-count=' + of + ']')?.textContent).join(' ') === %q`, task, want), e2e.Soon)
}

// A manager at one node sees what people do at another, as it happens: who waits, the current run, and who holds what.
func TestPageFloor(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	open := page.Gated(s)
	s.Task("idle", `select 1 as item`)
	b.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	b.State("live", e2e.Soon)
	counts(b, "idle", "left – waiting – held – today –")
	floor(b, "waiting", "Nobody waits.", e2e.Soon)
	floor(b, "held", "Nobody holds anything.", e2e.Soon)
	follows := func(part, text string) {
		t.Helper()
		b.Promptly(s, part+" says "+text, time.Second, func() bool { return b.Yes(onFloor(part, text)) })
	}
	b.Press(`[data-task=idle] .pause`) // where one sees the problem
	floor(b, "tasks", "idle paused", e2e.Soon)
	b.Press(`[data-task=idle] .pause`)
	floor(b, "tasks", "!idle paused", e2e.Soon)
	if log := e2e.Column[string](s, `select by || ' ' || paused || ' ' || version from getwork.task_pause order by n`); strings.Join(log, ", ") != "Mary true 1, Mary false 1" {
		t.Errorf("the log says %v", log)
	}
	s.Click("Oliver", 1, 2)
	follows("waiting", "2 items of verify, place 1, ")
	follows("tasks", "runs for 0:")
	counts(b, "verify", "left – waiting 1 held – today –")
	b.Await(`document.querySelector('.figures').innerText.replace(/\s+/g, ' ').includes('person waiting 1')`, e2e.Soon)
	b.Await(`/runs for 0:(0[2-9]|[1-5])/.test(document.querySelector('[data-part=tasks]').innerText)`, e2e.Soon) // the time advances by itself
	s.Click("Tracy", 1, 1)
	floor(b, "waiting", "1 item of verify, place 2, ", e2e.Soon)
	if rows := b.Eval(`[...document.querySelectorAll('[data-part=waiting] li b')].map((e) => e.textContent).join()`); rows != "Oliver,Tracy" {
		t.Errorf("they wait in the order %s", rows)
	}
	open()
	page.Answered(s)
	follows("waiting", "Nobody waits.")
	follows("held", "Oliver 2 held, the oldest for ")
	follows("held", "Tracy 1 held, for ")
	counts(b, "verify", "left 5 waiting – held 3 today –")
	b.Press(`[data-task=verify] th a`)
	b.Shows(".facts", "found 5 in ")
	unfold(b, "Oliver")
	b.Eval(`(document.querySelector('[data-user=Oliver] a').focus(), '')`)
	s.Takes("Uma", 1)
	follows("held", "Uma 1 held")
	if still := b.Eval(`document.activeElement.textContent + document.activeElement.closest('details')?.open`); still != "1true" {
		t.Errorf("after others have come the focus is in %q", still)
	}
}

// A run that lasts longer than usual is described so.
func TestPageFloorLateRun(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	open := page.Gated(s)
	s.Exec(`update getwork.task_state set usual = interval '8 seconds'`)
	b.Visit(s.Nodes[0].URL, "/floor?task=verify", "Mary,manager")
	b.State("live", e2e.Soon)
	b.Shows(".facts", "A run usually takes")
	b.Shows(".facts", "8 s")
	b.Notes("[data-part=tasks]")
	s.Click("Oliver", 1, 2)
	b.Showed(" of about 8 s") // until it takes longer than that
	floor(b, "tasks", ", longer than usual (8 s)", 2*e2e.Soon)
	floor(b, "tasks", "1 run under way, 1 for longer than usual", e2e.Soon)
	b.Shows("[data-task=verify] .run[data-time=half]", "longer than usual")
	open()
	floor(b, "tasks", "!longer than usual", e2e.Soon)
}

// A manager cancels a request, gives work to another user, and releases work, without leaving the floor.
func TestPageFloorActs(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	open := page.Gated(s)
	b.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	b.State("live", e2e.Soon)
	waits := s.Click("Oliver", 1, 2)
	s.Click("Tracy", 1, 2)
	cancel := fmt.Sprintf(`[data-request="%d"] button`, waits.ID)
	b.Click(cancel)
	b.Press(`dialog button[value=no]`)
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	if is := b.Eval(`document.activeElement.ariaLabel`); is != "Cancel the request of Oliver for verify" {
		t.Errorf("after an answer of no the focus is at %q", is)
	}
	b.Click(cancel)
	b.Press(`dialog button[value=yes]`)
	floor(b, "waiting", "!Oliver", e2e.Soon)
	b.Await(`document.activeElement.id === 'waiting-title'`, e2e.Soon) // its button is gone
	if r, _, err := s.As("Oliver", 1).Request(t.Context(), waits.ID); err != nil || r.State != assign.Cancelled {
		t.Errorf("the request is %s, %v", r.State, err)
	}
	open()
	floor(b, "held", "Tracy 2 held", e2e.Soon)
	unfold(b, "Tracy")
	held := e2e.Column[int64](s, `select id from getwork.work where state = 'held' order by item`)
	b.Click(`[data-user=Tracy] .holds li:first-child .reassign`)
	b.Do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "Uma", chromedp.NodeVisible))
	s.Disposed(s.As("Tracy", 1), assign.Work{ID: held[0]}, "complete", "")
	floor(b, "held", "Tracy 1 held", e2e.Soon)
	b.Press(`dialog button[type=submit]`)
	b.Shows("dialog .error", "is not held any more")
	if typed := b.Eval(`document.querySelector('dialog input').value`); typed != "Uma" {
		t.Errorf("after an error %q is typed", typed)
	}
	b.Press(`dialog button[type=button]`)
	b.Await(`document.activeElement.id === 'held-title'`, e2e.Soon) // its button is gone
	b.Click(`[data-user=Tracy] .holds .reassign`)
	b.Do(chromedp.SendKeys(chromedp.CSS(`dialog input`), "Uma\r", chromedp.NodeVisible))
	b.Shows("dialog .error", "Nobody has worked here as “Uma” so far.")
	b.Do(chromedp.KeyEvent("\r"))
	floor(b, "held", "Uma 1 held", e2e.Soon)
	floor(b, "held", "!Tracy", e2e.Soon)
	s.Takes("Tracy", 1)
	unfold(b, "Tracy")
	b.Click(`[data-user=Tracy] .release`)
	b.Shows("dialog", "1 item is held by Tracy.")
	b.Press("dialog .danger:not([aria-disabled])")
	floor(b, "held", "!Tracy", e2e.Soon)
	b.Await(`document.activeElement.id === 'held-title'`, e2e.Soon)
	unfold(b, "Uma")
	b.Await(`document.querySelector('[data-user=Uma] .holds a')?.getAttribute('href') === '/items?task=verify&item=2'`, e2e.Soon)
}

// An observer sees everything, and is offered no action that is not allowed.
func TestPageFloorObserver(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	page.Gated(s)
	s.Task("jobs", `select i as item from generate_series(1, 9) i`)
	s.Got(s.As("Tracy", 1), "jobs", 2)
	s.Click("Oliver", 1, 2)
	b.Visit(s.Nodes[0].URL, "/floor", "Otto,observer")
	floor(b, "waiting", "2 items of verify", e2e.Soon)
	floor(b, "held", "Tracy 2 held", e2e.Soon)
	unfold(b, "Tracy")
	watchesOnly(b)
	b.Do(chromedp.Navigate(s.Nodes[0].URL + "/people"))
	b.Await(`document.querySelector('[data-user=Tracy] button')`, e2e.Soon)
	b.Press(`[data-user=Tracy] button`)
	b.Await(`document.querySelector('.more tbody tr')`, e2e.Soon)
	watchesOnly(b)
}

// watchesOnly checks that no button or link of the view changes anything for others.
func watchesOnly(b *page.Browser) {
	b.T.Helper()
	if acts := b.Eval(`[...document.querySelectorAll('#view :is(button, a)')].map((e) => e.textContent.trim())
		.filter((text) => /cancel|reassign|release|pause|resume|give to/i.test(text)).join() + document.querySelectorAll('#view a[href^="/items"]').length`); acts != "0" {
		b.T.Errorf("an observer is offered %s", acts)
	}
}

// If thousands of items are held the page reads the holders, and the items only of those who are looked at.
func TestPageFloorMany(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 20) i order by i`)
	s.Exec(`insert into getwork.work (task_id, item, user_name)
		select task_id, 'item-' || i, case when i <= 20 then 'Early' else 'user-' || i % 40 end from getwork.task_state, generate_series(1, 1990) i`)
	b.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	floor(b, "held", "Who holds what 1,990 41 people", e2e.Soon)
	floor(b, "held", "user-7 49 held, the oldest for ", e2e.Soon)
	floor(b, "held", "Early 20 held", e2e.Soon)
	if n := b.Eval(`String(performance.getEntriesByType('resource').filter((e) => new URL(e.name).pathname === '/api/v1/work').length)`); n != "0" {
		t.Errorf("items were read %s times", n)
	}
	unfold(b, "user-7")
	if n := b.Eval(`String(document.querySelectorAll('[data-user="user-7"] .holds li').length)`); n != "49" {
		t.Errorf("%s of the user's 49 are shown", n)
	}
	if most := b.Eval(`String(Math.max(...performance.getEntriesByType('resource').map((e) => Number(new URL(e.name).searchParams.get('limit')))))`); most != "200" {
		t.Errorf("a page has %s", most)
	}
}
