package web

import (
	"fmt"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/assign/audit"
)

const selectActs = `select coalesce(string_agg(concat_ws(' ', actor, by, host(address), act, object), ', ' order by n), '') from getwork.audit`

func (n *station) acts(t *testing.T) (acts string) {
	t.Helper()
	if err := n.db.QueryRow(t.Context(), selectActs).Scan(&acts); err != nil {
		t.Fatal(err)
	}
	return acts
}

// The audit says who acts and from where, and who reads other people's work: once an hour for each of them, and not if they
// are refused or read their own.
func TestActsOverREST(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	look := func(h headers, user string) reply { return n.call(t, "GET", "/api/v1/pipeline?user="+user, h, "") }
	n.newTask(t, "verify", five, "")
	for range 2 {
		look(manager(), "oliver").want(200)
		look(manager(), "maria").want(200)
		look(as("tracy"), "oliver").refused(403, "forbidden")
		look(as("oliver"), "oliver").want(200)
	}
	look(as("ada", "X-Getwork-Role", "manager"), "oliver").want(200)
	look(manager(), "tracy").want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/preview", manager(), `{}`).want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/versions/1/restore", as("tracy"), ``).refused(403, "forbidden")
	want := "maria dev 127.0.0.1 task.create verify, maria dev 127.0.0.1 pipeline.read oliver, ada dev 127.0.0.1 pipeline.read oliver, " +
		"maria dev 127.0.0.1 pipeline.read tracy, maria dev 127.0.0.1 task.preview verify"
	if got := n.acts(t); got != want {
		t.Errorf("audited: %s\nwant     %s", got, want)
	}

	n.exec(t, `alter table getwork.audit add constraint broken check (false) not valid`)
	look(manager(), "zoe").refused(500, "internal")
	look(manager(), "oliver").want(200) // it is written already
}

// Administrators read the audit page by page; nobody else does, whatever their role.
func TestListAudit(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{identify: believe})
	ada := Caller{Holder: assign.Holder{User: "ada"}, Admin: true, By: "session", Credential: "s:1"}.header(t)
	for _, task := range []string{"one", "two", "three"} {
		n.newInbox(t, task, "")
	}
	n.call(t, "DELETE", "/api/v1/tasks/two", manager(), "").want(204)
	type page struct {
		Audit []audit.Row `json:"audit"`
		Next  string      `json:"next_cursor"`
	}
	list := func(query string) (got []string) {
		t.Helper()
		for cursor := ""; ; {
			p := read[page](n.call(t, "GET", "/api/v1/audit?limit=2"+query+cursor, ada, "").want(200))
			for _, r := range p.Audit {
				got = append(got, fmt.Sprint(r.N, " ", r.Act, " ", *r.Object, " ", *r.Actor))
				if r.Sum() != r.Hash {
					t.Errorf("row %+v", r)
				}
			}
			if p.Next == "" {
				return got
			}
			cursor = "&cursor=" + p.Next
		}
	}
	for query, want := range map[string]string{
		"":                             "4 task.delete two maria, 3 task.create three maria, 2 task.create two maria, 1 task.create one maria",
		"&act=task.create":             "3 task.create three maria, 2 task.create two maria, 1 task.create one maria",
		"&actor=maria&act=task.delete": "4 task.delete two maria",
		"&actor=ada":                   "",
		"&act=task":                    "",
	} {
		if got := strings.Join(list(query), ", "); got != want {
			t.Errorf("%q lists %s, want %s", query, got, want)
		}
	}
	n.call(t, "GET", "/api/v1/audit?cursor=x", ada, "").refused(400, "invalid", "cursor")
	n.call(t, "GET", "/api/v1/audit?act=%00", ada, "").refused(400, "invalid", "act")
	n.call(t, "GET", "/api/v1/audit?actor=%ff", ada, "").refused(400, "invalid", "actor")
	n.call(t, "GET", "/api/v1/audit?limit=1001", ada, "").refused(400, "invalid", "limit")
	n.call(t, "GET", "/api/v1/audit", nil, "").refused(401, "unauthenticated")
	for _, role := range assign.Roles {
		n.call(t, "GET", "/api/v1/audit", as("maria", "X-Getwork-Role", string(role)), "").refused(403, "forbidden")
	}
}
