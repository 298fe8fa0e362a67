package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/schema/schematest"
)

// An item's deadline goes with it, wherever it comes from and whatever becomes of its work, and is none of its details.
func TestDeadline(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	at := time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)
	const due = `select 'a' as item, timestamptz '2026-03-01 13:00:00.5+01' as deadline, 7 as amount union all select 'b', null, 8 order by item`
	execute(t, db, `alter database `+pgx.Identifier{db.Config().ConnConfig.Database}.Sanitize()+` set datestyle to 'german, dmy'`)
	newTask(t, n, "ranked", due, nil)
	newTask(t, n, "shelved", due, fresh(time.Hour))
	n.take(t, "shelved", "somebody else")
	n.let(t, n.take(t, "shelved", "somebody"), giveBack(0))
	execute(t, db, `delete from getwork.work`)
	execute(t, db, `update getwork.task_state set shelf_from = 1`)
	newInbox(t, n, "pushed", nil)
	n.pushItems(t, "pushed", assign.NewItem{Item: "a", Deadline: &at, Details: []byte(`{"amount":7}`)}, assign.NewItem{Item: "b", Details: []byte(`{"amount":8}`)})
	want := func(w assign.Work, user string) {
		t.Helper()
		if w.Item != "a" || w.User != user || w.Deadline == nil || !w.Deadline.Equal(at) || w.Deadline.Location() != time.UTC || string(w.Details) != `{"amount":7}` {
			t.Errorf("%s: %+v with %s, due %v", w.Task, w, w.Details, w.Deadline)
		}
	}
	for _, task := range []string{"ranked", "shelved", "pushed"} {
		e, err := n.Explain(t.Context(), task, "a")
		if err != nil || e.Deadline == nil || !e.Deadline.Equal(at) || string(e.Details) != `{"amount":7}` {
			t.Errorf("%s is explained with %s, due %v: %v", task, e.Details, e.Deadline, err)
		}
		w := n.take(t, task, "ann")
		want(w, "ann")
		read, err := n.Work(t.Context(), w.ID)
		if err != nil {
			t.Fatal(err)
		}
		want(read, "ann")
		given, err := n.Reassign(t.Context(), w.ID, assign.Reassignment{User: "bob", Force: true}, "mia")
		if err != nil {
			t.Fatal(err)
		}
		want(given, "bob")
		want(n.let(t, given, giveBack(0)), "bob")
		claimed, _, err := n.Claim(t.Context(), task, "a", who("cyd"))
		if err != nil {
			t.Fatal(err)
		}
		want(claimed, "cyd")
		n.let(t, claimed, giveBack(0))
		if task == "shelved" {
			continue // the shelf lacks what was closed since
		}
		want(n.take(t, task, "dan"), "dan")
		if w := n.take(t, task, "eve"); w.Item != "b" || w.Deadline != nil || string(w.Details) != `{"amount":8}` {
			t.Errorf("%s: %+v with %s, due %v", task, w, w.Details, w.Deadline)
		}
	}
	p, err := n.Ranker.Preview(t.Context(), "ranked", nil, 10)
	if err != nil || len(p.Rows) != 0 { // both are held
		t.Fatalf("%+v, %v", p, err)
	}
	query := assign.Query(due)
	p, err = n.Ranker.Preview(t.Context(), "shelved", &query, 10)
	if err != nil || len(p.Rows) != 2 || p.Rows[0].Deadline == nil || !p.Rows[0].Deadline.Equal(at) || p.Rows[1].Deadline != nil {
		t.Errorf("%+v, %v", p.Rows, err)
	}
}

