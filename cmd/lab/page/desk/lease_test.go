package desk

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// anHourOff is a page script for a machine whose clock is wrong.
const anHourOff = `Date.now = ((now) => () => now() + 3600e3)(Date.now)`

// The remaining time is counted down by the server's clock, and a warning comes before the end. One click extends the
// lease, and so does presence at the page; absence does not.
func TestPageLease(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, anHourOff+";"+page.Cuttable)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "60s", "17", "18")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	extended := func(n int) bool {
		return e2e.Column[bool](s, `select lease_expires_at - assigned_at >= $1 * lease from getwork.work order by id desc limit 1`, n)[0]
	}
	s.Takes("Oliver", 1)
	b.Await(`/^[3-5]\d s left$/.test(document.querySelector('#work .left')?.textContent)`, e2e.Soon)
	s.Exec(`update getwork.work set assigned_at = assigned_at - interval '40 s', lease_expires_at = lease_expires_at - interval '40 s'`)
	cutOff(b) // so that the page reads the later end
	b.Await(`/^1?\d s left$/.test(document.querySelector('#work .left')?.textContent)`, e2e.Soon)
	b.Shows(".lease.soon .warning", "goes back to the queue")
	if title := b.Eval("document.title"); !strings.HasSuffix(title, "Oliver · getwork") {
		t.Errorf("the title is %q", title)
	}
	b.Await(`document.title.startsWith('⏳')`, e2e.Soon)
	b.Press(".keep")
	b.Await(`document.querySelector('.lease:not(.soon)')`, e2e.Soon)
	if extended(2) {
		t.Error("the lease was extended by more than its length")
	}
	b.Press(".complete")
	b.Works(0, e2e.Soon)
	page.Changes(s, "verify", map[string]any{"lease": "10s"}, 0) // a quarter of it is soon used up
	s.Takes("Oliver", 1)
	b.Moving("presence extends the lease three times", func() bool { return extended(3) })
	const extensions = `performance.getEntriesByType('resource').filter((e) => e.name.endsWith('/extend')).length`
	if n, err := page.Run(b, chromedp.Evaluate[int](extensions)); err != nil || n < 3 || n > 10 {
		t.Errorf("extended %d times in three leases (%v); at least a quarter of one lies between two", n, err)
	}
	b.Eval(`(Object.defineProperty(document, 'hidden', { value: true }), '')`) // as if the tab were in the background
	b.Moving("nobody is at it", func() bool {
		return e2e.Column[bool](s, `select state = 'expired' from getwork.work order by id desc limit 1`)[0]
	})
	b.Shows(".why", "It went back at ")
	b.Await(`document.querySelector('#work .again').checkVisibility() && !document.querySelector('#work .done')`, e2e.Soon)
	b.Press(".dismiss")
	b.Works(0, e2e.Soon)
	b.Shows("#empty", "Your desk is clear.")
}

// All of this also works without push.
func TestPageLeaseWithoutPush(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "15s", "17") // longer than loading the page may take
	address, _ := page.WithoutSockets(t, s.Nodes[0])
	b.LogIn(address, "Oliver")
	s.Takes("Oliver", 1)
	b.Do(chromedp.Navigate(address))
	b.State("polling", e2e.Soon)
	b.Shows(".lease .left", "s left")
	b.Moving("presence extends the lease twice", func() bool {
		return e2e.Column[bool](s, `select lease_expires_at - assigned_at >= 2 * lease from getwork.work`)[0]
	})
	b.Await(`document.querySelector('.why')?.textContent.includes('It went back at ')`, 3*e2e.Soon)
	b.Press(".again")
	b.Shows(".lease .left", "s left")
	b.Works(1, e2e.Soon)
}

// A user returns an item to others and isn't offered it again; the page says why there is nothing for them, and names a
// limit.
func TestPageReturnsToOthers(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select 1 as item`)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.Click(".task .get")
	b.Works(1, e2e.Soon)
	b.Click("#work .others")
	b.Click(`#work [data-return=exact]`)
	b.Do(chromedp.SendKeys(chromedp.CSS("#work .exact input"), "73\r", chromedp.NodeVisible))
	b.Shows("#work .error", "It can be returned for 0 to 72 hours")
	b.Do(chromedp.SendKeys(chromedp.CSS("#work .exact input"), "\b\b0\r", chromedp.NodeVisible))
	b.Shows("#work .became", "returned to others, not offered before ")
	b.Works(0, e2e.Soon)
	b.Shows("#recent", "returned to others, not offered before ")
	if closed := e2e.Column[string](s, `select state || ' ' || to_others from getwork.work`); closed[0] != "returned true" {
		t.Errorf("work: %q", closed)
	}
	b.Click(".task .get")
	b.Shows(".task .ended", "There is work, but none that you may have")
	b.Shows(".task .ended", "You left 1 to others.")
	if a, err := s.As("Tracy", 0).Do(t.Context(), http.MethodPost, "/api/v1/tasks/verify/items/1/claim", nil); err != nil || a.Status != 201 {
		t.Errorf("Tracy's claim: %d %s %v", a.Status, a.Body, err)
	}
	err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "jobs", "query": `select i as item from generate_series(1, 9) i`, "max_open": 1, "slots": 3})
	if err != nil {
		t.Fatal(err)
	}
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	b.State("live", e2e.Soon)
	const click = `(document.querySelector('.task [aria-label="Get Work: jobs"]').click(), '')`
	b.Await(`document.querySelector('.task [aria-label="Get Work: jobs"]')`, e2e.Soon)
	b.Press(".task .name")
	if n := b.Eval(`String(document.querySelectorAll('[name="count-jobs"]').length)`); n != "1" {
		t.Errorf("%s numbers to choose from, of which one may hold 1", n)
	}
	b.Eval(click)
	b.Works(1, e2e.Soon)
	b.Shows("#work .which", "place 1 of 3")
	b.Eval(click)
	b.Shows(".task .ended", "You hold 1 item of this task, and may hold no more.")
	b.Eval(`(import('/static/views/desk/words.js').then((words) => { window.words = words; }), '')`)
	b.Await(`window.words`, e2e.Soon)
	for _, tt := range []struct{ request, task, holds, want string }{
		{"{state:'partial',wanted:5,assigned:1,reason:'at_limit'}", "{max_open:1}", "1", "You got 1 item. You hold 1 item of this task, and may hold no more."},
		{"{state:'partial',wanted:5,assigned:2,reason:'at_limit'}", "{max_open:2,display:{one:'loan',many:'loans'}}", "2", "You got 2 loans. You hold 2 loans of this task, and may hold no more."},
		{"{state:'partial',wanted:5,assigned:2,reason:'rules'}", "{max_open:null,display:null}", "2", "You got 2 items of the 5 that you asked for: the task’s rules let you have no more."},
		{"{state:'partial',wanted:5,assigned:2,reason:null}", "undefined", "2", "You got 2 items of the 5 that you asked for: there were no more."},
		{"{state:'none',reason:'all_held'}", "{}", "2", "Everything that matches is held by you or others, or put off. Ask again later, or wait until an item is free."},
		{"{state:'none',reason:'all_held'}", "{}", "0", "Everything that matches is held by others or put off. Ask again later, or wait until an item is free."},
	} {
		if got := b.Eval(fmt.Sprintf("words.outcome(%s, %s, %s)", tt.request, tt.task, tt.holds)); got != tt.want {
			t.Errorf("%s, of task %s, holding %s: %q", tt.request, tt.task, tt.holds, got)
		}
	}
}
