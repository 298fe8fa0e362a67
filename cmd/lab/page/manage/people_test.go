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
	row := func(user string) string {
		return fmt.Sprintf(`document.querySelector('[data-user=%q]')?.innerText.replaceAll(/\s+/g, ' ').trim()`, user)
	}
	b.Await(row("Uma")+` === 'Uma 5 4 4 0 0 0 0 0% too few to say'`, 2*e2e.Soon) // it reads every ten seconds
	b.Await(row("Oliver")+` === 'Oliver 1 1 0 1 0 0 0 100% too few to say'`, e2e.Soon)
	b.Sees("33%: 2 of 6")
	b.Await(`document.querySelector('[aria-labelledby=returned] tbody tr').innerText.replaceAll(/\s+/g, ' ').startsWith('a verify 2 twice ')`, e2e.Soon)
	if link := b.Eval(`document.querySelector('[aria-labelledby=returned] tbody a').getAttribute('href')`); link != "/items?task=verify&item=a" {
		t.Errorf("it links to %s", link)
	}
	users := `[...document.querySelectorAll('[data-user]')].map((e) => e.dataset.user).join()`
	for _, step := range []struct{ column, want, sorted string }{
		{"", "Oliver,Tracy,Uma", "descending"}, {"Person", "Oliver,Tracy,Uma", "ascending"}, {"Person", "Uma,Tracy,Oliver", "descending"},
		{"Handed out", "Uma,Oliver,Tracy", "descending"},
	} {
		if step.column != "" {
			b.Use("button", step.column)
		}
		b.Await(fmt.Sprintf(`%s === %q && document.querySelector('th[aria-sort=%s]')`, users, step.want, step.sorted), e2e.Soon)
	}
	b.Press(`[data-user=Uma] button`)
	b.Await(`[...document.querySelectorAll('.more tbody .badge')].map((e) => e.textContent).sort().join() === 'completed,completed,completed,completed,held'`, e2e.Soon)
	for range 5 {
		s.Disposed(s.As("Viktor", 1), s.Takes("Viktor", 1)[0], "return", "0s")
	}
	b.Await(row("Viktor")+`?.endsWith('more than the team')`, 2*e2e.Soon)
	b.Press(`.choice button:last-child`)
	b.Await(`location.search === '?from=7d'`, e2e.Soon)
	b.Sees("in the last 7 days")

	// The task that was chosen is still shown when another one comes before it.
	s.Create(map[string]any{"name": "zoning", "query": nil})
	b.Await(`[...document.querySelectorAll('.toolbar option')].map((e) => e.value).join() === ',verify,zoning'`, 2*e2e.Soon)
	b.Choose("Task", "zoning")
	b.Choose("Task", "verify")
	s.Create(map[string]any{"name": "archive", "query": nil})
	b.Await(`[...document.querySelectorAll('.toolbar option')].map((e) => e.value).join() === ',archive,verify,zoning'`, 2*e2e.Soon)
	if shown := b.Eval(`document.querySelector('.toolbar select').value + location.search`); shown != "verify?from=7d&task=verify" {
		t.Errorf("the list shows %s", shown)
	}
}
