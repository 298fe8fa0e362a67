package manage

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// ctrl presses a key with Ctrl.
func ctrl(b *page.Browser, key string) {
	b.T.Helper()
	b.Do(chromedp.KeyEvent(key, chromedp.KeyModifiers(chromedp.ModifierCtrl)))
}

// meets waits until the question about another user's change has a row with that text, ignoring blanks.
func meets(b *page.Browser, row string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`[...document.querySelectorAll('.conflict tr')].some((e) => e.textContent.replace(/\s+/g, ' ').trim() === %q)`, row), e2e.Soon)
}

const saysPreviewed = `document.querySelector('.preview .stats') && !document.querySelector('.preview .former')`

// A manager makes a task with a mistake in its query, is led to it, corrects it, reads the result, saves, changes
// it, sees the difference, and goes back.
func TestPageTaskFromMistakeToRollBack(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	b.Shows(".empty", "There are no tasks yet.")
	b.Click(`a.button.primary`)
	b.Set("set-name", "Verify")
	b.Shows("#set-name-error", "A name is 1 to 63 of a–z")
	b.Set("set-name", "verify")
	b.Set("set-title", "Verify accounts")
	b.Set("set-query", "select 'Zoë 𝄞' as who,\n  nothing as item") // characters of one, two and four bytes before the mistake
	b.Set("set-lease", "half an hour")
	b.Press("#save")
	b.Await(`document.activeElement.id === 'set-lease'`, e2e.Soon)
	b.Shows("#set-lease-error", "A number with a unit, such as 90s, 2m or 24h")
	b.Set("set-lease", "30m")
	b.Press("#save")
	b.Shows("#set-query-error", `column "nothing" does not exist`)
	b.Await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	if at := b.Eval(`(({value, selectionStart}) => value.slice(selectionStart))(document.querySelector('#set-query'))`); at != "nothing as item" {
		t.Errorf("the caret is before %q", at)
	}
	b.Shows(".to-place", "Go to line 2, column 3")
	b.Do(chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete),
		chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent("generate_series(1, 20000)"))
	b.Await(`!document.querySelector('.sql-wrong')`, e2e.Soon)
	b.Press("#save")
	b.Shows(".task-head", "version 1")
	if at := b.Eval(`location.pathname`); at != "/tasks/verify" {
		t.Errorf("after it was created the address is %s", at)
	}

	b.Await(`document.querySelector('#set-query')`, e2e.Soon)
	b.Set("set-query", "select g as item, g / 2 as half from generate_series(1, 20000) g where g % 3 = 0 order by g")
	ctrl(b, kb.Enter)
	b.Await(saysPreviewed, e2e.Soon)
	b.Shows(".preview .stats", "6,666rows given")
	if row := b.Eval(`[...document.querySelectorAll('.rows tbody tr')][1].innerText.replace(/\s+/g, ' ')`); row != "2 6 3" {
		t.Errorf("the preview's second row is %q", row)
	}
	b.Eval(`(document.querySelector('.plan-all').open = true, '')`)
	b.Shows(".plan", "Function Scan on generate_series g")
	b.Do(chromedp.KeyEvent(" "))
	b.Shows(".preview", "Of a former text of the query")
	if n := page.Versions(s, "verify"); n != 1 {
		t.Errorf("a preview made version %d", n)
	}
	b.Set("set-query", "select g as item, g / 2 as half\nfrom generate_series(1, 20000) g\norder by g")
	b.Set("set-max_request", "7")
	b.Shows("#unsaved", "Not saved: Query, Items at a time.")
	ctrl(b, "s")
	b.Shows("#unsaved", "Nothing to save.")
	if n := page.Versions(s, "verify"); n != 2 {
		t.Errorf("saving made version %d", n)
	}

	b.Press("#tab-versions")
	b.Shows(".versions [data-version='2']", "Query: +3 −2 lines")
	b.Shows(".versions [data-version='2']", "Items at a time: 5 → 7")
	b.Shows(".versions [data-version='1']", "created")
	b.Press(".versions [data-version='2'] .compare")
	b.Shows(".compared .diff .del", "select 'Zoë 𝄞' as who,")
	b.Shows(".compared .diff .ins", "order by g")
	b.Press(".versions [data-version='1'] .restore")
	b.Press(`dialog button[value="yes"]`)
	b.Shows(".versions [data-version='3']", "Items at a time: 7 → 5")
	b.Await(`document.activeElement.id === 'versions-title'`, e2e.Soon)
	b.Press("#tab-query")
	b.Await(`document.querySelector('#set-query')`, e2e.Soon)
	if q := b.Eval(`document.querySelector('#set-query').value`); q != "select 'Zoë 𝄞' as who,\n  generate_series(1, 20000) as item" {
		t.Errorf("after going back the query is %q", q)
	}
}

