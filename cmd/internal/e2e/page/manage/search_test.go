package manage

import (
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/e2e/page"
)

// A manager finds work by person, state and a value in its details, and takes it along as a file. Whoever gets work for the
// first time has to be confirmed.
func TestPageSearchesWork(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select 'loan-' || i as item, case i when 2 then 'Ada Lovell' else 'Bruno Keller' end as applicant from generate_series(1, 4) i order by i`)
	w := s.Takes("Oliver", 3)
	s.Takes("Uma", 1)
	s.Disposed(s.As("Oliver", 0), w[0], "complete", "")
	b.Visit(s.Nodes[0].URL, "/items?search=1&task=verify&value=lovell", "Mary,manager")
	b.Shows(".found-work", "loan-2")
	const found = `[...document.querySelectorAll('.found-work li a')].map((e) => e.textContent).join()`
	b.Await(found+` === 'loan-2'`, e2e.Soon)
	b.Set("of-value", "")
	b.Set("of-user", "Oliver")
	b.Eval(`(document.querySelector('#of-state').value = 'completed', '')`)
	b.Press(`[name=search]`)
	b.Await(found+` === 'loan-1' && location.search.includes('state=completed')`, e2e.Soon)
	file := b.Eval(`document.querySelector('.found-work a[download]').getAttribute('href')`)
	olga := s.As("Olga", 0)
	olga.Role = "observer"
	a, err := olga.Do(t.Context(), "GET", file, nil)
	if err != nil || a.Status != 200 || !strings.Contains(string(a.Body), ",loan-1,Oliver,") {
		t.Errorf("%s: %d %s %v", file, a.Status, a.Body, err)
	}

	b.Visit(s.Nodes[0].URL, itemsAt("loan-2", "verify"), "Mary,manager")
	b.Press(`.reassign`)
	b.Await(`document.querySelector('#reassign-to')`, e2e.Soon)
	b.Await(`[...document.querySelectorAll('#reassign-people option')].map((o) => o.value + ' ' + o.label).join() === 'Uma holds 1 of verify'`, e2e.Soon) // not Oliver, who has it
	b.Eval(`(document.querySelector('#reassign-to').value = 'Tarcy', '')`)
	b.Press("dialog[open] button[type=submit]")
	b.Shows("dialog .error", "Nobody has worked here as “Tarcy” so far.")
	b.Press("dialog[open] button[type=submit]")
	b.Await(`!document.querySelector('dialog[open]')`, e2e.Soon)
	s.Await("it is Tarcy's", e2e.Soon, `select exists (select from getwork.work where user_name = 'Tarcy' and item = 'loan-2' and state = 'held')`)
}

// A new task's name comes from its title, its query from an example, and the tables beside it are those that it may read.
func TestPageNewTaskIsHelped(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	if _, err := s.DB.Exec(t.Context(), `create table loan (loan_id bigint, submitted date); grant select on loan to public`); err != nil {
		t.Fatal(err)
	}
	b.Manager(s.Nodes[0].URL, "Mia", "/tasks?new=1")
	b.Set("set-title", "Überprüfe Kredite")
	b.Await(`document.querySelector('#set-name').value === 'uberprufe-kredite'`, e2e.Soon)
	b.Await(`!document.querySelector('#set-lease').checkVisibility() && document.querySelector('#set-query').checkVisibility()`, e2e.Soon)
	b.Press("#starter")
	b.Await(`document.querySelector('#set-query').value.includes('as item')`, e2e.Soon)
	b.Eval(`(document.querySelector('.tables').open = true, '')`)
	b.Shows(".tables", "loan")
	if listed := b.Eval(`document.querySelector('.tables').textContent`); strings.Contains(listed, "work_requested") {
		t.Errorf("getwork's own tables are listed: %s", listed)
	}
	b.Set("set-query", "select loan_id as item from lo")
	b.Eval(`(() => { const a = document.querySelector('#set-query'); a.focus(); a.setSelectionRange(a.value.length, a.value.length); a.dispatchEvent(new KeyboardEvent('keyup')); return ''; })()`)
	b.Shows(".offers", "loan")
	b.Eval(`(document.querySelector('#set-query').dispatchEvent(new KeyboardEvent('keydown', { key: ' ', ctrlKey: true })), '')`)
	b.Await(`document.querySelector('#set-query').value === 'select loan_id as item from loan'`, e2e.Soon)
}
