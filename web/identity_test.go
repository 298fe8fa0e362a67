package web

import (
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/schema/schematest"
)

func TestWhoAsks(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	me := func(h ...string) reply { return n.call(t, "GET", "/api/v1/me", h, "") }
	me().refused(401, "unauthenticated")
	me("X-Getwork-Role", "manager").refused(401, "unauthenticated")
	type who struct {
		User, Role string
		Groups     []string
	}
	if got := read[who](me("X-Getwork-User", "Zoë 田").want(200)); got.User != "Zoë 田" || got.Role != "worker" || got.Groups == nil {
		t.Errorf("%+v", got)
	}
	if got := read[who](me("X-Getwork-User", "o", "X-Getwork-Role", "agent", "X-Getwork-Groups", "a, b,,").want(200)); got.Role != "agent" || strings.Join(got.Groups, "|") != "a|b" {
		t.Errorf("%+v", got)
	}
	me("X-Getwork-User", strings.Repeat("u", 128), "X-Getwork-Instance", strings.Repeat("i", 64)).want(200)
	me("X-Getwork-User", strings.Repeat("u", 129)).refused(400, "invalid", "user")
	me("X-Getwork-User", "a\xff").refused(400, "invalid", "user")
	me("X-Getwork-User", "a\tb").refused(400, "invalid", "user")
	me("X-Getwork-User", "a", "X-Getwork-Instance", strings.Repeat("i", 65)).refused(400, "invalid", "instance")
	me("X-Getwork-User", "a", "X-Getwork-Instance", "a/b").refused(400, "invalid", "instance")
	me("X-Getwork-User", "a", "X-Getwork-Role", "king").refused(400, "invalid", "role")
	me("X-Getwork-User", "a", "X-Getwork-Groups", "a,b\xff").refused(400, "invalid", "groups")
	me("X-Getwork-User", "a", "X-Getwork-Groups", strings.Repeat("g", 129)).refused(400, "invalid", "groups")
}

// Under --auth dev the server answers only to the machine's own names.
func TestHost(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	for _, host := range []string{"localhost", "LOCALHOST:80", "127.0.0.1", "127.0.0.1:8080", "[::1]", "[::1]:8080"} {
		n.call(t, "GET", "/api/v1/me", as("oliver", "Host", host), "").want(200)
	}
	for _, host := range []string{"evil.example", "localhost.evil.example", "127.0.0.2", "0.0.0.0:8080", "[::2]:80", "localhost.", "127.0.0.1.nip.io:80"} {
		for _, path := range []string{"/api/v1/me", "/", "/livez", "/nothing"} {
			r := n.request(t, "GET", path, as("oliver", "Host", host), "")
			response, err := n.Client().Do(r)
			if err != nil {
				t.Fatal(err)
			}
			response.Body.Close()
			if response.StatusCode != 421 || response.Header.Get("Content-Type") != "application/problem+json" {
				t.Errorf("%s of %s: %d", path, host, response.StatusCode)
			}
		}
	}
}

