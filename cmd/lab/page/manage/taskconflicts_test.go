package manage

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Others save while a manager types. No typed text is lost, whichever way it goes on, and nobody's change is undone
// unseen.
func TestPageTaskChangedByTwo(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", "select 1 as item\norder by 1")
	mia := func(changes map[string]any) {
		t.Helper()
		if err := s.As("mary", 1).UpdateTask(t.Context(), "verify", changes); err != nil {
			t.Fatal(err)
		}
	}
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('#set-title')`, e2e.Soon)
	mia(map[string]any{"title": "First"}) // nothing is typed, so the change is simply shown
	b.Shows("#said", "mary changed this task. Version 2 is shown.")
	b.Await(`document.querySelector('#set-title').value === 'First' && document.querySelector('#view h1').textContent === 'First'`, e2e.Soon)

	b.Set("set-title", "Mine")
	mia(map[string]any{"paused": true}) // it does not concern the typed text
	b.Shows(".task-head .tag", "paused")
	b.Shows("#said", "mary paused this task.")
	b.Set("set-query", "select 2 as item\norder by 1")
	mia(map[string]any{"title": "Theirs", "max_open": 3, "query": "select 3 as item\norder by 1"})
	b.Shows(".conflict", "Version 3 was saved by mary")
	meets(b, "Title both of you First Theirs Mine")
	meets(b, "Items per person no limit 3 not typed")
	b.Shows(".conflict .del", "select 3 as item")
	b.Shows(".conflict .ins", "select 2 as item")
	ctrl(b, "s") // not over it unseen
	b.Await(`document.activeElement.id === 'conflict-title'`, e2e.Soon)
	if n := page.Versions(s, "verify"); n != 3 {
		t.Errorf("version %d was saved over a change before the manager had decided", n)
	}
	b.Press("#save-mine")
	b.Await(`!document.querySelector('.conflict')`, e2e.Soon)
	b.Shows("#unsaved", "Nothing to save.")
	got := e2e.Column[string](s, `select v.title || ' ' || v.query || ' ' || v.max_open || ' ' || v.paused from getwork.task_version v where v.version = 4`)
	if diff := cmp.Diff([]string{"Mine select 2 as item\norder by 1 3 true"}, got); diff != "" {
		t.Errorf("saved (-want +got):\n%s", diff)
	}

	b.Set("set-title", "Mine again")
	b.Set("set-lease", "nonsense")
	mia(map[string]any{"lease": "5m"})
	b.Press("#load-theirs")
	b.Await(`document.querySelector('#set-lease').value === '5m' && document.querySelector('#set-title').value === 'Mine'`, e2e.Soon)
	b.Press("#bring-back")
	b.Await(`document.querySelector('#set-lease').value === 'nonsense' && document.querySelector('#set-title').value === 'Mine again'`, e2e.Soon)

	// The text survives another view, and a reload during which the task is changed again.
	b.Eval(`(document.querySelector('#views a[href="/tasks"]').click(), '')`)
	b.Shows("[data-task=verify] .tag", "not saved")
	mia(map[string]any{"title": "Theirs again"})
	b.Do(chromedp.Reload())
	b.Shows("[data-task=verify]", "Theirs again")
	b.Eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	meets(b, "Title both of you Mine Theirs again Mine again")
	b.Press("#go-on")
	b.Await(`!document.querySelector('.conflict') && document.querySelector('#set-title').value === 'Mine again'`, e2e.Soon)
}

// A change that is announced twice, and read twice, is asked about once: a slow second answer does not ask again.
func TestPageTaskAsksOnce(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Set("set-title", "Mine")
	b.Eval(`((real) => {
		window.slow = [];
		window.fetch = async (path, init) => {
			if (path.includes('/versions?')) await new Promise((go) => slow.push(go));
			return real(path, init);
		};
		return '';
	})(window.fetch)`)
	for i, changes := range []map[string]any{{"title": "Theirs"}, {"paused": true}} {
		if err := s.As("mary", 0).UpdateTask(t.Context(), "verify", changes); err != nil {
			t.Fatal(err)
		}
		// One more if the page's own read of the task also finds the change.
		b.Await(fmt.Sprintf(`slow.length > %d && document.querySelector('#view').textContent.includes('Paused: ') === %t`, i, i == 1), e2e.Soon)
	}
	b.Eval(`(slow[0](), '')`)
	b.Press("#go-on")
	b.Eval(`(slow.slice(1).forEach((go) => go()), '')`)
	b.Await(`performance.getEntriesByType('resource').filter((e) => e.name.includes('/versions?')).length === slow.length`, e2e.Soon)
	b.Eval(`(requestAnimationFrame(() => requestAnimationFrame(() => { window.drawn = true; })), '')`)
	b.Await(`window.drawn`, e2e.Soon)
	if b.Yes(`!!document.querySelector('.conflict')`) {
		t.Error("what was answered is asked again")
	}
}

// unaware is a manager who has typed a title for the task verify, and hears of others' changes only when saving.
func unaware(t *testing.T) (*page.Browser, *e2e.Site) {
	t.Helper()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	address, _ := page.WithoutSockets(t, s.Nodes[0])
	b.Manager(address, "Mia", "/tasks/verify")
	b.Set("set-title", "Mine")
	b.Eval(`((real, sent = false) => { // what is read now and then comes too late
		window.fetch = (path, init) => {
			sent ||= init.method === 'PATCH';
			return sent || !path.endsWith('/tasks/verify') ? real(path, init) : new Promise(() => {});
		};
		return '';
	})(window.fetch)`)
	return b, s
}

// A manager who saves a moment after another, before hearing of it, is refused, and finds out who it was. No typed text is
// lost.
func TestPageTaskStaleVersion(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s := unaware(t)
	if err := s.As("mary", 1).UpdateTask(t.Context(), "verify", map[string]any{"title": "Theirs"}); err != nil {
		t.Fatal(err)
	}
	ctrl(b, "s")
	b.Shows(".conflict", "Version 2 was saved by mary")
	b.Await(`performance.getEntriesByType('resource').some((e) => e.responseStatus === 412)`, e2e.Soon)
	b.Await(`document.activeElement.id === 'conflict-title' && document.querySelector('#set-title').value === 'Mine'`, e2e.Soon)
	b.Press("#save-mine")
	b.Await(`document.querySelector('#view h1').textContent === 'Mine'`, e2e.Soon)
	if n := page.Versions(s, "verify"); n != 3 {
		t.Errorf("it is version %d", n)
	}
}
