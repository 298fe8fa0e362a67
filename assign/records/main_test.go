package records

import (
	"os"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/schema/schematest"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

// withTask returns a database that has the task "verify".
func withTask(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), schematest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	for _, statement := range []string{`
with task as (insert into getwork.task default values returning id),
v as (insert into getwork.task_version (task_id, version, name, created_by) select id, 1, 'verify', 'mia' from task returning task_id)
select from v`, `insert into getwork.task_state (task_id, name, version) select id, 'verify', 1 from getwork.task where id > 0`} {
		if _, err := pool.Exec(t.Context(), statement); err != nil {
			t.Fatal(err)
		}
	}
	return pool
}
