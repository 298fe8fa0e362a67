package page

import (
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	"github.com/google/go-cmp/cmp"

	"getwork/cmd/internal/e2e"
)

// manager opens a path of the page as a manager with that name.
func (b *browser) manager(url, name, path string) {
	b.t.Helper()
	b.do(chromedp.Navigate(url + path + "#log-in=" + name + ",manager"))
	b.await(fmt.Sprintf(`document.querySelector('#name')?.textContent === %q && document.querySelector('#view h1')`, name), e2e.Soon)
}

// set types a text into a field or an editor, replacing its content.
func (b *browser) set(id, text string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`((e) => {
		const advanced = e?.closest('details.advanced');
		if (advanced) advanced.open = true;
		return e?.checkVisibility();
	})(document.getElementById(%q))`, id), e2e.Soon)
	b.eval(fmt.Sprintf(`(document.getElementById(%q).focus(), document.getElementById(%[1]q).select(), '')`, id))
	b.do(chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(text))
	b.await(fmt.Sprintf(`document.getElementById(%q).value.length >= %d`, id, len([]rune(text))), e2e.Soon)
}

// ctrl presses a key with Ctrl.
func (b *browser) ctrl(key string) {
	b.t.Helper()
	b.do(chromedp.KeyEvent(key, chromedp.KeyModifiers(chromedp.ModifierCtrl)))
}

// meets waits until the question about another user's change has a row with that text, ignoring blanks.
func (b *browser) meets(row string) {
	b.t.Helper()
	b.await(fmt.Sprintf(`[...document.querySelectorAll('.conflict tr')].some((e) => e.textContent.replace(/\s+/g, ' ').trim() === %q)`, row), e2e.Soon)
}

// versions returns how many versions a task has.
func (s *site) versions(task string) int {
	s.T.Helper()
	return column[int](s, `select version from getwork.task_state where name = $1 and deleted_at is null`, task)[0]
}

const saysPreviewed = `document.querySelector('.preview .stats') && !document.querySelector('.preview .former')`

// A manager makes a task with a mistake in its query, is led to it, corrects it, looks at the result, saves, changes
// it, sees the difference, and goes back.
func TestPageTaskFromMistakeToRollBack(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks")
	b.shows(".empty", "There are no tasks yet.")
	b.click(`a.button.primary`)
	b.set("set-name", "Verify")
	b.shows("#set-name-error", "A name is 1 to 63 of a–z")
	b.set("set-name", "verify")
	b.set("set-title", "Verify accounts")
	b.set("set-query", "select 'Zoë 𝄞' as who,\n  nothing as item") // characters of one, two and four bytes before the mistake
	b.set("set-lease", "half an hour")
	b.press("#save")
	b.await(`document.activeElement.id === 'set-lease'`, e2e.Soon)
	b.shows("#set-lease-error", "A number with a unit, such as 90s, 2m or 24h")
	b.set("set-lease", "30m")
	b.press("#save")
	b.shows("#set-query-error", `column "nothing" does not exist`)
	b.await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	if at := b.eval(`(({value, selectionStart}) => value.slice(selectionStart))(document.querySelector('#set-query'))`); at != "nothing as item" {
		t.Errorf("the caret is before %q", at)
	}
	b.shows(".to-place", "Go to line 2, column 3")
	b.do(chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete),
		chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent(kb.Delete), chromedp.KeyEvent("generate_series(1, 20000)"))
	b.await(`!document.querySelector('.sql-wrong')`, e2e.Soon)
	b.press("#save")
	b.shows(".task-head", "version 1")
	if at := b.eval(`location.pathname`); at != "/tasks/verify" {
		t.Errorf("after it was created the address is %s", at)
	}

	b.await(`document.querySelector('#set-query')`, e2e.Soon)
	b.set("set-query", "select g as item, g / 2 as half from generate_series(1, 20000) g where g % 3 = 0 order by g")
	b.ctrl(kb.Enter)
	b.await(saysPreviewed, e2e.Soon)
	b.shows(".preview .stats", "6,666rows given")
	if row := b.eval(`[...document.querySelectorAll('.rows tbody tr')][1].innerText.replace(/\s+/g, ' ')`); row != "2 6 3" {
		t.Errorf("the preview's second row is %q", row)
	}
	b.eval(`(document.querySelector('.plan-all').open = true, '')`)
	b.shows(".plan", "Function Scan on generate_series g")
	b.do(chromedp.KeyEvent(" "))
	b.shows(".preview", "Of a former text of the query")
	if n := s.versions("verify"); n != 1 {
		t.Errorf("a preview made version %d", n)
	}
	b.set("set-query", "select g as item, g / 2 as half\nfrom generate_series(1, 20000) g\norder by g")
	b.set("set-max_request", "7")
	b.shows("#unsaved", "Not saved: Query, Items at a time.")
	b.ctrl("s")
	b.shows("#unsaved", "Nothing to save.")
	if n := s.versions("verify"); n != 2 {
		t.Errorf("saving made version %d", n)
	}

	b.press("#tab-versions")
	b.shows(".versions [data-version='2']", "Query: +3 −2 lines")
	b.shows(".versions [data-version='2']", "Items at a time: 5 → 7")
	b.shows(".versions [data-version='1']", "created")
	b.press(".versions [data-version='2'] .compare")
	b.shows(".compared .diff .del", "select 'Zoë 𝄞' as who,")
	b.shows(".compared .diff .ins", "order by g")
	b.press(".versions [data-version='1'] .restore")
	b.press(`dialog button[value="yes"]`)
	b.shows(".versions [data-version='3']", "Items at a time: 7 → 5")
	b.await(`document.activeElement.id === 'versions-title'`, e2e.Soon)
	b.press("#tab-edit")
	b.await(`document.querySelector('#set-query')`, e2e.Soon)
	if q := b.eval(`document.querySelector('#set-query').value`); q != "select 'Zoë 𝄞' as who,\n  generate_series(1, 20000) as item" {
		t.Errorf("after going back the query is %q", q)
	}
}

