package desk

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// An item that is put aside stays the user's, and lies under Later until they take it up again.
func TestPagePutsAside(t *testing.T) {
	t.Parallel()
	b, s := desk(t, "", "1h", 2)
	b.Press(`#work li:nth-child(1) [data-later="4h"]`)
	b.Shows("#later", "a")
	b.Shows(".sheet .headline", "b")
	b.Await(`document.querySelector('#heard').textContent === 'a: put aside.'`, e2e.Soon)
	const aside = `select item from getwork.work where state = 'held' and later_until between now() + interval '3 h 50 min' and now() + interval '4 h'`
	if got := e2e.Column[string](s, aside); len(got) != 1 || got[0] != "a" {
		t.Errorf("put aside for four hours: %q", got)
	}
	b.Await(`document.querySelector('.day svg').ariaLabel.includes('a back: ')`, e2e.Soon)
	b.Do(chromedp.Reload())
	b.Works(2, e2e.Soon)
	b.Shows("#later", "a")
	b.Press("#work li:nth-child(1) .key")
	b.Shows(".sheet .put-off", "put aside until ")
	b.Press(`#work li:nth-child(1) [data-later=now]`)
	b.Await(`!document.querySelector('#later') && document.querySelectorAll('.pile .work').length === 2`, e2e.Soon)
	page.Disposes(s, "a held, b held")
}

// The line of the day has what the user did in other browsers, too.
func TestPageDayOfAllBrowsers(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b", "c", "d")
	work := s.Takes("Oliver", 4)
	for _, id := range work[:2] {
		s.Disposed(s.As("Oliver", 0), id, "complete", "")
	}
	s.Disposed(s.As("Oliver", 0), work[2], "return", "1h")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	const day = `[document.querySelector('#done-today').textContent, document.querySelectorAll('.day rect.done').length].join()`
	b.Await(day+` === '2,2'`, e2e.Soon)
	b.Press("#work li:first-child .complete")
	b.Await(day+` === '3,3'`, e2e.Soon)
}
