package manage

import (
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/assign"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// itemsAt returns the address of a question.
func itemsAt(item, task string) string {
	return "/items?" + url.Values{"item": {item}, "task": {task}}.Encode()
}

// verdict waits for the line about an item's state in a task.
func verdict(b *page.Browser, task string, says ...string) {
	b.T.Helper()
	for _, text := range says {
		b.Await(fmt.Sprintf(`document.querySelector('#verdict-%s')?.textContent.includes(%q)`, task, text), e2e.Soon)
	}
}

// dialog fills in the form of the open dialog, and sends it. values are by field name.
func dialog(b *page.Browser, values map[string]string) {
	b.T.Helper()
	b.Await(`document.querySelector('dialog[open] form')`, e2e.Soon)
	for name, value := range values {
		b.Eval(fmt.Sprintf(`(() => {
			const field = document.querySelector('dialog[open]').querySelector('[name="%[1]s"]:not([type=radio]), [name="%[1]s"][value="%[2]s"]');
			if (field.type === 'radio') field.click(); else field.value = %[2]q;
			return '';
		})()`, name, value))
	}
	b.Press("dialog[open] button[type=submit]")
	const doubted = `document.querySelector('dialog[open] .error')?.textContent.includes('Nobody has worked here as')`
	b.Await(`!document.querySelector('dialog[open]') || `+doubted, e2e.Soon)
	if b.Yes(doubted) { // of somebody's first work
		b.Press("dialog[open] button[type=submit]")
	}
	b.Await(`!document.querySelector('dialog[open]')`, e2e.Soon)
}

// A customer asks for a loan: a manager types its key, and reads why nobody has it, who has it, and what happened to
// it.
func TestPageExplains(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 3, "")
	s.Task("verify", `select item from unnest(array['117', '118', '119', '120']) with ordinality as u (item, n) order by n`)
	tracy, node := s.As("Tracy", 2), s.Nodes[1].URL
	work := s.Takes("Tracy", 3)
	for i, d := range []map[string]any{{"outcome": "return", "after": "24h", "note": "Asked for the statement."}, {"outcome": "never", "note": "Fraud team has it."}} {
		if a, err := tracy.Do(t.Context(), "POST", fmt.Sprintf("/api/v1/work/%d/disposition", work[i].ID), d); err != nil || a.Status != 200 {
			t.Fatalf("disposition: %d %s %v", a.Status, a.Body, err)
		}
	}
	b.Visit(node, "/items", "Mary,manager")
	b.Await(`document.activeElement.id === 'item'`, e2e.Soon)
	b.Do(chromedp.KeyEvent("117\r"))
	verdict(b, "verify", "Not handed out before tomorrow ", "Tracy returned it, and put it off 24 h.")
	b.Shows(".timeline", "put off 24 h, until tomorrow")
	b.Shows(".timeline blockquote", "Asked for the statement.")
	if address := b.Eval("location.search"); address != "?item=117" {
		t.Errorf("the address is %s; a colleague would not get there", address)
	}
	b.Press(".explain")
	b.Shows(".facts", "Yes, by the task’s query")
	verdict(b, "verify", "Not handed out before tomorrow ", "Tracy returned it, and put it off 24 h.")

	b.Visit(node, itemsAt("118", "verify"), "Mary,manager")
	b.Shows(".facts", "Yes")
	verdict(b, "verify", "Never handed out again: Tracy said so at ")
	b.Press(".redrive")
	b.Press("dialog[open] .primary")
	verdict(b, "verify", "It can be handed out now.")
	b.Shows(".timeline", "Put back at ")

	b.Visit(node, itemsAt("119", "verify"), "Mary,manager")
	verdict(b, "verify", "Tracy has had it since ")
	b.Shows(".facts", "Tracy, who holds it")
	b.Press(".reassign")
	b.Await(`document.querySelector('dialog[open] input')`, e2e.Soon)
	b.Do(chromedp.KeyEvent("Oliver\r"))
	b.Shows("dialog[open] .error", "Nobody has worked here as “Oliver” so far.")
	b.Do(chromedp.KeyEvent("\r"))
	verdict(b, "verify", "Oliver has had it since ")
	b.Await(`document.activeElement.id === 'verdict-verify'`, e2e.Soon) // the element that had the focus is gone
	b.Shows(".holder", "Oliver since ")
	b.Press(".let-go")
	dialog(b, map[string]string{"outcome": "complete", "note": "Done by telephone."})
	verdict(b, "verify", "It can be handed out now")
	b.Shows(".timeline", "Completed by Mary.")
	b.Shows(".timeline blockquote", "Done by telephone.")
	b.Press(".claim")
	verdict(b, "verify", "Mary has had it since ")
	b.Shows(".facts", "Mary, who holds it")
	mine := e2e.Column[int64](s, `select id from getwork.work where user_name = 'Mary' and state = 'held'`)[0]
	s.Disposed(s.As("Mary", 2), assign.Work{ID: mine}, "never", "")
	verdict(b, "verify", "Never handed out again: Mary said so at ") // from the history, which is newer
	b.Shows(".asked-for .old", "Something has changed since")

	b.Visit(node, itemsAt("no such loan", "verify"), "Mary,manager")
	verdict(b, "verify", "the task’s query does not give it.")
	b.Shows(".answers + section .empty", "Nobody has had it for this task.")
	b.Shows(".recent", "119")
}

