package engine

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/schema/schematest"
)

// loans makes four loans; number 3 is no longer to be checked.
const loans = `create table loan (id bigint primary key, ok boolean); insert into loan select i, i <> 3 from generate_series(1, 4) i`

// okLoans are the loans that still match.
const okLoans = assign.Query(`select id as item from loan where id = any($1::bigint[]) and ok -- as they come`)

// asking returns a task's settings as far as a recheck depends on them.
func asking(recheck string) assign.Settings {
	s := assign.DefaultSettings()
	s.Recheck = assign.Query(recheck)
	return s
}

func rechecked(t *testing.T, n *node, recheck string, items ...string) string {
	t.Helper()
	got, err := n.Ranker.Recheck(t.Context(), asking(recheck), items)
	if err != nil {
		t.Fatalf("%s: %v", recheck, err)
	}
	return strings.Join(slices.Sorted(maps.Keys(got)), " ")
}

// Of the items that it is asked about, those that the recheck returns still match, whatever else it returns, whatever its
// type, and whatever is in the keys; here and on a query database.
func TestRecheck(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, loans)
	execute(t, db, `create table note (key text); insert into note values ('a,b'), ('{}'), ('"'), ('\'), ('NULL'), (' '), ('é'), ('É')`)
	for name, n := range map[string]*node{
		"here":   startNode(t, url, nodeOptions{}),
		"pooled": startNode(t, url, nodeOptions{Pooled: true}),
		"there":  startNode(t, url, nodeOptions{Queries: reader(t, url, "loan, note")}),
	} {
		t.Run(name, func(t *testing.T) {
			for _, c := range []struct{ recheck, asked, want string }{
				{string(okLoans), "1 3 5", "1"},
				{string(okLoans), "3", ""},
				{" select id as item, ok from loan where ok and id::text = any($1); \n", "4 3 2", "2 4"},
				{"select id as item from loan where $1 is not null union all select null union all select id from loan", "2 5", "2"},
				{"select key as item from note where key = any($1)", `a,b {} " \ NULL é e`, `" NULL \ a,b {} é`},
				{`select upper(x) collate "und-x-icu" as item from unnest($1) x`, "é É", "É"},
				{"with x as (select * from unnest($1) i) select i as item from x limit 2", "a b c", "a b"},
			} {
				if got := rechecked(t, n, c.recheck, strings.Fields(c.asked)...); got != c.want {
					t.Errorf("%s of %s: %s, want %s", c.recheck, c.asked, got, c.want)
				}
			}
			if got := rechecked(t, n, "select x as item from unnest($1) x", " ", ""); got != "  " {
				t.Errorf("a blank and nothing: %q", got)
			}
			if got, err := n.Ranker.Recheck(t.Context(), asking(""), []string{"1"}); got != nil || err != nil {
				t.Errorf("without a recheck: %v, %v", got, err)
			}
		})
	}
}

