package web

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"getwork/assign"
	"getwork/schema/schematest"
)

// A preview shows what a query would return and cost, and changes nothing.
func TestPreview(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select 'loan/' || g as item, g as amount from generate_series(1, 50) g order by g", "")
	n.newInbox(t, "photos", "")
	n.take(t, "verify", "oliver", 2)
	preview := func(task, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/"+task+"/preview", manager(), body)
	}
	for _, body := range []string{"", "{}", `{"query":null}`} {
		p := read[assign.Preview](preview("verify", body).want(200))
		if len(p.Rows) != 10 || p.Rows[0].Item != "loan/3" || p.Given != 50 || p.Blocked != 2 || p.Cost <= 0 || !strings.HasPrefix(string(p.Plan), "[") {
			t.Errorf("%q: %+v", body, p)
		}
	}
	p := read[assign.Preview](preview("photos", `{"query":"select 'x' as item, 2 as slots, 1 as n","limit":1}`).want(200))
	if len(p.Rows) != 1 || p.Rows[0].Slots != 2 || string(p.Rows[0].Details) != `{"n":1}` {
		t.Errorf("another query: %+v", p)
	}
	for body, field := range map[string]string{`{"limit":0}`: "limit", `{"limit":101}`: "limit", `{"limit":-1}`: "limit", `{"limit":"all"}`: "limit",
		`{"query":7}`: "query", `{"query":" "}`: "query", `{"query":""}`: "query", `{"rows":1}`: "rows"} {
		preview("verify", body).refused(400, "invalid", field)
	}
	preview("photos", "").refused(400, "invalid", "query")
	preview("nothing", "").refused(404, "not-found")
	for _, query := range []string{"select nothing as item", "select 1 as item; select 2", "delete from getwork.work", "select 1 as no_item", "select 1/0 as item"} {
		preview("verify", `{"query":"`+query+`"}`).refused(422, "query-refused", "query")
	}
	if r := n.call(t, "GET", "/api/v1/tasks/verify/runs", manager(), "").want(200); strings.Count(r.body, `"id"`) != 1 {
		t.Errorf("previews are no runs: %s", r.body)
	}
}

// A query without a task is previewed as if a task had it: with the same rows, errors and limits, and without any effect.
func TestPreviewOfNoTask(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	const query = "select 'loan/' || g as item, case g when 3 then 4 end as slots, g as amount from generate_series(1, 50) g order by g"
	preview := func(body string) reply {
		return n.call(t, "POST", "/api/v1/preview", manager(), body)
	}
	p := read[assign.Preview](preview(`{"query":"` + query + `","query_timeout":"90s","slots":2,"limit":3}`).want(200))
	if p.Given != 50 || p.Blocked != 0 || p.PassedOver != 0 || p.Cost <= 0 || p.DurationMS <= 0 || !strings.HasPrefix(string(p.Plan), "[") {
		t.Errorf("%+v", p)
	}
	n.newTask(t, "verify", query, `,"slots":2`)
	of := read[assign.Preview](n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), `{"limit":3}`).want(200))
	if diff := cmp.Diff(of.Rows, p.Rows); diff != "" || p.Rows[0].Slots != 2 || p.Rows[2].Slots != 4 {
		t.Errorf("of the task (-), and before there was one (+):\n%s", diff)
	}
	n.take(t, "verify", "oliver", 2) // which is none of its business
	p = read[assign.Preview](preview(`{"query":"` + query + `"}`).want(200))
	if len(p.Rows) != 10 || p.Rows[0].Item != "loan/1" || p.Rows[0].Slots != 1 || p.Blocked != 0 {
		t.Errorf("with defaults: %+v", p)
	}
	for body, field := range map[string]string{`{}`: "query", `{"query":null}`: "query", `{"query":" "}`: "query", `{"query":7}`: "query",
		`{"query":"select 1 as item","limit":0}`: "limit", `{"query":"select 1 as item","query_timeout":"soon"}`: "query_timeout",
		`{"query":"select 1 as item","query_timeout":"25h"}`: "query_timeout", `{"query":"select 1 as item","slots":0}`: "slots",
		`{"query":"select 1 as item","name":"verify"}`: "name"} {
		preview(body).refused(400, "invalid", field)
	}
	preview("").refused(400, "invalid")
	r := preview(`{"query":"select 1 as item,\n nothing"}`)
	r.refused(422, "query-refused", "query")
	if !strings.Contains(r.body, "at position 20 of the query") {
		t.Errorf("it does not say where: %s", r.body)
	}
	for _, query := range []string{"select 1 as item; select 2", "delete from getwork.work", "select 1 as no_item", "select 1/0 as item"} {
		preview(`{"query":"`+query+`"}`).refused(422, "query-refused", "query")
	}
	late := preview(`{"query":"select 1 as item, pg_sleep(60)","query_timeout":"200ms"}`)
	late.refused(422, "query-refused", "query")
	if !strings.Contains(late.body, "query_timeout of 200ms") {
		t.Errorf("of a query that takes too long: %s", late.body)
	}
	if r := n.call(t, "GET", "/api/v1/tasks", manager(), "").want(200); strings.Count(r.body, `"name"`) != 1 {
		t.Errorf("previews are no tasks: %s", r.body)
	}
}

