package web

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"

	"getwork/assign"
	"getwork/assign/rights"
	"getwork/schema/schematest"
)

// asCaller is a header with a Caller as JSON, which the identity of these tests believes.
const asCaller = "X-Test-Caller"

func believe(r *http.Request) (*Caller, error) {
	text := r.Header.Get(asCaller)
	if text == "" {
		return DevIdentity(r)
	}
	var c Caller
	err := json.Unmarshal([]byte(text), &c)
	return &c, err
}

func (c Caller) header(t *testing.T) headers {
	t.Helper()
	b, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	return headers{asCaller, string(b)}
}

// Every operation of the description says which scope a token needs. With any other it is refused, with that one it is not;
// a token for other tasks is refused, or sees nothing of these. An operation without a rule fails.
func TestScopes(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{identify: believe, rights: true})
	n.newTask(t, "mine", five, `,"paused":true`)
	n.newTask(t, "other", five, `,"paused":true`)
	n.newTask(t, "fourth", five, `,"paused":true`)
	n.newTask(t, "third", five, `,"paused":true`) // the others may be deleted on the way
	n.exec(t, `insert into getwork.principal (name, name_key, iss, sub, kind) values ('oliver', 'oliver', 'idp', '1', 'person')`)
	request := n.pendingRequest(t, "other", "oliver").ID
	n.exec(t, `insert into getwork.work (task_id, item, slot, user_name, instance, details, attempt)
		select task_id, 'x', 1, 'oliver', '', '{}', 1 from getwork.task_state where name = 'other'`)
	var work int64
	if err := n.db.QueryRow(t.Context(), `select id from getwork.work`).Scan(&work); err != nil {
		t.Fatal(err)
	}
	manager := Caller{Holder: assign.Holder{User: "oliver"}, Role: Manager, Admin: true, By: "token", Principal: 1, Groups: []string{}}
	filled := func(path, task string) string {
		path = strings.NewReplacer("{task}", task, "{item}", "loan%2F1", "{n}", "99", "{name}", "nobody").Replace(path)
		id := request
		if strings.Contains(path, "/work/") {
			id = work
		}
		return strings.ReplaceAll(path, "{id}", fmt.Sprint(id))
	}
	call := func(method, path string, c Caller) reply {
		r, err := n.Client().Do(n.request(t, method, path, c.header(t), map[bool]string{true: "{}"}[method != "GET"]))
		if err != nil {
			t.Fatal(err)
		}
		defer r.Body.Close()
		var body [4096]byte
		var read int
		if !strings.HasSuffix(path, "/events") || r.StatusCode != 200 {
			read, _ = r.Body.Read(body[:])
		}
		return reply{t, r.StatusCode, r.Header, string(body[:read]), 0}
	}
	missing := regexp.MustCompile(`this token is for .* and this call needs`)
	elsewhere := regexp.MustCompile(`this token is for (some|the) tasks`)
	for path, item := range mapOf(at(map[string]any(described(t)), "paths")) {
		if !strings.HasPrefix(path, "/api/") {
			continue
		}
		for method, operation := range mapOf(item) {
			method = strings.ToUpper(method)
			needs, _ := at(operation, "x-scope").(string)
			if !slices.Contains(rights.Scopes, needs) {
				t.Errorf("%s %s names no scope", method, path)
				continue
			}
			for _, scope := range rights.Scopes {
				c := manager
				c.Scopes = []string{scope}
				got := call(method, filled(path, "mine"), c)
				if refused := got.status == 403 && missing.MatchString(got.body); refused != (scope != needs) {
					t.Errorf("%s %s with the scope %s, needing %s: %d %s", method, path, scope, needs, got.status, got.body)
				}
			}
			c := manager
			c.Tasks = []string{"mine"}
			got := call(method, filled(path, "other"), c)
			narrowed := slices.Contains([]string{"GET /api/v1/me", "GET /api/v1/tasks", "GET /api/v1/pipeline", "GET /api/v1/day", "GET /api/v1/alerts", "GET /api/v1/events", "GET /api/v1/ws", "POST /api/v1/me/active",
				"POST /api/v1/requests", "POST /api/v1/work/dispositions", "POST /api/v1/work/extend"}, method+" "+path) // of much work each is refused alone, see below
			if refused := (got.status == 403 || got.status == 400) && elsewhere.MatchString(got.body); refused == narrowed {
				t.Errorf("%s %s for another task: %d %s", method, path, got.status, got.body)
			}
			if narrowed && path != "/api/v1/events" && strings.Contains(got.body, `"other"`) {
				t.Errorf("%s %s shows another task: %s", method, path, got.body)
			}
		}
	}
	// Claiming is work; in the name of somebody else it is managing, too, and for managers alone.
	for _, role := range assign.Roles {
		for _, scopes := range [][]string{nil, {rights.ScopeWork}, {rights.ScopeManage}, {rights.ScopeWork, rights.ScopeManage}} {
			for _, task := range []string{"third", "fourth"} {
				c := manager
				c.Role, c.Scopes, c.Tasks = role, scopes, []string{"third"}
				got := n.call(t, "POST", "/api/v1/tasks/"+task+"/items/loan%2F1/claim", c.header(t), `{"user":"tracy","force":true}`)
				may := role == Manager && task == "third" && (scopes == nil || len(scopes) == 2)
				if may != (got.status == 409) || !may && got.status != 403 { // both tasks are paused
					t.Errorf("a %s's token with the scopes %v gives an item of %s: %d %s", role, scopes, task, got.status, got.body)
				}
			}
		}
	}
	// Nor does a token for some tasks make rules for others, or give its task a name that is not one of its own.
	tag := fmt.Sprintf(`"%d"`, read[assign.Task](n.call(t, "GET", "/api/v1/tasks/third", manager.header(t), "")).Version)
	narrow := manager
	narrow.Tasks = []string{"third"}
	for _, body := range []string{`{"conflicts_with":["fourth"]}`, `{"name":"fifth"}`} {
		if got := n.call(t, "PATCH", "/api/v1/tasks/third", append(narrow.header(t), "If-Match", tag), body); got.status != 403 {
			t.Errorf("%s by a token for another task: %d %s", body, got.status, got.body)
		}
	}
	// Nor does it restore such a rule.
	n.call(t, "PATCH", "/api/v1/tasks/third", append(manager.header(t), "If-Match", tag), `{"conflicts_with":["fourth"]}`).want(200)
	ruled := read[assign.Task](n.call(t, "GET", "/api/v1/tasks/third", manager.header(t), "")).Version
	restore := func(version int, c Caller) reply {
		return n.call(t, "POST", fmt.Sprintf("/api/v1/tasks/third/versions/%d/restore", version), c.header(t), "")
	}
	restore(ruled-1, narrow).want(200) // ends the rule
	restore(ruled, narrow).refused(403, "forbidden")
	restore(ruled, manager).want(200)
	restore(ruled, narrow).want(200) // keeps it
	// Asked for by name, the token's own tasks are shown, and others with them are not.
	limited := manager
	limited.Tasks = []string{"third"}
	for _, path := range []string{"/requests", "/work", "/holders", "/history", "/returns", "/webhooks"} {
		if got := call("GET", "/api/v1"+path+"?task=third", limited); got.status != 200 {
			t.Errorf("%s of its own task: %d %s", path, got.status, got.body)
		}
		if got := call("GET", "/api/v1"+path+"?task=third,other", limited); got.status != 403 {
			t.Errorf("%s of another task, too: %d %s", path, got.status, got.body)
		}
	}
}

