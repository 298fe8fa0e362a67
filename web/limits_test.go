package web

import (
	"fmt"
	"strings"
	"testing"

	"getwork/assign"
)

// Managers replace the limits as they have read them; nothing wrong is kept; each change is audited.
func TestLimits(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	const path = "/api/v1/limits"
	first := n.call(t, "GET", path, manager(), "").want(200)
	if body := strings.TrimSpace(first.body); body != "{}" || first.header.Get("ETag") != `"0"` {
		t.Errorf("before the first: %s %s", body, first.header.Get("ETag"))
	}
	put := func(tag, body string) reply {
		return n.call(t, "PUT", path, manager("If-Match", tag), body)
	}
	n.call(t, "PUT", path, manager(), `{"everybody":3}`).refused(428, "stale-version")
	put(`"1"`, `{"everybody":3}`).refused(412, "stale-version")
	long := strings.Repeat("x", 129)
	for body, says := range map[string]string{
		``:                                  "",
		`[]`:                                "",
		`{"everyone":3}`:                    "everyone",
		`{"everybody":-1}`:                  "everybody is from 0 to 1000000",
		`{"everybody":1.5}`:                 "everybody",
		`{"everybody":"3"}`:                 "everybody",
		`{"groups":{"trainees":1000001}}`:   "groups.trainees",
		`{"groups":{"a,b":1}}`:              "commas",
		`{"groups":[]}`:                     "groups",
		`{"people":{"ann":-2}}`:             "people.ann",
		`{"people":{"` + long + `":2}}`:     "128 bytes",
		`{"people":{"":2}}`:                 "128 bytes",
		`{"people":{" ann":2}}`:             "blanks",
		`{"people":{"ann":1,"ann":2}}`:      "ann",
		`{"people":{"a\u0000nn":1}}`:        "NUL",
		`{"people":{` + many(10_001) + `}}`: "10000",
	} {
		if r := put(`"0"`, body).want(400); !strings.Contains(r.body, says) {
			t.Errorf("%.60s: %.300s", body, r.body)
		}
	}
	const document = `{"everybody":10,"groups":{"trainees":3},"people":{"ann":20,"bob":null}}`
	if r := put(`"0"`, document).want(200); strings.TrimSpace(r.body) != document || r.header.Get("ETag") != `"1"` {
		t.Errorf("%s %s", r.body, r.header.Get("ETag"))
	}
	put(`"0"`, `{}`).refused(412, "stale-version")
	if r := n.call(t, "GET", path, manager(), "").want(200); strings.TrimSpace(r.body) != document || r.header.Get("ETag") != `"1"` {
		t.Errorf("%s %s", r.body, r.header.Get("ETag"))
	}
	for user, want := range map[string]string{"ann": `"open":0,"max_open":20`, "bob": `"open":0,"away"`, "carol": `"open":0,"max_open":3`} {
		if r := n.call(t, "GET", "/api/v1/me", as(user, "X-Getwork-Groups", "trainees"), "").want(200); !strings.Contains(r.body, want) {
			t.Errorf("%s, want %s", r.body, want)
		}
	}
	if r := n.call(t, "GET", "/api/v1/me", asAgent("carol"), "").want(200); !strings.Contains(r.body, `"open":0,"away"`) {
		t.Error(r.body)
	}
	put(`*`, `{"everybody":null,"groups":{},"people":{}}`).want(200)
	if r := n.call(t, "GET", path, manager(), "").want(200); strings.TrimSpace(r.body) != "{}" || r.header.Get("ETag") != `"2"` {
		t.Errorf("%s %s", r.body, r.header.Get("ETag"))
	}
}

// Whoever is full is told so, and how much they hold.
func TestFullOverAllTasks(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	for _, task := range []string{"one", "two"} {
		n.call(t, "POST", "/api/v1/tasks", manager(), `{"name":"`+task+`"}`).want(201)
		n.call(t, "POST", "/api/v1/tasks/"+task+"/items", manager(), `[{"item":"a"},{"item":"b"}]`).want(200)
	}
	n.call(t, "PUT", "/api/v1/limits", manager("If-Match", "*"), `{"everybody":1}`).want(200)
	mia := as("mia")
	n.call(t, "POST", "/api/v1/tasks/one/requests", mia, `{"count":2}`).want(201)
	if r := read[assign.Request](n.call(t, "POST", "/api/v1/tasks/two/requests", mia, `{"count":1}`).want(201)); r.State != assign.None || *r.Reason != assign.AtLimit {
		t.Errorf("%s %v", r.State, r.Reason)
	}
	if r := n.call(t, "POST", "/api/v1/tasks/two/items/b/claim", mia, "").want(409); !strings.Contains(r.body, "holds 1 of 1") {
		t.Error(r.body)
	}
	if r := n.call(t, "POST", "/api/v1/tasks/two/items/b/claim", manager(), `{"user":"mia"}`).want(409); !strings.Contains(r.body, "holds 1 of 1") {
		t.Error(r.body)
	}
	if r := n.call(t, "GET", "/api/v1/tasks/two/items/b", manager(), "").want(200); !strings.Contains(r.body, "mia holds 1 of 1 items, the limit over all tasks") {
		t.Errorf("explain does not say who could: %s", r.body)
	}
	if r := n.call(t, "GET", "/api/v1/me", mia, "").want(200); !strings.Contains(r.body, `"open":1,"max_open":1`) {
		t.Error(r.body)
	}
}

// many returns the members of a document with so many people.
func many(n int) string {
	names := make([]string, n)
	for i := range names {
		names[i] = fmt.Sprintf(`"n%d":1`, i)
	}
	return strings.Join(names, ",")
}
