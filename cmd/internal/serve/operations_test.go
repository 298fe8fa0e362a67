package serve

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"getwork/schema/schematest"
)

var (
	fuzzCalls = flag.Int("serve.calls", 400, "the number of calls that TestOperations makes")
	fuzzSeed  = flag.Uint64("serve.seed", 1, "which ones")
)

// operation is one of openapi.json.
type operation struct {
	id, method, path string
	parameters       []map[string]any
	body             map[string]any // its schema; nil: none
	form             bool
}

// caller is somebody with a good credential.
type caller struct {
	*browser
	sub, token string // a token comes before the browser's cookies
}

// storm makes calls of all kinds, and knows what is there.
type storm struct {
	t          *testing.T
	r          *rand.Rand
	at         *bank
	described  map[string]any
	operations []operation
	callers    []*caller
	ended      string              // a token that has ended
	kept       string              // the id of one that must not end
	known      map[string][]string // values that were seen, by what they are
	used       map[string]string   // of known, by the call that is made: value, kind
	statuses   map[int]int
	deep, good int
}

func newStorm(t *testing.T) *storm {
	t.Helper()
	s := &storm{t: t, r: rand.New(rand.NewPCG(*fuzzSeed, 0)), known: map[string][]string{}, statuses: map[int]int{}}
	s.at = newBank(t, func(i *Identity) { i.TrustedProxy = []string{"127.0.0.1"} }) // so that each call may come from elsewhere
	file, err := os.ReadFile("../../../web/openapi.json")
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(file, &s.described); err != nil {
		t.Fatal(err)
	}
	paths := s.described["paths"].(map[string]any)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		methods := paths[path].(map[string]any)
		for _, method := range slices.Sorted(maps.Keys(methods)) {
			if path == "/metrics" || path == "/login" || path == "/logout" {
				continue // of --auth dev
			}
			d := methods[method].(map[string]any)
			o := operation{id: d["operationId"].(string), method: strings.ToUpper(method), path: path}
			all, _ := d["parameters"].([]any)
			for _, p := range all {
				o.parameters = append(o.parameters, s.resolve(p))
			}
			if content, _ := s.resolve(d["requestBody"])["content"].(map[string]any); content != nil {
				for kind, of := range content {
					o.body, o.form = s.resolve(of.(map[string]any)["schema"]), kind == "application/x-www-form-urlencoded"
				}
			}
			s.operations = append(s.operations, o)
		}
	}
	return s
}

func (s *storm) resolve(v any) map[string]any {
	m, _ := v.(map[string]any)
	for {
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		var at any = s.described
		for _, key := range strings.Split(strings.TrimPrefix(ref, "#/"), "/") {
			at = at.(map[string]any)[key]
		}
		m = at.(map[string]any)
	}
}

// one reports true once in n times.
func (s *storm) one(n int) bool { return s.r.IntN(n) == 0 }

func pick[T any](s *storm, from []T) T { return from[s.r.IntN(len(from))] }

var (
	oddTexts = []string{"", "x", " ", "0", "-1", "99999999999999999999", "a b", "ä", "木村", "a/b", "..", "%00", "\x00", "\u202e", "null", "true", "1h", "-5s", "72h", "90s", "1e9",
		"complete", "return", "never", "fail", "others", "2026-11-24T00:00:00Z", "select 1 as item", "select", "'; drop table getwork.work; --", strings.Repeat("long ", 2000), "\xff\xfe"}
	oddNumbers = []any{0, 1, 2, 3, 5, -1, 1000, 1 << 31, -(1 << 40), 1e300, 0.5}
	queries    = []string{"select g as item from generate_series(1, 20) g", "select g as item, 2 as slots from generate_series(1, 20) g", "select 1/0 as item",
		"select null as item", "selec", "select pg_sleep(1) as item", "select item from nowhere", "select $1 as item", "select 'x' as item; select 1"}
)

// kindOf says of which kind a parameter or a field is; empty: of none that is remembered.
func kindOf(where, name string) string {
	switch {
	case name == "task" || name == "tasks" || name == "conflicts_with":
		return "task"
	case name == "item" || name == "items":
		return "item"
	case name == "user" || name == "name" && strings.HasPrefix(where, "/api/v1/people"):
		return "user"
	case name == "id" || name == "ids":
		for _, kind := range []string{"requests", "work", "tokens", "sessions", "webhooks"} {
			if strings.HasPrefix(where, "/api/v1/"+kind) {
				return kind
			}
		}
	case name == "name" && strings.HasPrefix(where, "/api/v1/users"):
		return "stranger" // those who make calls stay as they are
	case name == "url":
		return "url"
	case name == "query" || name == "recheck":
		return "query"
	}
	return ""
}

