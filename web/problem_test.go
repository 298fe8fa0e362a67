package web

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"log/slog"
	"maps"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"getwork/assign"
)

// A 401 says where to log in, if there is a page for it, and whether the credential that was sent is no good. A limit says
// when to try again.
func TestProblemsOfIdentity(t *testing.T) {
	t.Parallel()
	stepUp := assign.Refuse(assign.Unauthenticated, "log in again")
	stepUp.LogIn = "/auth/login?again=1"
	limited := assign.Refuse(assign.RateLimited, "too many")
	limited.After = 1500 * time.Millisecond
	for _, tt := range []struct {
		err           error
		path, sent    string // where this server's log-in is, and the credential
		status        int
		logIn         string
		challenge     string
		again, detail string
	}{
		{assign.Refuse(assign.Unauthenticated, "no"), "", "", 401, "", `Bearer realm="getwork"`, "", "no"},
		{assign.Refuse(assign.Unauthenticated, "no"), "/auth/login", "", 401, "/auth/login", `Bearer realm="getwork"`, "", "no"},
		{assign.Refuse(assign.Unauthenticated, "no"), "/auth/login", "Bearer x", 401, "/auth/login", `Bearer realm="getwork", error="invalid_token"`, "", "no"},
		{stepUp, "/auth/login", "", 401, "/auth/login?again=1", `Bearer realm="getwork"`, "", "log in again"},
		{assign.Refuse(assign.NameTaken, "no"), "/auth/login", "", 403, "", "", "", "no"},
		{assign.Refuse(assign.LogInFailed, "no"), "/auth/login", "", 400, "", "", "", "no"},
		{limited, "/auth/login", "Bearer x", 429, "", "", "2", "too many"},
	} {
		s := &server{Config: Config{LogInPath: tt.path, Log: slog.New(slog.DiscardHandler)}}
		r, w := httptest.NewRequest("GET", "/api/v1/me", nil), httptest.NewRecorder()
		if tt.sent != "" {
			r.Header.Set("Authorization", tt.sent)
		}
		s.problem(w, r, tt.err)
		var p assign.Problem
		if err := json.Unmarshal(w.Body.Bytes(), &p); err != nil {
			t.Fatal(err)
		}
		if w.Code != tt.status || p.LogIn != tt.logIn || p.Detail != tt.detail || w.Header().Get("WWW-Authenticate") != tt.challenge || w.Header().Get("Retry-After") != tt.again {
			t.Errorf("%v at %q with %q: %d %v %s", tt.err, tt.path, tt.sent, w.Code, w.Header(), w.Body)
		}
	}
}

var (
	kindLine = regexp.MustCompile(`(?m)^\t\w+ +Kind = "([\w-]+)"`)
	typeName = regexp.MustCompile(`"(/problems/[\w-]+)"`)
	verb     = regexp.MustCompile(`%[+#]?\d*[a-zA-Z]`)
)

// Each language has a text for each type of problem, by its title. Its other texts of problems are what the server or getwork.js says.
func TestProblemsAreTranslated(t *testing.T) {
	t.Parallel()
	source, err := os.ReadFile("../assign/problem.go")
	if err != nil {
		t.Fatal(err)
	}
	titles, types := map[string]bool{}, map[string]bool{}
	for _, m := range kindLine.FindAllSubmatch(source, -1) {
		titles[assign.TitleOf(assign.Kind(m[1]))] = true
		types["/problems/"+string(m[1])] = true
	}
	for _, m := range typeName.FindAllSubmatch(description, -1) {
		if !types[string(m[1])] {
			t.Errorf("openapi.json has the type %s, of which problem.go has no kind", m[1])
		}
	}
	if len(titles) < 25 || titles[""] {
		t.Fatalf("the titles of the types: %q", slices.Sorted(maps.Keys(titles)))
	}
	said := saidOfProblems(t)
	for lang := range languages(t) {
		file := theSite().files["lang/"+lang+"/problems.js"]
		if file == nil {
			t.Errorf("%s has no texts of problems", lang)
			continue
		}
		has := map[string]bool{}
		for _, m := range entry.FindAllStringSubmatch(string(file.plain), -1) {
			key, text := unescaped(m[1]), unescaped(m[2])
			if has[key] {
				t.Errorf("%s: twice: %q", lang, key)
			}
			has[key] = true
			for _, hole := range holes.FindAllString(text, -1) {
				if !strings.Contains(key, hole) {
					t.Errorf("%s: %q has a value that %q has not", lang, text, key)
				}
			}
			parts := holes.Split(key, -1)
			for i := range parts {
				parts[i] = regexp.QuoteMeta(parts[i])
			}
			shape := regexp.MustCompile(`(?s)^` + strings.Join(parts, `.+`) + `$`)
			if !titles[key] && !slices.ContainsFunc(said, shape.MatchString) {
				t.Errorf("%s: neither the server nor getwork.js says %q", lang, key)
			}
		}
		for title := range titles {
			if !has[title] {
				t.Errorf("%s has no text for problems with the title %q", lang, title)
			}
		}
	}
}

// saidOfProblems are the limits of settings, and the strings in the sources of the API and in getwork.js, in which values are x, as clients
// may read them.
func saidOfProblems(t *testing.T) (all []string) {
	t.Helper()
	for _, of := range assign.AllSettings {
		all = append(all, of.Limits())
	}
	for _, root := range []string{".", "../assign"} {
		err := filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
			if err != nil || filepath.Ext(name) != ".go" || strings.HasSuffix(name, "_test.go") {
				return err
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			ast.Inspect(file, func(n ast.Node) bool {
				if l, ok := n.(*ast.BasicLit); ok && l.Kind == token.STRING {
					text, _ := strconv.Unquote(l.Value)
					all = append(all, verb.ReplaceAllString(strings.ReplaceAll(text, "%q", `"x"`), "x"))
				}
				return true
			})
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, l := range literals(string(theSite().files["getwork.js"].plain)) {
		all = append(all, strings.Join(l.parts, "x"))
	}
	return all
}

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