// Over several tasks the history answers at once, and the page follows what happens elsewhere. A task's query runs only
// on demand; the page shows for how long, and giving up also ends it in the database.
func TestPageExplainsOverTasks(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", e2e.Heavy(60, 3))
	s.Task("enter", `select i as item from generate_series(1, 3) i`)
	s.Create(map[string]any{"name": "scan"})
	oliver, tracy := s.As("Oliver", 0), s.As("Tracy", 1)
	w := s.Got(oliver, "enter", 1).Work[0]
	b.Visit(s.Nodes[1].URL, itemsAt(w.Item, ""), "Mary,manager")
	verdict(b, "enter", "Oliver has had it since ")
	verdict(b, "verify", "Not checked yet.") // nothing was asked, and nothing is claimed
	b.Shows(`[aria-labelledby=task-verify]`, "Nobody has had it for this task.")
	b.Await(`document.querySelector('[aria-labelledby=task-verify]').dataset.kind === 'unknown'`, e2e.Soon)
	b.Await(`document.querySelector('.answer').dataset.kind === 'busy'`, e2e.Soon) // the holder stands first
	if n := len(e2e.Column[string](s, e2e.Executions, e2e.Marker)); n != 0 {
		t.Error("the heavy query runs, though nobody asked for it")
	}
	b.State("live", e2e.Soon)
	s.Disposed(oliver, w, "complete", "")
	verdict(b, "enter", "Oliver completed it at ")
	s.Got(tracy, "enter", 1)
	verdict(b, "enter", "Tracy has had it since ")

	b.Press(`[aria-labelledby=task-scan] .explain`)
	verdict(b, "scan", "it is not in the inbox")
	page.Manages(s, "POST", "/tasks/scan/items", []map[string]any{{"item": w.Item}})
	b.Press(`[aria-labelledby=task-scan] .explain`)
	verdict(b, "scan", "It can be handed out now.")

	b.Press(`[aria-labelledby=task-verify] .explain`)
	b.Await(`/Looking; .* 0:(0[1-9]|[1-5])/s.test(document.querySelector('[aria-labelledby=task-verify] .asking').textContent)`, e2e.Soon)
	s.QueryRuns()
	b.Press(`.give-up`)
	b.Await(`!document.querySelector('.asking') && document.activeElement.id === 'verdict-verify'`, e2e.Soon)
	e2e.Await(t, "the query is given up", e2e.Soon, func() bool { return len(e2e.Column[string](s, e2e.Executions, e2e.Marker)) == 0 })
	verdict(b, "verify", "Not checked yet.")
}

// Keys stay as they are: the page neither cuts nor interprets them, in its address, its questions and its texts.
func TestPageExplainsAnyKey(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	keys := []string{"2026/117", "50%", "%2F", "a?b#c&d=e+f", " with spaces ", "<b>bold</b><script>document.title='broken'</script>", "مرحبا (123)", `"quoted" 'twice'`, "a\\b", "👩🏽‍🚀"}
	var quoted []string
	for _, key := range keys {
		quoted = append(quoted, strings.ReplaceAll(key, `'`, `''`))
	}
	s.Create(map[string]any{"name": "verify", "query": `select item from unnest(array['` + strings.Join(quoted, "', '") + `']) with ordinality as u (item, n) order by n`})
	b.Visit(s.Nodes[0].URL, "/items?task=verify", "Mary,manager")
	for i, key := range keys {
		b.Eval(fmt.Sprintf(`(document.querySelector('#item').value = %q, document.querySelector('.find button').click(), '')`, key))
		b.Await(fmt.Sprintf(`document.querySelector('#found')?.textContent === %q`, key), e2e.Soon)
		b.Shows(".facts", []string{"1st", "2nd", "3rd", "4th", "5th", "6th", "7th", "8th", "9th", "10th"}[i]+", best first")
		if n := b.Eval(`String(document.querySelectorAll('main b:not([dir]), main script').length)`); n != "0" {
			t.Errorf("%q: %s elements were made from text", key, n)
		}
		b.Eval("(window.old = true, location.reload(), '')")
		b.Await(fmt.Sprintf(`window.old === undefined && document.querySelector('#found')?.textContent === %q && document.querySelector('.facts')?.textContent.includes('best first')`, key), e2e.Soon)
	}
}

