package desk

import (
	"fmt"
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// logsIn logs in by keyboard: the name has the focus when the page opens.
func logsIn(b *page.Browser, address, user, role string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(address))
	b.Await(`document.activeElement === document.querySelector('#user')`, e2e.Soon)
	b.Keys(user)
	b.TabTo("combobox", "Role")
	b.Keys(role[:1])
	b.Enter("button", "Continue")
	b.Await(fmt.Sprintf(`document.querySelector('#name').textContent === %q && document.querySelector('#view > *')`, user), e2e.Soon)
	b.State("live", e2e.Soon)
}

// A worker works without a mouse: logs in, gets work, completes with a note, undoes that, completes it all the same,
// returns until tomorrow, keeps, and sets to never.
func TestPageWorkerByKeyboard(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, page.NoMouse+";"+page.UndoLasts)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "30m", "a", "b", "c", "d")
	logsIn(b, s.Nodes[0].URL, "Oliver", "worker")
	for !b.Yes(`document.activeElement.matches('.task .name')`) {
		b.Keys(kb.Tab)
	}
	b.Keys(kb.Enter)
	b.TabTo("radio", "3")
	b.Keys(kb.ArrowRight)
	b.TabTo("button", "verify") // the list is one stop; within it go arrows
	b.Keys(kb.ArrowRight)
	b.Await(`document.activeElement.matches('.get')`, e2e.Soon)
	b.Keys(kb.Enter)
	b.Works(4, e2e.Soon)
	became := func(item, want string) {
		t.Helper()
		b.Shows("#work .going", item+": ")
		b.Eval(`(passes(), '')`) // reaching the undo button takes more than five seconds
		s.Await(item+" becomes "+want, e2e.Soon, `select state || ' ' || coalesce(note, '') = $2 from getwork.work where item = $1`, item, want)
	}

	b.TabTo("button", "a") // where keys are shortcuts
	b.Keys("o")
	b.Await(`document.activeElement.matches('textarea')`, e2e.Soon)
	b.Keys("looked twice" + kb.Escape)
	b.TabTo("button", "Complete")
	b.Keys(kb.Enter)
	b.Enter("button", "Undo: a")
	b.Await(`document.activeElement.textContent.trim() === 'a'`, e2e.Soon) // it is back, and has the focus
	b.Await(`[...document.querySelectorAll('textarea')].some((e) => e.value === 'looked twice')`, e2e.Soon)
	b.Enter("button", "Complete")
	became("a", "completed looked twice")

	b.TabTo("button", "b")
	b.Enter("button", "Give back")
	b.Enter("button", "Return until tomorrow, 9:00")
	became("b", "returned ")
	if at := b.Eval(fmt.Sprintf(`new Date(%q).toTimeString().slice(0, 5)`, e2e.Column[string](s, `select to_json(available_at)#>>'{}' from getwork.work where item = 'b'`)[0])); at != "09:00" {
		t.Errorf("it comes back at %s", at)
	}

	b.Enter("button", "Keep c")
	s.Await("the lease begins anew", e2e.Soon, `select lease_expires_at - assigned_at > lease from getwork.work where item = 'c'`)
	b.TabTo("button", "c")
	b.TabTo("button", "Remove from queue")
	b.Keys(kb.Enter)
	b.Await(`document.activeElement.innerText.includes('Really remove it?')`, e2e.Soon)
	b.Keys(kb.Enter)
	became("c", "never ")

	b.Await(`document.activeElement.textContent.trim() === 'd'`, e2e.Soon)
	b.Keys("c") // and the same with single keys instead of buttons
	b.Await(`document.body.innerText.includes('completed')`, e2e.Soon)
	b.Keys("u")
	b.Await(`document.activeElement.textContent.trim() === 'd'`, e2e.Soon)
	b.Keys("dd")
	became("d", "never ")
}

// A manager works without a mouse: pauses a task, resumes it, finds out why an item is not handed out, and takes work
// back.
func TestPageManagerByKeyboard(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, page.NoMouse)
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "30m", "a", "b", "c", "d")
	s.Takes("Oliver", 2)
	logsIn(b, s.Nodes[0].URL, "Mary", "manager")
	b.Enter("link", "Tasks")
	b.Enter("button", "Pause verify")
	b.TabTo("button", "Resume verify")
	s.Await("it is paused", e2e.Soon, `select paused from getwork.task_state`)
	b.Keys(kb.Enter)
	s.Await("it is resumed", e2e.Soon, `select not paused from getwork.task_state`)

	b.Enter("link", "Items")
	b.TabTo("textbox", "Item")
	b.Keys("a" + kb.Enter)
	b.Sees("Oliver has had it")

	b.Enter("button", "Release in bulk")
	b.TabTo("textbox", "Held by")
	b.Keys("Oliver")
	b.Enter("button", "Release 2 items")
	s.Await("it is back", e2e.Soon, `select count(*) = 2 from getwork.work where state = 'returned' and closed_by = 'Mary'`)
	b.Await(`!document.querySelector('dialog[open]') && document.activeElement !== document.body`, e2e.Soon)
}
