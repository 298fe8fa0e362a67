package bench

import (
	"slices"
	"strings"
	"testing"
)

// TestCheckFinds breaks, one after the other, each promise that is checked.
func TestCheckFinds(t *testing.T) {
	ctx := t.Context()
	e := testEnv(t)
	s, leave, err := e.stage(ctx, 1)
	if err != nil {
		t.Fatal(err)
	}
	defer leave()
	u, err := s.shelfFor(ctx, "checked", 3, 100)
	if err != nil {
		t.Fatal(err)
	}
	defer u.close()
	for range 5 {
		if _, err := u.click(); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.check(ctx, "checked", slices.Clone(u.items)); err != nil {
		t.Fatalf("nothing is wrong, and the check says: %v", err)
	}
	finds := func(what string, items ...int64) {
		t.Helper()
		if err := s.check(ctx, "checked", items); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("the check says %v, want %q", err, what)
		}
	}
	exec := func(statement string) {
		t.Helper()
		if err := s.exec(ctx, statement); err != nil {
			t.Fatal(err)
		}
	}
	finds("twice", append(slices.Clone(u.items), u.items[4])...)
	finds("or others", slices.Clone(u.items[1:])...)
	finds("or others", append(slices.Clone(u.items[1:]), 99)...)
	exec(`update getwork.work set rank = 19 - rank`)
	finds("went past", slices.Clone(u.items)...)
	exec(`update getwork.work set rank = 19 - rank`)
	exec(`insert into getwork.work_requested (task_id, user_name, wanted, requested) select min(id), 'forgotten', 1, 1 from getwork.task`)
	finds("never answered", slices.Clone(u.items)...)
}
