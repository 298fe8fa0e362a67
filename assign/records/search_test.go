package records

import (
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
)

// A search that takes too long is given up, and says what to do. More than two at a time are not begun.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	pool := withTask(t)
	rs := New(pg.Router{Calls: pool}, nil)
	search := func() error {
		_, err := rs.WorkHistory(t.Context(), assign.WorkFilter{Task: "verify", Value: "x", Limit: 1})
		return err
	}
	if err := search(); err != nil {
		t.Error(err)
	}
	rs.patience = 50 * time.Millisecond
	lock, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := lock.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	if err := search(); !assign.IsRefusal(err, assign.Invalid) || !strings.Contains(err.Error(), "narrow it") {
		t.Errorf("a search that waits: %v", err)
	}
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	rs.patience = searchPatience
	rs.searches <- struct{}{}
	rs.searches <- struct{}{}
	if err := search(); !assign.IsRefusal(err, assign.Busy) {
		t.Errorf("a third search: %v", err)
	}
	<-rs.searches
	if err := search(); err != nil {
		t.Error(err)
	}
}
