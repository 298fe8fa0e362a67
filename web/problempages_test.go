package web

import (
	"strings"
	"testing"

	"getwork/assign"
)

const browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"

// Each problem has a page at the address of its type.
func TestEveryProblemHasAPage(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	for _, kind := range at(map[string]any(described(t)), "components", "schemas", "Problem", "properties", "type", "enum").([]any) {
		r := n.call(t, "GET", kind.(string), nil, "").want(200).wantHeader("Content-Type", "text/html; charset=utf-8")
		title := assign.TitleOf(assign.Kind(strings.TrimPrefix(kind.(string), "/problems/")))
		if title == "" || !strings.Contains(strings.ReplaceAll(r.body, "&#39;", "'"), "<h1>"+title+"</h1>") {
			t.Errorf("%s: %s", kind, r.body)
		}
	}
	n.call(t, "GET", "/problems/nothing", nil, "").refused(404, "not-found")
}

// A browser at an unknown address gets a page with links; programs get problems, and so does every client of the API.
func TestBrowsersGetPages(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	for _, path := range []string{"/nothing", "/tasks/a/b", "/problems/nothing", "/docs/nothing", "/static/nothing.js"} {
		r := n.file(t, "GET", path, "Accept", browser).want(404).wantHeader("Content-Type", "text/html; charset=utf-8").wantHeader("Cache-Control", "no-store")
		if !strings.Contains(r.body, `<a href="/">`) || !strings.Contains(r.header.Get("Vary"), "Accept") {
			t.Errorf("%s: %v %s", path, r.header, r.body)
		}
		if head := n.file(t, "HEAD", path, "Accept", browser).want(404); head.body != "" {
			t.Errorf("HEAD %s has a body", path)
		}
		n.file(t, "GET", path, "Accept", "*/*").refused(404, "not-found")
	}
	n.file(t, "POST", "/nothing", "Accept", browser).refused(404, "not-found")
	n.file(t, "GET", "/<script>", "Accept", browser).want(404)
	n.file(t, "GET", "/login", "Accept", browser).want(405).wantHeader("Content-Type", "text/html; charset=utf-8").wantHeader("Allow", "POST")
	n.file(t, "GET", "/api/v1/nothing", "Accept", browser).refused(404, "not-found")
	if docs, same := n.file(t, "GET", "/docs").want(200), n.file(t, "GET", "/docs/").want(200); docs.body != same.body {
		t.Error("/docs/ is another page than /docs")
	}
	n.file(t, "GET", "/favicon.ico").want(200).wantHeader("Content-Type", "image/svg+xml; charset=utf-8")
}
