package web

import (
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Every change of a task is a version, and each can be restored.
func TestVersions(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"title":"First"`)
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"1"`), `{"title":"Second","slots":2,"groups":["desk"]}`).want(200)
	n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", `"2"`), `{"query":"select 1 as item"}`).want(200)
	type page struct {
		Versions []assign.Version `json:"versions"`
		Next     string           `json:"next_cursor"`
	}
	first := read[page](n.call(t, "GET", "/api/v1/tasks/verify/versions?limit=2", manager(), "").want(200))
	second := read[page](n.call(t, "GET", "/api/v1/tasks/verify/versions?limit=2&cursor="+first.Next, manager(), "").want(200))
	if len(first.Versions) != 2 || first.Versions[0].Version != 3 || first.Versions[1].Slots != 2 || first.Versions[0].CreatedBy != "maria" {
		t.Errorf("first %+v", first)
	}
	if len(second.Versions) != 1 || second.Versions[0].Title != "First" || second.Next != "" {
		t.Errorf("second %+v", second)
	}

	restore := func(version string, h headers, body string) reply {
		return n.call(t, "POST", "/api/v1/tasks/verify/versions/"+version+"/restore", h, body)
	}
	restore("1", manager("If-Match", `"2"`), "").refused(412, "stale-version")
	restore("1", manager("If-Match", "1"), "").refused(412, "stale-version")
	for _, version := range []string{"0", "4", "-1", "x", "2147483648", "99999999999999999999"} {
		restore(version, manager(), "").refused(404, "not-found")
	}
	restore("1", manager(), `{"title":"x"}`).refused(400, "invalid", "title")
	n.call(t, "POST", "/api/v1/tasks/nothing/versions/1/restore", manager(), "").refused(404, "not-found")
	if now := read[assign.Task](n.call(t, "GET", "/api/v1/tasks/verify", manager(), "").want(200)); now.Version != 3 {
		t.Fatalf("refused calls made version %d", now.Version)
	}
	got := read[assign.Task](restore("1", manager("If-Match", `"9", "3"`), "").want(200).wantHeader("ETag", `"4"`))
	if got.Title != "First" || got.Slots != 1 || len(got.Groups) != 0 || got.Query != five {
		t.Errorf("restored %+v", got)
	}
	restore("3", manager("If-Match", "*"), "{}").want(200).wantHeader("ETag", `"5"`)
	restore("1", manager(), "").want(200).wantHeader("ETag", `"6"`)

	for _, query := range []string{"limit=0", "cursor=x"} {
		name, _, _ := strings.Cut(query, "=")
		n.call(t, "GET", "/api/v1/tasks/verify/versions?"+query, manager(), "").refused(400, "invalid", name)
	}
	n.call(t, "GET", "/api/v1/tasks/nothing/versions", manager(), "").refused(404, "not-found")
}
