package manage

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A manager with unsaved changes of a task reads in the page when another renames it. The typed text moves to the
// task's new address, where the new name is shown as the other's change.
func TestPageTaskRenamedByAnother(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	s.Task("approve", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Set("set-title", "Mine")
	page.Changes(s, "approve", map[string]any{"title": "Not about it"}, 1)
	page.Changes(s, "verify", map[string]any{"name": "check"}, 1)
	b.Shows("#said", "This task is called check now.")
	b.Shows("#gone", "This task is called check now. What you typed is not saved; it goes along.")
	b.Await(`document.querySelector('#set-title').value === 'Mine' && !document.querySelector('#delete-task')`, e2e.Soon)
	ctrl(b, "s")
	b.Await(`document.activeElement.id === 'gone-title'`, e2e.Soon)
	b.Press("#follow")
	b.Await(`location.pathname === '/tasks/check'`, e2e.Soon)
	meets(b, "Name verify check not typed")
	b.Press("#save-mine")
	b.Shows("#unsaved", "Nothing to save.")
	if got := e2e.Column[string](s, `select v.name || ' ' || v.title from getwork.task_version v join getwork.task_state t using (task_id, version) where t.name = 'check'`); len(got) != 1 || got[0] != "check Mine" {
		t.Errorf("saved as %q", got)
	}
	if kept := b.Eval(`String(Object.keys(sessionStorage).filter((key) => key.includes('draft')))`); kept != "" {
		t.Errorf("the saved text is kept as %s", kept)
	}
	page.Changes(s, "check", map[string]any{"name": "verify"}, 0) // and back; nothing is typed
	b.Shows("#gone", "This task is called verify now.")
	b.Press("#follow")
	b.Await(`location.pathname === '/tasks/verify' && !document.querySelector('#gone, .conflict')`, e2e.Soon)
}

// A task that can't be read says so in its view. That is not a mistake of the page, so its console stays silent.
func TestPageTaskUnreadable(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks")
	b.State("live", e2e.Soon)
	b.Press("[data-task=verify] a") // the view's parts are read
	b.Await(`!!document.querySelector('#set-query')`, e2e.Soon)
	b.Eval(`(setTimeout(() => history.back()), '')`)
	b.Await(`!!document.querySelector('[data-task=verify] a')`, e2e.Soon)
	s.Nodes[0].Kill()
	b.Press("[data-task=verify] a")
	b.Shows("#view .error", "This view can’t be shown: the server can’t be reached")
	b.Eval(`(setTimeout(() => history.back()), '')`)
	b.Shows("#view h1", "Tasks")
}

// A manager with unsaved changes of a task reads in the page when another deletes it, even on a later visit. The
// typed text can become a new task.
func TestPageTaskDeletedByAnother(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Set("set-query", "select 2 as item")
	page.Deletes(s, "verify", 1)
	b.Shows("#said", "This task was deleted.")
	b.Shows("#gone", "This task was deleted. What you typed is kept in this tab, and not saved.")
	b.Await(`document.querySelector('#set-query').value === 'select 2 as item' && !document.querySelector('#pause-task')`, e2e.Soon)
	b.Press("#tab-versions")
	b.Shows("#gone", "This task was deleted.")
	b.Do(chromedp.Reload())
	b.Shows("#gone", "This task was deleted. What you typed is kept in this tab, and not saved.")
	b.Await(`document.querySelector('#set-query').value === 'select 2 as item'`, e2e.Soon)
	ctrl(b, kb.Enter)
	b.Await(saysPreviewed, e2e.Soon)
	b.Press("#copy-task")
	b.Await(`document.querySelector('.kind') && document.querySelector('#set-name').value === ''`, e2e.Soon)
	b.Set("set-name", "again")
	b.Press("#save")
	b.Shows(".task-head", "version 1")
	if got := e2e.Column[string](s, `select name || ' ' || query from getwork.task_version where name = 'again'`); len(got) != 1 || got[0] != "again select 2 as item" {
		t.Errorf("created %q", got)
	}
	if kept := b.Eval(`String(Object.keys(sessionStorage).filter((key) => key.includes('draft')))`); kept != "" {
		t.Errorf("the created task's text is kept as %s", kept)
	}
	page.Deletes(s, "again", 1) // nothing is typed over it
	b.Shows("#gone", "This task was deleted.")
	b.Do(chromedp.Reload())
	b.Shows(".empty", "There is no task again.")
}

// A manager who tries to change a deleted task before hearing of it reads the same.
func TestPageTaskGoneWhenSaved(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s := unaware(t)
	page.Changes(s, "verify", map[string]any{"name": "check"}, 1)
	ctrl(b, "s")
	b.Shows("#gone", "This task is called check now.")
	b.Await(`document.activeElement.id === 'gone-title'`, e2e.Soon)
}

// A manager in another tab of a task reads, too, when another saves over unsaved changes, and is led to the question.
// The focus is not lost, whatever the answer.
func TestPageTaskChangedBesideVersions(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.State("live", e2e.Soon)
	b.Set("set-title", "Mine")
	b.Press("#tab-versions")
	page.Changes(s, "verify", map[string]any{"title": "Theirs"}, 1)
	b.Shows("#overtaken", "Version 2 was saved while you typed.")
	b.Press("#overtaken button")
	b.Await(`document.activeElement.id === 'conflict-title' && document.activeElement.checkVisibility()`, e2e.Soon)
	b.Eval(`(document.querySelector('#save-mine').focus(), '')`)
	b.Press("#save-mine")
	b.Shows("#unsaved", "Nothing to save.")
	b.Await(`document.activeElement.matches('#view h1')`, e2e.Soon)

	s.Takes("Oliver", 1)
	b.Press("#delete-task")
	b.Press(`dialog button[value="yes"]`)
	b.Await(`document.activeElement.id === 'in-use'`, e2e.Soon)
	b.Eval(`(document.querySelector('.notice .plain').focus(), '')`)
	b.Press(".notice .plain")
	b.Await(`!document.querySelector('#in-use') && document.activeElement.matches('#view h1')`, e2e.Soon)
}

// If a preview fails for another reason than its query, the page also says so to users who can't see it.
func TestPagePreviewFailureIsSaid(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	g := page.BehindGateway(s)
	b.Manager(g.URL, "Mia", "/tasks/verify")
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		preview := strings.HasSuffix(r.URL.Path, "/preview")
		if preview {
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
		return preview
	})
	b.Press("#preview-run")
	b.Shows(".preview [role=alert]", "the server answered with status 503")
}