// An error of the recheck is reported as its own fault, and leaves nothing behind. The recheck can't write, has the query
// role's rights, and ends at the query_timeout.
func TestRecheckFails(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, loans)
	execute(t, db, `create table secret (i int); create function write() returns int language sql volatile as 'insert into secret values (1) returning i'`)
	role := "rechecker_" + query[string](t, db, `select substr(md5(current_database()), 1, 12)`)
	execute(t, db, `create role `+role+`; grant select on loan to `+role)
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), `drop owned by `+role+`; drop role `+role) })
	here := startNode(t, url, nodeOptions{Role: role})
	there := startNode(t, url, nodeOptions{Queries: reader(t, url, "loan")})
	for name, n := range map[string]*node{"here": here, "there": there} {
		for recheck, says := range map[string]string{
			"select x as item from unnest($1::bigint[]) x":                                                 `invalid input syntax for type bigint: "one"`,
			"select 1/(count(*) - count(*)) as item from unnest($1) x":                                     "division by zero",
			"select x as item from unnest($1) x, pg_sleep(20)":                                             "query_timeout of 300ms",
			"select x as item from unnest($1) x, secret":                                                   "permission denied for table secret",
			"select write() as item from unnest($1) x":                                                     "read-only",
			"select set_config('transaction_read_only', 'off', true) || write() as item from unnest($1) x": "read-",
			"select nothing as item from unnest($1) x":                                                     "does not exist",
		} {
			s := asking(recheck)
			if strings.Contains(says, "query_timeout") { // the others must fail by themselves, however slowly
				s.QueryTimeout = assign.Duration(300 * time.Millisecond)
			}
			_, err := n.Ranker.Recheck(t.Context(), s, []string{"one"})
			var r *assign.Refusal
			if !errors.As(err, &r) || r.Kind != assign.QueryRefused || r.Fields[0].Field != "recheck" || !strings.Contains(r.Detail, "the task's recheck: ") || !strings.Contains(r.Detail, says) {
				t.Errorf("%s, %s: %v, want it refused with %s", name, recheck, err, says)
			}
		}
		if got := rechecked(t, n, string(okLoans), "1", "3"); got != "1" {
			t.Errorf("%s, afterwards: %s", name, got)
		}
		soon, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := n.Ranker.Recheck(soon, asking("select x as item from unnest($1) x, pg_sleep(20)"), []string{"1"}); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("%s, with a deadline: %v", name, err)
		}
		if n.slots.freeSlots() != n.MaxRuns {
			t.Errorf("%s: %d slots left of %d", name, n.slots.freeSlots(), n.MaxRuns)
		}
	}
	if rows := query[int](t, db, `select count(*) from secret`); rows != 0 {
		t.Errorf("%d rows written", rows)
	}
	if got := query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid() and application_name like 'getwork%'`); got != 0 {
		t.Errorf("%d connections are left in a transaction", got)
	}
}

// A round's recheck takes a run slot, and is refused at once if none is free. That of a claim or an explanation needs none.
func TestRecheckTakesAPlace(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1})
	s := asking("select x as item from unnest($1) x")
	now := func() string {
		got, err := n.Ranker.RecheckNow(t.Context(), s, []string{"1"})
		if err != nil {
			wantKind(t, err, assign.Busy)
			return "busy"
		}
		return fmt.Sprint(got)
	}
	if got := now(); got != "map[1:true]" {
		t.Errorf("with a free slot: %s", got)
	}
	err := n.slots.withRunSlot(t.Context(), func(context.Context) error {
		asked := time.Now()
		if got, took := now(), time.Since(asked); got != "busy" || took > askWait/2 {
			t.Errorf("without a slot: %s after %s", got, took)
		}
		_, err := n.Ranker.Recheck(t.Context(), s, []string{"1"})
		return err
	})
	if err != nil {
		t.Error(err)
	}
	if got := now(); got != "map[1:true]" {
		t.Errorf("when it was given back: %s", got)
	}
	n.stop()
	_, err = n.Ranker.RecheckNow(context.Background(), s, []string{"1"})
	wantKind(t, err, assign.Unavailable)
}

// A query that can't be a recheck is refused when the task is saved, with PostgreSQL's message and the position.
func TestRecheckIsRefused(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, loans)
	execute(t, db, `create table secret (i int)`)
	here := startNode(t, url, nodeOptions{})
	there := startNode(t, url, nodeOptions{Queries: reader(t, url, "loan")})
	newTask(t, here, "task", `select id as item from loan`, nil)
	newInbox(t, here, "inbox", nil)
	for name, n := range map[string]*node{"here": here, "there": there} {
		for _, c := range []struct {
			recheck string
			kind    assign.Kind
			says    string
		}{
			{" ; ", assign.Invalid, "one SELECT on $1 text[]"},
			{"\x00", assign.Invalid, "NUL"},
			{strings.Repeat("x", 500_001), assign.Invalid, "500000"},
			{"  select id as item fron loan where $1 = $1", assign.QueryRefused, `syntax error at or near "fron" (SQLSTATE 42601) at position 21 of the recheck`},
			{"select id as item from loan where id = any( $1)", assign.QueryRefused, "any($1::bigint[]): operator does not exist"},
			{"select $1::int as item", assign.QueryRefused, "cannot cast type text[] to integer"},
			{"select id as item from loan", assign.QueryRefused, "does not use $1"},
			{"select unnest($1) as item where $2 is null", assign.QueryRefused, "could not determine data type of parameter $2"},
			{"select unnest($1) as item, $2::int as x", assign.QueryRefused, "2 placeholders"},
			{"select id as item from loan where id = $2::int", assign.QueryRefused, "2 placeholders"},
			{"select unnest($1)", assign.QueryRefused, `one column named "item"`},
			{"select unnest($1) as item, 1 as item", assign.QueryRefused, "not 2"},
			{"select unnest($1) as item; select 1", assign.QueryRefused, "no semicolon except at its end"},
			{"update loan set ok = true where id::text = any($1) returning id as item", assign.QueryRefused, "without insert, update or delete"},
			{"with x as (delete from loan where id::text = any($1) returning id) select id as item from x", assign.QueryRefused, "without insert, update or delete"},
			{"select i as item from nowhere where i = any($1)", assign.QueryRefused, `relation "nowhere" does not exist`},
		} {
			s := asking(c.recheck)
			s.Name, s.Query = "new", `select id as item from loan`
			_, err := n.CreateTask(t.Context(), s, "boss")
			var r *assign.Refusal
			if !errors.As(err, &r) || r.Kind != c.kind || len(r.Fields) != 1 || r.Fields[0].Field != "recheck" || !strings.Contains(r.Detail, c.says) {
				t.Errorf("%s, %.80q: %v, want %s: %s", name, c.recheck, err, c.kind, c.says)
			}
			_, err = n.change(t, "task", func(s *assign.Settings) { s.Recheck = assign.Query(c.recheck) })
			if !assign.IsRefusal(err, c.kind) {
				t.Errorf("%s, changed to %.80q: %v, want %s", name, c.recheck, err, c.kind)
			}
		}
		_, err := n.change(t, "inbox", func(s *assign.Settings) { s.Recheck = okLoans })
		wantKind(t, err, assign.Invalid)
	}
	_, err := there.change(t, "task", func(s *assign.Settings) { s.Recheck = "select i as item from secret where i::text = any($1)" })
	wantKind(t, err, assign.QueryRefused) // that login may not read it
	if now, err := here.Task(t.Context(), "task"); err != nil || now.Version != 1 || now.Recheck != "" {
		t.Errorf("refused, and at version %d with %q; %v", now.Version, now.Recheck, err)
	}
}

// Setting, changing or removing a recheck makes a version, and leaves the shelf alone.
func TestRecheckLeavesTheShelf(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	execute(t, db, loans)
	newTask(t, n, "task", `select id as item from loan order by id`, fresh(time.Hour))
	if w := n.take(t, "task", "ann"); w.Item != "1" {
		t.Fatalf("ann has %s", w.Item)
	}
	changed, err := n.change(t, "task", func(s *assign.Settings) { s.Recheck = okLoans })
	if err != nil || changed.Recheck != okLoans || changed.Version != 2 {
		t.Fatalf("%+v, %v", changed, err)
	}
	if w := n.take(t, "task", "bob"); w.Item != "2" || runs(t, db) != 1 {
		t.Errorf("bob has %s after %d runs", w.Item, runs(t, db))
	}
	if changed, err = n.change(t, "task", func(s *assign.Settings) { s.Recheck = "" }); err != nil || changed.Recheck != "" {
		t.Errorf("%+v, %v", changed, err)
	}
	if got := query[string](t, db, `select string_agg(coalesce(recheck, 'null'), '; ' order by version) from getwork.task_version`); got != "null; "+string(okLoans)+"; null" {
		t.Error(got)
	}
	if _, err = n.change(t, "task", func(s *assign.Settings) { s.Recheck = "select unnest($1) as item" }); err != nil { // its type is not clear by itself
		t.Error(err)
	}
	if changed, err = n.Restore(t.Context(), "task", 2, 0, "cyd", nil); err != nil || changed.Recheck != okLoans {
		t.Errorf("%+v, %v", changed, err)
	}
	if w := n.take(t, "task", "cyd"); w.Item != "4" && w.Item != "3" || runs(t, db) != 1 {
		t.Errorf("cyd has %s after %d runs", w.Item, runs(t, db))
	}
	versions, err := n.Versions(t.Context(), "task", 0, 10)
	if err != nil || len(versions) != 5 || versions[0].Recheck != okLoans || versions[2].Recheck != "" {
		t.Errorf("%+v, %v", versions, err)
	}
}

// shelved makes a task with four loans on its shelf, one of which no longer matches the recheck.
func shelved(t *testing.T, n *node, db *pgxpool.Pool) assign.Task {
	t.Helper()
	execute(t, db, loans)
	execute(t, db, `update loan set ok = true`)
	task := newTask(t, n, "task", `select id as item from loan order by id`, func(s *assign.Settings) { s.FreshFor, s.Recheck = assign.Duration(time.Hour), okLoans })
	if w := n.take(t, "task", "ann"); w.Item != "1" {
		t.Fatalf("ann has %s", w.Item)
	}
	execute(t, db, `update loan set ok = false where id = 3; insert into loan values (5, false)`)
	return task
}

// An item that is claimed from the shelf must be returned by the recheck. An item that is not on the shelf is found by the
// query, which is fresh.
func TestClaimIsRechecked(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	shelved(t, n, db)
	_, _, err := n.Claim(t.Context(), "task", "3", who("bob"))
	wantKind(t, err, assign.NotFound)
	if !strings.Contains(err.Error(), "does not match") {
		t.Error(err)
	}
	for _, item := range []string{"2", "5"} {
		if w, claimed, err := n.Claim(t.Context(), "task", item, who("bob")); err != nil || !claimed || w.Item != item {
			t.Errorf("%s: %+v, %v, %v", item, w, claimed, err)
		}
	}
	execute(t, db, `update loan set ok = true`)
	if _, claimed, err := n.Claim(t.Context(), "task", "3", who("bob")); err != nil || !claimed {
		t.Errorf("when it matches again: %v, %v", claimed, err)
	}
	execute(t, db, `update loan set ok = false`)
	if _, claimed, err := n.Claim(t.Context(), "task", "3", who("bob")); err != nil || claimed {
		t.Errorf("an item held already: %v, %v", claimed, err)
	}
	execute(t, db, `alter table loan drop column ok`)
	_, _, err = n.Claim(t.Context(), "task", "4", who("bob"))
	wantKind(t, err, assign.QueryRefused)
}

// A recheck that is set while a claim waits for the assign lock is asked before the item is given.
func TestRecheckSetBesideAClaim(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	task := shelved(t, n, db)
	if _, err := n.change(t, "task", func(s *assign.Settings) { s.Recheck = "" }); err != nil {
		t.Fatal(err)
	}
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(context.Background())
	if _, err := tx.Exec(t.Context(), `update getwork.task_state set version = 1 where task_id = $1`, task.ID); err != nil { // which has it
		t.Fatal(err)
	}
	claimed := make(chan error, 1)
	go func() {
		_, _, err := n.Claim(context.Background(), "task", "3", who("bob"))
		claimed <- err
	}()
	wantWaiting(t, db, "%getwork.task_state s%for no key update%")
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-claimed, assign.NotFound)
}

// However much is on the shelf, a claim finds its item without reading it; and a shelf without places is read.
func TestItemOnTheShelfIsFound(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	n := startNode(t, url, nodeOptions{})
	task := newTask(t, n, "task", numbers, fresh(time.Hour))
	n.take(t, "task", "ann")
	run := query[int64](t, db, `select shelf_run from getwork.task_state`)
	execute(t, db, `insert into getwork.candidate (run_id, rank, item, details) select $1, i, 'x' || i, '{}' from generate_series(1000001, 1020000) i`, run)
	execute(t, db, insertPlaces, run)
	statements := map[string]looked{"claim": {selectOnShelf, []any{task.ID, "x1010000"}}}
	for _, analyzed := range []bool{false, true} {
		if analyzed {
			execute(t, db, `analyze getwork.candidate, getwork.candidate_place`)
		}
		for name, pages := range buffersOf(t, n.pools.API, statements) {
			if pages > 40 {
				t.Errorf("%s, analyzed %v: %d pages", name, analyzed, pages)
			}
		}
	}
	for _, item := range []string{"x1010001", "x1010000"} {
		w, _, err := n.Claim(t.Context(), "task", item, who("bob"))
		if err != nil || w.Item != item {
			t.Errorf("claimed %q, %v", w.Item, err)
		}
		execute(t, db, `delete from getwork.candidate_place`)
	}
}
