package desk

import (
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// Details that nest deep, are too large for the pipeline, or too large for anything, blank no card: the page says what it doesn't
// show, in each language, and reads on demand what the pipeline left out.
func TestPageDetailsThatAreTooMuch(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Create(map[string]any{"name": "verify", "query": `select * from (values
		('a', '[[[[[[[[[["deep"]]]]]]]]]]'::json), ('b', (repeat('[', 3000) || repeat(']', 3000))::json)) loan (item, tree)`})
	if got := s.Got(s.As("Oliver", 0), "verify", 2); len(got.Work) != 2 {
		t.Fatalf("%+v", got)
	}
	// Larger than a push may be, so that two are more than an answer carries.
	s.Exec(`insert into getwork.work (task_id, item, user_name, details)
		select task_id, 'large ' || i, 'Oliver', json_build_object('scan', repeat('x', 5000000), 'place', 'Rome') from getwork.task_state, generate_series(1, 2) i`)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.Works(4, e2e.Soon)
	shows := func(row, text string) {
		t.Helper()
		b.Await(`document.querySelector('.sheet')?.innerText.includes('`+text+`')`, e2e.Soon)
	}
	open := func(row string) {
		t.Helper()
		b.Eval(`(document.querySelectorAll('#work .work')[` + row + ` - 1].querySelector('.key[aria-expanded=false]')?.click(), '')`)
	}
	open("1")
	shows("1", "(deeper levels are not shown)")
	if text := b.Eval(`document.querySelector('.sheet').innerText`); strings.Contains(text, "deep\n") || strings.Contains(text, `"deep"`) {
		t.Errorf("ten levels are drawn: %s", text)
	}
	open("2")
	shows("2", "Its details are left out, since they are large.")
	b.Press("#work li:nth-child(2) .left-out button")
	shows("2", "Its details can’t be shown: they are too large.")
	open("4")
	shows("4", "Its details are left out, since they are large.")
	b.Press("#work li:nth-child(4) .left-out button")
	shows("4", "Rome")
	b.Opens(s.Nodes[0].URL + "?lang=de")
	b.Works(4, e2e.Soon)
	open("1")
	shows("1", "(tiefere Ebenen werden nicht gezeigt)")
	open("4")
	shows("4", "Die Angaben dazu fehlen hier, weil sie groß sind.")
}
