package manage

import (
	"fmt"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// The page shows users who return much, compared with the team, and items that many people return.
func TestPagePeople(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 2, "")
	page.Leased(s, "10m", "a", "b", "c", "d", "e", "f", "g", "h")
	b.Visit(s.Nodes[0].URL, "/people", "Mary,manager")
	b.State("live", e2e.Soon)
	b.Sees("Nobody held or let go of anything in the last 24 hours.")
	for _, user := range []string{"Oliver", "Tracy"} {
		s.Disposed(s.As(user, 1), s.Takes(user, 1)[0], "return", "0s")
	}
	for i, w := range s.Takes("Uma", 5) {
		if outcome := "complete"; i > 0 {
			s.Disposed(s.As("Uma", 1), w, outcome, "")
		}
	}
	cell := func(user, column string) string {
		return fmt.Sprintf(`((row) => row?.cells[[...row.closest('table').tHead.rows[0].cells].findIndex((c) => c.innerText.trim() === %q)]?.innerText)(document.querySelector('[data-user=%q]'))`, column, user)
	}
	row := func(user string) string {
		return fmt.Sprintf(`document.querySelector('[data-user=%q]')?.innerText.replaceAll(/\s+/g, ' ').trim()`, user)
	}
	b.Await(row("Uma")+`?.startsWith('UM Uma 4 ') && `+cell("Uma", "Handed out")+` === '5' && `+cell("Uma", "Gave back")+` === '–'`, 2*e2e.Soon) // it reads every ten seconds
	b.Await(row("Oliver")+`?.startsWith('OL Oliver – ') && `+cell("Oliver", "Handed out")+` === '1' && `+cell("Oliver", "Gave back")+` === '1'`, e2e.Soon)
	b.Await(`document.querySelector('[data-user=Oliver] [title]').title === '100% of what they let go of; of the team it is 33%'`, e2e.Soon)
	b.Await(`document.querySelector('[aria-labelledby=returned] li').innerText.replaceAll(/\s+/g, ' ').startsWith('a held 2 people, twice, last ')`, e2e.Soon)
	if link := b.Eval(`document.querySelector('[aria-labelledby=returned] li a').getAttribute('href')`); link != "/items?task=verify&item=a" {
		t.Errorf("it links to %s", link)
	}
	users := `[...document.querySelectorAll('[data-user]')].map((e) => e.dataset.user).join()`
	for _, step := range []struct{ column, want, sorted string }{
		{"", "Uma,Oliver,Tracy", "descending"}, {"Person", "Oliver,Tracy,Uma", "ascending"}, {"Person", "Uma,Tracy,Oliver", "descending"},
		{"Gave back", "Oliver,Tracy,Uma", "descending"}, {"Handed out", "Uma,Oliver,Tracy", "descending"},
	} {
		if step.column != "" {
			b.Use("button", step.column)
		}
		b.Await(fmt.Sprintf(`%s === %q && document.querySelector('th[aria-sort=%s]')`, users, step.want, step.sorted), e2e.Soon)
	}
	b.Press(`[data-user=Uma] button`)
	b.Await(`[...document.querySelectorAll('.more tbody .tag')].map((e) => e.textContent).sort().join() === 'completed,completed,completed,completed,held'`, e2e.Soon)
	for range 5 {
		s.Disposed(s.As("Viktor", 1), s.Takes("Viktor", 1)[0], "return", "0s")
	}
	b.Await(`document.querySelector('[data-user=Viktor] [title]')?.title === '100% of what they let go of; of the team it is 64%'`, 2*e2e.Soon)
	b.Press(`.pick button:last-child`)
	b.Await(`location.search === '?from=7d'`, e2e.Soon)
	b.Await(`document.querySelector('.pick button:last-child').ariaPressed === 'true' && document.querySelector('[data-user=Viktor]')`, e2e.Soon)

	// The task that was chosen is still shown when another one comes before it.
	s.Create(map[string]any{"name": "zoning", "query": nil})
	b.Await(`[...document.querySelectorAll('.people-view > header option')].map((e) => e.value).join() === ',verify,zoning'`, 2*e2e.Soon)
	b.Choose("Task", "zoning")
	b.Choose("Task", "verify")
	s.Create(map[string]any{"name": "archive", "query": nil})
	b.Await(`[...document.querySelectorAll('.people-view > header option')].map((e) => e.value).join() === ',archive,verify,zoning'`, 2*e2e.Soon)
	if shown := b.Eval(`document.querySelector('.people-view > header select').value + location.search`); shown != "verify?from=7d&task=verify" {
		t.Errorf("the list shows %s", shown)
	}
}
