package desk

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A worker logs in by keyboard, gets two items by push, returns one until tomorrow, completes the other with a note,
// undoes that, and completes it all the same. Asked again, the page says why there is nothing, and until when.
func TestFirefoxWorker(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	f.Open(s.Nodes[0].URL)
	f.Await(`document.activeElement.id === 'user'`, e2e.Soon)
	f.Keys("Oliver" + page.KeyEnter)
	f.State("live", e2e.Soon)
	f.Eval(`(` + page.UndoLasts + `, '')`)
	f.Execute(slowHands)
	f.TabTo(page.CSS(".task .name"))
	f.Keys(page.KeyEnter)
	f.TabTo(page.CSS(`.task input[value="3"]`))
	f.Keys(page.KeyLeft)
	f.Keys(page.KeyShift + page.KeyTab) // the list is one Tab stop: arrows move in it
	f.Await(`document.activeElement.matches('.task .name')`, e2e.Soon)
	f.Keys(page.KeyRight)
	f.Await(`document.activeElement.ariaLabel === 'Get Work: verify'`, e2e.Soon)
	f.Keys(page.KeyEnter)
	f.Shows(".pending", "The query is running:")
	open()
	f.Works(2)
	f.Shows(".task .ended", "You got 2 items.")

	f.TabTo(page.Called("button", "1"))
	f.TabTo(page.CSS("[data-menu=return] > button"))
	f.Keys(page.KeyEnter)
	f.TabTo(page.Called("button", "Return until tomorrow, 9:00"))
	f.Keys(page.KeyEnter)
	f.Shows("#work .going", "1: returned, not offered before tomorrow, 9:00")
	f.Await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon) // the focus moves on
	f.Keys("o")
	f.Await(`document.activeElement.matches('textarea')`, e2e.Soon)
	f.Keys("checked twice" + page.KeyEscape)
	f.Press("button", "Complete")
	f.Shows("#work .going", "2: completed.")
	f.Keys("u")
	f.Await(`document.activeElement.textContent.trim() === '2'`, e2e.Soon)
	f.Await(`document.querySelector('#work textarea').value === 'checked twice'`, e2e.Soon)
	f.Keys("c")
	f.Shows("#work .going", "2: completed.")
	if got := page.Dispositions(s); got != "1 held, 2 held" {
		t.Error("sent before the seconds have passed: ", got)
	}
	f.Eval(`(passes(), '')`)
	f.Works(0)
	page.Disposes(s, "1 returned, 2 completed checked twice")
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

// A view whose module can't be loaded for a moment is shown at the next attempt, although Firefox asks for a module only once. So it is
// with a log-out.
func TestFirefoxViewThatDoesNotLoad(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, nil)
	g := page.BehindGateway(e2e.NewSite(t, 1, ""))
	f.Open(g.URL + "/people#log-in=Mia,manager")
	f.Await(`document.querySelector('#view h1')`, e2e.Soon)
	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		refused := strings.HasSuffix(r.URL.Path, "/views/floor.js")
		if refused {
			w.WriteHeader(http.StatusBadGateway)
		}
		return refused
	})
	open := `(document.querySelector('#views a[href="/floor"]').click(), '')`
	f.Eval(open)
	f.Shows("#view .error", "This view can’t be shown: a part of this page can’t be loaded now; try again in a moment")
	g.Refusing(nil)
	f.Execute(`performance.now = () => 31000`) // or the test would wait for half a minute
	f.Eval(open)
	f.Await(`location.pathname === '/floor' && document.querySelector('#view [data-view=floor] h1, #view [data-view=floor] h2')`, e2e.Soon)

	g.Refusing(func(w http.ResponseWriter, r *http.Request) bool {
		refused := strings.HasSuffix(r.URL.Path, "/leave.js")
		if refused {
			w.WriteHeader(http.StatusBadGateway)
		}
		return refused
	})
	f.Click(page.CSS("#who"))
	f.Press("button", "Log out")
	f.Shows("#said", "You are still logged in: a part of this page can’t be loaded now; try again in a moment")
	g.Refusing(nil)
	f.Execute(`performance.now = () => 31000`)
	f.Click(page.CSS("#who"))
	f.Press("button", "Log out")
	f.Await(`document.querySelector('#log-in input')`, e2e.Soon)
}

// An outcome is sent when the user leaves the page before its seconds have passed. When the user comes back, the page
// is up to date, and works.
func TestFirefoxLeaves(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b")
	f.Visit(s.Nodes[0].URL, "/", "Oliver")
	f.State("live", e2e.Soon)
	s.Takes("Oliver", 2)
	f.Works(2)
	f.Eval(`(` + page.UndoLasts + `, '')`)
	f.Press(".sheet button", "Complete")
	f.Shows("#work .going", "a: completed.")
	f.Open(s.Nodes[0].URL + "/docs")
	page.Disposes(s, "a completed, b held")
	f.Do("WebDriver:Back", map[string]any{}, nil)
	f.State("live", e2e.Soon)
	f.Works(1)
	f.Eval(`(` + page.UndoLasts + `, '')`)
	f.Press(".sheet button", "Complete")
	f.Shows("#work .going", "b: completed.")
	f.Open("about:blank")
	page.Disposes(s, "a completed, b completed")
}
