package manage

import (
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A manager watches the floor while others act at another node, finds out about an item, and makes a task: with a
// mistake in its query, which the page leads to, a preview, another version, and the way back. Nothing reloads the
// page.
func TestFirefoxManager(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	f := page.NewFirefox(t, nil)
	s := e2e.NewSite(t, 2, "")
	open := page.Gated(s)
	f.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	f.State("live", e2e.Soon)
	f.Eval(`(window.same = true, '')`)
	f.Shows("[data-part=waiting]", "Nobody waits.")
	s.Click("Oliver", 1, 2)
	f.Shows("[data-part=waiting]", "2 items of verify")
	f.Shows("[data-part=tasks]", "runs for 0:")
	s.Click("Tracy", 1, 1)
	f.Shows("[data-part=waiting]", "1 item of verify")
	open()
	f.Shows("[data-part=waiting]", "Nobody waits.")
	f.Press("[data-task=verify] a", "verify")
	f.Shows(".facts", "found 5 in ")
	f.Press("button", "Show all tasks")
	f.Press("[data-part=held] summary", "Oliver")
	f.Shows("[data-user=Oliver] .holds a", "1")
	f.Await(page.Painted+`.includes('true')`, e2e.Soon)
	f.Press("button", "As a table")
	f.Await(`[...document.querySelectorAll('.history tbody tr')].reduce((asked, { cells }) =>
		asked + Number(cells[1].textContent), 0) === 2`, e2e.Soon)

	f.Press("[data-user=Oliver] a", "1")
	f.Shows("#verdict-verify", "Oliver has had it since ")
	f.Fill(page.CSS("#item"), "5"+page.KeyEnter)
	f.Shows("#verdict-verify", "It can be handed out now.")

	f.Press("#views a", "Tasks")
	f.Press("a", "New task")
	f.Fill(page.CSS("#set-name"), "second")
	f.Fill(page.CSS("#set-query"), "select 'Zoë 𝄞' as who,\n  nothing as item")
	f.Click(page.CSS("#save"))
	f.Shows("#set-query-error", `column "nothing" does not exist`)
	f.Await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	f.Shows(".to-place", "Go to line 2, column 3")
	f.Await(`getComputedStyle(document.querySelector('.sql-wrong')).textDecorationLine !== 'none'`, e2e.Soon)
	f.Keys(strings.Repeat(page.KeyDelete, len("nothing")) + "generate_series(1, 20)")
	f.Await(`!document.querySelector('.sql-wrong')`, e2e.Soon)
	f.Click(page.CSS("#save"))
	f.Shows(".task-head", "version 1")
	f.Await(`location.pathname === '/tasks/second'`, e2e.Soon)
	f.Fill(page.CSS("#set-query"), "select g as item, g / 2 as half\nfrom generate_series(1, 20) g\norder by g")
	f.Keys(page.KeyCtrl + page.KeyEnter)
	f.Shows(".preview .stats", "20 rows given")
	f.Await(`document.querySelectorAll('.rows tbody tr')[1].innerText.replace(/\s+/g, ' ').trim() === '2 2 1'`, e2e.Soon)
	f.Keys(page.KeyCtrl + "s")
	f.Shows("#unsaved", "Nothing to save.")
	f.Press(".tabs a", "Versions")
	f.Shows(".versions [data-version='2']", "Query: +3 −2 lines")
	f.Click(page.CSS(".versions [data-version='2'] .compare"))
	f.Shows(".compared .diff .del", "select 'Zoë 𝄞' as who,")
	f.Shows(".compared .diff .ins", "order by g")
	f.Click(page.CSS(".versions [data-version='1'] .restore"))
	f.Click(page.CSS("dialog button[value=yes]"))
	f.Shows(".versions [data-version='3']", "Query: +2 −3 lines")
	if got := page.Versions(s, "second"); got != 3 {
		t.Errorf("it is version %d", got)
	}
	if f.Eval(`String(window.same)`) != "true" {
		t.Error("the page was loaded anew")
	}
}

// Firefox has trusted types since version 148. Without them the page is the same.
func TestFirefoxWithoutTrustedTypes(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, map[string]any{"dom.security.trusted_types.enabled": false})
	s := e2e.NewSite(t, 2, "")
	evening := morning(s)
	f.Visit(s.Nodes[0].URL, "/", "Mary,manager")
	if is := f.Eval(`typeof trustedTypes`); is != "undefined" {
		t.Errorf("trustedTypes is %s", is)
	}
	for _, view := range followed {
		f.Open(s.Nodes[0].URL + view.path)
		f.State("live", e2e.Soon)
		f.Shows("body", view.before)
	}
	evening()
	f.Shows(".tile", "Evening") // the wall, by push
}
