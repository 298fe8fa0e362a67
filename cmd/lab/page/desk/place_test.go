package desk

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// What is said beside a task's name, in the longest language, doesn't move the name; and a menu opens where there is room for it: the
// page neither scrolls down under the pointer, nor sideways on a phone.
func TestPageDeskStaysInPlace(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	mary := s.As("mary", 0)
	mary.Role = "manager"
	if a, err := mary.Do(t.Context(), "PATCH", "/api/v1/tasks/verify", map[string]any{"title": "Verify user submitted bank account",
		"query": `with gate as materialized (select pg_advisory_xact_lock_shared(7))
			select i as item, 1.5 * i as amount, 'XB33 4021 0000 0000 5155' as iban, 'one' as a, 'two' as b, 'three' as c, 'four' as d, 'five' as e, 'six' as f,
			'seven' as g, 'eight' as h from gate cross join generate_series(1, 5) i order by i`}, "If-Match", `"1"`); err != nil || a.Status != 200 {
		t.Fatalf("%d %s %v", a.Status, a.Body, err)
	}
	b.As(page.Look{Width: 390, Height: 844, Scheme: "light"})
	b.Visit(s.Nodes[0].URL, "/?lang="+page.Pseudo, "Oliver")
	b.State("live", e2e.Soon)
	const name = `(({ width, height }) => [width, height].join())(document.querySelector('.task .name').getBoundingClientRect())`
	b.Await(`document.querySelector('.task .name') && document.fonts.status === 'loaded'`, e2e.Soon)
	before := b.Eval(name)
	b.Press(".task .get")
	b.Await(`document.querySelector('.task progress')`, e2e.Soon)
	if after := b.Eval(name); after != before {
		t.Errorf("while work is on its way the task's name is %s large, and was %s", after, before)
	}
	open()
	b.Works(3, e2e.Soon)
	b.Press("[data-menu=return] > button")
	b.Press("[data-return=exact]")
	b.Await(`document.querySelector('.choices-of form')`, e2e.Soon)
	if got := b.Eval(`String(document.scrollingElement.scrollWidth)`); got != "390" {
		t.Errorf("with a menu the page is %s wide, on a screen of 390", got)
	}
	b.As(page.Look{Width: 1366, Height: 768, Scheme: "light"})
	b.Do(chromedp.Navigate(s.Nodes[0].URL + "/?lang=en"))
	b.Works(3, e2e.Soon)
	b.Await(`document.querySelector('.get-next')`, e2e.Soon)
	if got := b.Eval(`String(new Set(['.get-next', '.hand', '.mine > :first-child'].map((id) => Math.round(document.querySelector(id).getBoundingClientRect().top))).size)`); got != "1" {
		t.Error("tasks, sheet and desk begin at different heights")
	}
	b.Click("[data-menu=return] > button")
	b.Await(`(({ top, bottom }) => top >= 0 && bottom <= innerHeight && scrollY === 0)(document.querySelector('.choices-of').getBoundingClientRect())`, e2e.Soon)
}
