package page

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
)

// A task's query is tried before the task exists: it fails at its place and is corrected, its rows and plan are shown,
// and the task is created as it was tried. Until then nothing exists.
func TestPageNewTaskPreviewed(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	none := func() {
		t.Helper()
		if n := column[int](s, `select count(*) from getwork.task_version`)[0]; n != 0 {
			t.Errorf("%d versions of tasks were made", n)
		}
	}
	b.manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.press("#preview-run") // without a query
	b.shows("#set-query-error", "Write a SELECT that returns a column item")
	b.await(`document.activeElement.id === 'set-query' && !document.querySelector('.preview .bar')`, e2e.Soon)

	b.set("set-query", "select g as item,\n  nothing as half from generate_series(1, 20000) g order by g")
	b.ctrl(kb.Enter)
	b.shows("#set-query-error", `column "nothing" does not exist`)
	b.shows(".preview .error", `column "nothing" does not exist`)
	b.shows(".to-place", "Go to line 2, column 3")
	b.await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	none()

	const query = "select g as item, g / 2 as half from generate_series(1, 20000) g where g % 3 = 0 order by g"
	b.set("set-query", query)
	b.shows(".sql + .error + p", "Before you changed it")
	b.press("#preview-run")
	b.await(saysPreviewed, e2e.Soon)
	b.shows(".preview .stats", "6,666rows given")
	b.shows(".preview .stats", "0held or put off")
	row := func() string {
		return b.eval(`[...document.querySelectorAll('.rows tbody tr')][1].innerText.replace(/\s+/g, ' ')`)
	}
	if got := row(); got != "2 6 3" {
		t.Errorf("the second row is %q", got)
	}
	b.eval(`(document.querySelector('.plan-all').open = true, '')`)
	b.shows(".plan", "Function Scan on generate_series g")
	b.await(`!document.querySelector('.sql-wrong') && document.querySelector('#set-query-error').textContent === ''`, e2e.Soon)

	b.press(".advanced > summary")
	b.set("set-slots", "2") // the typed value counts, and must be valid
	b.set("set-query_timeout", "soon")
	b.press("#preview-run")
	b.await(`document.activeElement.id === 'set-query_timeout'`, e2e.Soon)
	b.set("set-query_timeout", "90s")
	b.press("#preview-run")
	b.shows(".rows thead", "Places")
	if got := row(); got != "2 6 2 3" {
		t.Errorf("with two places the second row is %q", got)
	}
	none()

	b.set("set-name", "verify")
	b.ctrl("s")
	b.shows(".task-head", "version 1")
	got := column[string](s, `select query || ' ' || slots || ' ' || extract(epoch from query_timeout)::int || ' ' || paused from getwork.task_version`)
	if diff := cmp.Diff([]string{query + " 2 90 false"}, got); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	b.press("#preview-run")
	b.await(saysPreviewed, e2e.Soon)
	if got := row(); got != "2 6 2 3" {
		t.Errorf("of the task that was created the second row is %q", got)
	}
}

// The preview of a new task uses the typed time limit. It is given up when its page closes, and when the task is made
// an inbox.
func TestPageNewTaskPreviewGivenUp(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	const running = `exists (select from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(600)%' and pid <> pg_backend_pid())`
	b.manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.set("set-query", "select 1 as item from pg_sleep(600)")
	b.press(".advanced > summary")
	b.set("set-query_timeout", "50ms")
	b.press("#preview-run")
	b.shows("#set-query-error", "longer than its query_timeout of 50ms")
	b.set("set-query_timeout", "10m")
	b.press("#preview-run")
	b.shows(".preview", "It may take 10m")
	s.Await("the query runs", e2e.Soon, `select `+running)
	b.eval(`(document.querySelectorAll('.kind input')[1].click(), '')`)
	s.Await("the query ends", e2e.Soon, `select not `+running)
	b.await(`!document.querySelector('.preview')`, e2e.Soon)
	b.eval(`(document.querySelectorAll('.kind input')[0].click(), '')`)
	b.shows(".preview", "Given up.")

	b.press("#preview-run")
	s.Await("it runs again", e2e.Soon, `select `+running)
	b.eval(`(document.querySelector('#views a[href="/tasks"]').click(), '')`)
	s.Await("it ends with the view", e2e.Soon, `select not `+running)
	b.shows(".notice", "You began a task and have not created it.")
}
