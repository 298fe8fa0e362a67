package web

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strings"
	"sync"

	"github.com/gorilla/mux"

	"getwork/assign"
)

//go:embed static
var static embed.FS

// Static are the page's files, such as static/page.css, for another page of this program that is to look like it.
func Static() fs.FS { return static }

// views are the addresses of the web page's views; some have a name behind them, such as a task's.
var views = []string{"/", "/floor", "/tasks", "/tasks/{name}", "/items", "/people", "/wall"}

// kinds of files, by their names' ends. Not the system's own table: that differs from machine to machine.
var kinds = map[string]string{
	".html": "text/html; charset=utf-8",
	".css":  "text/css; charset=utf-8",
	".js":   "text/javascript; charset=utf-8",
}

// site is the web page as it is served. Its files are plain: what is written is what the browser gets.
//
// Each file has two addresses. /static/NAME is for others, who may use getwork.js, and is asked for anew each time. The page
// itself uses /static/VERSION/NAME, which is kept for good: opening the page again costs one answer of 304. The version
// is that of all files together, and a module's imports are relative to it, so modules of two versions never meet in
// one page. A node of another version answers 404; whoever balances the load then asks the next (docs/proxy.md).
type site struct {
	version string
	files   map[string]*asset // by their names in static
	views   map[string]*asset // index.html by address: each with the modules that its view begins with
}

// theSite is made when it is first served.
var theSite = sync.OnceValue(newSite)

func newSite() *site {
	s := &site{files: map[string]*asset{}, views: map[string]*asset{}}
	all := sha256.New()
	err := fs.WalkDir(static, "static", func(name string, f fs.DirEntry, err error) error {
		kind := kinds[path.Ext(name)]
		if err != nil || f.IsDir() || kind == "" {
			return err
		}
		content, err := static.ReadFile(name)
		name = strings.TrimPrefix(name, "static/")
		_, _ = fmt.Fprintf(all, "%s %d\n%s", name, len(content), content)
		s.files[name] = newAsset(kind, content)
		return err
	})
	if err != nil {
		panic(err) // the build left something out
	}
	s.version = hex.EncodeToString(all.Sum(nil)[:6])
	for _, view := range views {
		s.views[view] = newAsset(kinds[".html"], s.index(view))
	}
	delete(s.files, "index.html")
	return s
}

// index is index.html for a view. It names the modules that page.js and the view's own module import, which the browser
// would otherwise find out one import after the other, each a round trip later.
func (s *site) index(view string) []byte {
	const begins = "page.js"
	modules := s.imports(begins, nil)
	modules = s.imports("views/"+cmp.Or(strings.Split(view, "/")[1], "desk")+".js", modules)
	var links bytes.Buffer
	for _, name := range modules {
		if name != begins {
			fmt.Fprintf(&links, "  <link rel=\"modulepreload\" href=\"/static/%s\">\n", name)
		}
	}
	index := bytes.Replace(s.files["index.html"].plain, []byte("</head>"), append(links.Bytes(), "</head>"...), 1)
	return bytes.ReplaceAll(index, []byte(`="/static/`), []byte(`="/static/`+s.version+`/`))
}

// static imports, as a person writes them and as a minifier does. What is imported later, by import(…), is none.
var imported = regexp.MustCompile(`\b(?:from|import)\s*['"](\.{1,2}/[^'"]+)['"]`)

// imports adds a module, and what it imports, to those that are known.
func (s *site) imports(name string, known []string) []string {
	module := s.files[name]
	for _, k := range known {
		if k == name {
			return known
		}
	}
	if module == nil {
		return known
	}
	known = append(known, name)
	for _, m := range imported.FindAllSubmatch(module.plain, -1) {
		known = s.imports(path.Join(path.Dir(name), string(m[1])), known)
	}
	return known
}

// page serves the web page, which uses nothing but the public API.
func (s *server) page(m *mux.Router) {
	site := theSite()
	m.Handle("/favicon.ico", newAsset("image/svg+xml", icon).fresh()).Methods("GET", "HEAD")
	m.Handle("/problems/{kind}", s.handle(s.meaning)).Methods("GET", "HEAD")
	m.PathPrefix("/static/").Handler(s.handle(site.file)).Methods("GET", "HEAD")
	for _, view := range views {
		m.Handle(view, document(site.views[view].fresh())).Methods("GET", "HEAD")
	}
}

// document says what counts for a whole page: no other site's window has a hand on it, and of what a browser can give, it
// asks for what the wall needs.
func document(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Cross-Origin-Opener-Policy", "same-origin")
		h.Set("Permissions-Policy", "camera=(), display-capture=(), geolocation=(), microphone=(), payment=(), usb=(), fullscreen=(self), screen-wake-lock=(self)")
		next.ServeHTTP(w, r)
	})
}

func (s *site) file(w http.ResponseWriter, r *http.Request) error {
	name := strings.TrimPrefix(r.URL.EscapedPath(), "/static/")
	own, versioned := strings.CutPrefix(name, s.version+"/")
	file := s.files[own]
	if file == nil {
		return assign.Refuse(assign.NotFound, "there is nothing at this address")
	}
	if versioned {
		file.serve(w, r, "public, max-age=31536000, immutable")
	} else {
		file.serve(w, r, revalidate)
	}
	return nil
}
