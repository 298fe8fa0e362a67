package records

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
)

// Whenever a round commits while a pipeline is read, the pipeline has the request or its work.
func TestPipelineBesideARound(t *testing.T) {
	t.Parallel()
	for _, table := range []string{"work_requested", "work"} { // of whose reading the round comes just before
		t.Run(table, func(t *testing.T) {
			t.Parallel()
			pool := withTask(t)
			config := pool.Config()
			config.MaxConns = 1 // on which the statements are prepared: that would wait for the lock, too
			calls, err := pgxpool.NewWithConfig(t.Context(), config)
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(calls.Close)
			rs := New(pg.Router{Calls: calls}, nil)
			if p, err := rs.Pipeline(t.Context(), assign.Holder{User: "oliver"}); err != nil || len(p.Requests)+len(p.Work) != 0 {
				t.Fatal(p, err)
			}
			var request int64
			if err := pool.QueryRow(t.Context(), `
insert into getwork.work_requested (task_id, user_name, wanted, requested) select id, 'oliver', 1, 1 from getwork.task where id > 0 returning id`).Scan(&request); err != nil {
				t.Fatal(err)
			}
			round, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := round.Exec(t.Context(), `lock table getwork.`+table+` in access exclusive mode`); err != nil {
				t.Fatal(err)
			}
			read := make(chan assign.Pipeline, 1)
			go func() {
				p, err := rs.Pipeline(t.Context(), assign.Holder{User: "oliver"})
				if err != nil {
					t.Error(err)
				}
				read <- p
			}()
			for schematest.LockWaits(t, pool) == 0 {
				<-time.After(time.Millisecond)
			}
			for _, statement := range []string{
				`update getwork.work_requested set state = 'assigned', assigned = 1, completed_at = clock_timestamp() where id = $1`,
				`insert into getwork.work (task_id, item, user_name, request_id) select task_id, 'x', user_name, id from getwork.work_requested where id = $1`,
			} {
				if _, err := round.Exec(t.Context(), statement, request); err != nil {
					t.Fatal(err)
				}
			}
			if err := round.Commit(t.Context()); err != nil {
				t.Fatal(err)
			}
			if p := <-read; len(p.Requests)+len(p.Work) == 0 {
				t.Error("the pipeline has neither the request nor its work")
			}
		})
	}
}

// A plan that was made while nobody waited and nothing was held reads no others' rows when thousands do.
func TestPipelinesReadTheirOwn(t *testing.T) {
	t.Parallel()
	pool := withTask(t)
	rs := New(pg.Router{Calls: pool}, nil)
	for table, statement := range map[string]string{"work_requested": selectPipelineRequests, "work": selectPipelineWork} {
		t.Run(table, func(t *testing.T) {
			tx, err := pool.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer tx.Rollback(t.Context())
			count := func() (read int) {
				t.Helper()
				rows, err := tx.Query(t.Context(), rs.sql(statement), []string{"user 1", "user 2", "user 2"})
				if err != nil {
					t.Fatal(err)
				}
				found, err := pgx.CollectRows(rows, func(pgx.CollectableRow) (struct{}, error) { return struct{}{}, nil })
				if err != nil {
					t.Fatal(err)
				}
				if err := tx.QueryRow(t.Context(), `
select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_xact_user_tables where relid = $1::regclass`, "getwork."+table).Scan(&read); err != nil {
					t.Fatal(err)
				}
				if want := min(2, read); len(found) != want {
					t.Fatalf("%d rows of two users", len(found))
				}
				return read
			}
			for _, sql := range []string{pg.OwnPlans, `set local plan_cache_mode = force_generic_plan`} {
				if _, err := tx.Exec(t.Context(), sql); err != nil {
					t.Fatal(err)
				}
			}
			before := count()
			if _, err := tx.Exec(t.Context(), map[string]string{
				"work_requested": `
insert into getwork.work_requested (task_id, user_name, wanted, requested) select t.id, 'user ' || i, 1, 1 from getwork.task t, generate_series(1, 2000) i where t.id > 0`,
				"work": `
insert into getwork.work (task_id, item, user_name) select t.id, i, 'user ' || i from getwork.task t, generate_series(1, 2000) i where t.id > 0`,
			}[table]); err != nil {
				t.Fatal(err)
			}
			if read := count() - before; read > 10 {
				t.Errorf("it read %d rows, of which two were the users'", read)
			}
		})
	}
}