// A column deadline of another type is a detail, as any other column.
func TestDeadlineOfAnotherType(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	for i, c := range [][2]string{
		{`date '2026-03-01'`, `{"deadline":"2026-03-01"}`},
		{`timestamp '2026-03-01 12:00'`, `{"deadline":"2026-03-01T12:00:00"}`},
		{`'soon'`, `{"deadline":"soon"}`},
		{`null`, `{"deadline":null}`},
		{`row(1, 2)`, `{"deadline":{"f1":1,"f2":2}}`},
		{`null::timestamptz`, `{}`},
		{`timestamptz 'infinity'`, `{}`},
		{`timestamptz '0044-03-15 BC'`, `{}`},
		{`timestamptz '10000-01-01 12:00+00'`, `{}`},
	} {
		task := fmt.Sprint("task-", i)
		newTask(t, n, task, `select 1 as item, `+c[0]+` as deadline`, nil)
		w := n.take(t, task, "ann")
		if w.Deadline != nil || string(w.Details) != c[1] {
			t.Errorf("%s: %s, due %v", c[0], w.Details, w.Deadline)
		}
		n.let(t, w, giveBack(0))
		if w, _, err := n.Claim(t.Context(), task, "1", who("bob")); err != nil || w.Deadline != nil || string(w.Details) != c[1] {
			t.Errorf("%s, claimed: %s, due %v: %v", c[0], w.Details, w.Deadline, err)
		}
	}
}

// A task tells how much of what is held, on its shelf or in its inbox is late, each item once, and which deadline is the next.
func TestLate(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id, clock_timestamp() + (i - 4) * interval '1 hour' as deadline from generate_series(1, 6) i`) // 1 to 4 are late
	hour := func(id int) time.Time {
		return query[time.Time](t, db, fmt.Sprintf(`select deadline from loan where id = %d`, id))
	}
	late := func(when, task string, late int64, next *time.Time) {
		t.Helper()
		got, err := n.Task(t.Context(), task)
		if err != nil {
			t.Fatal(err)
		}
		if got.Late != late || (got.NextDeadline == nil) != (next == nil) || next != nil && !got.NextDeadline.Equal(*next) {
			t.Errorf("%s, %s: %d are late, and the next is %v; want %d, %v", task, when, got.Late, got.NextDeadline, late, next)
		}
		figures, err := n.TaskFigures(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range figures {
			if f.Name == task && f.Late != int(late) {
				t.Errorf("%s, %s: the figure of what is late is %d, want %d", task, when, f.Late, late)
			}
		}
	}
	five, six := hour(5), hour(6)

	newTask(t, n, "unshelved", `select id as item, deadline from loan order by id`, nil)
	late("before a click", "unshelved", 0, nil)
	n.take(t, "unshelved", "ann")
	late("with one held", "unshelved", 1, nil)

	newTask(t, n, "shelf", `select id as item, deadline from loan order by id`, fresh(time.Hour))
	late("before a click", "shelf", 0, nil)
	w := n.take(t, "shelf", "ann")
	late("with one held", "shelf", 4, &five)
	claimed, _, err := n.Claim(t.Context(), "shelf", "3", who("bob")) // from the middle of the shelf
	if err != nil {
		t.Fatal(err)
	}
	late("with one claimed", "shelf", 4, &five)
	n.let(t, claimed, assign.Disposition{Outcome: "complete"})
	late("with that completed", "shelf", 3, &five)
	n.let(t, w, giveBack(time.Hour))
	late("with the first put off", "shelf", 2, &five)
	if _, _, err := n.Claim(t.Context(), "shelf", "5", who("bob")); err != nil {
		t.Fatal(err)
	}
	late("with the next deadline's item held", "shelf", 2, &five)
	execute(t, db, `update getwork.task_state set fresh_until = clock_timestamp() where name = 'shelf'`)
	late("with the shelf over", "shelf", 0, &five)

	newInbox(t, n, "inbox", nil)
	several, later := 3, time.Now().Add(time.Hour)
	first, second := hour(1), hour(2)
	n.pushItems(t, "inbox", assign.NewItem{Item: "one", Deadline: &first}, assign.NewItem{Item: "places", Deadline: &second, Slots: &several, Priority: 1},
		assign.NewItem{Item: "put off", Deadline: &first, NotBefore: &later}, assign.NewItem{Item: "soon", Deadline: &six}, assign.NewItem{Item: "any time"})
	late("when pushed", "inbox", 3, &six)
	w = n.take(t, "inbox", "ann")
	late("with a place held", "inbox", 3, &six)
	n.let(t, w, assign.Disposition{Outcome: "complete"})
	late("with that done", "inbox", 2, &six)
	n.let(t, n.take(t, "inbox", "ann"), assign.Disposition{Outcome: "never"})
	late("with one that never returns", "inbox", 1, &six)
}