// Calls that run a query have a bound of their own beside all others, and no time limit but the query's.
func TestLooksAtQuery(t *testing.T) {
	t.Parallel()
	for path, looks := range map[string]bool{
		"preview": true, "tasks/verify/preview": true, "tasks/verify/items/1": true, "tasks/verify/items/1/claim": true,
		"tasks/preview": false, "tasks/verify/items": false, "tasks/verify/requests": false, "requests/preview": false,
	} {
		if looksAtQuery(path) != looks {
			t.Errorf("%s: not %t", path, looks)
		}
	}
}

// The query of a client that goes away ends, and a client can't make it wait longer than the server allows.
func TestPreviewOfNoTaskIsCancelled(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{writeTimeout: 300 * time.Millisecond})
	n.call(t, "POST", "/api/v1/preview", manager(), `{"query":"select 1 as item from pg_sleep(0.6)"}`).want(200)
	running := func() (yes bool) {
		const sql = `select exists (select from pg_stat_activity where datname = current_database() and query like '%pg_sleep(60)%' and state = 'active' and pid <> pg_backend_pid())`
		if err := n.db.QueryRow(t.Context(), sql).Scan(&yes); err != nil {
			t.Fatal(err)
		}
		return yes
	}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		r, err := n.Client().Do(n.request(t, "POST", "/api/v1/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`).WithContext(ctx))
		if err == nil {
			r.Body.Close()
		}
		left <- err
	}()
	await(t, "the query runs", running)
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Errorf("who went got %v", err)
	}
	await(t, "the query is cancelled", func() bool { return !running() })

	answered := make(chan reply, 1)
	go func() {
		answered <- n.call(t, "POST", "/api/v1/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`)
	}()
	await(t, "another runs", running)
	n.drain()
	(<-answered).wantHeader("Retry-After", "2").refused(503, "unavailable")
}

// A query that takes longer than the server allows an answer is answered all the same; one that is under way when the
// node shuts down is given up, and another node can be asked.
func TestPreviewIsPatient(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{writeTimeout: 300 * time.Millisecond})
	s := assign.DefaultSettings() // past the server, which has so little time for it
	s.Name, s.Query = "verify", "select g as item from generate_series(1, 5) g, pg_sleep(0.6)"
	if _, err := n.engine.CreateTask(t.Context(), s, "maria"); err != nil {
		t.Fatal(err)
	}
	n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), "").want(200)
	n.call(t, "GET", "/api/v1/tasks/verify/items/1", manager(), "").want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/items/1/claim", as("oliver"), "").want(201)

	answered := make(chan reply, 1)
	go func() {
		answered <- n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`)
	}()
	await(t, "the query runs", func() bool {
		var running bool
		err := n.db.QueryRow(t.Context(), `select exists (select from pg_stat_activity where datname = current_database() and state = 'active' and query like '%pg_sleep(60)%' and pid <> pg_backend_pid())`).Scan(&running)
		return err == nil && running
	})
	n.drain()
	r := <-answered
	r.wantHeader("Retry-After", "2").refused(503, "unavailable")
	if r.took > 30*time.Second {
		t.Errorf("it took %v", r.took)
	}
}
