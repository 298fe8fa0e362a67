package report

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/schema/schematest"
)

// Returns are counted by users and by items; work that a manager took away is nobody's return.
func TestReturns(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	a, b := n.newTask(t, "a", enginetest.Numbers), n.newTask(t, "b", enginetest.Numbers)
	c := chronicleOf(t, address)
	c.work(a, "ann", "1", "-2m", "returned", "1m", "") // before
	c.work(a, "ann", "1", "-1m", "returned", "1m", "") // at the border
	c.work(a, "ann", "1", "1m", "returned", "1m", "")
	c.work(a, "ann", "2", "2m", "returned", "1m", "boss") // released
	c.work(a, "ann", "3", "3m", "completed", "1m", "")
	c.work(a, "ann", "4", "4m", "completed", "1m", "boss") // for her
	c.work(a, "ann", "5", "5m", "held", "", "")
	c.work(a, "ann", "6", "-9m", "held", "", "")
	c.work(a, "bob", "2", "5m", "returned", "1m", "")
	c.work(a, "bob", "1", "6m", "returned", "2m", "")
	c.work(a, "bob", "3", "7m", "never", "1m", "")
	c.work(a, "bob", "4", "8m", "failed", "1m", "")
	c.work(a, "bob", "7", "9m", "expired", "1m", "-")
	c.work(a, "bob", "8", "9m", "reassigned", "1m", "bob")
	c.work(a, "bob", "2", "20m", "completed", "1m", "")
	c.work(b, "cyd", "1", "1m", "returned", "1m", "")
	c.work(b, "cyd", "1", "3m", "returned", "1m", "")
	c.work(b, "dan", "9", "1m", "held", "", "")

	share := func(of, all float64) *float64 { return new(of / all) }
	want := assign.Returns{From: c.from, Team: assign.TeamReturns{Closed: 11, Returned: 6, Share: share(6, 11)},
		People: []assign.PersonReturns{
			{User: "bob", Assigned: 7, Closed: 6, Completed: 1, Returned: 2, Never: 1, Failed: 1, Expired: 1, Share: share(2, 6), DonePerHour: new(1.), HandlingP50: new(60.)},
			{User: "ann", Assigned: 5, Closed: 3, Completed: 1, Returned: 2, Share: share(2, 3), DonePerHour: new(1.), HandlingP50: new(60.), Held: 2},
			{User: "cyd", Assigned: 2, Closed: 2, Returned: 2, Share: share(2, 2)},
			{User: "dan", Assigned: 1, Held: 1},
		},
		Items: []assign.ItemReturns{
			{Task: "a", Item: "1", Returns: 3, People: 2, LastAt: c.at("8m"), State: "returned"},
			{Task: "b", Item: "1", Returns: 2, People: 1, LastAt: c.at("4m"), State: "returned"},
		},
	}
	read := func(tasks ...string) assign.Returns {
		t.Helper()
		r, err := n.Returns(t.Context(), assign.Span{Tasks: tasks, Since: &c.from})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	if diff := cmp.Diff(want, read()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	c.work(a, "bob", "1", "30m", "completed", "1m", "")
	got := read("a")
	if len(got.People) != 2 || got.Team.Closed != 10 || len(got.Items) != 1 || got.Items[0].State != "completed" {
		t.Errorf("of one task: %+v", got)
	}
	enginetest.Execute(t, c.db, `update getwork.task_state set deleted_at = clock_timestamp() where name = 'b'`)
	if got := read(); len(got.People) != 2 || len(got.Items) != 1 {
		t.Errorf("with a deleted task: %+v", got)
	}

	for i := range 60 {
		for range 2 {
			c.work(a, fmt.Sprint("user ", i), fmt.Sprint("item ", i), "1m", "returned", "1m", "")
		}
	}
	if got := read(); len(got.People) != 50 || len(got.Items) != 50 || got.Team.Returned != 124 {
		t.Errorf("of many: %d people, %d items, %d returned", len(got.People), len(got.Items), got.Team.Returned)
	}
	if r, err := n.Returns(t.Context(), assign.Span{Tasks: []string{"a"}}); err != nil || r.Team.Returned != 125 {
		t.Errorf("of the last 24 hours: %+v, %v", r.Team, err)
	}
}

// Codes are counted by who closed work, by what was returned, and by task.
func TestCodesAreCounted(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	a, b := n.newTask(t, "a", enginetest.Numbers), n.newTask(t, "b", enginetest.Numbers)
	c := chronicleOf(t, address)
	work := func(task assign.Task, user, item, state, by, code string) {
		c.work(task, user, item, "1m", state, "1m", by)
		enginetest.Execute(t, c.db, `update getwork.work set code = $1 where id = (select max(id) from getwork.work)`, code)
	}
	work(a, "ann", "1", "returned", "", "no-answer")
	work(a, "ann", "1", "returned", "", "no-answer")
	work(a, "bob", "1", "returned", "", "busy")
	work(a, "bob", "1", "returned", "boss", "_released")
	work(a, "bob", "2", "completed", "", "sent")
	work(a, "bob", "3", "expired", "-", "_expired")
	work(b, "bob", "4", "never", "", "spam")
	c.work(a, "cyd", "5", "1m", "returned", "1m", "")
	c.work(a, "cyd", "5", "1m", "returned", "1m", "")
	r, err := n.Returns(t.Context(), assign.Span{Since: &c.from})
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]assign.Codes{}
	for _, p := range r.People {
		got[p.User] = p.Codes
	}
	for _, i := range r.Items {
		got["item "+i.Item] = i.Codes
	}
	h, err := n.History(t.Context(), assign.Span{Since: &c.from, Step: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	for _, task := range h.Tasks {
		got["task "+task.Task] = task.Codes
	}
	want := map[string]assign.Codes{"ann": {"no-answer": 2}, "bob": {"busy": 1, "sent": 1, "spam": 1, "_expired": 1}, "cyd": nil,
		"item 1": {"no-answer": 2, "busy": 1}, "item 5": nil,
		"task a": {"no-answer": 2, "busy": 1, "_released": 1, "sent": 1, "_expired": 1}, "task b": {"spam": 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// An hour in which somebody completed nothing is not an hour worked, and the present hour counts as far as it is over.
func TestPeoplesFigures(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	a, b := n.newTask(t, "a", enginetest.Numbers), n.newTask(t, "b", enginetest.Numbers)
	c := chronicleOf(t, address)
	c.from = time.Now().UTC().Add(-270 * time.Minute).Truncate(time.Microsecond)
	c.work(a, "ann", "0", "-2h", "completed", "1h", "") // before
	c.work(a, "ann", "1", "-5m", "completed", "9m", "")
	c.work(a, "ann", "2", "10m", "completed", "1m", "")
	c.work(a, "ann", "3", "59m", "completed", "59s", "")
	c.work(b, "ann", "4", "120m", "completed", "4m", "") // an hour without work is between them
	c.work(a, "ann", "5", "181m", "returned", "4m", "")
	c.work(a, "bob", "6", "241m", "completed", "1500ms", "")
	c.work(a, "bob", "7", "242m", "completed", "1500ms", "")
	c.work(a, "cyd", "8", "1m", "completed", "1m", "boss") // for her
	c.work(a, "dan", "9", "-9h", "held", "", "")

	read := func(tasks ...string) map[string]assign.PersonReturns {
		t.Helper()
		r, err := n.Returns(t.Context(), assign.Span{Tasks: tasks, Since: &c.from})
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]assign.PersonReturns{}
		for _, p := range r.People {
			found[p.User] = p
		}
		return found
	}
	all := read()
	if p := all["bob"].DonePerHour; p == nil || *p < 3 || *p > 4 {
		t.Errorf("two in half an hour: %v", p)
	}
	bob := all["bob"]
	bob.DonePerHour = nil
	all["bob"] = bob
	none := new(0.)
	want := map[string]assign.PersonReturns{
		"ann": {User: "ann", Assigned: 4, Closed: 5, Completed: 4, Returned: 1, Share: new(0.2), DonePerHour: new(2.), HandlingP50: new(60.)},
		"bob": {User: "bob", Assigned: 2, Closed: 2, Completed: 2, Share: none, HandlingP50: new(1.5)},
		"cyd": {User: "cyd", Assigned: 1},
		"dan": {User: "dan", Held: 1},
	}
	if diff := cmp.Diff(want, all); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	one := read("b")
	want = map[string]assign.PersonReturns{"ann": {User: "ann", Assigned: 1, Closed: 1, Completed: 1, Share: none, DonePerHour: new(1.), HandlingP50: new(240.)}}
	if diff := cmp.Diff(want, one); diff != "" {
		t.Errorf("of one task (-want +got):\n%s", diff)
	}
}

// Where nothing happened there are no shares.
func TestReturnsOfNothing(t *testing.T) {
	t.Parallel()
	n := start(t, schematest.URL(t))
	r, err := n.Returns(t.Context(), assign.Span{})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(assign.Returns{From: r.From, People: []assign.PersonReturns{}, Items: []assign.ItemReturns{}}, r); diff != "" {
		t.Error(diff)
	}
}
