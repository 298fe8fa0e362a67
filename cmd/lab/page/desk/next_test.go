package desk

import (
	"testing"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// The next work of any task has a button and a key, and says where it came from. Its task can be asked for several items. Whoever wants to be kept supplied is.
func TestPageNext(t *testing.T) {
	t.Parallel()
	b, s := desk(t, slowHands, "1h", 0)
	page.Manages(s, "POST", "/tasks", map[string]any{"name": "first", "title": "Comes first", "priority": 1})
	page.Manages(s, "POST", "/tasks/first/items", []map[string]any{{"item": "x"}})
	b.Shows("#tasks", "Comes first")
	b.Shows(".get-next", "Now most likely: one of Comes first, at once.")
	b.Press(".several")
	b.Await(`document.activeElement.matches('[name="count-first"]:checked') && document.querySelector('.task:has(:focus) .get').textContent === 'Get 3'`, e2e.Soon)
	b.Do(chromedp.KeyEvent(kb.ArrowLeft))
	b.Await(`document.querySelector('.task:has(:focus) .get').textContent === 'Get 2'`, e2e.Soon)
	b.Eval(`(document.activeElement.blur(), '')`)
	b.Keys("gn")
	b.Works(1, e2e.Soon)
	b.Shows(".get-next", "It came from Comes first.")
	b.Press(".get-next button.primary")
	b.Works(2, e2e.Soon)
	b.Shows(".get-next", "It came from verify.")
	b.Eval(`(() => { const n = document.querySelector('.supply input'); n.value = '4'; n.dispatchEvent(new Event('change')); return ''; })()`)
	b.Works(4, e2e.Soon)
	s.Await("nobody asks for more", e2e.Soon, `select not exists (select from getwork.work_requested where state = 'pending')`)
}