// text returns a text for a parameter or a field, mostly one that means something.
func (s *storm) text(where, name string) string {
	kind := kindOf(where, name)
	if kind == "query" && !s.one(8) {
		return pick(s, queries)
	}
	if known := s.known[kind]; len(known) > 0 && !s.one(40) {
		value := pick(s, known)
		s.used[value] = kind
		return value
	}
	return pick(s, oddTexts)
}

// value makes a value for a schema, sometimes another one.
func (s *storm) value(where, name string, schema map[string]any, depth int) any {
	if s.one(150) || depth > 5 {
		return pick(s, append(oddNumbers, nil, true, "", []any{}, map[string]any{}, pick(s, oddTexts)))
	}
	for _, several := range []string{"anyOf", "allOf"} {
		if options, ok := schema[several].([]any); ok {
			return s.value(where, name, s.resolve(pick(s, options)), depth+1)
		}
	}
	if all, ok := schema["enum"].([]any); ok {
		return pick(s, all)
	}
	kind := schema["type"]
	if several, ok := kind.([]any); ok {
		kind = pick(s, several)
	}
	switch kind {
	case "null":
		return nil
	case "boolean":
		return s.one(2)
	case "integer", "number":
		if s.one(6) {
			return pick(s, oddNumbers)
		}
		return 1 + s.r.IntN(4)
	case "array":
		list := []any{}
		for range s.r.IntN(3) + 1 {
			list = append(list, s.value(where, name, s.resolve(schema["items"]), depth+1))
		}
		return list
	case "object":
		object := map[string]any{}
		required, _ := schema["required"].([]any)
		properties, _ := schema["properties"].(map[string]any)
		for _, name := range slices.Sorted(maps.Keys(properties)) {
			if (slices.Contains(required, any(name)) || name == "outcome") && !s.one(30) || s.one(8) { // without codes, one of both ways to end work is left
				object[name] = s.value(where, name, s.resolve(properties[name]), depth+1)
			}
		}
		return object
	}
	if pattern, _ := schema["pattern"].(string); strings.Contains(pattern, "[a-z0-9]") && s.one(2) { // a new task's name
		return fmt.Sprintf("task-%d", s.r.IntN(40))
	}
	if schema["format"] == "date-time" && !s.one(8) {
		return time.Now().Add(time.Duration(s.r.IntN(48)-24) * time.Hour).Format(time.RFC3339)
	}
	if d, _ := schema["pattern"].(string); d != "" && kindOf(where, name) == "" && !s.one(4) {
		return pick(s, []string{"0s", "1s", "90s", "1h", "24h"})
	}
	return s.text(where, name)
}

// request makes a call of an operation, without a credential.
func (s *storm) request(o operation) *http.Request {
	path, query := o.path, url.Values{}
	s.used = map[string]string{}
	for _, p := range o.parameters {
		name, _ := p["name"].(string)
		switch p["in"] {
		case "path":
			value := s.text(o.path, name)
			if name == "n" || name == "kind" {
				value = pick(s, []string{"1", "2", "0", "-1", "x", "lease-lost"})
			}
			if value == "" || strings.Trim(value, ".") == "" {
				value = "x" // another address
			}
			path = strings.Replace(path, "{"+name+"}", url.PathEscape(value), 1)
		case "query":
			if s.one(5) {
				query.Set(name, fmt.Sprint(s.value(o.path, name, s.resolve(p["schema"]), 0)))
			}
		}
	}
	var body io.Reader
	if o.body != nil {
		v := s.value(o.path, "", o.body, 0)
		b, err := json.Marshal(v)
		if err != nil {
			s.t.Fatal(err)
		}
		if fields, ok := v.(map[string]any); ok && o.form {
			form := url.Values{}
			for name, one := range fields {
				form.Set(name, fmt.Sprint(one))
			}
			b = []byte(form.Encode())
		}
		if s.one(60) {
			b = []byte(pick(s, []string{"", "{", "[]", "null", `{"a":1}{}`, strings.Repeat("[", 20_000), `"x"`, "\xff"}))
		}
		body = bytes.NewReader(b)
	}
	address := s.at.url + path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	r, err := http.NewRequestWithContext(s.t.Context(), o.method, address, body)
	if err != nil {
		s.t.Fatalf("%s %q: %v", o.method, address, err)
	}
	if body != nil {
		r.Header.Set("Content-Type", "application/json")
		if o.form {
			r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
		}
	}
	if o.method == "PATCH" && !s.one(10) {
		r.Header.Set("If-Match", pick(s, []string{"*", "*", `"1"`, "x"}))
	}
	if s.one(8) {
		r.Header.Set(pick(s, []string{"Idempotency-Key", "If-None-Match", "Prefer", "X-Getwork-Instance", "Accept"}), pick(s, []string{"a", "b", "*", "wait=0", "é", strings.Repeat("k", 300)}))
	}
	// Limits are an address's, and no matter of this test.
	r.Header.Set("X-Forwarded-For", netip.AddrFrom4([4]byte{203, byte(s.r.Uint32()), byte(s.r.Uint32()), byte(s.r.Uint32())}).String())
	return r
}

