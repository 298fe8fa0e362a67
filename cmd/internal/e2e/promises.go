package e2e

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/schema/schematest"
)

// The tests of package story tell the stories that getwork is made for, each on three real nodes. At the end they check
// in the tables what must always hold.

// Exec executes a statement past the nodes, as the application does that owns the items.
func (s *Site) Exec(sql string, args ...any) {
	s.T.Helper()
	if _, err := s.DB.Exec(s.T.Context(), sql, args...); err != nil {
		s.T.Fatal(err)
	}
}

// Create creates a task with these settings.
func (s *Site) Create(settings map[string]any) {
	s.T.Helper()
	if err := s.As("mary", 0).CreateTask(s.T.Context(), settings); err != nil {
		s.T.Fatal(err)
	}
}

// Got clicks for a user, waits until the request has ended, and returns it.
func (s *Site) Got(who cluster.Client, task string, count int) assign.Request {
	s.T.Helper()
	r, a, err := who.GetWork(s.T.Context(), task, count, "Prefer", "wait=60")
	if err != nil || a.Status != 201 {
		s.T.Fatalf("click of %s on %s: %d %s, %v", who.User, task, a.Status, a.Body, err)
	}
	return r
}

// Disposed lets go of work, and fails the test if that is refused.
func (s *Site) Disposed(who cluster.Client, w assign.Work, outcome, after string) assign.Work {
	s.T.Helper()
	closed, a, err := who.Dispose(s.T.Context(), w.ID, outcome, after)
	if err != nil || a.Status != 200 {
		s.T.Fatalf("%s lets go of %s as %s: %d %s, %v", who.User, w.Item, outcome, a.Status, a.Body, err)
	}
	return closed
}

// SendHome has a manager cancel all waiting requests.
func (s *Site) SendHome() {
	s.T.Helper()
	mary := s.As("mary", 0)
	mary.Role = "manager"
	Await(s.T, "nobody waits", 30*time.Second, func() bool {
		waiting := Column[int64](s, `select id from getwork.work_requested where state = 'pending'`)
		for _, id := range waiting {
			if _, a, err := mary.Cancel(s.T.Context(), id); err != nil || a.Status != 200 && a.Status != 409 {
				s.T.Fatalf("cancel request %d: %d %s, %v", id, a.Status, a.Body, err)
			}
		}
		return len(waiting) == 0
	})
}

// Keys returns the items of work, in order.
func Keys(work []assign.Work) []string {
	items := []string{}
	for _, w := range work {
		items = append(items, w.Item)
	}
	return items
}

// Why returns a request's reason, or "".
func Why(r assign.Request) assign.Reason {
	if r.Reason == nil {
		return ""
	}
	return *r.Reason
}

// DatabaseAt returns the URL of a database whose sessions begin transactions at that isolation level unless they set
// another.
func DatabaseAt(t *testing.T, level string) string {
	t.Helper()
	url := schematest.URL(t)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	var name string
	if err := conn.QueryRow(t.Context(), `select quote_ident(current_database())`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), fmt.Sprintf(`alter database %s set default_transaction_isolation = '%s'`, name, level)); err != nil {
		t.Fatal(err)
	}
	return url
}

// breaches returns whatever must never be found in the tables, each as text that names its place.
var breaches = map[string]string{
	"a place was held by two at a time": `
select a.item from getwork.work a join getwork.work b using (task_id, item, slot)
where a.id < b.id and a.assigned_at < coalesce(b.closed_at, 'infinity') and b.assigned_at < coalesce(a.closed_at, 'infinity')`,
	"an item was held twice by one holder at a time": `
select a.item from getwork.work a join getwork.work b using (task_id, item, user_name, instance)
where a.id < b.id and a.assigned_at < coalesce(b.closed_at, 'infinity') and b.assigned_at < coalesce(a.closed_at, 'infinity')`,
	"two of a group were held at a time": `
select a.item || ' and ' || b.item from getwork.work a join getwork.work b using (task_id, exclusive)
where a.id < b.id and a.assigned_at < coalesce(b.closed_at, 'infinity') and b.assigned_at < coalesce(a.closed_at, 'infinity')`,
	"it came back though put off or never to": `
select b.item from getwork.work a join getwork.work b using (task_id, item)
where a.id < b.id and a.state in ('returned', 'failed', 'never') and b.assigned_at < coalesce(a.available_at, 'infinity')
  and (a.user_name = b.user_name or (select max(w.slot) from getwork.work w where w.task_id = a.task_id and w.item = a.item) = 1
    and not exists (select from getwork.task_version v where v.task_id = a.task_id and v.done_by > 1))`,
	"a lease ended early": `
select item from getwork.work where state = 'expired' and closed_at < lease_expires_at`,
	"work was let go of after its lease": `
select item from getwork.work where state in ('completed', 'failed') and closed_at >= lease_expires_at`, // never later: it is cut off there
	"a request still waits": `
select user_name || ' ' || id from getwork.work_requested where state = 'pending'`,
	"a request says that it got something else": `
select r.user_name || ' ' || r.id from getwork.work_requested r
where r.assigned <> (select count(*) from getwork.work w where w.request_id = r.id)`,
	"an inbox says that an item is free which is held": `
select i.item from getwork.item i join getwork.work w using (task_id, item)
where i.done_at is null and i.due_at is null and i.slots is null and w.state = 'held' and w.slot = 1`,
}

// Promises checks in the tables what must always hold. Everybody must be done.
func (s *Site) Promises() {
	s.T.Helper()
	for what, sql := range breaches {
		if where := Column[string](s, sql); len(where) > 0 {
			s.T.Errorf("%s: %v", what, where)
		}
	}
}

// InOrder checks that in each round of a task requests were served in order, each with the best items.
func (s *Site) InOrder(task string) {
	s.T.Helper()
	wrong := Column[string](s, `
select a.user_name || ' before ' || b.user_name
from getwork.work_requested a join getwork.work_requested b using (task_id, round_id) join getwork.task_state t using (task_id)
where t.name = $1 and a.id < b.id and a.assigned > 0 and b.assigned > 0
  and (select max(rank) from getwork.work where request_id = a.id) > (select min(rank) from getwork.work where request_id = b.id)`, task)
	if len(wrong) > 0 {
		s.T.Errorf("the first requests did not get the best items: %v", wrong)
	}
}

// Takes has a user get work of that many items, and returns it.
func (s *Site) Takes(user string, count int) []assign.Work {
	s.T.Helper()
	r, a, err := s.As(user, 0).GetWork(s.T.Context(), "verify", count, "Prefer", "wait=20")
	if err != nil || len(r.Work) != count {
		s.T.Fatalf("%s asked for %d: %d %s %v", user, count, a.Status, a.Body, err)
	}
	return r.Work
}