// Each role's allowed and refused calls.
func TestRoles(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	table := map[string]string{
		"GET /tasks":                  "worker agent observer manager",
		"GET /tasks/verify":           "worker agent observer manager",
		"GET /me":                     "worker agent observer manager",
		"POST /tasks":                 "manager",
		"PATCH /tasks/verify":         "manager",
		"DELETE /tasks/none":          "manager",
		"GET /tasks/verify/runs":      "observer manager",
		"GET /tasks/verify/log":       "observer manager",
		"GET /schema":                 "manager",
		"POST /tasks/verify/requests": "worker agent manager",
		"GET /tasks/verify/versions":  "manager",
		"POST /tasks/verify/preview":  "manager",
		"POST /tasks/verify/compare":  "manager",
		"POST /preview":               "manager",
		"POST /tasks/verify/items":    "agent manager",
		"POST /tasks/verify/redrive":  "manager",
		"GET /tasks/verify/items/1":   "manager",

		"POST /tasks/verify/items/none/claim":     "worker agent manager",
		"POST /tasks/verify/versions/999/restore": "manager",

		"GET /work":               "observer manager",
		"GET /work/999":           "worker agent observer manager",
		"GET /holders":            "observer manager",
		"POST /work/release":      "manager",
		"POST /work/999/extend":   "worker agent manager",
		"POST /work/999/later":    "worker manager",
		"POST /work/dispositions": "worker agent manager",
		"POST /work/extend":       "worker agent manager",
		"POST /work/999/reassign": "manager",

		"GET /absences":                      "worker agent observer manager",
		"POST /absences":                     "worker agent manager",
		"DELETE /absences/999":               "worker agent manager",
		"PUT /people/none/absences?source=x": "manager",
		"GET /people/none/skills":            "worker agent observer manager",
		"PUT /people/none/skills":            "manager",

		"GET /webhooks":                "manager",
		"POST /webhooks":               "manager",
		"DELETE /webhooks/999":         "manager",
		"POST /webhooks/999/test":      "manager",
		"POST /webhooks/999/rotate":    "manager",
		"GET /webhooks/999/deliveries": "manager",
		"POST /webhooks/999/redrive":   "manager",

		"GET /limits": "observer manager",
		"PUT /limits": "manager",

		"GET /requests":  "observer manager",
		"POST /requests": "worker agent manager",
		"GET /history":   "observer manager",
		"GET /returns":   "observer manager",

		"GET /requests/999":          "worker agent manager",
		"DELETE /requests/999":       "worker agent manager",
		"GET /pipeline":              "worker agent manager",
		"GET /day":                   "worker agent manager",
		"GET /alerts":                "observer manager",
		"POST /work/999/disposition": "worker agent manager",
		"GET /ws":                    "worker agent observer manager",
		"GET /events?task=none":      "worker agent observer manager",
	}
	for path, item := range at(map[string]any(described(t)), "paths").(map[string]any) {
		for method := range item.(map[string]any) {
			tested := slices.ContainsFunc(slices.Collect(maps.Keys(table)), func(call string) bool {
				m, p, _ := strings.Cut(call, " ")
				p, _, _ = strings.Cut(p, "?")
				return strings.EqualFold(m, method) && matchesTemplate(path, "/api/v1"+p)
			})
			people := slices.Contains(at(item, method, "tags").([]any), any("people")) // TestScopes has those, which dev has not
			if strings.HasPrefix(path, "/api/") && !tested && !people {
				t.Errorf("the table lacks %s %s", method, path)
			}
		}
	}
	for call, may := range table {
		method, path, _ := strings.Cut(call, " ")
		n.call(t, method, "/api/v1"+path, nil, "{}").refused(401, "unauthenticated")
		for _, role := range assign.Roles {
			h := as("oliver", "X-Getwork-Role", string(role))
			if path == "/ws" { // what it answers here is no JSON
				n.call(t, method, "/api/v1"+path, h, "").refused(400, "invalid")
				h = append(h, "Upgrade", "websocket")
				response, err := n.Client().Do(n.request(t, method, "/api/v1"+path, h, ""))
				if err != nil {
					t.Fatal(err)
				}
				response.Body.Close()
				if response.StatusCode != 200 {
					t.Errorf("%s as %s: %d", call, role, response.StatusCode)
				}
				continue
			}
			got := n.call(t, method, "/api/v1"+path, h, "{}")
			if allowed := strings.Contains(may, string(role)); allowed == (got.status == 403) {
				t.Errorf("%s as %s: %d", call, role, got.status)
			} else if !allowed {
				got.refused(403, "forbidden")
			}
		}
	}
}