// send makes a call, and returns the status and the beginning of the answer.
func (s *storm) send(r *http.Request) (int, string) {
	client := &http.Client{Transport: plain.Transport, Timeout: plain.Timeout, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	response, err := client.Do(r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Method, r.URL, err)
	}
	defer response.Body.Close()
	s.statuses[response.StatusCode]++
	if response.Header.Get("Content-Type") == "text/event-stream" {
		return response.StatusCode, "" // it has no end
	}
	body, _ := io.ReadAll(io.LimitReader(response.Body, 200_000))
	return response.StatusCode, string(body)
}

// forget forgets what the last call named: something of it is not there any more.
func (s *storm) forget() {
	for value, kind := range s.used {
		if kind != "stranger" {
			s.known[kind] = slices.DeleteFunc(s.known[kind], func(one string) bool { return one == value })
		}
	}
}

// learn remembers what an answer names.
func (s *storm) learn(where string, v any) {
	switch v := v.(type) {
	case []any:
		for _, one := range v {
			s.learn(where, one)
		}
	case map[string]any:
		id, _ := v["id"].(string)
		add := func(kind, value string) {
			if value != "" && !slices.Contains(s.known[kind], value) {
				s.known[kind] = append(s.known[kind], value)
			}
		}
		_, wanted := v["wanted"]
		_, attempt := v["attempt"]
		_, scopes := v["scopes"]
		_, sub := v["sub"]
		_, hook := v["retry_at"]
		name, _ := v["name"].(string)
		item, _ := v["item"].(string)
		switch {
		case wanted:
			add("requests", id)
		case attempt:
			add("work", id)
			add("item", item)
		case scopes && id != s.kept:
			add("tokens", id)
		case hook:
			add("webhooks", id)
		case v["max_request"] != nil:
			add("task", name)
		case sub:
			add("user", name)
		}
		for _, one := range v {
			s.learn(where, one)
		}
	}
}

// comesIn logs a caller in.
func (s *storm) comesIn(c *caller) {
	c.browser = newBrowser(s.t)
	c.logIn(s.at, c.sub, "/")
}

// bad is a credential that is no good.
func (s *storm) bad(r *http.Request) string {
	if s.one(10) { // the node asks the database about few of them in a second
		r.AddCookie(&http.Cookie{Name: "__Host-getwork-" + port(s.at.url), Value: fmt.Sprintf("%043d", s.r.Uint64())})
		return "an unknown session"
	}
	value := pick(s, []string{"Bearer " + s.ended, "Bearer gw_abc", "Bearer", "Basic YTpi", "Bearer a.b.c", "Bearer " + s.ended[:len(s.ended)-1] + "~", "", "bearer x y"})
	r.Header.Set("Authorization", value)
	return fmt.Sprintf("Authorization: %.20q", value)
}

