package manage

import (
	"testing"

	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A task's query is tried before the task exists: it fails at its place and is corrected, its rows and plan are shown,
// and the task is created as it was tried. Until then nothing exists.
func TestPageNewTaskPreviewed(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	none := func() {
		t.Helper()
		if n := e2e.Column[int](s, `select count(*) from getwork.task_version`)[0]; n != 0 {
			t.Errorf("%d versions of tasks were made", n)
		}
	}
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.Press("#preview-run") // without a query
	b.Shows("#set-query-error", "Write a SELECT that returns a column item")
	b.Await(`document.activeElement.id === 'set-query' && !document.querySelector('.preview progress')`, e2e.Soon)

	b.Set("set-query", "select g as item,\n  nothing as half from generate_series(1, 20000) g order by g")
	ctrl(b, kb.Enter)
	b.Shows("#set-query-error", `column "nothing" does not exist`)
	b.Shows(".preview .error", `column "nothing" does not exist`)
	b.Shows(".to-place", "Go to line 2, column 3")
	b.Await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	none()

	const query = "select g as item, g / 2 as half from generate_series(1, 20000) g where g % 3 = 0 order by g"
	b.Set("set-query", query)
	b.Shows(".former-error", "Before you changed it")
	b.Press("#preview-run")
	b.Await(saysPreviewed, e2e.Soon)
	b.Shows(".preview .stats", "6,666rows given")
	b.Shows(".preview .stats", "0held or put off")
	row := func() string {
		return b.Eval(`[...document.querySelectorAll('.rows tbody tr')][1].innerText.replace(/\s+/g, ' ')`)
	}
	if got := row(); got != "2 6 3" {
		t.Errorf("the second row is %q", got)
	}
	b.Eval(`(document.querySelector('.plan-all').open = true, '')`)
	b.Shows(".plan", "Function Scan on generate_series g")
	b.Await(`!document.querySelector('.sql-wrong') && document.querySelector('#set-query-error').textContent === ''`, e2e.Soon)

	b.Press(".advanced > summary")
	b.Set("set-slots", "2") // the typed value counts, and must be valid
	b.Set("set-query_timeout", "soon")
	b.Press("#preview-run")
	b.Await(`document.activeElement.id === 'set-query_timeout'`, e2e.Soon)
	b.Set("set-query_timeout", "90s")
	b.Press("#preview-run")
	b.Shows(".rows thead", "Places")
	if got := row(); got != "2 6 2 3" {
		t.Errorf("with two places the second row is %q", got)
	}
	none()

	b.Set("set-name", "verify")
	ctrl(b, "s")
	b.Shows(".task-head", "version 1")
	got := e2e.Column[string](s, `select query || ' ' || slots || ' ' || extract(epoch from query_timeout)::int || ' ' || paused from getwork.task_version`)
	if diff := cmp.Diff([]string{query + " 2 90 false"}, got); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	b.Press("#preview-run")
	b.Await(saysPreviewed, e2e.Soon)
	if got := row(); got != "2 6 2 3" {
		t.Errorf("of the task that was created the second row is %q", got)
	}
}

// The preview of a new task uses the typed time limit. It is given up when its page closes, and when the task is made
// an inbox.
func TestPageNewTaskPreviewGivenUp(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	const running = `exists (select from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(600)%' and pid <> pg_backend_pid())`
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.Set("set-query", "select 1 as item from pg_sleep(600)")
	b.Press(".advanced > summary")
	b.Set("set-query_timeout", "50ms")
	b.Press("#preview-run")
	b.Shows("#set-query-error", "longer than its query_timeout of 50ms")
	b.Set("set-query_timeout", "10m")
	b.Press("#preview-run")
	b.Shows(".preview", "It may take 10m")
	s.Await("the query runs", e2e.Soon, `select `+running)
	b.Eval(`(document.querySelectorAll('.kind input')[1].click(), '')`)
	s.Await("the query ends", e2e.Soon, `select not `+running)
	b.Await(`!document.querySelector('.preview')`, e2e.Soon)
	b.Eval(`(document.querySelectorAll('.kind input')[0].click(), '')`)
	b.Shows(".preview", "Given up.")

	b.Press("#preview-run")
	s.Await("it runs again", e2e.Soon, `select `+running)
	b.Eval(`(document.querySelector('#views a[href="/tasks"]').click(), '')`)
	s.Await("it ends with the view", e2e.Soon, `select not `+running)
	b.Shows(".notice", "You began a task and have not created it.")
}
