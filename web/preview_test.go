package web

import (
	"strings"
	"testing"
	"time"

	"getwork/assign"
)

// A preview tells what a query would give and cost, and changes nothing.
func TestPreview(t *testing.T) {
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

// A query that takes longer than the server allows an answer is answered all the same; one that is under way when the
// node shuts down is given up, and another node can be asked.
func TestPreviewIsPatient(t *testing.T) {
	n := start(t, stationOptions{writeTimeout: 300 * time.Millisecond})
	n.newTask(t, "verify", "select g as item from generate_series(1, 5) g, pg_sleep(0.6)", "")
	n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), "").want(200)
	n.call(t, "GET", "/api/v1/tasks/verify/items/1", manager(), "").want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/items/1/claim", as("oliver"), "").want(201)

	answered := make(chan reply, 1)
	go func() {
		answered <- n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), `{"query":"select 1 as item from pg_sleep(60)"}`)
	}()
	await(t, "the query runs", func() bool {
		var running bool
		err := n.db.QueryRow(t.Context(), `select exists (select from pg_stat_activity where state = 'active' and query like '%pg_sleep(60)%' and pid <> pg_backend_pid())`).Scan(&running)
		return err == nil && running
	})
	n.drain()
	r := <-answered
	r.wantHeader("Retry-After", "2").refused(503, "unavailable")
	if r.took > 30*time.Second {
		t.Errorf("it took %v", r.took)
	}
}