// Whatever somebody sends to any operation, a node never answers that it failed itself, and a bad credential is always answered
// 401. Most calls are about tasks, requests, work and tokens that exist. More calls: -serve.calls=20000, others: -serve.seed=2.
func TestOperations(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	s := newStorm(t)
	for _, sub := range []string{"0001", "0002", "0003", "0004"} {
		c := &caller{sub: sub}
		s.comesIn(c)
		s.callers = append(s.callers, c)
	}
	mia, ada := s.callers[2], s.callers[3]
	post := func(c *caller, path, body string) map[string]any {
		t.Helper()
		r, err := http.NewRequestWithContext(t.Context(), "POST", s.at.url+path, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Content-Type", "application/json")
		c.show(r)
		status, text := s.send(r)
		var answer map[string]any
		if err := json.Unmarshal([]byte(text), &answer); status/100 != 2 || err != nil {
			t.Fatalf("POST %s %s: %d %s", path, body, status, text)
		}
		s.learn(path, answer)
		return answer
	}
	// What is there at first.
	for i, query := range []string{`,"query":"select g as item from generate_series(1, 500) g","fresh_for":"1h","max_request":5`, `,"query":"select g as item from generate_series(1, 500) g"`, "", `,"lease":"1h"`} {
		post(mia, "/api/v1/tasks", fmt.Sprintf(`{"name":"first-%d"%s}`, i, query))
	}
	robot := post(ada, "/api/v1/tokens", `{"label":"an agent","scopes":["read","work","push"],"service":{"user":"robot","role":"agent"}}`)
	agent := &caller{browser: newBrowser(t), token: robot["token"].(string)}
	s.kept = robot["id"].(string)
	gone := post(ada, "/api/v1/tokens", `{"label":"to be ended","scopes":["read"],"service":{"user":"gone","role":"observer"}}`)
	s.ended = gone["token"].(string)
	s.known["tokens"], s.known["stranger"] = []string{gone["id"].(string)}, []string{"gone", "gone", "nobody"}
	s.callers = append(s.callers, agent)
	for n := range 6 {
		post(agent, "/api/v1/tasks/first-2/items", fmt.Sprintf(`[{"item":"photo-%d"},{"item":"paper/%d","priority":2}]`, n, n))
		s.known["item"] = append(s.known["item"], fmt.Sprintf("photo-%d", n), fmt.Sprint(n+1))
		post(s.callers[n%2], fmt.Sprintf("/api/v1/tasks/first-%d/requests", n%4), `{"count":2,"linger":"1h"}`)
	}
	s.known["url"] = []string{"https://localhost:9/", "https://169.254.169.254/latest"}
	for n := range 4 {
		post(mia, "/api/v1/webhooks", fmt.Sprintf(`{"task":"first-%d","url":"https://localhost:9/","events":["work.closed"]}`, n))
	}
	r, err := http.NewRequestWithContext(t.Context(), "DELETE", s.at.url+"/api/v1/tokens/"+gone["id"].(string), nil)
	if err != nil {
		t.Fatal(err)
	}
	ada.show(r)
	if status, text := s.send(r); status != 204 {
		t.Fatalf("end a token: %d %s", status, text)
	}

	seen := map[string]bool{}
	for n := range *fuzzCalls {
		o := s.operations[n%len(s.operations)]
		if n >= len(s.operations) {
			o = pick(s, s.operations)
		}
		seen[o.id] = true
		r := s.request(o)
		what := fmt.Sprintf("call %d (-serve.seed=%d), %s %.200s", n, *fuzzSeed, o.method, r.URL)
		var c *caller
		if private := strings.HasPrefix(o.path, "/api/"); private && s.one(3) {
			shown := s.bad(r)
			if status, text := s.send(r); status != http.StatusUnauthorized {
				t.Errorf("%s with %s: %d %.300s", what, shown, status, text)
			}
			continue
		} else if private || s.one(2) {
			c = s.caller(o.path)
			c.show(r)
		}
		status, text := s.send(r)
		if status >= 500 {
			t.Errorf("%s: %d %.300s", what, status, text)
		}
		if c == nil || !strings.HasPrefix(o.path, "/api/") {
			continue
		}
		if status == http.StatusUnauthorized && !strings.Contains(text, `"log_in":"/auth/login?again=1"`) {
			s.again(c, what, text)
			continue
		}
		s.good++
		if !slices.Contains([]int{400, 403, 404, 405, 426, 428}, status) {
			s.deep++
		}
		if status == 404 || o.method == "DELETE" && status/100 == 2 {
			s.forget()
		}
		var answer any
		if status/100 == 2 && json.Unmarshal([]byte(text), &answer) == nil {
			s.learn(o.path, answer)
		}
	}
	t.Logf("statuses %v; of %d calls with a good credential %d were about what exists", s.statuses, s.good, s.deep)
	if *fuzzCalls >= len(s.operations) && len(seen) != len(s.operations) {
		t.Errorf("%d of %d operations were called", len(seen), len(s.operations))
	}
	if 2*s.deep < s.good {
		t.Errorf("only %d of %d calls were about what exists", s.deep, s.good)
	}
}

// caller picks somebody, mostly somebody who may do what is below a path.
func (s *storm) caller(path string) *caller {
	admins := slices.ContainsFunc([]string{"users", "audit", "walls"}, func(list string) bool { return strings.HasPrefix(path, "/api/v1/"+list) })
	switch {
	case s.one(12):
		return pick(s, s.callers)
	case admins:
		return s.callers[3]
	case s.one(6):
		return s.callers[s.r.IntN(2)] // workers
	}
	return s.callers[2] // a manager
}

// show adds a caller's credential.
func (c *caller) show(r *http.Request) {
	if c.token != "" {
		r.Header.Set("Authorization", "Bearer "+c.token)
		return
	}
	for name, value := range c.cookies {
		r.AddCookie(&http.Cookie{Name: name, Value: value})
	}
}

// again logs a caller in whom a call has logged out. Nobody else may be answered 401.
func (s *storm) again(c *caller, what, text string) {
	s.t.Helper()
	if _, _, _, status := c.me(s.at); c.token != "" || status != http.StatusUnauthorized {
		s.t.Errorf("%s: 401 for a good credential: %.300s", what, text)
		return
	}
	s.comesIn(c)
}
