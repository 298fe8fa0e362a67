package manage

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// wall waits until a task's tile contains a text.
func wall(b *page.Browser, task, says string, within time.Duration) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`document.querySelector('[data-task=%q]')?.innerText.replace(/\s+/g, ' ').includes(%q)`, task, says), within)
}

// figure waits until a tile shows a number: left, waiting, held, given or completed. It shows none that is zero.
func figure(b *page.Browser, task, name string, want int, within time.Duration) {
	b.T.Helper()
	b.Await(hasFigure(task, name, want), within)
}

func hasFigure(task, name string, want int) string {
	return fmt.Sprintf(`((tile) => tile && (tile.querySelector('.%s b')?.textContent ?? '0') === '%d')(document.querySelector('.tile[data-task=%q]'))`, name, want, task)
}

// An observer's wall is on one node, and work is done on another: the wall shows it within a second. Its node is
// killed, and the wall says how old its figures are; the node comes back, and the wall goes on.
func TestPageWall(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	open := page.Gated(s)
	s.Create(map[string]any{"name": "scan", "title": "Scan"})
	b.Visit(s.Nodes[0].URL, "/wall?task=scan,verify", "Olga,observer")
	b.Shows(".wall-state", "Live")
	figure(b, "verify", "waiting", 0, e2e.Soon)
	figure(b, "verify", "given", 0, e2e.Soon)
	b.Await(`[...document.querySelectorAll('.tile')].map((e) => e.dataset.task).join() === 'scan,verify'`, e2e.Soon)

	follows := func(name string, want int, within time.Duration) {
		t.Helper()
		b.Promptly(s, fmt.Sprintf("%d %s", want, name), within, func() bool { return b.Yes(hasFigure("verify", name, want)) })
	}
	r := s.Click("Tracy", 1, 3)
	follows("waiting", 1, time.Second)
	wall(b, "verify", "The query runs: ", e2e.Soon)
	wall(b, "verify", "the longest for ", e2e.Soon)
	b.Shows(".ticker", "A run began")
	open()
	r = s.Served("Tracy", 1, r.ID, e2e.Soon)
	follows("held", 3, time.Second)
	figure(b, "verify", "waiting", 0, e2e.Soon)
	figure(b, "verify", "given", 3, e2e.Soon)
	wall(b, "verify", "The last run found 5 in ", e2e.Soon)
	b.Shows(".ticker", "A run found 5 in ")
	b.Shows(".ticker", "3 more held, 3 in all")
	s.Disposed(s.As("Tracy", 1), r.Work[0], "complete", "")
	follows("held", 2, time.Second)
	figure(b, "verify", "completed", 1, e2e.Soon)

	s.Nodes[0].Kill()
	b.Shows(".wall-age", "what you see is ")
	b.Shows(".wall-state", "Polling every ")
	s.Disposed(s.As("Tracy", 1), r.Work[1], "complete", "")
	figure(b, "verify", "held", 2, e2e.Soon) // the last known figure
	s.Nodes[0].Restart()
	figure(b, "verify", "held", 1, 3*e2e.Soon)
	b.Await(`document.querySelector('.wall-state').textContent.trim() === 'Live'`, 3*e2e.Soon)
	figure(b, "verify", "completed", 2, e2e.Soon)
	s.Got(s.As("Uma", 1), "verify", 1)
	follows("held", 2, 2*time.Second)
}

