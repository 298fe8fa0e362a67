package engine

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A task's backlog is what its last run found, and what of it was free, whatever is handed out afterwards.
func TestBacklog(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id, timestamptz '2026-03-01 12:00:00.5+00' + i * interval '1 day' as since from generate_series(1, 5) i`)
	newTask(t, n, "verify", `select id as item, since from loan union all (select null, null) order by item`, fresh(time.Hour))
	backlog := func() string {
		t.Helper()
		task, err := n.Task(t.Context(), "verify")
		if err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(task.Backlog)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	if got := backlog(); got != "null" {
		t.Errorf("before the first run it is %s", got)
	}
	found := func(found, free int, oldest string) string {
		t.Helper()
		asOf := query[time.Time](t, db, `select started_at from getwork.run order by id desc limit 1`)
		return fmt.Sprintf(`{"found":%d,"free":%d,"as_of":%q,"oldest":%s}`, found, free, asOf.UTC().Format(time.RFC3339Nano), oldest)
	}
	n.take(t, "verify", "ann")
	first := found(5, 5, `"2026-03-02T12:00:00.5Z"`)
	if got := backlog(); got != first {
		t.Errorf("after a run it is %s, want %s", got, first)
	}
	n.take(t, "verify", "bob") // from the shelf
	if got := backlog(); got != first {
		t.Errorf("after a click it is %s, want %s", got, first)
	}
	for _, c := range []struct {
		column, oldest string
		most           int
	}{
		{`since`, `"2026-03-04T12:00:00.5Z"`, 1000}, // ann's and bob's are held
		{`since`, `"2026-03-04T12:00:00.5Z"`, 1},    // also if they are not kept
		{`since::timestamp as since`, `null`, 1000},
		{`since::text as since`, `null`, 1000},
		{`'infinity'::timestamptz as since`, `null`, 1000},
		{`null::timestamptz as since`, `null`, 1000},
	} {
		if _, err := n.change(t, "verify", func(s *assign.Settings) {
			s.Query, s.MaxCandidates, s.FreshFor = assign.Query(`select id as item, `+c.column+` from loan order by loan.since desc`), c.most, 0
		}); err != nil {
			t.Fatal(err)
		}
		w := n.take(t, "verify", "cyd")
		if got, want := backlog(), found(5, 3, c.oldest); got != want {
			t.Errorf("with %s it is %s, want %s", c.column, got, want)
		}
		if details := w.Details; c.oldest != "null" && string(details) != `{"since":"2026-03-06T12:00:00.5+00:00"}` {
			t.Errorf("since is no detail of %s any more", details)
		}
		n.let(t, w, giveBack(0))
	}
}

// An inbox's backlog is what is ready in it.
func TestBacklogOfAnInbox(t *testing.T) {
	t.Parallel()
	n := startNode(t, schematest.URL(t), nodeOptions{})
	newInbox(t, n, "scan", nil)
	later := time.Now().Add(time.Hour)
	n.pushItems(t, "scan", assign.NewItem{Item: "a"}, assign.NewItem{Item: "b"}, assign.NewItem{Item: "c"}, assign.NewItem{Item: "d", NotBefore: &later})
	n.take(t, "scan", "ann")
	task, err := n.Task(t.Context(), "scan")
	if err != nil {
		t.Fatal(err)
	}
	if task.Backlog == nil || *task.Backlog != (assign.Backlog{Found: 2, Free: 2}) {
		t.Errorf("it is %+v", task.Backlog)
	}
}
