package identity

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"testing"
	"time"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest/timeout"
)

// logIn begins a session, and returns its cookie as headers.
func (n *station) logIn(t *testing.T, name string, role assign.Role, admin bool) []string {
	t.Helper()
	begun, err := n.rights.Begin(t.Context(), rights.LogIn{Entry: rights.Entry{Iss: "test", Sub: name, Name: name, Role: role, Admin: admin}, Max: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	return []string{"Cookie", "session=" + begun.Cookie}
}

// withCookies takes sessions.
func withCookies(c *Config) {
	c.Cookie = func(r *http.Request) string {
		cookie, err := r.Cookie("session")
		if err != nil {
			return ""
		}
		return cookie.Value
	}
}

// The list of sessions says which one asks.
func TestOwnSessionIsMarked(t *testing.T) {
	t.Parallel()
	n := start(t, withCookies)
	first, second, ada := n.logIn(t, "Oliver", assign.RoleWorker, false), n.logIn(t, "Oliver", assign.RoleWorker, false), n.logIn(t, "Ada", "", true)
	type list struct {
		Sessions []struct {
			User    string
			Current bool
		}
	}
	for _, c := range []struct {
		path    string
		headers []string
		want    string
	}{
		{"/api/v1/sessions", second, "[{Oliver true} {Oliver false}]"}, // newest first
		{"/api/v1/sessions", first, "[{Oliver false} {Oliver true}]"},
		{"/api/v1/sessions", ada, "[{Ada true}]"},
		{"/api/v1/sessions?user=Oliver", ada, "[{Oliver false} {Oliver false}]"},
	} {
		status, answer := n.call(t, "GET", c.path, "", c.headers...)
		if got := fmt.Sprint(decode[list](t, answer).Sessions); status != 200 || got != c.want {
			t.Errorf("%s: %d %s, want %s", c.path, status, got, c.want)
		}
	}
}

// Administrators find users by a part of their names, in capitals or not.
func TestSearchUsers(t *testing.T) {
	t.Parallel()
	n := start(t, withCookies)
	ada := n.logIn(t, "Ada", "", true)
	for _, name := range []string{"Oliver", "OLGA", "Zoë", "zz_cent"} {
		n.logIn(t, name, assign.RoleWorker, false)
	}
	type list struct {
		Users      []struct{ Name string }
		NextCursor string `json:"next_cursor"`
	}
	for search, want := range map[string]string{"": "[{Ada} {OLGA} {Oliver} {Zoë} {zz_cent}]", "ol": "[{OLGA} {Oliver}]", "OË": "[{Zoë}]", "_": "[{zz_cent}]", "%": "[]"} {
		status, answer := n.call(t, "GET", "/api/v1/users?search="+url.QueryEscape(search), "", ada...)
		if got := fmt.Sprint(decode[list](t, answer).Users); status != 200 || got != want {
			t.Errorf("%q: %d %s, want %s", search, status, got, want)
		}
	}
	_, answer := n.call(t, "GET", "/api/v1/users?search=ol&limit=1", "", ada...)
	first := decode[list](t, answer)
	_, answer = n.call(t, "GET", "/api/v1/users?search=ol&limit=1&cursor="+url.QueryEscape(first.NextCursor), "", ada...)
	if got := fmt.Sprint(first.Users, decode[list](t, answer).Users); got != "[{OLGA}] [{Oliver}]" {
		t.Errorf("pages %s", got)
	}
	for _, path := range []string{"users?search=%00", "users?user=%FF", "users?cursor=%00", "sessions?user=%00", "tokens?user=%FF"} {
		if status, answer := n.call(t, "GET", "/api/v1/"+path, "", ada...); status != 400 {
			t.Errorf("%s: %d %s", path, status, answer)
		}
	}
}

// A call whose body is still on its way when its user's rights end does nothing.
func TestBlockedWhileABodyArrives(t *testing.T) {
	t.Parallel()
	n := start(t, withCookies)
	client := *n.Client()
	patient := client.Transport.(*http.Transport).Clone()
	patient.ExpectContinueTimeout = time.Minute
	client.Transport = patient
	for name, c := range map[string]struct{ method, path, head, tail string }{
		"an administrator lets themselves in again": {"PATCH", "/api/v1/users/Ada", `{"blocked":`, `false}`},
		"a manager makes a task":                    {"POST", "/api/v1/tasks", `{"name":"late"`, `}`},
	} {
		t.Run(name, func(t *testing.T) {
			session := n.logIn(t, "Ada", assign.RoleManager, true)
			body, rest := io.Pipe()
			r, err := http.NewRequestWithContext(t.Context(), c.method, n.URL+c.path, body)
			if err != nil {
				t.Fatal(err)
			}
			for _, header := range [][]string{session, {"Content-Type", "application/json"}} {
				r.Header.Set(header[0], header[1])
			}
			r.Header.Set("Expect", "100-continue") // the body leaves once the server reads it, and so has identified the client
			go func() {
				_, _ = io.WriteString(rest, c.head)
				_, err := n.rights.Block(t.Context(), "Ada", assign.UserChange{Blocked: true})
				<-time.After(200 * time.Millisecond) // a client as slow as that is identified again
				_, _ = io.WriteString(rest, c.tail)
				_ = rest.CloseWithError(err)
			}()
			response, err := client.Do(r)
			if err != nil {
				t.Fatal(err)
			}
			defer response.Body.Close()
			if response.StatusCode != 403 {
				t.Errorf("%d, want 403", response.StatusCode)
			}
			users, err := n.rights.Users(t.Context(), rights.Which{Name: "Ada", Limit: 1})
			if err != nil || len(users) != 1 || users[0].BlockedAt == nil {
				t.Errorf("%+v, %v; want Ada blocked", users, err)
			}
			if _, err := n.rights.Block(t.Context(), "Ada", assign.UserChange{Blocked: false}); err != nil {
				t.Fatal(err)
			}
		})
	}
}

// Only what somebody does keeps their session alive: what a page reads by itself does not.
func TestReadsKeepNoSessionAlive(t *testing.T) {
	t.Parallel()
	n := start(t, withCookies)
	reader, actor := n.logIn(t, "Oliver", assign.RoleWorker, false), n.logIn(t, "Tracy", assign.RoleWorker, false)
	left := func(user string) (left time.Duration) {
		t.Helper()
		var seconds float64
		if err := n.db.QueryRow(t.Context(), `select extract(epoch from s.idle_at - clock_timestamp())::float8 from getwork.session s join getwork.principal p on p.id = s.principal
			where p.name = $1`, user).Scan(&seconds); err != nil {
			t.Fatal(err)
		}
		return time.Duration(seconds * float64(time.Second))
	}
	if _, err := n.db.Exec(t.Context(), `update getwork.session set idle_at = clock_timestamp() + interval '10 minutes'`); err != nil {
		t.Fatal(err)
	}
	for _, call := range []struct {
		method, path string
		who          []string
	}{{"GET", "/api/v1/me", reader}, {"HEAD", "/api/v1/tasks", reader}, {"GET", "/api/v1/pipeline", reader}, {"POST", "/api/v1/me/active", actor}} {
		if status, answer := n.call(t, call.method, call.path, "", call.who...); status/100 != 2 {
			t.Fatalf("%s %s: %d %s", call.method, call.path, status, answer)
		}
	}
	timeout.Await(t, "what the node has seen is written", func() bool { return left("Tracy") > 20*time.Minute })
	if is := left("Oliver"); is > 10*time.Minute {
		t.Errorf("a session that only reads lives for another %s", is)
	}
}
