package page

import (
	"fmt"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
)

// A worker logs in by keyboard, gets two items by push, returns one until tomorrow, completes the other with a note,
// undoes that, and completes it all the same. Asked again, the page says why there is nothing, and until when.
func TestFirefoxWorker(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	open := Gated(s)
	f.Open(s.Nodes[0].URL)
	f.Await(`document.activeElement.id === 'user'`, e2e.Soon)
	f.Keys("Oliver" + KeyEnter)
	f.State("live", e2e.Soon)
	f.Eval(`(` + UndoLasts + `, '')`)
	f.Execute(slowHands)
	f.TabTo(CSS(".task summary"))
	f.Keys(KeyEnter)
	f.TabTo(CSS(`.task input[value="3"]`))
	f.Keys(KeyLeft)
	f.TabTo(Called("button", "Get Work: verify"))
	f.Keys(KeyEnter)
	f.Shows(".pending", "The query is running:")
	open()
	f.Works(2)
	f.Shows(".task .ended", "2 items now in your pipeline.")

	f.TabTo(Called("button", "1"))
	f.TabTo(CSS("[data-menu=return] > button"))
	f.Keys(KeyEnter)
	f.TabTo(Called("button", "Return until tomorrow, 9:00"))
	f.Keys(KeyEnter)
	f.Shows("#work .going", "1: returned, not offered before tomorrow, 9:00")
	f.Await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon) // the focus moves on
	f.Keys("o")
	f.Await(`document.activeElement.matches('textarea')`, e2e.Soon)
	f.Keys("checked twice" + KeyEscape)
	f.Press("button", "Complete")
	f.Shows("#work .going", "2: completed.")
	f.Keys("u")
	f.Await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon)
	f.Await(`document.querySelector('#work textarea').value === 'checked twice'`, e2e.Soon)
	f.Keys("c")
	f.Shows("#work .going", "2: completed.")
	if got := s.Dispositions(); got != "1 held, 2 held" {
		t.Error("sent before the seconds have passed: ", got)
	}
	f.Eval(`(passes(), '')`)
	f.Works(0)
	s.Disposes("1 returned, 2 completed checked twice")
	f.Shows("#recent", "returned, not offered before tomorrow, 9:00")
	at := e2e.Column[string](s, `select to_json(available_at)#>>'{}' from getwork.work where item = '1'`)[0]
	if at := f.Eval(fmt.Sprintf(`new Date(%q).toTimeString().slice(0, 5)`, at)); at != "09:00" {
		t.Errorf("it comes back at %s", at)
	}

	s.Takes("Tracy", 4)
	f.Keys("g1")
	f.Shows(".task .ended", "Everything that matches is held by others or put off.")
	f.Shows(".task .ended", "You put off 1 until tomorrow, 9:00")
}

// An outcome is sent when the user leaves the page before its seconds have passed. When the user comes back, the page
// is up to date, and works.
func TestFirefoxLeaves(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	Leased(s, "1h", "a", "b")
	f.Visit(s.Nodes[0].URL, "/", "Oliver")
	f.State("live", e2e.Soon)
	s.Takes("Oliver", 2)
	f.Works(2)
	f.Eval(`(` + UndoLasts + `, '')`)
	f.Press("#work li:first-child button", "Complete")
	f.Shows("#work .going", "a: completed.")
	f.Open(s.Nodes[0].URL + "/docs")
	s.Disposes("a completed, b held")
	f.Do("WebDriver:Back", map[string]any{}, nil)
	f.State("live", e2e.Soon)
	f.Works(1)
	f.Eval(`(` + UndoLasts + `, '')`)
	f.Press("#work button", "Complete")
	f.Shows("#work .going", "b: completed.")
	f.Open("about:blank")
	s.Disposes("a completed, b completed")
}

// A manager watches the floor while others act at another node, finds out about an item, and makes a task: with a
// mistake in its query, which the page leads to, a preview, another version, and the way back. Nothing reloads the
// page.
func TestFirefoxManager(t *testing.T) {
	t.Parallel()
	f := NewFirefox(t, nil)
	s := e2e.NewSite(t, 2, "")
	open := Gated(s)
	f.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	f.State("live", e2e.Soon)
	f.Eval(`(window.same = true, '')`)
	f.Shows("[data-part=waiting]", "Nobody waits.")
	s.Click("Oliver", 1, 2)
	f.Shows("[data-part=waiting]", "Oliver verify 2")
	f.Shows("[data-part=tasks]", "Running for 0:")
	s.Click("Tracy", 1, 1)
	f.Shows("[data-part=waiting]", "Tracy verify 1")
	open()
	f.Shows("[data-part=waiting]", "Nobody waits.")
	f.Shows("[data-part=tasks]", "found 5 in ")
	f.Press("[data-part=held] summary", "Oliver")
	f.Shows("[data-user=Oliver] tbody a", "1")
	f.Await(Painted+`.includes('true')`, e2e.Soon)
	f.Press("button", "As a table")
	f.Await(`[...document.querySelectorAll('.history tbody tr')].reduce((asked, { cells }) =>
		asked + Number(cells[1].textContent), 0) === 2`, e2e.Soon)

	f.Press("[data-user=Oliver] a", "1")
	f.Shows("#verdict-verify", "Oliver has it, since ")
	f.Fill(CSS("#item"), "5"+KeyEnter)
	f.Shows("#verdict-verify", "It can be handed out now.")

	f.Press("#views a", "Tasks")
	f.Press("a", "New task")
	f.Fill(CSS("#set-name"), "second")
	f.Fill(CSS("#set-query"), "select 'Zoë 𝄞' as who,\n  nothing as item")
	f.Click(CSS("#save"))
	f.Shows("#set-query-error", `column "nothing" does not exist`)
	f.Await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	f.Shows(".to-place", "Go to line 2, column 3")
	f.Await(`getComputedStyle(document.querySelector('.sql-wrong')).textDecorationLine !== 'none'`, e2e.Soon)
	f.Keys(strings.Repeat(KeyDelete, len("nothing")) + "generate_series(1, 20)")
	f.Await(`!document.querySelector('.sql-wrong')`, e2e.Soon)
	f.Click(CSS("#save"))
	f.Shows(".task-head", "version 1")
	f.Await(`location.pathname === '/tasks/second'`, e2e.Soon)
	f.Fill(CSS("#set-query"), "select g as item, g / 2 as half\nfrom generate_series(1, 20) g\norder by g")
	f.Keys(KeyCtrl + KeyEnter)
	f.Shows(".preview .stats", "20 rows given")
	f.Await(`document.querySelectorAll('.rows tbody tr')[1].innerText.replace(/\s+/g, ' ').trim() === '2 2 1'`, e2e.Soon)
	f.Keys(KeyCtrl + "s")
	f.Shows("#unsaved", "Nothing to save.")
	f.Press("[role=tab]", "Versions")
	f.Shows(".versions [data-version='2']", "Query: +3 −2 lines")
	f.Click(CSS(".versions [data-version='2'] .compare"))
	f.Shows(".compared .diff .del", "select 'Zoë 𝄞' as who,")
	f.Shows(".compared .diff .ins", "order by g")
	f.Click(CSS(".versions [data-version='1'] .restore"))
	f.Click(CSS("dialog button[value=yes]"))
	f.Shows(".versions [data-version='3']", "Query: +2 −3 lines")
	if got := s.Versions("second"); got != 3 {
		t.Errorf("it is version %d", got)
	}
	if f.Eval(`String(window.same)`) != "true" {
		t.Error("the page was loaded anew")
	}
}