// The counted work is released. If it changes before the confirmation nothing is released, and the manager is asked
// again.
func TestPageReleases(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	s.Task("verify", `select i as item from generate_series(1, 30) i`)
	s.Task("enter", `select i as item from generate_series(1, 30) i`)
	tracy, oliver := s.As("Tracy", 1), s.As("Oliver", 1)
	for range 2 {
		s.Got(tracy, "verify", 5)
	}
	w := s.Got(tracy, "enter", 2).Work[0]
	s.Got(oliver, "verify", 1)
	b.Visit(s.Nodes[0].URL, "/items?release=1&user=Tracy", "Mary,manager")
	b.Shows("#release", "Release 12 items")
	b.Shows("dialog .soft", "… and 4 more")
	b.Await(`document.querySelector('#release-task option[value=verify]')`, e2e.Soon) // the tasks are read beside the count
	b.Eval(`(document.querySelector('#release-task').value = 'verify', document.querySelector('#release-task').dispatchEvent(new Event('change')), '')`)
	b.Shows("#release", "Release 10 items")
	b.Shows("dialog .found", "10 items are held by Tracy.")

	s.Got(tracy, "verify", 1)
	s.Task("none", `select 1 as item where false`)
	if a, err := tracy.Do(t.Context(), "POST", "/api/v1/tasks/none/requests", map[string]any{"count": 1, "linger": "1h"}); err != nil || a.Status != 202 {
		t.Fatal(a.Status, err)
	}
	b.Press("#release")
	b.Shows("dialog .warning", "Nothing was released: what is held has changed since it was counted. It was 10, and is 11 now.")
	b.Shows("#release", "Release 11 items")
	if n := e2e.Column[int](s, `select count(*)::int from getwork.work where state = 'held'`)[0]; n != 14 {
		t.Errorf("%d are held; nothing was to be released of 14", n)
	}
	s.Disposed(tracy, w, "complete", "") // of the other task, so nothing changes
	b.Press("#release")
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	b.Shows("#said", "Released: 11 items.")
	if address := b.Eval("location.pathname + location.search"); address != "/items" {
		t.Errorf("the address is %s; to read it again would ask again", address)
	}
	left := strings.Join(e2e.Column[string](s, `select user_name || ' ' || name from getwork.work join getwork.task_state using (task_id) where state = 'held' order by 1`), ", ")
	if left != "Oliver verify, Tracy enter" {
		t.Errorf("still held: %s", left)
	}

	b.Press("#release-work")
	b.Shows("dialog .found", "Say whose work it is, or of which task, or both.")
	b.Do(chromedp.SendKeys(chromedp.ID("release-user"), "Nobody\r", chromedp.NodeVisible))
	b.Shows("dialog .found", "Nothing of that is held")
	b.Eval(`(document.querySelector('#release').click(), '')`)
	s.Nodes[0].Kill()
	// The text is set at once: between two letters it may count, and once more when the node is back.
	b.Eval(`((field) => { field.value = 'Tracy'; field.dispatchEvent(new Event('input')); return ''; })(document.querySelector('#release-user'))`)
	b.Shows("dialog .error", "It can’t be counted: the server can’t be reached.")
	s.Nodes[0].Restart()
	b.Press("dialog .bar button") // count again
	b.Shows("#release", "Release 1 item")
	b.Shows("dialog .found", "1 item is held by Tracy. Cancelled, too: 1 request that waits.")
	b.Do(chromedp.KeyEvent("\x1b"))
	b.Await(`!document.querySelector('dialog')`, e2e.Soon)
	if n := e2e.Column[int](s, `select count(*)::int from getwork.work where state = 'held'`)[0]; n != 2 {
		t.Errorf("%d are held; 2 were left", n)
	}
}
