package engine

import (
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/schema/schematest"
)

// A click's statements are planned a few times in a session, and no more. Planning takes longer than all else that PostgreSQL does
// for one click, and a number in LIMIT is enough to have it done each time.
func TestClicksArePlannedOnce(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	newTask(t, n, "shelf", `select i as item from generate_series(1, 20000) i order by i`, func(s *assign.Settings) {
		s.MaxCandidates, s.FreshFor = 20_000, assign.Duration(time.Hour)
	})
	newInbox(t, n, "inbox", nil)
	items := make([]string, 5000)
	for i := range items {
		items[i] = fmt.Sprintf("item %d", i)
	}
	n.push(t, "inbox", items...)
	n.endedRequest(t, n.click(t, "shelf", "first", 1).ID)
	db := pool(t, url)
	shown := logIn(t, db, "ann")
	execute(t, db, `insert into getwork.principal (name, name_key, iss, sub, kind, role) select i, i, 'bank', i, 'person', 'worker' from generate_series(1, 5000) i`)
	execute(t, db, `insert into getwork.session (id, public_id, principal, role, ends_at)
		select sha256(convert_to(p.name, 'UTF8')), p.name, p.id, 'worker', clock_timestamp() + interval '10 hours' from getwork.principal p`)
	execute(t, db, `analyze`)
	for i := range 60 {
		for _, task := range []string{"shelf", "inbox"} {
			if r := n.click(t, task, fmt.Sprint("user ", i), 1+i%3); r.State != assign.Assigned {
				t.Fatalf("%+v", r)
			}
			c := assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1, Credential: shown, Groups: []string{"desk"}}
			if r, err := n.GetWork(t.Context(), task, c); err != nil || r.State != assign.Assigned {
				t.Fatalf("%+v, %v", r, err)
			}
		}
	}
	schematest.PlannedOnce(t, n.pools.API)
}

// A limit is never too small, at most a quarter too large, and one of few.
func TestAtMost(t *testing.T) {
	t.Parallel()
	few := map[int]bool{}
	for n := 1; n <= 1<<16; n++ {
		_, most := atMost(n)
		if most < n || 4*most > 5*n {
			t.Fatalf("%d for %d", most, n)
		}
		few[most] = true
	}
	if limit, _ := atMost(9); limit != "\nlimit 10" || len(few) > 4*16 {
		t.Errorf("%q, and %d limits", limit, len(few))
	}
}

// A click reads no more of the shelf than it asks for, by one of few statements, and by a plan that is kept.
func TestBestOfTheShelf(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item from generate_series(1, 5000) i order by i`, func(s *assign.Settings) {
		s.MaxCandidates, s.FreshFor = 5000, assign.Duration(time.Hour)
	}).ID
	n.endedRequest(t, n.click(t, "task", "ann", 1).ID)
	execute(t, db, `analyze`)
	few := map[string]bool{}
	for k := 1; k < 1<<16; k++ {
		few[best(selectShelfPrefetch, k)] = true
	}
	if len(few) > 6 {
		t.Errorf("%d statements", len(few))
	}
	conn, err := db.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Release()
	if _, err := conn.Exec(t.Context(), strings.ReplaceAll(pg.OwnPlans, "set local", "set")); err != nil {
		t.Fatal(err)
	}
	for i := range 30 {
		for _, k := range []int{1 + i, 100 + 10*i, 600 + 40*i} {
			rows, err := conn.Query(t.Context(), best(selectShelfPrefetch, k), task, k)
			if err != nil {
				t.Fatal(err)
			}
			ranks, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (int64, error) {
				o, err := scanOffer(row)
				return o.cand.Rank, err
			})
			if err != nil || len(ranks) != k || ranks[0] != 2 || ranks[k-1] != int64(k)+1 {
				t.Fatalf("%d offers, from rank %d to %d (%v), want %d from 2 on", len(ranks), ranks[0], ranks[len(ranks)-1], err, k)
			}
		}
	}
	var often int
	if err := conn.QueryRow(t.Context(), `select coalesce(max(custom_plans), 0) from pg_prepared_statements where statement like '%getwork.candidate%'`).Scan(&often); err != nil || often > 5 {
		t.Errorf("a statement is planned %d times (%v)", often, err)
	}
}

// What is held is looked up by item also by a plan that was made while the table was nearly empty. Until the table's first analyze
// such a plan serves everybody, and by the index of holders each search would read all that is held.
func TestHeldByItemWithoutStatistics(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", numbers, nil).ID
	for _, held := range []int{0, 1, 60} {
		execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, 'held ' || $2::integer || '-' || i, 'ann' from generate_series(1, $2) i`, task, held)
		for _, c := range []struct {
			sql  string
			args []any
		}{
			{`select w.id from unnest($2::text[]) c (item) cross join lateral (select w.id from ` + records.Binding + ` w where w.task_id = $1 and w.item = c.item) w`, []any{task, []string{"a", "b"}}},
			{selectNamed, []any{task, []int64{task + 1}, "a", 1, nil, nil, nil, false, 0}}, // as does a conflict with another task
		} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				var plan string
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), pg.OwnPlans+`; set local plan_cache_mode = `+mode); err != nil {
						return err
					}
					return tx.QueryRow(t.Context(), `explain (format json) `+n.SQL(c.sql), c.args...).Scan(&plan)
				})
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(plan, `"work_held_slot"`) || strings.Contains(plan, `"work_holder"`) {
					t.Errorf("%d held, %s:\n%s", held, mode, plan)
				}
			}
		}
	}
}

// A call about many works looks each up, also while next to nothing seems to be held. Otherwise it would compare each with all that
// anybody holds.
func TestManyAreLookedUp(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newInbox(t, n, "task", nil)
	execute(t, db, `insert into getwork.item (task_id, item, pushed_by) select $1, i, 'ann' from generate_series(1, 2000) i`, task.ID)
	execute(t, db, `insert into getwork.work (task_id, item, user_name, state, closed_at, closed_xid)
		select $1, i, 'ann', 'completed', clock_timestamp(), pg_current_xact_id() from generate_series(1, 2000) i`, task.ID)
	ids := make([]int64, 200)
	for i := range ids {
		ids[i] = int64(i + 1)
	}
	compared := regexp.MustCompile(`"Join Filter": "[^"]*\b(id|item) = `)
	states, flags := make([]string, len(ids)), make([]bool, len(ids))
	for _, statistics := range []string{`select 1`, `analyze`} {
		execute(t, db, statistics)
		for _, c := range []struct {
			sql  string
			args []any
		}{
			{closeMany, []any{ids, states, make([]*int64, len(ids)), flags, make([]*string, len(ids)), make([]*string, len(ids)), false, "ann", make([]*string, len(ids)), make([]*string, len(ids)), make([]*int, len(ids)), ""}},
			{extendMany, []any{ids, "ann", ""}},
		} {
			for _, mode := range []string{"force_custom_plan", "force_generic_plan"} {
				var plan string
				err := pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
					if _, err := tx.Exec(t.Context(), pg.OwnPlans+`; set local plan_cache_mode = `+mode); err != nil {
						return err
					}
					return tx.QueryRow(t.Context(), `explain (format json) `+n.SQL(c.sql), c.args...).Scan(&plan)
				})
				if err != nil {
					t.Fatal(err)
				}
				if !strings.Contains(plan, `"work_pkey"`) || compared.MatchString(plan) {
					t.Errorf("%s, %s:\n%s", statistics, mode, plan)
				}
			}
		}
	}
}
