package web

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// secret is in all queries and rechecks of a test, and in PostgreSQL's messages about those that fail.
const secret = "TOPSECRET"

// Workers and agents read no query, no recheck and no message of PostgreSQL about them: by no operation that the description
// has, and in no event. They still learn whether a task is an inbox, and that a query failed.
func TestQueriesAreWithheld(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	const fails = `select ('` + secret + `' || i)::integer::text as item from generate_series(1, 9) i`
	n.newTask(t, "works", "select i as item from generate_series(1, 99) i -- "+secret, `,"fresh_for":"1h","recheck":"select unnest($1::text[]) as item -- `+secret+`"`)
	n.newTask(t, "fails", fails, "")
	n.newTask(t, "fails-recheck", five, `,"fresh_for":"1h","recheck":"select x as item from unnest($1::text[]) x where ('`+secret+`' || x)::integer = 1"`)
	n.newInbox(t, "inbox", "")
	tasks := []string{"works", "fails", "fails-recheck", "inbox"}

	for role, user := range map[string]string{"worker": "wanda", "agent": "axel"} {
		caller := as(user, "X-Getwork-Role", role)
		stream := n.listen(t, "?task="+strings.Join(tasks, ","), caller)
		told := make(chan int)
		go func() {
			events := 0
			for stream.lines.Scan() {
				if strings.Contains(stream.lines.Text(), secret) {
					t.Errorf("the %s is told %s", role, stream.lines.Text())
				}
				events++
				if strings.Contains(stream.lines.Text(), `"the last"`) {
					break
				}
			}
			told <- events
		}()
		says := func(method, path, body string, more ...string) reply {
			t.Helper()
			r := n.call(t, method, path, append(slices.Clone(caller), more...), body)
			if strings.Contains(r.body, secret) || strings.Contains(fmt.Sprint(r.header), secret) {
				t.Errorf("%s %s tells a %s: %s", method, path, role, r.body)
			}
			return r
		}

		for _, task := range []string{"fails", "fails-recheck"} {
			click := "/api/v1/tasks/" + task + "/requests"
			r := read[assign.Request](says("POST", click, `{"count":1}`, "Prefer", "wait=60").want(201))
			if r.State != assign.Failed || r.Error == nil || *r.Error != assign.QueryFailed {
				t.Errorf("of %s a %s gets %+v", task, role, r)
			}
			again := says("GET", fmt.Sprint("/api/v1/requests/", r.ID), "").want(200)
			says("GET", fmt.Sprint("/api/v1/requests/", r.ID), "", "If-None-Match", again.header.Get("ETag")).want(304)
			says("POST", click, `{"count":1}`, "Prefer", "wait=60") // in back-off
			says("POST", click, `{"count":1,"linger":"1h"}`)
		}
		claimed := says("POST", "/api/v1/tasks/fails/items/1/claim", "")
		claimed.refused(422, "query-refused")
		if !strings.Contains(claimed.body, assign.QueryFailed) {
			t.Error(claimed.body)
		}
		n.endLingering(t, user)
		works := read[assign.Request](says("POST", "/api/v1/tasks/works/requests", `{"count":2}`, "Prefer", "wait=60").want(201))
		if len(works.Work) != 2 {
			t.Fatalf("a %s gets %+v", role, works)
		}
		for _, task := range tasks {
			shown := read[map[string]any](says("GET", "/api/v1/tasks/"+task, "").want(200))
			if query, has := shown["query"]; has != (task == "inbox") || query != nil {
				t.Errorf("of %s a %s reads the query %v", task, role, query)
			}
			if decoded := read[assign.Task](says("GET", "/api/v1/tasks/"+task, "").want(200)); decoded.Inbox() != (task == "inbox") {
				t.Errorf("a program takes %s for an inbox", task)
			}
		}

		calls := 0
		for path, item := range described(t)["paths"].(map[string]any) {
			for method, call := range item.(map[string]any) {
				if path == "/api/v1/events" || path == "/api/v1/ws" || path == "/logout" || !slices.Contains([]string{"get", "post", "put", "patch", "delete"}, method) {
					continue
				}
				body := ""
				if b, described := at(call, "requestBody", "content", "application/json").(map[string]any); described {
					example, _ := json.Marshal(b["example"])
					body = string(example)
				}
				for _, task := range tasks[:2] {
					filled := strings.NewReplacer("{task}", task, "{item}", "3", "{n}", "1", "{id}", fmt.Sprint(works.ID)).Replace(path)
					if strings.Contains(path, "/work/") {
						filled = strings.ReplaceAll(filled, fmt.Sprint(works.ID), fmt.Sprint(works.Work[0].ID))
					}
					filled = regexp.MustCompile(`\{\w+\}`).ReplaceAllString(filled, "1")
					says(strings.ToUpper(method), filled, body, "If-Match", "*")
					if calls++; !strings.Contains(path, "{task}") {
						break
					}
				}
			}
		}
		if calls < 50 {
			t.Errorf("only %d calls", calls)
		}
		says("POST", "/api/v1/tasks", `{"name":"x","query":"select"}`).refused(403, "forbidden")

		// All tasks change, and the stream is read to the last change.
		for _, task := range tasks {
			n.call(t, "PATCH", "/api/v1/tasks/"+task, manager("If-Match", "*"), `{"description":"changed by `+role+`"}`).want(200)
		}
		n.call(t, "PATCH", "/api/v1/tasks/works", manager("If-Match", "*"), `{"title":"the last"}`).want(200)
		if events := <-told; events < 20 {
			t.Errorf("a %s is told only %d lines", role, events)
		}
		n.call(t, "PATCH", "/api/v1/tasks/works", manager("If-Match", "*"), `{"title":"not yet"}`).want(200)
	}

	// Managers and observers read all of it.
	for _, role := range []string{"manager", "observer"} {
		caller := as("mia", "X-Getwork-Role", role)
		for _, path := range []string{"/tasks", "/tasks/works", "/tasks/fails/runs"} {
			if r := n.call(t, "GET", "/api/v1"+path, caller, "").want(200); !strings.Contains(r.body, secret) {
				t.Errorf("%s tells a %s nothing: %s", path, role, r.body)
			}
		}
		event := n.listen(t, "?task=works", caller).next("task")
		if query := fmt.Sprint(event["query"]); !strings.Contains(query, secret) {
			t.Errorf("a %s is told of %v", role, event)
		}
	}
	r := n.call(t, "POST", "/api/v1/tasks/fails/requests", manager("Prefer", "wait=60"), `{"count":1}`).want(201)
	if !strings.Contains(r.body, secret) {
		t.Errorf("a manager is not told why: %s", r.body)
	}
	n.call(t, "POST", "/api/v1/tasks/fails/preview", manager(), "").refused(422, "query-refused", "query")
}

// endLingering cancels what a user waits for.
func (n *station) endLingering(t *testing.T, user string) {
	t.Helper()
	for _, r := range read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline?user="+user, manager(), "").want(200)).Requests {
		n.call(t, "DELETE", fmt.Sprint("/api/v1/requests/", r.ID), manager(), "").want(200)
	}
}
