package web

import (
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// With --query-authors, managers outside the group write no query, by whatever call. They can still do everything else.
func TestQueryAuthors(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{authors: "query writers"})
	author := func(more ...string) headers {
		return manager(append(more, "X-Getwork-Groups", "desk, query writers")...)
	}
	create := func(h headers, body string) reply { return n.call(t, "POST", "/api/v1/tasks", h, body) }
	patch := func(h headers, body string) reply {
		return n.call(t, "PATCH", "/api/v1/tasks/verify", append(h, "If-Match", "*"), body)
	}
	create(author(), `{"name":"verify","query":"`+five+`","recheck":"select unnest($1::text[]) as item","fresh_for":"1h"}`).want(201)
	patch(author(), `{"query":"`+five+` limit 4"}`).want(200)

	for _, groups := range []string{"", "desk", "query", "query writers too", "Query Writers"} {
		other := manager("X-Getwork-Groups", groups)
		for name, r := range map[string]reply{
			"create":            create(other, `{"name":"other","query":"select 1 as item"}`),
			"change the query":  patch(other, `{"title":"x","query":"select 1 as item"}`),
			"change, recheck":   patch(other, `{"recheck":"select unnest($1::text[]) as item limit 1"}`),
			"remove, recheck":   patch(other, `{"recheck":null}`),
			"a wrong query":     patch(other, `{"query":"select"}`), // PostgreSQL is not asked
			"preview":           n.call(t, "POST", "/api/v1/tasks/verify/preview", other, ``),
			"preview, its own":  n.call(t, "POST", "/api/v1/tasks/verify/preview", other, `{"query":"select 1 as item"}`),
			"compare":           n.call(t, "POST", "/api/v1/tasks/verify/compare", other, `{"version":1}`),
			"preview, new":      n.call(t, "POST", "/api/v1/preview", other, `{"query":"select 1 as item"}`),
			"restore":           n.call(t, "POST", "/api/v1/tasks/verify/versions/1/restore", other, ``),
			"restore, the same": n.call(t, "POST", "/api/v1/tasks/verify/versions/2/restore", other, ``),
		} {
			if r.status != 403 {
				t.Errorf("%s, in %q: %d %s", name, groups, r.status, r.body)
			}
		}
	}
	other := manager("X-Getwork-Groups", "desk")
	patch(other, `{"query":"select 1 as item"}`).refused(403, "forbidden")
	if task := read[assign.Task](n.call(t, "GET", "/api/v1/tasks/verify", other, "").want(200)); task.Version != 2 || task.Query != five+" limit 4" {
		t.Errorf("refused calls made version %d: %s", task.Version, task.Query)
	}
	patch(other, `{"title":"Verify","paused":true,"slots":2,"query":"`+five+` limit 4"}`).want(200)
	patch(other, `{"paused":false}`).want(200)
	create(other, `{"name":"inbox"}`).want(201)
	n.call(t, "GET", "/api/v1/tasks/verify/versions", other, "").want(200)
	n.call(t, "GET", "/api/v1/tasks/verify/items/1", other, "").want(200)
	n.call(t, "DELETE", "/api/v1/tasks/verify", other, "").want(204)

	// Without the flag, every manager may.
	n = start(t, stationOptions{})
	create(manager(), `{"name":"verify","query":"`+five+`"}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), ``).want(200)
}
