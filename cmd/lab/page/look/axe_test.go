package look

import (
	"strings"
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// Axe runs and finds faults: a test that can't fail would look the same as a good page.
func TestPageAxeFinds(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	b.Await(`document.querySelector('#user')?.checkVisibility()`, e2e.Soon)
	b.Eval(`(document.querySelector('label[for=user]').remove(), document.querySelector('#user').removeAttribute('aria-label'), '')`)
	if found := b.Axe(); !strings.Contains(found, `"id":"label"`) {
		t.Errorf("a field without a label is not found: %s", found)
	}
}
