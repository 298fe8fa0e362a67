package web

import (
	"bytes"
	"compress/gzip"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"getwork/schema/schematest"
)

// Every file of the page is served as written, compressed if the client accepts that; and not at all if the client has it, which is
// tried with one file of each kind, coding and policy.
func TestPageFiles(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	served, tried := 0, map[string]bool{}
	err := filepath.WalkDir("static", func(name string, f os.DirEntry, err error) error {
		kind := kinds[path.Ext(name)]
		if err != nil || f.IsDir() {
			return err
		}
		if kind == "" || name == "static/index.html" {
			n.file(t, "GET", "/"+name).refused(404, "not-found")
			return nil
		}
		written, err := os.ReadFile(name)
		if kind == kinds[".js"] || kind == kinds[".css"] {
			written = lean(strings.TrimPrefix(name, "static/"), written)
		}
		served++
		for _, address := range []string{"/" + name, strings.Replace("/"+name, "/static/", "/static/"+theSite().version+"/", 1)} {
			plain := n.file(t, "GET", address).want(200).wantHeader("Content-Type", kind).wantHeader("Content-Encoding", "").wantHeader("Vary", "Accept-Encoding")
			packed := n.file(t, "GET", address, "Accept-Encoding", "gzip, br").want(200).wantHeader("Content-Type", kind)
			if plain.body != string(written) || unpacked(t, packed) != string(written) {
				t.Errorf("%s is not as it was written", address)
			}
			for _, r := range []reply{plain, packed} {
				tag, coding := r.header.Get("ETag"), r.header.Get("Content-Encoding")
				like := kind + coding + r.header.Get("Cache-Control")
				if tried[like] && !schematest.Also(t.Name()) {
					continue
				}
				tried[like] = true
				head := n.file(t, "HEAD", address, "Accept-Encoding", coding).want(200).wantHeader("ETag", tag)
				if head.body != "" || head.header.Get("Content-Length") != r.header.Get("Content-Length") {
					t.Errorf("HEAD %s: %v; GET: %v", address, head.header, r.header)
				}
				for _, has := range []string{tag, "W/" + tag, `"other", ` + tag, "*"} {
					again := n.file(t, "GET", address, "If-None-Match", has, "Accept-Encoding", coding).want(304).wantHeader("ETag", tag).
						wantHeader("Vary", "Accept-Encoding").wantHeader("Cache-Control", r.header.Get("Cache-Control"))
					if again.body != "" {
						t.Errorf("%s: a 304 with a body", address)
					}
				}
				if moved := n.file(t, "GET", address, "If-Match", `"other"`, "Accept-Encoding", coding).want(412).wantHeader("Content-Encoding", ""); moved.body != "" {
					t.Errorf("%s: a 412 with a body", address)
				}
				if part := n.file(t, "GET", address, "Range", "bytes=2-4", "Accept-Encoding", coding).want(206); len(part.body) != 3 {
					t.Errorf("%s: bytes 2 to 4 are %d", address, len(part.body))
				}
				n.file(t, "GET", address, "If-None-Match", `"other"`, "Accept-Encoding", coding).want(200)
			}
			if plain.header.Get("ETag") == packed.header.Get("ETag") && packed.header.Get("Content-Encoding") != "" {
				t.Errorf("%s: two contents have one tag", address)
			}
		}
		n.file(t, "GET", "/"+name).wantHeader("Cache-Control", "no-cache")
		return err
	})
	if err != nil || served < 10 {
		t.Fatalf("%d files served: %v", served, err)
	}
	version := "/static/" + theSite().version
	n.file(t, "GET", version+"/page.js").wantHeader("Cache-Control", "public, max-age=31536000, immutable")
	// Another version's files are not replaced by ours, and no cache may store the 404.
	n.file(t, "GET", "/static/000000000000/page.js").wantHeader("Cache-Control", "no-store").refused(404, "not-found")
	for _, nothing := range []string{version, version + "/", version + "/views", version + "/views/", version + "/index.html", version + version + "/page.js"} {
		n.file(t, "GET", nothing).refused(404, "not-found")
	}
	n.file(t, "POST", version+"/page.js").wantHeader("Allow", "GET, HEAD").refused(405, "method-not-allowed")
	part := n.file(t, "GET", "/static/page.js", "Range", "bytes=2-4").want(206)
	if whole := theSite().files["page.js"].plain; part.body != string(whole[2:5]) {
		t.Errorf("bytes 2 to 4 are %q", part.body)
	}
}

// file asks for a file of the page, which the API's description does not contain.
func (n *station) file(t *testing.T, method, path string, h ...string) reply {
	t.Helper()
	response, err := n.Client().Do(n.request(t, method, path, h, ""))
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	defer response.Body.Close()
	b, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatalf("%s %s: %v", method, path, err)
	}
	return reply{t: t, status: response.StatusCode, header: response.Header, body: string(b)}
}

