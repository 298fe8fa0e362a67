package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
)

// Alerts are what fails, who waits and what is late, in this order, of the tasks that the caller may see. Each ends by itself.
func TestAlerts(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	alerts := func(h headers) []assign.Alert {
		t.Helper()
		return read[[]assign.Alert](n.call(t, "GET", "/api/v1/alerts", h, "").want(200))
	}
	want := func(what string, h headers, want string) {
		t.Helper()
		var all []string
		for _, a := range alerts(h) {
			all = append(all, fmt.Sprintf("%s %s %d, %.0f min", a.Kind, a.Task, a.Count, time.Since(a.Since).Minutes()))
		}
		if got := strings.Join(all, "; "); got != want {
			t.Errorf("%s: %q, want %q", what, got, want)
		}
	}
	n.newTask(t, "good", five, "")
	if got := n.call(t, "GET", "/api/v1/alerts", manager(), "").want(200).body; strings.TrimSpace(got) != "[]" {
		t.Errorf("nothing is wrong: %s", got)
	}

	n.newTask(t, "broken", "select (1 / (g - 1))::text as item from generate_series(1, 2) g", "")
	n.call(t, "POST", "/api/v1/tasks/broken/requests", as("ann", "Prefer", "wait=60"), `{"count":1}`).want(201)
	n.exec(t, `update getwork.run set finished_at = finished_at - interval '20 minutes', started_at = started_at - interval '20 minutes' where state = 'failed'`)
	failing := "failing broken 1, 20 min"
	want("a query fails", manager(), failing)
	want("an observer reads the same", observer(), failing)
	if got := alerts(manager())[0].Detail; !strings.Contains(got, "division by zero") {
		t.Errorf("it fails by %q", got)
	}

	n.newInbox(t, "photos", "")
	n.newInbox(t, "letters", `,"paused":true`)
	long, short := time.Now().Add(-2*time.Hour).Format(time.RFC3339), time.Now().Add(-time.Hour).Format(time.RFC3339)
	for _, task := range []string{"photos", "letters"} {
		n.call(t, "POST", "/api/v1/tasks/"+task+"/items", manager(), fmt.Sprintf(`[{"item":"a","deadline":%q},{"item":"b","deadline":%q},{"item":"c"}]`, long, short)).want(200)
	}
	late := "; late letters 2, 120 min; late photos 2, 120 min"
	want("items are late, in a paused task too", manager(), failing+late)
	n.exec(t, `update getwork.item set deadline = deadline - interval '1 minute' where item = 'a' and task_id = (select task_id from getwork.task_state where name = 'photos')`)
	late = "; late photos 2, 121 min; late letters 2, 120 min"
	want("the oldest comes first", manager(), failing+late)
	took := n.take(t, "photos", "ann", 3)
	want("somebody holds what is late", manager(), failing+late)
	for _, w := range took {
		n.call(t, "POST", workPath(w, "disposition"), as("ann"), `{"outcome":"complete"}`).want(200)
	}
	late = "; late letters 2, 120 min"
	want("it is done", manager(), failing+late)

	n.newInbox(t, "empty", "")
	n.call(t, "POST", "/api/v1/tasks/empty/requests", manager(), `{"count":2,"linger":"1h"}`).want(202)
	await(t, "a round finds nothing", func() bool {
		var looked bool
		if err := n.db.QueryRow(t.Context(), `select reason is not null from getwork.work_requested where state = 'pending'`).Scan(&looked); err != nil {
			t.Fatal(err)
		}
		return looked
	})
	n.exec(t, `update getwork.work_requested set created_at = created_at - interval '7 minutes' where state = 'pending'`)
	want("somebody waits for items", manager(), failing+late)
	n.call(t, "PATCH", "/api/v1/tasks/broken", manager("If-Match", `"1"`), `{"query":"select '1' as item"}`).want(200)
	want("the query is mended", manager(), strings.TrimPrefix(late, "; "))
	n.call(t, "GET", "/api/v1/alerts", as("ann"), "").refused(403, "forbidden")
}