// One manager's change of a task shows at once in another's list, at another node. A task in use is not deleted.
func TestPageTaskPauseAndDelete(t *testing.T) {
	t.Parallel()
	mia, bob := newBrowser(t, ""), newBrowser(t, "")
	s := newSite(t, 2, "")
	s.Task("verify", `select i as item from generate_series(1, 9) i order by i`)
	mia.manager(s.Nodes[0].URL, "Mia", "/tasks")
	bob.manager(s.Nodes[1].URL, "Bob", "/tasks")
	for _, b := range []*browser{mia, bob} {
		b.state("live", e2e.Soon)
		b.shows("[data-task=verify]", "verify")
	}
	mia.press("[data-task=verify] .pause")
	bob.shows("[data-task=verify] .badge", "paused")
	mia.shows("[data-task=verify] .pause", "Resume")
	mia.await(`document.activeElement === document.body || document.activeElement.checkVisibility()`, e2e.Soon)
	bob.press("[data-task=verify] .pause")
	mia.await(`!document.querySelector('[data-task=verify] .badge')`, e2e.Soon)
	w := s.Takes("Oliver", 2)
	mia.await(`document.querySelector('[data-task=verify] td:nth-child(4)').textContent === '2'`, e2e.Soon)

	mia.eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	mia.press("#delete")
	mia.press(`dialog button[value="yes"]`)
	mia.shows(".notice", "somebody holds work of task")
	if link := mia.eval(`document.querySelector('.notice a').getAttribute('href')`); link != "/items?release=1&task=verify" {
		t.Errorf("the link leads to %s", link)
	}
	mia.press("#tab-runs")
	mia.shows(".runs tr", "finished")
	for _, one := range w {
		if a, err := s.As("Oliver", 0).Do(t.Context(), "POST", fmt.Sprintf("/api/v1/work/%d/disposition", one.ID), map[string]any{"outcome": "complete"}); err != nil || a.Status != 200 {
			t.Fatalf("complete: %d %v", a.Status, err)
		}
	}
	mia.press("#delete")
	mia.press(`dialog button[value="yes"]`)
	mia.shows(".empty", "There are no tasks yet.")
	bob.eval(`(dispatchEvent(new Event('focus')), document.dispatchEvent(new Event('visibilitychange')), '')`) // returns to the page
	bob.shows(".empty", "There are no tasks yet.")
}

