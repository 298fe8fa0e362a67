package web

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

// pageOf reads rows of a list, and where the next ones begin.
func (n *station) pageOf(t *testing.T, path, plural string, by headers, limit int, cursor string) (rows []string, next string) {
	t.Helper()
	mark := "?"
	if strings.Contains(path, "?") {
		mark = "&"
	}
	path = fmt.Sprintf("/api/v1/%s%slimit=%d&cursor=%s", path, mark, limit, url.QueryEscape(cursor))
	page := read[map[string]json.RawMessage](n.call(t, "GET", path, by, "").want(200))
	var all []json.RawMessage
	err := json.Unmarshal(page[plural], &all)
	if raw, more := page["next_cursor"]; more && err == nil {
		err = json.Unmarshal(raw, &next)
	}
	if err != nil {
		t.Fatalf("%s: %v", path, err)
	}
	for _, row := range all {
		rows = append(rows, string(row))
	}
	return rows, next
}

// A page that ends with the last row has no next_cursor, however full it is, and one that leaves out a row leads to it.
func TestListsEnd(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{identify: believe, rights: true})
	ada := Caller{Holder: assign.Holder{User: "ada"}, Admin: true, By: "session", Groups: []string{}}.header(t)
	n.newTask(t, "verify", `select i as item, 'Ada Lovell' as applicant from generate_series(1, 5) i`, "")
	n.newTask(t, "later", five, `,"paused":true`)
	hook := read[struct{ ID string }](n.call(t, "POST", "/api/v1/webhooks", ada, `{"url":"https://receiver.example/all","events":["work.closed"]}`).want(201)).ID
	for _, user := range []string{"oliver", "tracy", "zoe"} {
		n.take(t, "verify", user, 1)
		n.pendingRequest(t, "later", user)
		n.call(t, "PATCH", "/api/v1/tasks/verify", manager("If-Match", "*"), fmt.Sprintf(`{"title":%q}`, user)).want(200)
		n.call(t, "POST", "/api/v1/webhooks/"+hook+"/test", ada, "").want(202)
		n.exec(t, `insert into getwork.principal (name, name_key, iss, sub, kind) values ($1, $1, 'https://id.example', $1, 'person')`, user)
	}
	for _, list := range []struct {
		path, plural string
		by           headers
	}{
		{"work", "work", manager()}, {"work?user=zoe&state=held", "work", manager()}, {"requests", "requests", manager()}, {"holders", "holders", manager()},
		{"tasks/verify/runs", "runs", manager()}, {"tasks/verify/versions", "versions", manager()}, {"tasks/verify/log", "log", manager()},
		{"users", "users", ada}, {"audit", "audit", ada}, {"audit?act=task.create", "audit", ada}, {"webhooks/" + hook + "/deliveries", "deliveries", ada},
	} {
		all, next := n.pageOf(t, list.path, list.plural, list.by, maxPageSize, "")
		if len(all) == 0 || next != "" {
			t.Errorf("%s has %q, and more after %q", list.path, all, next)
			continue
		}
		if rows, next := n.pageOf(t, list.path, list.plural, list.by, len(all), ""); len(rows) != len(all) || next != "" {
			t.Errorf("%s: a page for all %d rows has %d, and more after %q", list.path, len(all), len(rows), next)
		}
		if len(all) == 1 {
			continue
		}
		most := len(all) - 1
		rows, next := n.pageOf(t, list.path, list.plural, list.by, most, "")
		rest, end := n.pageOf(t, list.path, list.plural, list.by, most, next)
		if len(rows) != most || next == "" || len(rest) != 1 || rest[0] != all[most] || end != "" {
			t.Errorf("%s: a page of %d rows has %d, and more after %q: %q, and more after %q", list.path, most, len(rows), next, rest, end)
		}
	}

	// A search ends with the last row that it was asked for, since it might be given up before it finds another one.
	const found = "work?task=verify&value=lovell"
	rows, next := n.pageOf(t, found, "work", manager(), 3, "")
	rest, end := n.pageOf(t, found, "work", manager(), 3, next)
	if len(rows) != 3 || next == "" || len(rest) != 0 || end != "" {
		t.Errorf("a search finds %q, and more after %q: %q, and more after %q", rows, next, rest, end)
	}
}
