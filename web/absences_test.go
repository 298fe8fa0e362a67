package web

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest"
)

func TestAbsences(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{rights: true, identify: DevIdentity})
	n.newTask(t, "verify", five, "")
	n.pendingRequest(t, "verify", "tracy")
	const absences = "/api/v1/absences"
	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	own := read[assign.Absence](n.call(t, "POST", absences, as("oliver"), `{"until":"`+until+`","substitute":"tracy"}`).want(201))
	if own.User != "oliver" || own.CreatedBy != "oliver" || *own.Substitute != "tracy" || own.Until.Format(time.RFC3339) != until {
		t.Errorf("own: %+v", own)
	}
	me := read[struct{ Away *assign.Absence }](n.call(t, "GET", "/api/v1/me", as("oliver"), ""))
	if me.Away == nil || me.Away.ID != own.ID {
		t.Errorf("away: %+v", me.Away)
	}
	if me := n.call(t, "GET", "/api/v1/me", as("mia"), ""); !strings.Contains(me.body, `"away":null`) {
		t.Errorf("here: %s", me.body)
	}
	r := n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver"), `{"count":1}`).want(201)
	if !strings.Contains(r.body, `"reason":"away"`) {
		t.Errorf("his click: %s", r.body)
	}
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F4/claim", as("oliver"), ``).refused(409, "not-available")
	if p := n.call(t, "GET", "/api/v1/pipeline", as("oliver"), "").want(200); !strings.Contains(p.body, `"absences":[{"id":"`) {
		t.Errorf("pipeline: %s", p.body)
	}
	// Others are a manager's.
	n.call(t, "POST", absences, as("oliver"), `{"user":"tracy"}`).refused(403, "forbidden")
	n.call(t, "POST", absences, as("oliver", "X-Getwork-Role", "observer"), ``).refused(403, "forbidden")
	mias := read[assign.Absence](n.call(t, "POST", absences, manager(), `{"user":"mia"}`).want(201))
	n.call(t, "DELETE", fmt.Sprint(absences, "/", mias.ID), as("oliver"), "").refused(404, "not-found")
	list := func(h headers, query string) (users string) {
		t.Helper()
		for _, a := range read[struct{ Absences []assign.Absence }](n.call(t, "GET", absences+query, h, "").want(200)).Absences {
			users += a.User + " "
		}
		return users
	}
	for _, test := range []struct {
		as    headers
		query string
		want  string
	}{
		{as("oliver"), "", "oliver "}, {as("oliver"), "?user=oliver", "oliver "}, {as("tracy"), "", ""},
		{manager(), "", "oliver mia "}, {manager(), "?user=mia", "mia "}, {as("otto", "X-Getwork-Role", "observer"), "", "oliver mia "},
	} {
		if got := list(test.as, test.query); got != test.want {
			t.Errorf("%v lists %q%s, want %q", test.as, got, test.query, test.want)
		}
	}
	n.call(t, "GET", absences+"?user=mia", as("oliver"), "").refused(404, "not-found")
	if r := n.call(t, "GET", absences+"?limit=1", manager(), "").want(200); !strings.Contains(r.body, `"next_cursor":"`) {
		t.Errorf("a page: %s", r.body)
	}
	for range 2 {
		if r := n.call(t, "DELETE", fmt.Sprint(absences, "/", mias.ID), as("mia"), "").want(200); !strings.Contains(r.body, `"ended_by":"mia"`) {
			t.Errorf("ended: %s", r.body)
		}
	}
	n.call(t, "DELETE", fmt.Sprint(absences, "/", own.ID), manager(), "").want(200)
	n.call(t, "DELETE", absences+"/99", manager(), "").refused(404, "not-found")
	// What can't be.
	for body, field := range map[string]string{`{"until":"2020-01-01T00:00:00Z"}`: "until", `{"from":"2030-01-02T00:00:00Z","until":"2030-01-01T00:00:00Z"}`: "until",
		`{"substitute":"oliver"}`: "substitute", `{"substitute":"nobody"}`: "substitute", `{"user":""}`: "user", `{"from":"tomorrow"}`: "", `{"days":3}`: "", `null`: "", `[]`: ""} {
		r := n.call(t, "POST", absences, as("oliver", "X-Getwork-Role", "manager"), body).want(400)
		if p := read[assign.Problem](r); field != "" && (len(p.Errors) != 1 || p.Errors[0].Field != field) {
			t.Errorf("%s: %s", body, r.body)
		}
	}
	const people = "/api/v1/people/oliver%20x/absences"
	const list2 = `[{"from":"2030-01-01T00:00:00Z","until":"2030-02-01T00:00:00Z"},{"from":"2030-01-15T00:00:00Z"}]`
	first := n.call(t, "PUT", people+"?source=hr", manager(), list2).want(200)
	if again := n.call(t, "PUT", people+"?source=hr", manager(), list2).want(200); again.body != first.body || strings.Count(first.body, `"source":"hr"`) != 2 {
		t.Errorf("imported %s, and again %s", first.body, again.body)
	}
	n.call(t, "PUT", people+"?source=hr", as("oliver x"), list2).refused(403, "forbidden")
	for query, body := range map[string]string{"": list2, "?source=": list2, "?source=a+b": list2, "?source=a": `[{}]`, "?source=b": `{}`, "?source=c": `[{"from":"2030-01-01T00:00:00Z","until":"2030-01-01T00:00:00Z"}]`} {
		n.call(t, "PUT", people+query, manager(), body).want(400)
	}
	var audited string
	if err := n.db.QueryRow(t.Context(), `select string_agg(act || ' ' || object, ', ' order by n) from getwork.audit where act like 'absence%'`).Scan(&audited); err != nil {
		t.Fatal(err)
	}
	if want := "absence.enter mia, absence.end oliver, absence.import oliver x"; audited != want {
		t.Errorf("audited: %s, want %s", audited, want)
	}
}

