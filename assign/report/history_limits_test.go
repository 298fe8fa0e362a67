package report

import (
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/enginetest"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

func TestHistoryRefused(t *testing.T) {
	t.Parallel()
	address := schematest.URL(t)
	n := start(t, address)
	db := enginetest.Pool(t, address)
	n.newTask(t, "a", enginetest.Numbers)
	ago := func(d time.Duration) *time.Time { return new(time.Now().Add(-d)) }
	for name, one := range map[string]struct {
		span assign.Span
		kind assign.Kind
	}{
		"no such task":          {assign.Span{Tasks: []string{"a", "nothing"}}, assign.NotFound},
		"no name":               {assign.Span{Tasks: []string{"\x00"}}, assign.NotFound},
		"an empty name":         {assign.Span{Tasks: []string{"a", ""}}, assign.NotFound},
		"too short a step":      {assign.Span{Step: 9 * time.Second}, assign.Invalid},
		"a step of a fraction":  {assign.Span{Step: 10*time.Second + 1}, assign.Invalid},
		"too long a step":       {assign.Span{Step: 24*time.Hour + time.Second}, assign.Invalid},
		"a negative step":       {assign.Span{Step: -time.Hour}, assign.Invalid},
		"too many steps":        {assign.Span{Since: ago(7 * 24 * time.Hour), Step: 10 * time.Minute}, assign.Invalid},
		"the future":            {assign.Span{Since: ago(-time.Minute)}, assign.Invalid},
		"too long ago":          {assign.Span{Since: ago(8 * 24 * time.Hour), Step: 90 * time.Minute}, assign.Invalid},
		"the beginning of time": {assign.Span{Since: new(time.Time{}), Step: time.Hour}, assign.Invalid},
		"the epoch":             {assign.Span{Since: new(time.Unix(0, 0)), Step: time.Hour}, assign.Invalid},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := n.History(t.Context(), one.span)
			enginetest.WantKind(t, err, one.kind)
		})
	}
	if h, err := n.History(t.Context(), assign.Span{Since: ago(7 * 24 * time.Hour), Step: 11 * time.Minute}); err != nil || len(h.Tasks[0].Buckets) != 917 {
		t.Errorf("seven days: %d, %v", len(h.Tasks), err)
	}

	enginetest.Execute(t, db, `
insert into getwork.task select from generate_series(1, 1000);
insert into getwork.task_version (task_id, version, name, query, created_by) select id, 1, 'task-' || id, 'select 1', 'x' from getwork.task where id > 1;
insert into getwork.task_state (task_id, name, version) select id, 'task-' || id, 1 from getwork.task where id > 1`)
	_, err := n.History(t.Context(), assign.Span{Step: 10 * time.Minute})
	enginetest.WantKind(t, err, assign.Invalid)
	for step, span := range map[time.Duration]assign.Span{20 * time.Minute: {}, 12 * time.Hour: {Since: ago(7 * 24 * time.Hour)}} {
		if h, err := n.History(t.Context(), span); err != nil || len(h.Tasks) != 1001 || time.Duration(h.Step) != step {
			t.Errorf("a thousand tasks: %d in steps of %v, %v, want steps of %v", len(h.Tasks), h.Step, err, step)
		}
	}
	enginetest.Execute(t, db, `update getwork.task_state set deleted_at = clock_timestamp() where name like 'task-%'`)
	if h, err := n.History(t.Context(), assign.Span{}); err != nil || len(h.Tasks) != 1 || time.Duration(h.Step) != 5*time.Minute {
		t.Errorf("the others deleted: %d, %v", len(h.Tasks), err)
	}
	_, err = n.History(t.Context(), assign.Span{Tasks: []string{"task-2"}})
	enginetest.WantKind(t, err, assign.NotFound)
}

// A count that takes too long is given up and refused; the next caller need not wait for it.
func TestHistoryTakesTooLong(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	address := schematest.URL(t)
	n := start(t, address+"&lock_timeout=300ms")
	db := enginetest.Pool(t, address)
	a := n.newTask(t, "a", enginetest.Numbers)
	c := chronicleOf(t, address)
	c.run(a, "1s", "1s", "finished")
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(t.Context()) }()
	if _, err := tx.Exec(t.Context(), `lock table getwork.run in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	_, err = n.History(t.Context(), assign.Span{Since: &c.from})
	if p, _ := pg.ProblemOf(err); p.Status != 503 {
		t.Errorf("behind a lock: %v", err)
	}
	if err := tx.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	enginetest.Execute(t, db, `
alter table getwork.run rename to run_itself;
create view getwork.run as select u.* from getwork.run_itself u, pg_sleep(60)`)
	_, err = n.History(t.Context(), assign.Span{Since: &c.from})
	enginetest.WantKind(t, err, assign.Unavailable)
	enginetest.Execute(t, db, `drop view getwork.run; alter table getwork.run_itself rename to run`)
	c.history(n, time.Minute)
}
