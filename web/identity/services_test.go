package identity

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
)

// proved begins a session of somebody who has just logged in, which is needed to make tokens for services.
func (n *station) proved(t *testing.T, name string, role assign.Role, admin bool) []string {
	t.Helper()
	begun, err := n.rights.Begin(t.Context(), rights.LogIn{Entry: rights.Entry{Iss: "test", Sub: name, Name: name, Role: role, Admin: admin}, Max: time.Hour, AuthAt: time.Now()})
	if err != nil {
		t.Fatal(err)
	}
	return slices.Concat([]string{"Cookie", "session=" + begun.Cookie}, inJSON)
}

// Nobody becomes a manager by a service of their own making: administrators who are no managers make neither managers nor writers of
// queries, be the service new or there already.
func TestWhoMakesWhichService(t *testing.T) {
	t.Parallel()
	n := start(t, withCookies)
	n.service(t, "boss robot", assign.RoleManager)
	n.service(t, "old author", assign.RoleAgent, func(made *rights.NewToken) { made.Groups = []string{"authors"} })
	n.service(t, "old agent", assign.RoleAgent)
	ada, both, mia := n.proved(t, "Ada", "", true), n.proved(t, "Bea", assign.RoleManager, true), n.proved(t, "Mia", assign.RoleManager, false)
	worker := n.proved(t, "Wim", assign.RoleWorker, true)
	for _, c := range []struct {
		service            string
		admin, both, other int
	}{
		{`{"user":"{} manager","role":"manager"}`, 403, 201, 403},
		{`{"user":"{} author","role":"agent","groups":["desk","authors"]}`, 403, 201, 403},
		{`{"user":"{} observer","role":"observer","groups":["authors"]}`, 403, 201, 403},
		{`{"user":"{} agent","role":"agent","groups":["desk"]}`, 201, 201, 403},
		{`{"user":"{} watcher","role":"observer"}`, 201, 201, 403},
		{`{"user":"boss robot","role":"manager"}`, 403, 201, 403},
		{`{"user":"old author","role":"agent"}`, 403, 201, 403},
		{`{"user":"old agent","role":"agent"}`, 201, 201, 403},
	} {
		for name, by := range map[string]struct {
			headers []string
			want    int
		}{"admin": {ada, c.admin}, "worker": {worker, c.admin}, "both": {both, c.both}, "manager": {mia, c.other}} {
			body := `{"label":"x","scopes":["read"],"service":` + strings.ReplaceAll(c.service, "{}", name) + `}`
			status, answer := n.call(t, "POST", "/api/v1/tokens", body, by.headers...)
			if status != by.want || by.want == 403 && name != "manager" && !strings.Contains(answer, "a manager as well as an administrator") {
				t.Errorf("%s by %s: %d %s, want %d", c.service, name, status, answer, by.want)
			}
		}
	}
	users, err := n.rights.Users(t.Context(), rights.Which{Search: "admin", Limit: 9})
	if err != nil || len(users) != 2 {
		t.Errorf("a refused service is there: %+v, %v", users, err)
	}
}

// Blocking somebody says which services they have made, and ends them if it is to: the tokens that they have seen, and no others.
func TestBlockWithServices(t *testing.T) {
	t.Parallel()
	n := start(t, withCookies)
	ada, bea := n.proved(t, "Ada", "", true), n.proved(t, "Bea", "", true)
	make := func(by []string, service string) []string {
		t.Helper()
		status, answer := n.call(t, "POST", "/api/v1/tokens", `{"label":"x","scopes":["read"],"service":{"user":"`+service+`","role":"agent"}}`, by...)
		if status != 201 {
			t.Fatal(status, answer)
		}
		return bearer(decode[struct{ Token string }](t, answer).Token)
	}
	one, two, shared, others := make(ada, "resizer"), make(ada, "mailer"), make(ada, "payer"), make(bea, "payer")
	ended := decode[struct{ Tokens []assign.Token }](t, second(n.call(t, "GET", "/api/v1/tokens?user=mailer", "", bea...))).Tokens[0].ID
	if status, answer := n.call(t, "DELETE", "/api/v1/tokens/"+ended, "", bea...); status != 204 {
		t.Fatal(status, answer)
	}
	works := func(token []string, want int) {
		t.Helper()
		if status, answer := n.call(t, "GET", "/api/v1/me", "", token...); status != want {
			t.Errorf("%d %s, want %d", status, answer, want)
		}
	}
	block := func(body, want string) {
		t.Helper()
		status, answer := n.call(t, "PATCH", "/api/v1/users/Ada", body, bea...)
		got := decode[struct {
			Blocked  bool
			Services []string
		}](t, answer)
		if status != 200 || fmt.Sprint(got) != want {
			t.Errorf("%s: %d %s, want %s", body, status, answer, want)
		}
	}
	works(two, 401)
	block(`{"blocked":true}`, "{true [payer resizer]}")
	works(one, 200)
	works(shared, 200)
	for body, field := range map[string]string{`{"blocked":false,"with_services":true}`: "with_services", `{"with_services":true}`: "blocked"} {
		if status, answer := n.call(t, "PATCH", "/api/v1/users/Ada", body, bea...); status != 400 || !strings.Contains(answer, `"field":"`+field+`"`) {
			t.Errorf("%s: %d %s", body, status, answer)
		}
	}
	block(`{"blocked":true,"with_services":true}`, "{true [payer resizer]}")
	works(one, 401)
	works(shared, 401)
	works(others, 200)
	block(`{"blocked":true,"with_services":true}`, "{true []}")
	block(`{"blocked":false}`, "{false []}")
	works(one, 401) // what has ended stays so

	var acts []string
	rows, err := n.db.Query(t.Context(), `select concat_ws(' ', act, case act when 'token.end' then '-' else object end, detail->>'services', detail->>'with_services') from getwork.audit where act in ('user.block', 'user.unblock', 'token.end') and actor = 'Bea' order by n offset 1`)
	if err != nil {
		t.Fatal(err)
	}
	for rows.Next() {
		var act string
		if err := rows.Scan(&act); err != nil {
			t.Fatal(err)
		}
		acts = append(acts, act)
	}
	want := []string{`user.block Ada ["payer", "resizer"] false`, `user.block Ada ["payer", "resizer"] true`, "token.end -", "token.end -", "user.unblock Ada"}
	if !slices.Equal(acts, want) {
		t.Errorf("audited: %q, want %q", acts, want)
	}
}

func second(_ int, answer string) string { return answer }
