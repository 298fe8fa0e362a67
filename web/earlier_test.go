package web

import (
	"fmt"
	"strings"
	"testing"

	"getwork/assign"
)

// Whoever holds an item sees how others let go of it before, and so do managers, and observers without the notes; nobody else, and no
// holder of a task that keeps notes for managers.
func TestEarlier(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select 'loan' as item", "")
	n.newTask(t, "other", "select 'loan' as item", "")
	other := n.take(t, "other", "oliver", 1)[0]
	n.call(t, "POST", workPath(other, "disposition"), as("oliver"), `{"outcome":"complete","note":"under another task"}`).want(200)
	path := func(w assign.Work) string { return fmt.Sprintf("/api/v1/work/%d", w.ID) }
	earlier := func(w assign.Work, h headers) string {
		t.Helper()
		r := n.call(t, "GET", path(w), h, "").want(200)
		got := read[assign.Work](r)
		if has := strings.Contains(r.body, `"earlier":`); has != (got.Earlier != nil) {
			t.Errorf("%s", r.body)
		}
		if got.Earlier == nil {
			return "hidden"
		}
		var all []string
		for _, e := range got.Earlier {
			text := e.User + " " + string(e.State)
			if e.Note != nil {
				text += " " + *e.Note
			}
			all = append(all, text)
		}
		return strings.Join(all, ", ")
	}
	first := n.take(t, "verify", "ann", 1)[0]
	if first.Again {
		t.Errorf("nobody had it before: %+v", first)
	}
	if got := earlier(first, as("ann")); got != "" {
		t.Errorf("before anybody let go of it: %q", got)
	}
	n.call(t, "POST", workPath(first, "disposition"), as("ann"), `{"outcome":"return","after":"0s","note":"no answer"}`).want(200)
	second := n.take(t, "verify", "bob", 1)[0]
	n.call(t, "POST", workPath(second, "disposition"), as("bob"), `{"outcome":"fail","error":"broken","note":"twice"}`).want(200)
	n.exec(t, `update getwork.work set available_at = clock_timestamp() where state = 'failed'`)
	w := n.take(t, "verify", "cyd", 1)[0]
	if !second.Again || !w.Again {
		t.Errorf("others had it before: %+v, %+v", second, w)
	}
	if list := read[struct{ Work []assign.Work }](n.call(t, "GET", "/api/v1/pipeline", as("cyd"), "").want(200)); !list.Work[0].Again || list.Work[0].Earlier != nil {
		t.Errorf("in the pipeline: %+v", list.Work[0])
	}
	const all, without = "bob failed twice, ann returned no answer", "bob failed, ann returned"
	observer := as("olga", "X-Getwork-Role", "observer")
	for who, h := range map[string]headers{all: as("cyd"), all + " ": manager(), without: observer} {
		if got := earlier(w, h); got != strings.TrimSpace(who) {
			t.Errorf("%v sees %q, want %q", h, got, who)
		}
	}
	n.call(t, "GET", path(w), as("ann"), "").refused(404, "not-found")
	n.call(t, "GET", path(w), as("robot", "X-Getwork-Role", "agent"), "").refused(404, "not-found")
	if got := earlier(first, as("ann")); got != "hidden" {
		t.Errorf("who does not hold it any more sees %q", got)
	}
	if got := earlier(first, manager()); got != "bob failed twice" {
		t.Errorf("of the first a manager sees %q", got)
	}

	n.call(t, "PATCH", "/api/v1/tasks/verify", as("mia", "X-Getwork-Role", "manager", "If-Match", `"1"`), `{"notes":"nobody"}`).refused(400, "invalid", "notes")
	n.call(t, "PATCH", "/api/v1/tasks/verify", as("mia", "X-Getwork-Role", "manager", "If-Match", `"1"`), `{"notes":null}`).refused(400, "invalid", "notes")
	n.call(t, "PATCH", "/api/v1/tasks/verify", as("mia", "X-Getwork-Role", "manager", "If-Match", `"1"`), `{"notes":"managers"}`).want(200)
	for who, h := range map[string]headers{"hidden": as("cyd"), all: manager(), without: observer} {
		if got := earlier(w, h); got != who {
			t.Errorf("with notes for managers %v sees %q, want %q", h, got, who)
		}
	}
	n.exec(t, `update getwork.task_version set notes = null`) // by a node that does not know of them
	if got := earlier(w, as("cyd")); got != all {
		t.Errorf("without the setting the holder sees %q", got)
	}

	n.exec(t, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid) select (select task_id from getwork.work where id = $1), 'loan', 'eve ' || i, 'completed', clock_timestamp(), pg_current_xact_id() from generate_series(1, 20) i`, w.ID)
	if got := earlier(w, manager()); strings.Count(got, ",") != 9 || !strings.HasPrefix(got, "eve 20 completed, ") {
		t.Errorf("of twenty more a manager sees %q", got)
	}
}