// Another user's request does not exist for a worker; a manager sees it.
func TestSomebodyElses(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"paused":true`)
	n.pendingRequest(t, "verify", "oliver")
	n.call(t, "GET", "/api/v1/requests/1", as("tracy"), "").refused(404, "not-found")
	n.call(t, "GET", "/api/v1/requests/1", as("tracy", "Prefer", "wait=100"), "").refused(404, "not-found")
	n.call(t, "GET", "/api/v1/requests/1", as("oliver", "X-Getwork-Instance", "i1"), "").refused(404, "not-found")
	n.call(t, "GET", "/api/v1/requests/1", manager(), "").want(200)

	n.call(t, "GET", "/api/v1/pipeline?user=oliver", as("tracy"), "").refused(403, "forbidden")
	n.call(t, "GET", "/api/v1/pipeline?user=oliver", as("oliver"), "").want(200)
	n.call(t, "GET", "/api/v1/pipeline?user=%00", manager(), "").refused(400, "invalid", "user")
	n.call(t, "GET", "/api/v1/pipeline?user=%ff", manager(), "").refused(400, "invalid", "user")
	n.call(t, "GET", "/api/v1/pipeline?user=oliver%zz", manager(), "").refused(400, "invalid") // and not the manager's own
	if p := read[assign.Pipeline](n.call(t, "GET", "/api/v1/pipeline?user=oliver", manager(), "").want(200)); len(p.Requests) != 1 {
		t.Errorf("pipeline %+v", p)
	}
	if p := n.call(t, "GET", "/api/v1/pipeline", as("tracy"), "").want(200); p.body != "{\"work\":[],\"requests\":[]}\n" {
		t.Errorf("empty pipeline: %s", p.body)
	}
}

// The log-in page's cookie identifies the caller, unless a header does.
func TestCookie(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	logIn := func(body string) reply { return n.call(t, "POST", "/login", nil, body) }
	cookieOf := func(r reply) *http.Cookie {
		t.Helper()
		cookie, err := http.ParseSetCookie(r.want(204).header.Get("Set-Cookie"))
		if err != nil {
			t.Fatal(err)
		}
		if !cookie.HttpOnly || cookie.SameSite != http.SameSiteStrictMode || cookie.Path != "/" || cookie.Domain != "" {
			t.Errorf("cookie %v", cookie)
		}
		return cookie
	}
	cookie := cookieOf(logIn(`{"user":"Zoë; x=y&role=king","role":"manager"}`))
	me := func(h ...string) map[string]any {
		t.Helper()
		return read[map[string]any](n.call(t, "GET", "/api/v1/me", h, "").want(200))
	}
	sent := cookie.Name + "=" + cookie.Value
	if got := me("Cookie", sent); got["user"] != "Zoë; x=y&role=king" || got["role"] != "manager" {
		t.Errorf("the cookie says %v", got)
	}
	if got := me("Cookie", sent, "X-Getwork-User", "oliver"); got["user"] != "oliver" || got["role"] != "worker" {
		t.Errorf("cookie and header say %v", got)
	}
	grouped := cookieOf(logIn(`{"user":"oliver","groups":" loans, desk,,"}`))
	if got := me("Cookie", grouped.Name+"="+grouped.Value); text(t, got["groups"]) != `["loans","desk"]` || got["role"] != "worker" {
		t.Errorf("the cookie says %v", got)
	}
	if got := me("Cookie", grouped.Name+"="+grouped.Value, "X-Getwork-Groups", "other"); text(t, got["groups"]) != `["other"]` {
		t.Errorf("cookie and header say %v", got)
	}
	if got := me("Cookie", grouped.Name+"="+grouped.Value, "X-Getwork-User", "tracy"); text(t, got["groups"]) != `[]` {
		t.Errorf("another's groups: %v", got)
	}
	if cookie := cookieOf(n.call(t, "POST", "/logout", headers{"Cookie", sent}, "")); cookie.MaxAge >= 0 || cookie.Value != "" {
		t.Errorf("log-out leaves %v", cookie)
	}
	logIn(`{"user":""}`).refused(400, "invalid", "user")
	logIn(`{"user":"a\nb"}`).refused(400, "invalid", "user")
	logIn(`{"user":"a","role":"king"}`).refused(400, "invalid", "role")
	logIn(`{"user":"a","groups":"a\tb"}`).refused(400, "invalid", "groups")
	logIn(`{"user":"a","groups":["a"]}`).refused(400, "invalid", "groups")

	// An invalid cookie counts as none, so that its user can log in again.
	for _, bad := range []string{"user=a&role=king", "user=a%0ab", "user=a&role=worker&groups=a%0ab", "%zz", ""} {
		n.call(t, "GET", "/api/v1/me", headers{"Cookie", devCookie(strings.TrimPrefix(n.URL, "http://")) + "=" + bad}, "").refused(401, "unauthenticated")
		n.call(t, "POST", "/login", headers{"Cookie", devCookie(strings.TrimPrefix(n.URL, "http://")) + "=" + bad}, `{"user":"a"}`).want(204)
	}
}

// Calls by another site's page are refused, whatever the cookie; in old browsers, which send no
// Sec-Fetch-Site, answers to its reads stay invisible to it.
func TestCrossSite(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	post := func(h ...string) reply { return n.call(t, "POST", "/login", h, `{"user":"oliver"}`) }
	post("Sec-Fetch-Site", "cross-site").refused(403, "forbidden")
	post("Sec-Fetch-Site", "same-site").refused(403, "forbidden")
	post("Origin", "https://evil.example").refused(403, "forbidden")
	post("Origin", "null").refused(403, "forbidden")
	post("Sec-Fetch-Site", "same-origin", "Origin", n.URL).want(204)
	post("Origin", n.URL).want(204)
	post("Sec-Fetch-Site", "none").want(204)
	n.call(t, "DELETE", "/api/v1/tasks/verify", manager("Origin", "https://evil.example"), "").refused(403, "forbidden")
	n.call(t, "GET", "/api/v1/tasks", as("oliver", "Origin", "https://evil.example"), "").want(200).wantHeader("Access-Control-Allow-Origin", "")
}