// Faults are described in words: a query that fails, one that lasts longer than usual, a pause.
func TestPageWallShowsTrouble(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	s.Task("broken", `select 1 / (random() * 0)::int as item`)
	s.Create(map[string]any{"name": "resting", "query": `select 1 as item`, "paused": true})
	open()
	s.Takes("Tracy", 1) // a run of the usual length
	b.Visit(s.Nodes[0].URL, "/wall", "Mary,manager")
	wall(b, "resting", "Paused", e2e.Soon)
	if _, a, err := s.As("Uma", 0).GetWork(t.Context(), "broken", 1, "Prefer", "wait=60"); err != nil || a.Status != 201 {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	wall(b, "broken", "Failing", e2e.Soon)
	wall(b, "broken", "division by zero", e2e.Soon)
	b.Shows(`.ticker [data-kind=bad]`, "A run failed")
	unlock := s.Lock(`select pg_advisory_xact_lock(7)`)
	b.Notes(`[data-task="verify"]`)
	s.Click("Uma", 0, 2)
	b.Showed("The query runs: ") // after some seconds it says more
	wall(b, "verify", "longer than usual", e2e.Soon)
	unlock()
	wall(b, "verify", "The last run found ", e2e.Soon)
}

// A worker's wall has the tasks that are open to the worker, and reads nothing that is not allowed.
func TestPageWallOfAWorker(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select i as item from generate_series(1, 5) i`)
	s.Create(map[string]any{"name": "closed", "query": `select 1 as item`, "groups": []string{"fraud"}})
	b.Visit(s.Nodes[0].URL, "/wall?task=verify,closed", "Oliver")
	figure(b, "verify", "held", 0, e2e.Soon)
	b.Shows(".tile", "There is no such task, or it is not open to you.")
	s.Takes("Tracy", 2)
	figure(b, "verify", "held", 2, time.Second)
	b.Shows(".ticker", "A run found 5 in ")
	if n := b.Eval(`String(document.querySelectorAll('.given, .completed').length)`); n != "0" {
		t.Error("figures are shown that a worker may not read")
	}
	if asked := b.Eval(`performance.getEntriesByType('resource').map((e) => e.name).filter((n) => /history|runs|requests/.test(n)).join()`); asked != "" {
		t.Errorf("it asks for %s", asked)
	}
	b.Do(chromedp.KeyEvent("\x1b"))
	b.Await(`location.pathname === '/' && document.querySelector('#tasks .task')`, e2e.Soon)
}

// Tasks are chosen on the wall, whose controls appear when the pointer moves; the address has the choice.
func TestPageWallChooses(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	for _, name := range []string{"a", "b", "c"} {
		s.Create(map[string]any{"name": name})
	}
	b.Visit(s.Nodes[0].URL, "/wall", "Mary,manager")
	const shown = `[...document.querySelectorAll('.tile')].map((e) => e.dataset.task).join()`
	b.Await(shown+` === 'a,b,c'`, e2e.Soon)
	const seen = `getComputedStyle(document.querySelector('.wall-controls')).opacity`
	b.Await(seen+` === '0'`, e2e.Soon)
	b.Moving("the controls show themselves", func() bool { return b.Yes(seen + ` === '1'`) }) // for four seconds
	b.Await(seen+` === '0'`, e2e.Soon)
	b.Eval(`(document.querySelector('.chooser summary').focus(), '')`)
	b.Await(seen+` === '1'`, e2e.Soon) // also by keyboard
	b.Do(chromedp.KeyEvent("\r\t\t "))
	b.Await(shown+` === 'a,c' && location.search === '?task=a,c'`, e2e.Soon)
	page.Manages(s, "POST", "/tasks/b/items", []map[string]any{{"item": "1"}})
	page.Manages(s, "POST", "/tasks/c/items", []map[string]any{{"item": "1"}})
	figure(b, "c", "left", 1, e2e.Soon)
	b.Do(chromedp.KeyEvent("\x1b"))
	b.Await(`!document.querySelector('.chooser').open && document.activeElement.matches('.chooser summary')`, e2e.Soon)
	b.Do(chromedp.KeyEvent("\x1b"))
	b.Await(`location.pathname === '/floor' && !document.querySelector('.wall')`, e2e.Soon)
	b.Do(chromedp.NavigateBack())
	b.Await(shown+` === 'c,a'`, e2e.Soon) // the first has something to do
}

// A wall stands for days: events do not make it grow.
func TestPageWallDoesNotGrow(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Create(map[string]any{"name": "verify"})
	var items []map[string]any
	for i := range 60 {
		items = append(items, map[string]any{"item": fmt.Sprint(i)})
	}
	page.Manages(s, "POST", "/tasks/verify/items", items)
	b.Visit(s.Nodes[0].URL, "/wall", "Mary,manager")
	figure(b, "verify", "left", 60, e2e.Soon)
	tracy := s.As("Tracy", 0)
	const size = `String(document.querySelectorAll('*').length)`
	round := func(left int) string {
		t.Helper()
		for range 15 {
			w := s.Got(tracy, "verify", 1).Work[0]
			figure(b, "verify", "held", 1, e2e.Soon)
			s.Disposed(tracy, w, "complete", "")
			figure(b, "verify", "held", 0, e2e.Soon)
		}
		figure(b, "verify", "left", left, e2e.Soon)
		figure(b, "verify", "completed", 60-left, e2e.Soon)
		b.Await(`document.querySelectorAll('.ticker li').length === 12`, e2e.Soon)
		return b.Eval(size)
	}
	if first, last := round(45), round(30); first != last {
		t.Errorf("the page had %s elements, and %s after the same events again", first, last)
	}
	if text := b.Eval(`document.querySelector('.ticker').textContent`); strings.Count(text, "held") != 12 {
		t.Errorf("the ticker: %s", text)
	}
}