// Being away oneself is work. The absences of others are managing, too, and for managers alone.
func TestAbsencesOfOthers(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{identify: believe, rights: true})
	n.newTask(t, "verify", five, "")
	for _, role := range assign.Roles {
		for _, scopes := range [][]string{nil, {rights.ScopeWork}, {rights.ScopeManage}, {rights.ScopeWork, rights.ScopeManage}} {
			for _, tasks := range [][]string{nil, {"verify"}} {
				c := Caller{Holder: assign.Holder{User: "oliver"}, Role: role, By: "token", Principal: 1, Groups: []string{}, Scopes: scopes, Tasks: tasks}
				works := role != Observer && tasks == nil && (scopes == nil || scopes[0] == rights.ScopeWork)
				manages := works && role == Manager && (scopes == nil || len(scopes) == 2)
				var theirs int64
				if err := n.db.QueryRow(t.Context(), `insert into getwork.absence (user_name, from_at, created_by) values ('tracy', clock_timestamp(), 'tracy') returning id`).Scan(&theirs); err != nil {
					t.Fatal(err)
				}
				for call, may := range map[string]bool{`{}`: works, `{"user":"tracy"}`: manages} {
					if got := n.call(t, "POST", "/api/v1/absences", c.header(t), call); (got.status == 201) != may || !may && got.status != 403 {
						t.Errorf("a %s's token with the scopes %v for %v enters %s: %d %s", role, scopes, tasks, call, got.status, got.body)
					}
				}
				want := 403
				switch {
				case manages:
					want = 200
				case works:
					want = 404
				}
				if got := n.call(t, "DELETE", fmt.Sprint("/api/v1/absences/", theirs), c.header(t), ``); got.status != want {
					t.Errorf("a %s's token with the scopes %v for %v ends another's: %d %s, want %d", role, scopes, tasks, got.status, got.body, want)
				}
				may := role == Manager && tasks == nil && (scopes == nil || scopes[len(scopes)-1] == rights.ScopeManage)
				if got := n.call(t, "PUT", "/api/v1/people/tracy/absences?source=hr", c.header(t), `[]`); (got.status == 200) != may || !may && got.status != 403 {
					t.Errorf("a %s's token with the scopes %v for %v imports: %d %s", role, scopes, tasks, got.status, got.body)
				}
			}
		}
	}
}