// A token for some tasks learns nothing of those that do not exist for its user: somebody else's requests and work are answered as
// without the limit. Of the user's own it reads that it is for other tasks.
func TestNarrowTokensLearnNoNames(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{identify: believe, rights: true})
	n.newTask(t, "mine", five, `,"paused":true`)
	n.newTask(t, "open", five, `,"paused":true`)
	n.newTask(t, "secret", five, `,"paused":true,"groups":["board"]`)
	held := func(task, user string) (paths []string) {
		t.Helper()
		for _, insert := range []string{
			`insert into getwork.work_requested (task_id, user_name, instance, wanted, requested)
			select task_id, $2, '', 1, 1 from getwork.task_state where name = $1 returning '/api/v1/requests/' || id`,
			`insert into getwork.work (task_id, item, slot, user_name, instance, details, attempt)
			select task_id, $2, 1, $2, '', '{}', 1 from getwork.task_state where name = $1 returning '/api/v1/work/' || id`,
		} {
			var path string
			if err := n.db.QueryRow(t.Context(), insert, task, user).Scan(&path); err != nil {
				t.Fatal(err)
			}
			paths = append(paths, path)
		}
		return paths
	}
	type row struct{ task, user string }
	rows := map[row][]string{}
	for _, r := range []row{{"secret", "tracy"}, {"open", "tracy"}, {"secret", "oliver"}, {"open", "oliver"}} {
		rows[r] = held(r.task, r.user)
	}
	for _, role := range []Role{Worker, Agent, Observer, Manager} {
		c := Caller{Holder: assign.Holder{User: "oliver"}, Role: role, By: "token", Principal: 1, Groups: []string{}}
		narrow := c
		narrow.Tasks = []string{"mine"}
		for r, paths := range rows {
			for _, call := range []string{"GET " + paths[0], "DELETE " + paths[0], "GET " + paths[1], "POST " + paths[1] + "/disposition", "POST " + paths[1] + "/extend"} {
				method, path, _ := strings.Cut(call, " ")
				body := map[bool]string{true: `{"outcome":"complete"}`}[strings.HasSuffix(path, "disposition")]
				got := n.call(t, method, path, narrow.header(t), body)
				switch {
				case role == Observer && path != paths[1]: // is not for them
					got.want(403)
				case role == Observer || role == Manager || r == row{"open", "oliver"}:
					if got.status != 403 || !strings.Contains(got.body, "this token is for the tasks mine, not for ") || !strings.Contains(got.body, r.task) {
						t.Errorf("%s, %s of %s's work in %s: %d %s", role, call, r.user, r.task, got.status, got.body)
					}
				case r.user == "oliver":
					got.refused(404, "not-found")
				default:
					if unlimited := n.call(t, method, path, c.header(t), body); got.status != 404 || got.body != unlimited.body {
						t.Errorf("%s, %s of %s's work in %s: %d %s, and without the limit %d %s", role, call, r.user, r.task, got.status, got.body, unlimited.status, unlimited.body)
					}
				}
			}
			if role == Observer {
				continue
			}
			// In one call for much, each is refused with the same words.
			id := paths[1][strings.LastIndex(paths[1], "/")+1:]
			for path, bodies := range map[string][2]string{
				"disposition": {"/api/v1/work/dispositions", `{"dispositions":[{"id":"` + id + `","outcome":"complete"}]}`},
				"extend":      {"/api/v1/work/extend", `{"ids":["` + id + `"]}`},
			} {
				alone := n.call(t, "POST", paths[1]+"/"+path, narrow.header(t), map[bool]string{true: `{"outcome":"complete"}`}[path == "disposition"])
				together := read[results](n.call(t, "POST", bodies[0], narrow.header(t), bodies[1]).want(200)).Results[0]
				if want := read[assign.Problem](alone); together.Status != alone.status || together.Problem.Detail != want.Detail || together.Problem.Type != want.Type {
					t.Errorf("%s, %s of %s's work in %s: together %d %+v, alone %s", role, path, r.user, r.task, together.Status, together.Problem, alone.body)
				}
			}
		}
	}
}

