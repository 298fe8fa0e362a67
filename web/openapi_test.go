package web

import (
	"encoding/json"
	"fmt"
	"maps"
	"mime"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gorilla/mux"

	"getwork/assign"
)

// apiDescription is the description as a program reads it.
type apiDescription map[string]any

func described(t *testing.T) apiDescription {
	t.Helper()
	var d apiDescription
	if err := json.Unmarshal(description, &d); err != nil {
		t.Fatal(err)
	}
	return d
}

// at follows a path of keys; nil: it ends before.
func at(v any, keys ...string) any {
	for _, key := range keys {
		m, ok := v.(map[string]any)
		if !ok {
			return nil
		}
		v = m[key]
	}
	return v
}

// resolve follows references.
func (d apiDescription) resolve(v any) map[string]any {
	for {
		m, _ := v.(map[string]any)
		ref, ok := m["$ref"].(string)
		if !ok {
			return m
		}
		v = at(map[string]any(d), strings.Split(strings.TrimPrefix(ref, "#/"), "/")...)
	}
}

// answer returns the differences between an answer and its description.
func (d apiDescription) answer(method, path string, r reply) []string {
	schema, response := d.expected(method, path, r)
	kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
	switch {
	case response == nil && r.status < 400:
		return []string{"no such answer is described"}
	case response == nil: // an address that is not there
		schema = map[string]any{"$ref": "#/components/schemas/Problem"}
	case r.body == "" || strings.HasPrefix(kind, "text/"):
		return nil
	case schema == nil:
		return []string{"it has a body of kind " + kind}
	}
	if method == "HEAD" {
		return nil
	}
	var v any
	if err := json.Unmarshal([]byte(r.body), &v); err != nil {
		return []string{err.Error()}
	}
	return d.check("", schema, v)
}

// expected returns the description of an answer.
func (d apiDescription) expected(method, path string, r reply) (schema any, response map[string]any) {
	if method == "HEAD" {
		method = "GET"
	}
	path, _, _ = strings.Cut(path, "?")
	for template, item := range at(map[string]any(d), "paths").(map[string]any) {
		call := at(item, strings.ToLower(method))
		if call == nil || !matchesTemplate(template, path) {
			continue
		}
		response = d.resolve(at(call, "responses", fmt.Sprint(r.status)))
		if response == nil && r.status >= 400 {
			response = d.resolve(at(call, "responses", "default"))
		}
		kind, _, _ := mime.ParseMediaType(r.header.Get("Content-Type"))
		return at(response, "content", kind, "schema"), response
	}
	return nil, nil
}

// matchesTemplate reports whether a path is one of those that a template such as /tasks/{task} stands for.
func matchesTemplate(template, path string) bool {
	pattern := regexp.MustCompile(`\\\{[a-z]+\\\}`).ReplaceAllString(regexp.QuoteMeta(template), `[^/]+`)
	return regexp.MustCompile("^" + pattern + "$").MatchString(path)
}

// check says what is not as described in a value: properties that nobody described, required ones that are missing,
// wrong types, values that are not listed.
func (d apiDescription) check(where string, described, v any) (wrong []string) {
	schema := d.resolve(described)
	if options, ok := schema["anyOf"].([]any); ok {
		for _, option := range options {
			wrong = d.check(where, option, v)
			if len(wrong) == 0 {
				return nil
			}
		}
		return wrong
	}
	if values, ok := schema["enum"].([]any); ok && !slices.Contains(values, v) {
		return []string{fmt.Sprintf("%s is %v, want one of %v", where, v, values)}
	}
	if kinds := schema["type"]; kinds != nil && !slices.ContainsFunc(kindsOf(v), func(kind string) bool {
		list, _ := kinds.([]any)
		return kinds == kind || slices.Contains(list, any(kind))
	}) {
		return []string{fmt.Sprintf("%s is %T, want %v", where, v, kinds)}
	}
	switch v := v.(type) {
	case string:
		if pattern, ok := schema["pattern"].(string); ok && !regexp.MustCompile(pattern).MatchString(v) {
			wrong = append(wrong, fmt.Sprintf("%s is %q, want %s", where, v, pattern))
		}
	case []any:
		for i, one := range v {
			wrong = append(wrong, d.check(fmt.Sprintf("%s[%d]", where, i), schema["items"], one)...)
		}
	case map[string]any:
		wrong = append(wrong, d.checkObject(where, schema, v)...)
	}
	return wrong
}

