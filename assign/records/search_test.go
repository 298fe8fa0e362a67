package records

import (
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// A search that takes too long is given up, and says what to do. More than two at a time are not begun.
func TestSearchIsBounded(t *testing.T) {
	t.Parallel()
	pool, err := pgxpool.New(t.Context(), schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	if _, err := pool.Exec(t.Context(), `
with task as (insert into getwork.task default values returning id),
v as (insert into getwork.task_version (task_id, version, name, created_by) select id, 1, 'verify', 'mia' from task returning task_id)
select from v`); err != nil {
		t.Fatal(err)
	}
	if _, err := pool.Exec(t.Context(), `insert into getwork.task_state (task_id, name, version) select id, 'verify', 1 from getwork.task`); err != nil {
		t.Fatal(err)
	}
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
