package page

import (
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
)

// A manager finds work by person, state and a value in its details, and takes it along as a file. Whoever gets work for the
// first time has to be confirmed.
func TestPageSearchesWork(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	s.Task("verify", `select 'loan-' || i as item, case i when 2 then 'Ada Lovell' else 'Bruno Keller' end as applicant from generate_series(1, 4) i order by i`)
	w := s.Takes("Oliver", 3)
	s.Takes("Uma", 1)
	s.Disposed(s.As("Oliver", 0), w[0], "complete", "")
	b.visit(s.Nodes[0].URL, "/items?search=1&task=verify&value=lovell", "Mary,manager")
	b.shows(".found-work", "loan-2")
	const found = `[...document.querySelectorAll('.found-work li a')].map((e) => e.textContent).join()`
	b.await(found+` === 'loan-2'`, e2e.Soon)
	b.set("of-value", "")
	b.set("of-user", "Oliver")
	b.eval(`(document.querySelector('#of-state').value = 'completed', '')`)
	b.press(`[name=search]`)
	b.await(found+` === 'loan-1' && location.search.includes('state=completed')`, e2e.Soon)
	file := b.eval(`document.querySelector('.found-work a[download]').getAttribute('href')`)
	olga := s.As("Olga", 0)
	olga.Role = "observer"
	a, err := olga.Do(t.Context(), "GET", file, nil)
	if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), ",loan-1,Oliver,") {
		t.Errorf("%s: %d %s %v", file, a.Status, a.Body, err)
	}

	b.visit(s.Nodes[0].URL, itemsAt("loan-2", "verify"), "Mary,manager")
	b.press(`.reassign`)
	b.await(`document.querySelector('#reassign-to')`, e2e.Soon)
	b.await(`[...document.querySelectorAll('#reassign-people option')].map((o) => o.value + ' ' + o.label).join() === 'Uma holds 1 of verify'`, e2e.Soon) // not Oliver, who has it
	b.eval(`(document.querySelector('#reassign-to').value = 'Tarcy', '')`)
	b.press("dialog[open] button[type=submit]")
	b.shows("dialog .error", "Nobody has worked here as “Tarcy” so far.")
	b.press("dialog[open] button[type=submit]")
	b.await(`!document.querySelector('dialog[open]')`, e2e.Soon)
	s.Await("it is Tarcy's", e2e.Soon, `select exists (select from getwork.work where user_name = 'Tarcy' and item = 'loan-2' and state = 'held')`)
}

// A new task's name comes from its title, its query from an example, and the tables beside it are those that it may read.
func TestPageNewTaskIsHelped(t *testing.T) {
	t.Parallel()
	b := newBrowser(t, "")
	s := newSite(t, 1, "")
	if _, err := s.DB.Exec(t.Context(), `create table loan (loan_id bigint, submitted date); grant select on loan to public`); err != nil {
		t.Fatal(err)
	}
	b.manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.set("set-title", "Überprüfe Kredite")
	b.await(`document.querySelector('#set-name').value === 'uberprufe-kredite'`, e2e.Soon)
	b.await(`!document.querySelector('#set-lease').checkVisibility() && document.querySelector('#set-query').checkVisibility()`, e2e.Soon)
	b.press("#starter")
	b.await(`document.querySelector('#set-query').value.includes('as item')`, e2e.Soon)
	b.eval(`(document.querySelector('.tables').open = true, '')`)
	b.shows(".tables", "loan")
	if listed := b.eval(`document.querySelector('.tables').textContent`); strings.Contains(listed, "work_requested") {
		t.Errorf("getwork's own tables are listed: %s", listed)
	}
	b.set("set-query", "select loan_id as item from lo")
	b.eval(`(() => { const a = document.querySelector('#set-query'); a.focus(); a.setSelectionRange(a.value.length, a.value.length); a.dispatchEvent(new KeyboardEvent('keyup')); return ''; })()`)
	b.shows(".offers", "loan")
	b.eval(`(document.querySelector('#set-query').dispatchEvent(new KeyboardEvent('keydown', { key: ' ', ctrlKey: true })), '')`)
	b.await(`document.querySelector('#set-query').value === 'select loan_id as item from loan'`, e2e.Soon)
}
