package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/pg"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

func previewed(p assign.Preview) string {
	var b strings.Builder
	for _, r := range p.Rows {
		group := ""
		if r.Exclusive != nil {
			group = *r.Exclusive
		}
		fmt.Fprintf(&b, "%d:%s/%d/%s%s ", r.Rank, r.Item, r.Slots, group, compact(assign.Work{Details: r.Details}))
	}
	return fmt.Sprintf("%s| %d given, %d blocked, %d passed over", b.String(), p.Given, p.Blocked, p.PassedOver)
}

func asked(query string) *assign.Query {
	q := assign.Query(query)
	return &q
}

// A preview shows what a run would give and what it costs, and leaves nothing behind: no run, no shelf.
func TestPreview(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	task := newTask(t, n, "task", `select i as item, i * 10 as amount from generate_series(1, 8) i order by i`, fresh(time.Hour))
	execute(t, db, `insert into getwork.work (task_id, item, user_name) values ($1, '2', 'ann')`, task.ID)

	p, err := n.Ranker.Preview(t.Context(), "task", nil, 3)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := previewed(p), `1:1/1/{"amount":10} 3:3/1/{"amount":30} 4:4/1/{"amount":40} | 8 given, 1 blocked, 0 passed over`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p.Cost <= 0 || p.DurationMS <= 0 || !json.Valid(p.Plan) || !strings.Contains(string(p.Plan), "generate_series") {
		t.Errorf("cost %v, %v ms, plan %s", p.Cost, p.DurationMS, p.Plan)
	}

	p, err = n.Ranker.Preview(t.Context(), "task", asked(`
		select * from (values ('a', 3, null), ('b', 1, 'g'), ('c', 2, 'g'), (null, 1, null), ('a', 1, null)) v (item, slots, exclusive) -- as they come;`), 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := previewed(p), `1:a/3/{} 2:b/1/g{} | 5 given, 0 blocked, 3 passed over`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	p, err = n.Ranker.Preview(t.Context(), "task", asked(`select 1 as item where false`), 1)
	if err != nil || p.Rows == nil || p.Given != 0 {
		t.Errorf("of a query that gives nothing: %+v, %v", p, err)
	}
	if got := query[string](t, db, leftBehind); got != "0 runs, 0 candidates, 1 versions" {
		t.Error(got)
	}
}

const leftBehind = `
	select format('%s runs, %s candidates, %s versions', (select count(*) from getwork.run), (select count(*) from getwork.candidate),
	  (select count(*) from getwork.task_version))`

// A query that no task has yet is previewed like a task's, and takes the slot for it; nobody's work counts.
func TestPreviewNew(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1})
	db := pool(t, url)
	const ranked = `select i as item, nullif(i, 2) as slots, i * 10 as amount from generate_series(1, 8) i order by i desc`
	task := newTask(t, n, "new", ranked, func(s *assign.Settings) { s.Slots = 3 })
	execute(t, db, `insert into getwork.work (task_id, item, user_name) values ($1, '1', 'ann')`, task.ID)
	s := assign.DefaultSettings()
	s.Query, s.Slots = ranked, 3
	p, err := n.Ranker.PreviewNew(t.Context(), s, 100)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := previewed(p), `1:8/8/{"amount":80} 2:7/7/{"amount":70} 3:6/6/{"amount":60} 4:5/5/{"amount":50} `+
		`5:4/4/{"amount":40} 6:3/3/{"amount":30} 7:2/3/{"amount":20} 8:1/1/{"amount":10} | 8 given, 0 blocked, 0 passed over`; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if p.Cost <= 0 || p.DurationMS <= 0 || !strings.Contains(string(p.Plan), "generate_series") {
		t.Errorf("cost %v, %v ms, plan %s", p.Cost, p.DurationMS, p.Plan)
	}
	if got := query[string](t, db, leftBehind); got != "0 runs, 0 candidates, 1 versions" {
		t.Error(got)
	}
	for says, change := range map[string]func(*assign.Settings){
		"send the query": func(s *assign.Settings) { s.Query = "" },
		"one SELECT":     func(s *assign.Settings) { s.Query = ";" },
		"position 18":    func(s *assign.Settings) { s.Query = "select 1 as item fron t" },
		"read-only":      func(s *assign.Settings) { s.Query = "select nextval('seq') as item" },
		"query_timeout of 300ms": func(s *assign.Settings) {
			s.Query, s.QueryTimeout = "select pg_sleep(20) as item", assign.Duration(300*time.Millisecond)
		},
		`from "1ms" to "24h"`:    func(s *assign.Settings) { s.QueryTimeout = 0 },
		"slots: from 1 to 10000": func(s *assign.Settings) { s.Slots = 0 },
	} {
		execute(t, db, `create sequence if not exists seq`)
		s := s
		change(&s)
		_, err := n.Ranker.PreviewNew(t.Context(), s, 1)
		var r *assign.Refusal
		if !errors.As(err, &r) || !strings.Contains(r.Detail, says) || len(r.Fields) != 1 {
			t.Errorf("%v, want %s", err, says)
		}
	}
	if err := n.withAskSlot(t.Context(), func(context.Context) error {
		soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		_, err := n.Ranker.PreviewNew(soon, s, 1)
		wantKind(t, err, assign.Busy)
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// A query that can't be previewed is refused with PostgreSQL's message; and a query can't write, whatever it calls.
func TestPreviewIsRefused(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{})
	db := pool(t, url)
	execute(t, db, `create table victim (i int);
		create function write() returns int language sql volatile as 'insert into victim values (1) returning i'`)
	newTask(t, n, "task", `select 1 as item`, nil)
	newTask(t, n, "brief", `select 1 as item`, func(s *assign.Settings) { s.QueryTimeout = assign.Duration(300 * time.Millisecond) })
	newTask(t, n, "inbox", "", nil)
	for _, c := range []struct {
		task  string
		query *assign.Query
		limit int
		kind  assign.Kind
		says  string
	}{
		{"none", nil, 1, assign.NotFound, "none"},
		{"inbox", nil, 1, assign.Invalid, "inbox"},
		{"task", asked(""), 1, assign.Invalid, "inbox"},
		{"task", asked(" ; "), 1, assign.Invalid, "one SELECT"},
		{"task", nil, 0, assign.Invalid, "1 to 100"},
		{"task", nil, 101, assign.Invalid, "1 to 100"},
		{"task", asked("select 1 as item fron t"), 1, assign.QueryRefused, "position 18"},
		{"task", asked("select 1 as item; select 2 as item"), 1, assign.QueryRefused, "one SELECT"},
		{"task", asked("select $1::text as item"), 1, assign.QueryRefused, "placeholders"},
		{"task", asked("select 1/(i - 3) as item from generate_series(1, 5) i"), 1, assign.QueryRefused, "division by zero"},
		{"brief", asked("select 1 as item, pg_sleep(20)"), 1, assign.QueryRefused, "query_timeout of 300ms"},
		{"task", asked("select write() as item"), 1, assign.QueryRefused, "read-only"},
		{"task", asked("select set_config('transaction_read_only', 'off', true) as item, write()"), 1, assign.QueryRefused, "read-"},
	} {
		_, err := n.Ranker.Preview(t.Context(), c.task, c.query, c.limit)
		var r *assign.Refusal
		if !errors.As(err, &r) || r.Kind != c.kind || !strings.Contains(r.Detail, c.says) {
			t.Errorf("%s %v: %v, want %s: %s", c.task, c.query, err, c.kind, c.says)
		}
	}
	if _, err := n.Ranker.Preview(t.Context(), "inbox", asked("select 1 as item"), 1); err != nil {
		t.Errorf("a query sent for an inbox: %v", err)
	}
	if rows := query[int](t, db, `select count(*) from victim`); rows != 0 {
		t.Errorf("%d rows written by a preview", rows)
	}
	if got := query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and state <> 'idle' and pid <> pg_backend_pid() and application_name like 'getwork%'`); got != 0 {
		t.Errorf("%d connections are left in a transaction", got)
	}
}

// A preview has the query role's rights and no more if queries run on the database itself, and those of the query database's
// login if they run there.
func TestPreviewHasTheQuerysRights(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	db := pool(t, url)
	execute(t, db, `create table loan as select i as id from generate_series(1, 3000) i; create table secret (i int)`)
	role := "previewer_" + query[string](t, db, `select substr(md5(current_database()), 1, 12)`)
	execute(t, db, `create role `+role+`; grant usage on schema getwork to `+role+`; grant select on getwork.blocked, loan to `+role)
	t.Cleanup(func() { _, _ = db.Exec(context.Background(), `drop owned by `+role+`; drop role `+role) })
	here := startNode(t, url, nodeOptions{Role: role})
	there := startNode(t, url, nodeOptions{Role: role, Queries: reader(t, url, "loan")})
	task := newTask(t, here, "task", `select id as item from loan order by id`, nil)
	execute(t, db, `insert into getwork.work (task_id, item, user_name) select $1, i, 'ann' from generate_series(1, 1500) i`, task.ID)
	for name, n := range map[string]*node{"here": here, "there": there} {
		p, err := n.Ranker.Preview(t.Context(), "task", nil, 2)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got := previewed(p); !strings.HasPrefix(got, "1501:1501/1/{} 1502:1502/1/{} |") || p.Blocked != 1500 || p.Cost <= 0 {
			t.Errorf("%s: %s, cost %v", name, got, p.Cost)
		}
		_, err = n.Ranker.Preview(t.Context(), "task", asked(`select i as item from secret`), 1)
		wantKind(t, err, assign.QueryRefused)
		s := assign.DefaultSettings()
		s.Query = `select id as item from loan order by id`
		if p, err := n.Ranker.PreviewNew(t.Context(), s, 2); err != nil || !strings.HasPrefix(previewed(p), "1:1/1/{} 2:2/1/{} |") || p.Blocked != 0 {
			t.Errorf("%s, of no task: %s, %v", name, previewed(p), err)
		}
		s.Query = `select i as item from secret`
		_, err = n.Ranker.PreviewNew(t.Context(), s, 2)
		wantKind(t, err, assign.QueryRefused)
		if x, err := n.Explain(t.Context(), "task", "1700"); err != nil || x.Rank == nil || *x.Rank != 1700 {
			t.Errorf("%s: %+v, %v", name, x, err)
		}
	}
	execute(t, db, `update getwork.task_version set query_timeout = '300 ms'`)
	_, err := there.Ranker.Preview(t.Context(), "task", asked(`select id as item from loan, pg_sleep(20)`), 1)
	wantKind(t, err, assign.QueryRefused)
}

// A caller that finds no slot is refused, a slot that was given back is used, and a draining node cancels the queries under way and
// refuses the rest.
func TestPlacesAreLent(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	n := startNode(t, url, nodeOptions{MaxRuns: 1})
	db := pool(t, url)
	newTask(t, n, "task", `select 1 as item`, nil)
	has, giveBack, ended := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		ended <- n.withAskSlot(context.Background(), func(context.Context) error {
			close(has)
			<-giveBack
			return nil
		})
	}()
	<-has
	soon, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	wantKind(t, n.withAskSlot(soon, func(context.Context) error { return nil }), assign.Busy)
	gone, leave := context.WithCancel(t.Context())
	leave()
	if err := n.withAskSlot(gone, func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
		t.Errorf("a caller that went away got %v", err)
	}
	go func() {
		ended <- n.withAskSlot(context.Background(), func(context.Context) error { return nil })
	}()
	close(giveBack)
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}

	go func() {
		_, err := n.Ranker.Preview(context.Background(), "task", asked(`select 1 as item, pg_sleep(60)`), 1)
		ended <- err
	}()
	await(t, "the preview runs", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(60)%' and pid <> pg_backend_pid()`) > 0
	})
	n.stop()
	wantKind(t, <-ended, assign.Unavailable)
	wantKind(t, n.withAskSlot(t.Context(), func(context.Context) error { return nil }), assign.Unavailable)
	await(t, "its query has ended", func() bool {
		return query[int](t, db, `select count(*) from pg_stat_activity where datname = current_database() and query like '%pg_sleep(60)%' and pid <> pg_backend_pid()`) == 0
	})
}