// A long preview shows its time, leaves the page usable, and can be given up; then the server gives it up, too. Runs
// are shown as they begin and end.
func TestPageTaskPreviewGivenUp(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	open := gated(s)
	const atGate = `exists (select from pg_locks where locktype = 'advisory' and not granted
		and database = (select oid from pg_database where datname = current_database()))` // other tests have gates on the same server
	b.manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.state("live", e2e.Soon)
	b.press("#preview-run")
	b.shows(".preview", "The query is running.")
	s.Await("the preview runs", e2e.Soon, `select `+atGate)
	b.set("set-title", "Typed meanwhile")
	b.press("#preview-stop")
	b.shows(".preview", "Given up.")
	s.Await("the preview ends", e2e.Soon, `select not `+atGate)
	b.press("#tab-runs")
	b.shows("#panel-runs .empty", "Its query has not run yet.")
	if _, a, err := s.As("Oliver", 0).GetWork(t.Context(), "verify", 1); err != nil || a.Status != 202 {
		t.Fatalf("Oliver: %d %v", a.Status, err)
	}
	b.shows(".runs tbody", "running")
	open()
	b.shows(".runs tbody", "finished")
}

// An inbox has no query, and a task's lists are lists.
func TestPageTaskInbox(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("first", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.await(`document.querySelector('.kind')`, e2e.Soon)
	b.eval(`(document.querySelectorAll('.kind input')[1].click(), '')`)
	b.await(`!document.querySelector('#set-query') && !document.querySelector('#set-fresh_for')`, e2e.Soon)
	b.set("set-name", "photos")
	b.set("set-groups", "desk")
	b.do(chromedp.KeyEvent(kb.Enter))
	b.shows(".chips", "desk")
	b.set("set-groups", "night desk") // not added, and not forgotten
	b.set("set-conflicts_with", "first")
	b.set("set-max_attempts", "3")
	b.ctrl("s")
	b.shows(".task-head", "inbox")
	got := column[string](s, `select coalesce(query, 'none') || ' ' || groups::text || ' ' || max_attempts || ' ' || cardinality(conflicts_with) from getwork.task_version v where name = 'photos'`)
	if diff := cmp.Diff([]string{`none {desk,"night desk"} 3 1`}, got); diff != "" {
		t.Errorf("created (-want +got):\n%s", diff)
	}
	b.await(`document.querySelectorAll('.chips button').length === 3`, e2e.Soon)
	b.press(".chips button")
	b.shows("#unsaved", "Not saved: Groups.")
	b.set("set-max_attempts", "")
	b.ctrl("s")
	b.shows("#unsaved", "Nothing to save.")
	b.press("#copy")
	b.await(`document.querySelector('.kind') && document.querySelector('#set-name').value === ''`, e2e.Soon)
	b.press(".advanced > summary")
	b.shows(".chips", "night desk")
	b.set("set-name", "photos-again")
	b.press("#save")
	b.shows(".task-head", "photos-again")
	got = column[string](s, `select groups::text || coalesce(max_attempts::text, ' no limit') from getwork.task_version v where name = 'photos' and version = 2`)
	if diff := cmp.Diff([]string{`{"night desk"} no limit`}, got); diff != "" {
		t.Errorf("changed (-want +got):\n%s", diff)
	}
}

// Titles, queries, details, names and errors are shown as text, whatever they look like.
func TestPageTaskShowsMarkupAsText(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	const evil = `<img src=x onerror="document.title='broken'"><b>`
	query := `select $$` + evil + `$$ as item, 'שלום <i>' as "<i>שם</i>" -- ` + evil
	err := s.As(evil, 0).CreateTask(t.Context(), map[string]any{"name": "verify", "title": evil, "description": evil, "query": query, "groups": []string{evil}})
	if err != nil {
		t.Fatal(err)
	}
	b.manager(s.Nodes[0].URL, "Mia", "/tasks")
	b.shows("[data-task=verify] a", evil)
	b.eval(`(document.querySelector('[data-task=verify] a').click(), '')`)
	b.shows("h1", evil)
	b.shows(".chips", evil)
	b.shows(".sql-shown", query)
	b.press("#preview-run")
	b.await(saysPreviewed, e2e.Soon)
	b.shows(".rows td", "שלום <i>")
	b.press("#tab-versions")
	b.shows(".versions", evil)
	b.press("#tab-edit")
	b.set("set-query", `select "<img src=x onerror=alert(1)>" as item`)
	b.ctrl("s")
	b.shows("#set-query-error", `"<img src=x onerror=alert(1)>" does not exist`)
	if n := b.eval(`document.querySelectorAll('#view img, #view i, #view .sql b:not(.sql-numbers b)').length + document.title`); !strings.HasPrefix(n, "0<img") {
		t.Errorf("elements made from text, and the title: %s", n)
	}
	if d := b.eval(`getComputedStyle(document.querySelector('#set-query')).direction`); d != "ltr" {
		t.Errorf("code is written %s", d)
	}
}