// One manager's change of a task shows at once in another's list, at another node. A task in use is not deleted.
func TestPageTaskPauseAndDelete(t *testing.T) {
	t.Parallel()
	mia, bob := page.NewBrowser(t, ""), page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i order by i`)
	mia.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	bob.Manager(s.Nodes[1].URL, "Bob", "/tasks")
	for _, b := range []*page.Browser{mia, bob} {
		b.State("live", e2e.Soon)
		b.Shows("[data-task=verify]", "verify")
	}
	mia.Press("[data-task=verify] .pause")
	bob.Shows("[data-task=verify] .tag", "paused")
	mia.Shows("[data-task=verify] .pause", "Resume")
	mia.Await(`document.activeElement === document.body || document.activeElement.checkVisibility()`, e2e.Soon)
	bob.Press("[data-task=verify] .pause")
	mia.Await(`!document.querySelector('[data-task=verify] .tag')`, e2e.Soon)
	w := s.Takes("Oliver", 2)
	mia.Await(`document.querySelector('[data-task=verify] td:nth-child(4)').textContent === '2'`, e2e.Soon)

	mia.Eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	mia.Press("#delete-task")
	mia.Press(`dialog button[value="yes"]`)
	mia.Shows(".notice", "somebody holds work of task")
	if link := mia.Eval(`document.querySelector('.notice a').getAttribute('href')`); link != "/items?release=1&task=verify" {
		t.Errorf("the link leads to %s", link)
	}
	mia.Press("#delete-task")
	mia.Await(`document.querySelector('dialog[open]')`, e2e.Soon)
	mia.Eval(`(history.back(), '')`)
	mia.Await(`location.pathname === '/tasks' && !document.querySelector('dialog') && document.querySelector('[data-task=verify]')`, e2e.Soon)
	mia.Eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	mia.Press("#tab-runs")
	mia.Shows(".runs tr", "finished")
	for _, one := range w {
		if a, err := s.As("Oliver", 0).Do(t.Context(), "POST", fmt.Sprintf("/api/v1/work/%d/disposition", one.ID), map[string]any{"outcome": "complete"}); err != nil || a.Status != 200 {
			t.Fatalf("complete: %d %v", a.Status, err)
		}
	}
	mia.Press("#delete-task")
	mia.Press(`dialog button[value="yes"]`)
	mia.Shows(".empty", "There are no tasks yet.")
	bob.Eval(`(dispatchEvent(new Event('focus')), document.dispatchEvent(new Event('visibilitychange')), '')`) // returns to the page
	bob.Shows(".empty", "There are no tasks yet.")
}

// fitsScreen is whether all that a comparison says is in sight, above the bar that saves, without scrolling within it.
const fitsScreen = `(() => {
	const found = document.querySelector('#compare'), { top, bottom } = found.getBoundingClientRect();
	return top >= 0 && bottom <= document.querySelector('.saver').getBoundingClientRect().top
		&& [...found.querySelectorAll('.scroll, .shifts, .shifts table')].every((e) => e.scrollWidth <= e.clientWidth && e.scrollHeight <= e.clientHeight);
})()`

// A manager sees what another query would change before they save it.
func TestPageTaskCompare(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	if err := s.As("mary", 0).CreateTask(t.Context(), map[string]any{"name": "verify", "query": "select g as item from generate_series(1, 20) g order by g"}); err != nil {
		t.Fatal(err)
	}
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Await(`document.querySelector('#set-query')`, e2e.Soon)
	b.Press("#compare-run")
	b.Shows("#compare", "Among the best, nothing changes.")
	b.Set("set-query", "select g as item from generate_series(2, 21) g order by g = 21 desc, g")
	b.Shows("#compare", "Of a former text of the query")
	const best = `((limit) => { limit.value = '%d'; limit.dispatchEvent(new Event('change')); return ''; })(document.querySelector('#compare-limit'))`
	b.Eval(fmt.Sprintf(best, 10))
	b.Press("#compare-run")
	b.Shows("#compare", "Among the best: 1 comes in, 1 falls out, 0 move.")
	b.Shows("#compare .found", "Of the best 10, 9 are the same.")
	const listed = `['in', 'out', 'moved'].map((kind) => [...document.querySelectorAll('[aria-labelledby="shifts-' + kind + '"] tbody tr')]
		.map((tr) => tr.innerText.replace(/\s+/g, ' ').trim()).join(', ')).join('; ')`
	if rows := b.Eval(listed); rows != "21 – 1; 1 1 –; " {
		t.Errorf("the changes are %q", rows)
	}
	s.Got(s.As("Oliver", 0), "verify", 2)
	b.Eval(fmt.Sprintf(best, 100))
	b.As(page.Look{Width: 1366, Height: 768, Scheme: "light"})
	b.Set("set-query", "select 'a-key-that-is-long-enough-to-be-shortened/' || g as item from generate_series(1, 9) g union all select * from (select g::text from generate_series(20, 9, -1) g) h")
	b.Eval(`(document.querySelector("#compare-now").focus(), "")`)
	b.Press("#compare-now")
	b.Shows("#compare", "Among the best: 9 come in, 8 fall out, 11 move.")
	if rows := b.Eval(listed); !strings.Contains(rows, "; 1 held 1 –, 2 held 2 –, 3 3 –, ") {
		t.Errorf("the changes are %q", rows)
	}
	b.Await(fitsScreen, e2e.Soon)
	b.As(page.Looks[2])
	b.Await(`document.documentElement.scrollWidth <= 390 && document.querySelector('.shifts thead').getBoundingClientRect().height > 20`, e2e.Soon)
	b.Set("set-query", "select nothing as item")
	b.Press("#compare-run")
	b.Shows("#set-query-error", `column "nothing" does not exist`)
	b.Await(`document.activeElement.id === 'set-query'`, e2e.Soon)
}

// A long preview shows its time, leaves the page usable, and can be given up; then the server gives it up, too. Runs
// are shown as they begin and end.
func TestPageTaskPreviewGivenUp(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	const atGate = `exists (select from pg_locks where locktype = 'advisory' and not granted
		and database = (select oid from pg_database where datname = current_database()))` // other tests have gates on the same server
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Press("#preview-run")
	b.Shows(".preview", "The query is running.")
	s.Await("the preview runs", e2e.Soon, `select `+atGate)
	b.Set("set-title", "Typed meanwhile")
	b.Press("#preview-stop")
	b.Shows(".preview", "Given up.")
	s.Await("the preview ends", e2e.Soon, `select not `+atGate)
	b.Press("#tab-runs")
	b.Shows("#panel-runs .empty", "Its query has not run yet.")
	if _, a, err := s.As("Oliver", 0).GetWork(t.Context(), "verify", 1); err != nil || a.Status != 202 {
		t.Fatalf("Oliver: %d %v", a.Status, err)
	}
	b.Shows(".runs tbody", "running")
	open()
	b.Shows(".runs tbody", "finished")
}

// An inbox has no query, and a task's lists are lists.
func TestPageTaskInbox(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("first", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.Await(`document.querySelector('.kind')`, e2e.Soon)
	b.Eval(`(document.querySelectorAll('.kind input')[1].click(), '')`)
	b.Await(`!document.querySelector('#set-query') && !document.querySelector('#set-fresh_for')`, e2e.Soon)
	b.Set("set-name", "photos")
	b.Set("set-groups", "desk")
	b.Do(chromedp.KeyEvent(kb.Enter))
	b.Shows(".chips", "desk")
	b.Set("set-groups", "night desk") // not added, and not forgotten
	b.Set("set-conflicts_with", "first")
	b.Set("set-max_attempts", "3")
	ctrl(b, "s")
	b.Shows(".task-head", "inbox")
	got := e2e.Column[string](s, `select coalesce(query, 'none') || ' ' || groups::text || ' ' || max_attempts || ' ' || cardinality(conflicts_with) from getwork.task_version v where name = 'photos'`)
	if diff := cmp.Diff([]string{`none {desk,"night desk"} 3 1`}, got); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	b.Await(`document.querySelectorAll('.chips button').length === 3`, e2e.Soon)
	b.Press(".chips button")
	b.Shows("#unsaved", "Not saved: Groups.")
	b.Set("set-max_attempts", "")
	ctrl(b, "s")
	b.Shows("#unsaved", "Nothing to save.")
	b.Press("#copy-task")
	b.Await(`document.querySelector('.kind') && document.querySelector('#set-name').value === ''`, e2e.Soon)
	b.Press(".advanced > summary")
	b.Shows(".chips", "night desk")
	b.Set("set-name", "photos-again")
	b.Press("#save")
	b.Shows(".task-head", "photos-again")
	got = e2e.Column[string](s, `select groups::text || coalesce(max_attempts::text, ' no limit') from getwork.task_version v where name = 'photos' and version = 2`)
	if diff := cmp.Diff([]string{`{"night desk"} no limit`}, got); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}