// Previews of a query whose table somebody has locked, or whose plan takes for ever, end soon, and then runs have their connections.
func TestPreviewThatCannotBePlanned(t *testing.T) {
	t.Parallel()
	for _, where := range []string{"here", "elsewhere"} {
		t.Run(where, func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			db := pool(t, url)
			execute(t, db, `create table loan (id int); create table other as select 1 as id;
				create function slow(float) returns int language plpgsql immutable as $$ begin perform pg_sleep($1); return 1; end $$`)
			o := nodeOptions{MaxRuns: 1}
			if where == "elsewhere" {
				o.Queries = reader(t, url, "loan, other")
			}
			n := startNode(t, url, o)
			n.Ranker.PlanWithin = timeout.Scale(time.Second)
			newTask(t, n, "other", `select id as item from other`, nil)
			soon, cancel := context.WithTimeout(t.Context(), timeout.Scale(30*time.Second))
			defer cancel()
			refused := func(sql string) error {
				s := assign.DefaultSettings()
				s.Query = assign.Query(sql)
				_, err := n.Ranker.PreviewNew(soon, s, 1)
				return err
			}

			locked, err := db.Begin(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = locked.Rollback(context.Background()) }()
			if _, err := locked.Exec(t.Context(), `lock table loan in access exclusive mode`); err != nil {
				t.Fatal(err)
			}
			ended := make(chan error, 2)
			for range cap(ended) {
				go func() { ended <- refused(`select id as item from loan`) }()
			}
			if r := n.endedRequest(t, n.click(t, "other", "ann", 1).ID); r.State != assign.Assigned {
				t.Errorf("a click beside the previews is %s, %v", r.State, r.Error)
			}
			for range cap(ended) {
				if p, _ := pg.ProblemOf(<-ended); p.Status != http.StatusServiceUnavailable || !strings.Contains(p.Detail, "holds a lock") {
					t.Errorf("a preview of a locked table: %+v", p)
				}
			}

			err = refused(`select slow(60) as item`)
			wantKind(t, err, assign.QueryRefused)
			if !strings.Contains(err.Error(), "to plan the query took longer than "+n.Ranker.PlanWithin.String()) {
				t.Error(err)
			}
		})
	}
}
