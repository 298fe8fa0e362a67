package manage

import (
	"encoding/csv"
	"slices"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A manager finds work by person, state and a value in its details, and takes it along as a file. Whoever gets work for the
// first time has to be confirmed.
func TestPageSearchesWork(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "verify", "display": map[string]any{"title": "{applicant}, {item}", "fields": []map[string]any{
		{"column": "amount", "label": "Asked for", "format": "money", "currency": "CHF"}, {"column": "said", "label": "He said"}}},
		"query": `select 'loan-' || i as item, case i when 2 then 'Ada Lovell' else 'Bruno Keller' end as applicant, -1500.50 as amount,
			E'=1+1, "so"\nhe said' as said from generate_series(1, 4) i order by i`})
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
	if _, err := s.DB.Exec(t.Context(), `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select task_id, 'past ' || i, 'Oliver', 'completed', clock_timestamp(), pg_current_xact_id() from getwork.task_state, generate_series(1, 2300) i`); err != nil {
		t.Fatal(err)
	}
	b.Eval(`(() => { const url = URL.createObjectURL; URL.createObjectURL = (blob) => { blob.arrayBuffer().then((b) => (window.saved = new TextDecoder('utf-8', { ignoreBOM: true }).decode(b))); return url(blob); }; return ''; })()`)
	b.Press("#save-work")
	b.Await(`window.saved && !document.querySelector('#save-work').disabled`, e2e.Soon)
	file, mark := strings.CutPrefix(b.Eval(`window.saved`), "\ufeff")
	rows, err := csv.NewReader(strings.NewReader(file)).ReadAll()
	if err != nil || !mark || len(rows) != 1+2300+1 || rows[1][2] != "past 2300" || rows[2301][2] != "loan-1" {
		t.Fatalf("saved are %d rows, with a mark: %t, %v: %.500s", len(rows), mark, err, file)
	}
	// Behind the server's columns stands what the desk shows.
	for i, want := range map[int][]string{
		0:    {"result", "Shown as", "Asked for", "He said"},
		1:    {"", ", past 2300", "", ""}, // it has no details
		2301: {"", "Bruno Keller, loan-1", "'-CHF 1,500.50", "'=1+1, \"so\"\nhe said"},
	} {
		if got := rows[i][len(rows[0])-4:]; !slices.Equal(got, want) {
			t.Errorf("row %d ends with %q, want %q", i, got, want)
		}
	}

	b.Visit(s.Nodes[0].URL, itemsAt("loan-2", "verify"), "Mary,manager")
	b.Press(`.reassign`)
	b.Await(`document.querySelector('#reassign-to')`, e2e.Soon)
	b.Await(`[...document.querySelectorAll('#reassign-people option')].map((o) => o.value + ' ' + o.label).join() === 'Uma holds 1 of verify'`, e2e.Soon) // not Oliver, who has it
	b.Eval(`(document.querySelector('#reassign-to').value = 'Tarcy\u0308', '')`)
	b.Press("dialog[open] button[type=submit]")
	b.Shows("dialog .error", "Nobody has worked here as “Tarcÿ” so far.")
	b.Press("dialog[open] button[type=submit]")
	b.Await(`!document.querySelector('dialog[open]')`, e2e.Soon)
	s.Await("it is Tarcÿ's", e2e.Soon, `select exists (select from getwork.work where user_name = 'Tarcÿ' and item = 'loan-2' and state = 'held')`)
}

// A new task's name comes from its title, its query from an example, and the tables beside it are those that it may read.
func TestPageNewTaskIsHelped(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
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
