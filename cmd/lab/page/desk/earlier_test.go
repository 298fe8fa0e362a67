package desk

import (
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// The desk says that work is late, and how others let go of its item before; the floor and the list of tasks count what is late.
func TestPageLateAndEarlier(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	s.Task("verify", `select 'loan' as item, now() - interval '2 days' as deadline`)
	s.Takes("Tracy", 1)
	s.Exec(`update getwork.work set state = 'returned', closed_at = clock_timestamp(), closed_by = 'Tracy', closed_xid = pg_current_xact_id(), note = 'no answer',
  after = '0', available_at = clock_timestamp()`)
	s.Takes("Oliver", 1)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.Shows(".sheet .due", "Late for")
	b.Shows(".sheet .earlier li", "no answer")
	b.Audit(t)
	b.Visit(s.Nodes[0].URL, "/floor", "Mary,manager")
	b.Shows("[data-task=verify] .tag", "1 late")
	b.Press("[data-task=verify] th a")
	b.Shows(".facts", "To do at ")
	b.Visit(s.Nodes[0].URL, "/tasks", "Mary,manager")
	b.Shows("[data-task=verify] .tag", "1 late")
	b.Visit(s.Nodes[0].URL, "/tasks/verify", "Mary,manager")
	b.Press("#tab-access")
	b.Choose("Earlier notes", "managers only")
	b.Press("#save")
	b.Shows(".task-head", "version 2")
}
