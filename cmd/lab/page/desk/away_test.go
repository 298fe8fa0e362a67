package desk

import (
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// Somebody says in their menu that they are away, and says in the banner that they are back. What a manager enters for them is told at
// once.
func TestPageAway(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	page.Leased(s, "1h", "a", "b")
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.Press("#who")
	b.Use("button", "Away …")
	b.Shows("dialog", "until tomorrow, 9:00")
	b.Press("dialog [type=submit]")
	b.Shows(".absent", "You are away until tomorrow, 9:00")
	if until := e2e.Column[bool](s, `select extract(second from until_at) = 0 and until_at between clock_timestamp() + interval '9 hours' and clock_timestamp() + interval '33 hours' and substitute is null from getwork.absence`); len(until) != 1 || !until[0] {
		t.Errorf("until: %v", until)
	}
	b.Press(".task .get")
	b.Sees("You are away, and get no work. Press “I’m back” first.")
	b.Use("button", "I’m back")
	b.Await(`!document.querySelector('.absent .banner')`, e2e.Soon)
	b.Press(".task .get")
	b.Works(2, e2e.Soon)
	page.Manages(s, "POST", "/absences", map[string]any{"user": "Oliver"})
	b.Shows(".absent", "You are away, and get no work.")
	b.Shows(".absent", "has entered it.")
	b.Works(2, e2e.Soon) // the task keeps it
	b.Audit(t)
	m := b.Window()
	m.Manager(s.Nodes[0].URL, "Mia", "/floor")
	m.Shows("[data-part=absent]", "Oliver")
	m.Shows("[data-part=absent]", "2 of ")
	m.Use("button", "End the absence of Oliver")
	m.Await(`!document.querySelector('[data-part=absent]')`, e2e.Soon)
	b.Await(`!document.querySelector('.absent .banner')`, e2e.Soon)
}