// The admin bit is beside the role: neither gives what the other does.
func TestAdminBit(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{identify: believe, rights: true})
	n.exec(t, `insert into getwork.principal (name, name_key, iss, sub, kind) values ('ada', 'ada', 'idp', '1', 'person'), ('mia', 'mia', 'idp', '2', 'person')`)
	ada := Caller{Holder: assign.Holder{User: "ada"}, Admin: true, By: "session", Principal: 1}
	mia := Caller{Holder: assign.Holder{User: "mia"}, Role: Manager, By: "session", Principal: 2, Groups: []string{}}
	for call, may := range map[string]*Caller{
		"GET /users": &ada, "PATCH /users/mia": &ada, "GET /sessions?user=ada": &ada, "GET /tokens?user=ada": &ada,
		"GET /tasks": &mia, "GET /pipeline": &mia, "GET /work": &mia, "POST /tasks": &mia, "GET /events": &mia,
	} {
		method, path, _ := strings.Cut(call, " ")
		for _, c := range []*Caller{&ada, &mia} {
			r, err := n.Client().Do(n.request(t, method, "/api/v1"+path, c.header(t), map[bool]string{true: `{"blocked":false}`}[method != "GET"]))
			if err != nil {
				t.Fatal(err)
			}
			r.Body.Close()
			refused := r.StatusCode == 403 || r.StatusCode == 404
			if refused != (c != may) {
				t.Errorf("%s as %s: %d", call, c.Holder.User, r.StatusCode)
			}
		}
	}
}

// A screen on a wall reads how much there is, and no queries. Nothing else answers it; a new operation is refused until it is
// listed here.
func TestWallReadsCounts(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{identify: believe, rights: true})
	n.newTask(t, "loans", five, `,"groups":["desk"]`)
	screen := Caller{Holder: assign.Holder{User: "wall"}, Role: Observer, By: "session", Principal: 1, Groups: []string{}, Wall: true}
	shown := []string{"GET /api/v1/me", "GET /api/v1/tasks", "GET /api/v1/tasks/{task}", "GET /api/v1/history", "GET /api/v1/events", "GET /api/v1/ws"}
	found := 0
	for path, item := range mapOf(at(map[string]any(described(t)), "paths")) {
		if !strings.HasPrefix(path, "/api/") {
			continue
		}
		for method := range mapOf(item) {
			call := strings.ToUpper(method) + " " + path
			r, err := n.Client().Do(n.request(t, strings.ToUpper(method), strings.NewReplacer("{task}", "loans", "{item}", "1", "{n}", "1", "{name}", "mia", "{id}", "1").Replace(path),
				screen.header(t), map[bool]string{true: "{}"}[method != "get"]))
			if err != nil {
				t.Fatal(err)
			}
			var body [4096]byte
			read, _ := r.Body.Read(body[:])
			r.Body.Close()
			text := string(body[:read])
			if refused := r.StatusCode == 403 && strings.Contains(text, "counts and nothing else"); refused == slices.Contains(shown, call) {
				t.Errorf("%s of a screen: %d %s", call, r.StatusCode, text)
			}
			if slices.Contains(shown, call) {
				found++
			}
			if strings.Contains(text, `"query"`) {
				t.Errorf("%s shows a query: %s", call, text)
			}
		}
	}
	if found != len(shown) {
		t.Errorf("%d of %d operations are described", found, len(shown))
	}
}
