package page

import (
	"net/http"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
)

// A manager with unsaved changes of a task is told in the page when another renames it. The typed text moves to the
// task's new address, where the new name is shown as the other's change.
func TestPageTaskRenamedByAnother(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	s.Task("approve", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.state("live", e2e.Soon)
	b.set("set-title", "Mine")
	s.changes("approve", map[string]any{"title": "Not about it"}, 1)
	s.changes("verify", map[string]any{"name": "check"}, 1)
	b.shows("#said", "This task is called check now.")
	b.shows("#gone", "This task is called check now. What you typed is not saved; it goes along.")
	b.await(`document.querySelector('#set-title').value === 'Mine' && !document.querySelector('#delete')`, e2e.Soon)
	b.ctrl("s")
	b.await(`document.activeElement.id === 'gone-title'`, e2e.Soon)
	b.press("#follow")
	b.await(`location.pathname === '/tasks/check'`, e2e.Soon)
	b.meets("Name verify check not typed")
	b.press("#save-mine")
	b.shows("#unsaved", "Nothing to save.")
	if got := column[string](s, `select v.name || ' ' || v.title from getwork.task_version v join getwork.task_state t using (task_id, version) where t.name = 'check'`); len(got) != 1 || got[0] != "check Mine" {
		t.Errorf("saved as %q", got)
	}
	if kept := b.eval(`String(Object.keys(sessionStorage).filter((key) => key.includes('draft')))`); kept != "" {
		t.Errorf("the saved text is kept as %s", kept)
	}
	s.changes("check", map[string]any{"name": "verify"}, 0) // and back; nothing is typed
	b.shows("#gone", "This task is called verify now.")
	b.press("#follow")
	b.await(`location.pathname === '/tasks/verify' && !document.querySelector('#gone, .conflict')`, e2e.Soon)
}

// A task that can't be read says so in its view. That is not a mistake of the page, so its console stays silent.
func TestPageTaskUnreadable(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks")
	b.state("live", e2e.Soon)
	b.await(`!!document.querySelector('[data-task=verify] a')`, e2e.Soon)
	s.Nodes[0].Kill()
	b.press("[data-task=verify] a")
	b.shows("#view .error", "This view can’t be shown: the server can’t be reached")
	b.eval(`(setTimeout(() => history.back()), '')`)
	b.shows("#view h1", "Tasks")
}

// A manager with unsaved changes of a task is told in the page when another deletes it, even on a later visit. The
// typed text can become a new task.
func TestPageTaskDeletedByAnother(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.state("live", e2e.Soon)
	b.set("set-query", "select 2 as item")
	s.deletes("verify", 1)
	b.shows("#said", "This task was deleted.")
	b.shows("#gone", "This task was deleted. What you typed is kept in this tab, and not saved.")
	b.await(`document.querySelector('#set-query').value === 'select 2 as item' && !document.querySelector('#pause')`, e2e.Soon)
	b.press("#tab-versions")
	b.shows("#gone", "This task was deleted.")
	b.do(chromedp.Reload())
	b.shows("#gone", "This task was deleted. What you typed is kept in this tab, and not saved.")
	b.await(`document.querySelector('#set-query').value === 'select 2 as item'`, e2e.Soon)
	b.ctrl(kb.Enter)
	b.await(saysPreviewed, e2e.Soon)
	b.press("#copy")
	b.await(`document.querySelector('.kind') && document.querySelector('#set-name').value === ''`, e2e.Soon)
	b.set("set-name", "again")
	b.press("#save")
	b.shows(".task-head", "version 1")
	if got := column[string](s, `select name || ' ' || query from getwork.task_version where name = 'again'`); len(got) != 1 || got[0] != "again select 2 as item" {
		t.Errorf("created %q", got)
	}
	if kept := b.eval(`String(Object.keys(sessionStorage).filter((key) => key.includes('draft')))`); kept != "" {
		t.Errorf("the created task's text is kept as %s", kept)
	}
	s.deletes("again", 1) // nothing is typed over it
	b.shows("#gone", "This task was deleted.")
	b.do(chromedp.Reload())
	b.shows(".empty", "There is no task again.")
}

// A manager who tries to change a deleted task before hearing of it is told the same.
func TestPageTaskGoneWhenSaved(t *testing.T) {
	t.Parallel()
	b, s := unaware(t)
	s.changes("verify", map[string]any{"name": "check"}, 1)
	b.ctrl("s")
	b.shows("#gone", "This task is called check now.")
	b.await(`document.activeElement.id === 'gone-title'`, e2e.Soon)
}

// A manager in another tab of a task is told, too, when another saves over unsaved changes, and is led to the question.
// The focus is not lost, whatever the answer.
func TestPageTaskChangedBesideVersions(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 2, "")
	s.Task("verify", "select 1 as item")
	b.manager(s.Nodes[0].URL, "Mia", "/tasks/verify")
	b.state("live", e2e.Soon)
	b.set("set-title", "Mine")
	b.press("#tab-versions")
	s.changes("verify", map[string]any{"title": "Theirs"}, 1)
	b.shows("#overtaken", "Version 2 was saved while you typed.")
	b.press("#overtaken button")
	b.await(`document.activeElement.id === 'conflict-title' && document.activeElement.checkVisibility()`, e2e.Soon)
	b.eval(`(document.querySelector('#save-mine').focus(), '')`)
	b.press("#save-mine")
	b.shows("#unsaved", "Nothing to save.")
	b.await(`document.activeElement.matches('#view h1')`, e2e.Soon)

	s.Takes("Oliver", 1)
	b.press("#delete")
	b.press(`dialog button[value="yes"]`)
	b.await(`document.activeElement.id === 'in-use'`, e2e.Soon)
	b.eval(`(document.querySelector('.notice .plain').focus(), '')`)
	b.press(".notice .plain")
	b.await(`!document.querySelector('#in-use') && document.activeElement.matches('#view h1')`, e2e.Soon)
}

// If a preview fails for another reason than its query, the page also tells users who can't see it.
func TestPagePreviewFailureIsSaid(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", "select 1 as item")
	g := s.behindGateway()
	b.manager(g.URL, "Mia", "/tasks/verify")
	g.refusing(func(w http.ResponseWriter, r *http.Request) bool {
		preview := strings.HasSuffix(r.URL.Path, "/preview")
		if preview {
			http.Error(w, "not now", http.StatusServiceUnavailable)
		}
		return preview
	})
	b.press("#preview-run")
	b.shows(".preview [role=alert]", "the server answered with status 503")
}
