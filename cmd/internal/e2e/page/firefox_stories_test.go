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
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	open := gated(s)
	f.open(s.Nodes[0].URL)
	f.await(`document.activeElement.id === 'user'`, e2e.Soon)
	f.keys("Oliver" + keyEnter)
	f.state("live", e2e.Soon)
	f.eval(`(` + undoLasts + `, '')`)
	f.do("WebDriver:ExecuteScript", body(slowHands), nil)
	f.tabTo(css(".task summary"))
	f.keys(keyEnter)
	f.tabTo(css(`.task input[value="3"]`))
	f.keys(keyLeft)
	f.tabTo(called("button", "Get Work: verify"))
	f.keys(keyEnter)
	f.shows(".pending", "The query is running:")
	open()
	f.works(2)
	f.shows(".task .ended", "2 items now in your pipeline.")

	f.tabTo(called("button", "1"))
	f.tabTo(css("[data-menu=return] > button"))
	f.keys(keyEnter)
	f.tabTo(called("button", "Return until tomorrow, 9:00"))
	f.keys(keyEnter)
	f.shows("#work .going", "1: returned, not offered before tomorrow, 9:00")
	f.await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon) // the focus moves on
	f.keys("o")
	f.await(`document.activeElement.matches('textarea')`, e2e.Soon)
	f.keys("checked twice" + keyEscape)
	f.press("button", "Complete")
	f.shows("#work .going", "2: completed.")
	f.keys("u")
	f.await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon)
	f.await(`document.querySelector('#work textarea').value === 'checked twice'`, e2e.Soon)
	f.keys("c")
	f.shows("#work .going", "2: completed.")
	if got := s.dispositions(); got != "1 held, 2 held" {
		t.Error("sent before the seconds have passed: ", got)
	}
	f.eval(`(passes(), '')`)
	f.works(0)
	s.disposes("1 returned, 2 completed checked twice")
	f.shows("#recent", "returned, not offered before tomorrow, 9:00")
	at := column[string](s, `select to_json(available_at)#>>'{}' from getwork.work where item = '1'`)[0]
	if at := f.eval(fmt.Sprintf(`new Date(%q).toTimeString().slice(0, 5)`, at)); at != "09:00" {
		t.Errorf("it comes back at %s", at)
	}

	s.Takes("Tracy", 4)
	f.keys("g1")
	f.shows(".task .ended", "Everything that matches is held by others or put off.")
	f.shows(".task .ended", "You put off 1 until tomorrow, 9:00")
}

// An outcome is sent when the user leaves the page before its seconds have passed. When the user comes back, the page
// is up to date, and works.
func TestFirefoxLeaves(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 1, "")
	leased(s, "1h", "a", "b")
	f.visit(s.Nodes[0].URL, "/", "Oliver")
	f.state("live", e2e.Soon)
	s.Takes("Oliver", 2)
	f.works(2)
	f.eval(`(` + undoLasts + `, '')`)
	f.press("#work li:first-child button", "Complete")
	f.shows("#work .going", "a: completed.")
	f.open(s.Nodes[0].URL + "/docs")
	s.disposes("a completed, b held")
	f.do("WebDriver:Back", map[string]any{}, nil)
	f.state("live", e2e.Soon)
	f.works(1)
	f.eval(`(` + undoLasts + `, '')`)
	f.press("#work button", "Complete")
	f.shows("#work .going", "b: completed.")
	f.open("about:blank")
	s.disposes("a completed, b completed")
}

// A manager watches the floor while others act at another node, finds out about an item, and makes a task: with a
// mistake in its query, which the page leads to, a preview, another version, and the way back. Nothing reloads the
// page.
func TestFirefoxManager(t *testing.T) {
	t.Parallel()
	f := newFirefox(t, nil)
	s := newSite(t, 2, "")
	open := gated(s)
	f.visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	f.state("live", e2e.Soon)
	f.eval(`(window.same = true, '')`)
	f.shows("[data-part=waiting]", "Nobody waits.")
	s.Click("Oliver", 1, 2)
	f.shows("[data-part=waiting]", "Oliver verify 2")
	f.shows("[data-part=tasks]", "Running for 0:")
	s.Click("Tracy", 1, 1)
	f.shows("[data-part=waiting]", "Tracy verify 1")
	open()
	f.shows("[data-part=waiting]", "Nobody waits.")
	f.shows("[data-part=tasks]", "found 5 in ")
	f.press("[data-part=held] summary", "Oliver")
	f.shows("[data-user=Oliver] tbody a", "1")
	f.await(painted+`.includes('true')`, e2e.Soon)
	f.press("button", "As a table")
	f.await(`[...document.querySelectorAll('.history tbody tr')].reduce((asked, { cells }) =>
		asked + Number(cells[1].textContent), 0) === 2`, e2e.Soon)

	f.press("[data-user=Oliver] a", "1")
	f.shows("#verdict-verify", "Oliver has it, since ")
	f.fill(css("#item"), "5"+keyEnter)
	f.shows("#verdict-verify", "It can be handed out now.")

	f.press("#views a", "Tasks")
	f.press("a", "New task")
	f.fill(css("#set-name"), "second")
	f.fill(css("#set-query"), "select 'Zoë 𝄞' as who,\n  nothing as item")
	f.click(css("#save"))
	f.shows("#set-query-error", `column "nothing" does not exist`)
	f.await(`document.activeElement.id === 'set-query' && document.querySelector('.sql-wrong').textContent === 'nothing'`, e2e.Soon)
	f.shows(".to-place", "Go to line 2, column 3")
	f.await(`getComputedStyle(document.querySelector('.sql-wrong')).textDecorationLine !== 'none'`, e2e.Soon)
	f.keys(strings.Repeat(keyDelete, len("nothing")) + "generate_series(1, 20)")
	f.await(`!document.querySelector('.sql-wrong')`, e2e.Soon)
	f.click(css("#save"))
	f.shows(".task-head", "version 1")
	f.await(`location.pathname === '/tasks/second'`, e2e.Soon)
	f.fill(css("#set-query"), "select g as item, g / 2 as half\nfrom generate_series(1, 20) g\norder by g")
	f.keys(keyCtrl + keyEnter)
	f.shows(".preview .stats", "20 rows given")
	f.await(`document.querySelectorAll('.rows tbody tr')[1].innerText.replace(/\s+/g, ' ').trim() === '2 2 1'`, e2e.Soon)
	f.keys(keyCtrl + "s")
	f.shows("#unsaved", "Nothing to save.")
	f.press("[role=tab]", "Versions")
	f.shows(".versions [data-version='2']", "Query: +3 −2 lines")
	f.click(css(".versions [data-version='2'] .compare"))
	f.shows(".compared .diff .del", "select 'Zoë 𝄞' as who,")
	f.shows(".compared .diff .ins", "order by g")
	f.click(css(".versions [data-version='1'] .restore"))
	f.click(css("dialog button[value=yes]"))
	f.shows(".versions [data-version='3']", "Query: +2 −3 lines")
	if got := s.versions("second"); got != 3 {
		t.Errorf("it is version %d", got)
	}
	if f.eval(`String(window.same)`) != "true" {
		t.Error("the page was loaded anew")
	}
}