func (d apiDescription) checkObject(where string, schema, v map[string]any) (wrong []string) {
	required, _ := schema["required"].([]any)
	for _, name := range required {
		if _, ok := v[name.(string)]; !ok {
			wrong = append(wrong, fmt.Sprintf("%s.%s is missing", where, name))
		}
	}
	for name, one := range v {
		property := at(schema, "properties", name)
		switch {
		case property != nil:
			wrong = append(wrong, d.check(where+"."+name, property, one)...)
		case at(schema, "additionalProperties", "type") != nil:
			wrong = append(wrong, d.check(where+"."+name, at(schema, "additionalProperties"), one)...)
		case schema["additionalProperties"] != true:
			wrong = append(wrong, fmt.Sprintf("%s.%s is not described", where, name))
		}
	}
	return wrong
}

// kindsOf are JSON Schema's names of a value's type.
func kindsOf(v any) []string {
	switch v := v.(type) {
	case nil:
		return []string{"null"}
	case bool:
		return []string{"boolean"}
	case string:
		return []string{"string"}
	case float64:
		if v == float64(int64(v)) {
			return []string{"integer", "number"}
		}
		return []string{"number"}
	case []any:
		return []string{"array"}
	}
	return []string{"object"}
}

// Every route is described, and nothing else is. Those of the log-in are compared where there is one, in cmd/internal/serve.
func TestEveryRouteIsDescribed(t *testing.T) {
	t.Parallel()
	s := &server{Config: Config{LogInBy: "dev"}}
	var routes []string
	err := s.router().Walk(func(route *mux.Route, _ *mux.Router, _ []*mux.Route) error {
		path, err := route.GetPathTemplate()
		methods, _ := route.GetMethods()
		if err != nil || strings.HasPrefix(path, "/static/") || strings.HasPrefix(path, "/docs/") || path == "/favicon.ico" || path != "/" && slices.Contains(views, path) {
			return nil // files of the pages
		}
		for _, method := range methods {
			if method != "HEAD" {
				routes = append(routes, method+" "+path)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	var calls []string
	for path, item := range at(map[string]any(described(t)), "paths").(map[string]any) {
		for method := range item.(map[string]any) {
			if strings.HasPrefix(path, "/auth/") {
				continue
			}
			calls = append(calls, strings.ToUpper(method)+" "+path)
		}
	}
	slices.Sort(routes)
	slices.Sort(calls)
	if diff := cmp.Diff(routes, calls); diff != "" {
		t.Errorf("routes (-) and what is described (+) differ:\n%s", diff)
	}
}

// Every reference leads somewhere, every call has a name of its own and the parameters of its path, and the examples
// are as described.
func TestDescriptionIsSound(t *testing.T) {
	t.Parallel()
	d := described(t)
	var walk func(v any)
	walk = func(v any) {
		switch v := v.(type) {
		case map[string]any:
			if ref, ok := v["$ref"]; ok && d.resolve(v) == nil {
				t.Errorf("%v leads nowhere", ref)
			}
			for _, one := range v {
				walk(one)
			}
		case []any:
			for _, one := range v {
				walk(one)
			}
		}
	}
	walk(map[string]any(d))
	names := map[string]bool{}
	for path, item := range at(map[string]any(d), "paths").(map[string]any) {
		for method, call := range item.(map[string]any) {
			name, _ := at(call, "operationId").(string)
			if name == "" || names[name] {
				t.Errorf("%s %s: operationId %q is missing or taken", method, path, name)
			}
			names[name] = true
			checkParameters(t, d, path, call)
			for _, status := range []string{"200", "201", "202"} {
				answer := at(d.resolve(at(call, "responses", status)), "content", "application/json")
				if answer == nil {
					continue
				}
				example := at(answer, "example")
				if example == nil {
					example = d.resolve(at(answer, "examples", "usual"))["value"]
				}
				if example == nil {
					t.Errorf("%s %s: %s has no example", method, path, status)
				} else if wrong := d.check("", at(answer, "schema"), example); len(wrong) > 0 {
					t.Errorf("%s %s: the example of %s: %v", method, path, status, wrong)
				}
			}
			for kind, body := range mapOf(at(call, "requestBody", "content")) {
				schemas := []any{at(body, "schema")}
				if all, ok := at(body, "schema", "allOf").([]any); ok {
					schemas = all[:1]
				}
				for _, schema := range schemas {
					if wrong := d.check("", schema, at(body, "example")); len(wrong) > 0 {
						t.Errorf("%s %s: the example of %s: %v", method, path, kind, wrong)
					}
				}
			}
		}
	}
}

func checkParameters(t *testing.T, d apiDescription, path string, call any) {
	t.Helper()
	var want, got []string
	for _, match := range regexp.MustCompile(`\{([a-z]+)\}`).FindAllStringSubmatch(path, -1) {
		want = append(want, match[1])
	}
	parameters, _ := at(call, "parameters").([]any)
	for _, parameter := range parameters {
		if p := d.resolve(parameter); p["in"] == "path" {
			got = append(got, p["name"].(string))
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s: parameters %v, want %v", path, got, want)
	}
}

func mapOf(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// The description lists all problems by their types.
func TestProblemsAreDescribed(t *testing.T) {
	t.Parallel()
	want := strings.Fields(`invalid unauthenticated log-in-failed name-taken forbidden not-found method-not-allowed not-pending already-closed lease-lost
		not-available no-slot exists in-use run-under-way stale-version query-refused idempotency-mismatch too-large busy rate-limited unavailable internal`)
	var got []string
	for _, kind := range at(map[string]any(described(t)), "components", "schemas", "Problem", "properties", "type", "enum").([]any) {
		got = append(got, strings.TrimPrefix(kind.(string), "/problems/"))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// The page of the description needs nothing that the content security policy forbids: every script and style of
// its is a file of this server. TestGuides looks whether they are there.
func TestDocs(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	if got := n.call(t, "GET", "/openapi.json", nil, "").want(200).wantHeader("Content-Type", "application/json"); got.body != string(description) {
		t.Error("another description is served")
	}
	page := n.call(t, "GET", "/docs", nil, "").want(200).wantHeader("Content-Type", "text/html; charset=utf-8").body
	if regexp.MustCompile(`<style|style=|\son[a-z]+=|<script[^>]*>[^<]`).MatchString(page) {
		t.Error("the page has a script or a style in it")
	}
	kinds := map[string]string{}
	for _, match := range regexp.MustCompile(`(?:<script[^>]* src|<link rel="stylesheet" href)="([^"]+)"`).FindAllStringSubmatch(page, -1) {
		kinds[path.Base(match[1])] = n.get(t, match[1]).header.Get("Content-Type")
	}
	const css, js = "text/css; charset=utf-8", "text/javascript; charset=utf-8"
	want := map[string]string{"tokens.css": css, "base.css": css, "docs.css": css, "theme.js": js, "docs.js": js}
	if !maps.Equal(kinds, want) {
		t.Errorf("the page loads %v, want %v", kinds, want)
	}
}

// get fetches a file of a page, which is not part of the API's description.
func (n *station) get(t *testing.T, path string) reply {
	t.Helper()
	response, err := n.Client().Do(n.request(t, "GET", path, nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	return reply{t: t, status: response.StatusCode, header: response.Header}.want(200)
}

// An unknown query parameter is refused by every call of the API, and the refusal names those that there are. Elsewhere it is ignored,
// because identity providers add some.
func TestUnknownParametersAreRefused(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{identify: believe})
	n.newTask(t, "verify", five, "")
	ada := Caller{Holder: assign.Holder{User: "ada"}, Role: Manager, Admin: true, By: "session", Groups: []string{}}.header(t)
	calls := 0
	for path, item := range mapOf(at(map[string]any(described(t)), "paths")) {
		address, api := strings.CutPrefix(path, "/api/v1/")
		if !api {
			continue
		}
		address = strings.NewReplacer("{task}", "verify", "{item}", "1", "{id}", "1", "{n}", "1", "{name}", "maria").Replace(address)
		for method, call := range mapOf(item) {
			calls++
			var known []string
			list, _ := at(call, "parameters").([]any)
			for _, p := range list {
				if p := described(t).resolve(p); p["in"] == "query" {
					known = append(known, p["name"].(string))
				}
			}
			r := n.call(t, strings.ToUpper(method), "/api/v1/"+address+"?usr=u1", ada, "")
			r.refused(400, "invalid", "usr")
			for _, name := range known {
				if !strings.Contains(read[struct{ Detail string }](r).Detail, name) {
					t.Errorf("%s %s: %s; want it to name %s", method, path, r.body, name)
				}
			}
		}
	}
	if calls < 50 {
		t.Errorf("%d calls are described", calls)
	}
	n.call(t, "HEAD", "/api/v1/work?usr=u1", manager(), "").want(400)
	for _, path := range []string{"/livez", "/readyz", "/openapi.json", "/"} {
		n.call(t, "GET", path+"?usr=u1", nil, "").want(200)
	}
}