func unpacked(t *testing.T, r reply) string {
	t.Helper()
	if r.header.Get("Content-Encoding") == "" {
		return r.body
	}
	reader, err := gzip.NewReader(strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return string(content)
}

// Each view's page names its files by version, and every module that it begins with.
func TestPageViews(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	version := theSite().version
	for _, view := range views {
		address := strings.Replace(view, "{name}", "verify", 1)
		r := n.file(t, "GET", address).want(200).wantHeader("Cache-Control", "no-cache").wantHeader("Content-Type", "text/html; charset=utf-8").
			wantHeader("Cross-Origin-Opener-Policy", "same-origin")
		n.file(t, "GET", address, "If-None-Match", r.header.Get("ETag")).want(304)
		if strings.Contains(strings.ReplaceAll(r.body, "/static/"+version+"/", ""), "/static/") {
			t.Errorf("%s has an address without a version:\n%s", address, r.body)
		}
		module := "views/desk.js"
		if view != "/" {
			module = "views/" + strings.Split(view, "/")[1] + ".js"
		}
		for _, module := range []string{module, "getwork.js", "words.js"} {
			if link := `<link rel="modulepreload" href="/static/` + version + "/" + module + `">`; strings.Count(r.body, link) != 1 {
				t.Errorf("%s does not name %s once", address, module)
			}
		}
		policy := r.header.Get("Content-Security-Policy")
		for _, part := range []string{"script-src 'self';", "style-src 'self';", "require-trusted-types-for 'script'; trusted-types lit-html"} {
			if !strings.Contains(policy, part) || strings.Contains(policy, "unsafe") {
				t.Errorf("the policy of %s is %s", address, policy)
			}
		}
	}
}

func TestImportsOfModules(t *testing.T) {
	t.Parallel()
	s := &site{files: map[string]*asset{}}
	for name, text := range map[string]string{
		"a.js":     "import { x,\n  y } from './b.js';\nexport * from \"./lib/c.js\";\nconst later = () => import('./late.js');\n// import './a.js'",
		"b.js":     `import './a.js'; import z from 'elsewhere'; import './gone.js'`,
		"lib/c.js": `import{d as e}from"../d.js";export{e}from'./../d.js'`,
		"d.js":     "", "late.js": "",
	} {
		s.files[name] = newAsset(kinds[".js"], []byte(text))
	}
	if got, want := s.imports("a.js", nil), []string{"a.js", "b.js", "lib/c.js", "d.js"}; !slices.Equal(got, want) {
		t.Errorf("imports %v, want %v", got, want)
	}
}

func TestAcceptEncoding(t *testing.T) {
	t.Parallel()
	for accept, gzip := range map[string]bool{
		"": false, "gzip": true, "GZIP": true, "x-gzip": true, "br": false, "br, gzip;q=0.5": true, "gzip;q=0": false, "gzip;q=0.000": false, "gzip ; q=0.1": true,
		"*": true, "*;q=0": false, "*;q=0.5, gzip;q=0": false, "identity": false, "gzip;q=0.5, identity": false, "gzip, identity;q=0.5": true, "gzip;q=x": false,
		"identity;q=0, *": true, "gzipped": false, " , ": false,
	} {
		if got := takesGzip([]string{accept}); got != gzip {
			t.Errorf("Accept-Encoding: %s: compressed is %v, want %v", accept, got, gzip)
		}
	}
	if !takesGzip([]string{"br", "gzip"}) || takesGzip(nil) {
		t.Error("two headers count as one, and none says nothing")
	}
}

// A file that compression would make longer is served plain.
func TestSmallFilesStayPlain(t *testing.T) {
	t.Parallel()
	if a := newAsset("text/css", []byte("a{}")); !bytes.Equal(a.packed(), a.plain) {
		t.Errorf("three bytes became %d", len(a.packed()))
	}
}

// Lists are compressed if the client accepts that; a refusal is plain.
func TestPackedLists(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, "")
	n.take(t, "verify", "oliver", 3)
	for _, path := range []string{"/work", "/tasks/verify/runs", "/tasks/verify/versions", "/requests"} {
		who := manager()
		plain := n.file(t, "GET", "/api/v1"+path, who...).want(200).wantHeader("Content-Encoding", "")
		packed := n.file(t, "GET", "/api/v1"+path, append(who, "Accept-Encoding", "gzip")...).want(200).
			wantHeader("Content-Encoding", "gzip").wantHeader("Vary", "Accept-Encoding").wantHeader("Content-Type", "application/json")
		if got := unpacked(t, packed); got != plain.body {
			t.Errorf("%s: %q, want %q", path, got, plain.body)
		}
	}
	n.file(t, "GET", "/api/v1/work?limit=none", manager("Accept-Encoding", "gzip")...).wantHeader("Content-Encoding", "").refused(400, "invalid", "limit")
	n.file(t, "GET", "/api/v1/work", as("oliver", "Accept-Encoding", "gzip")...).wantHeader("Content-Encoding", "").refused(403, "forbidden")
}

// Lines that are only comments are served empty; what stands beside code, or in somebody else's library, stays.
func TestLean(t *testing.T) {
	t.Parallel()
	text := "// one\nlet a = 1 // two\n\t/** three */\n/* four\n * five\n */ let b\n/* six */ let c\n  /* seven\n */\nlet d = `/* e`\n"
	want := "\nlet a = 1 // two\n\n\n\n let b\n/* six */ let c\n\n\nlet d = `/* e`\n"
	if got := string(lean("page.js", []byte(text))); got != want {
		t.Errorf("%q", got)
	}
	if got := string(lean("lib/page.js", []byte(text))); got != text {
		t.Errorf("a library: %q", got)
	}
}
