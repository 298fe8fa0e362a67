package web

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/mux"

	"getwork/assign"
)

//go:embed static
var static embed.FS

// Static has the page's files, such as static/page.css, for other pages of this program that look like it.
func Static() fs.FS { return static }

// views are the addresses of the web page's views; a name may follow some of them, such as a task's.
var views = []string{"/", "/floor", "/tasks", "/tasks/{name}", "/items", "/people", "/limits", "/wall", "/account", "/users", "/audit", "/webhooks"}

// styles are the style sheets that only some views need, by view, with a space between several. Any page may load them later.
var styles = map[string]string{"/": "look/desk.css", "/tasks": "look/task.css", "/tasks/{name}": "look/task.css", "/floor": "look/floor.css", "/people": "look/floor.css", "/items": "look/items.css", "/wall": "look/wall.css", "/account": "look/account.css", "/users": "look/account.css", "/audit": "look/account.css", "/webhooks": "look/account.css"}

// kinds maps file extensions to content types. The system's own table differs from machine to machine.
var kinds = map[string]string{
	".html":  "text/html; charset=utf-8",
	".css":   "text/css; charset=utf-8",
	".js":    "text/javascript; charset=utf-8",
	".ts":    "application/typescript; charset=utf-8", // the types of getwork.js, which no page loads
	".svg":   "image/svg+xml; charset=utf-8",
	".woff2": "font/woff2",
}

// site is the web page as it is served. The browser gets its files as they are written, but for their comments.
//
// Each file has two addresses. /static/NAME is for other programs, which may use getwork.js, and is revalidated each time.
// The page itself uses /static/VERSION/NAME, which caches keep for good, so opening the page again costs one answer of 304.
// The version is that of all files together, and a module's imports are relative to it, so modules of two versions never
// meet in one page. A node of another version answers 404; the load balancer then asks the next one (docs/proxy.md).
type site struct {
	version string
	files   map[string]*asset        // by their names in static
	views   map[string]func() *asset // index.html by address, each naming the modules that its view begins with
	page    []byte                   // index.html as it is written
}

// theSite is made on first use.
var theSite = sync.OnceValue(newSite)

func newSite() *site {
	s := &site{files: map[string]*asset{}, views: map[string]func() *asset{}}
	all := sha256.New()
	err := fs.WalkDir(static, "static", func(name string, f fs.DirEntry, err error) error {
		kind := kinds[path.Ext(name)]
		if err != nil || f.IsDir() || kind == "" {
			return err
		}
		content, err := static.ReadFile(name)
		name = strings.TrimPrefix(name, "static/")
		_, _ = fmt.Fprintf(all, "%s %d\n%s", name, len(content), content)
		if kind == kinds[".js"] || kind == kinds[".css"] {
			content = lean(name, content)
		}
		s.files[name] = newAsset(kind, content)
		return err
	})
	if err != nil {
		panic(err) // the build left something out
	}
	s.version = hex.EncodeToString(all.Sum(nil)[:6])
	for _, view := range views {
		s.views[view] = sync.OnceValue(func() *asset { return newAsset(kinds[".html"], s.index(view)) })
	}
	s.page = s.files["index.html"].plain
	delete(s.files, "index.html")
	return s
}

// lean empties the lines of a file that are only comments: they would be a seventh of what a view loads. Lines keep their numbers. The
// comments of others' libraries are their licences.
func lean(name string, content []byte) []byte {
	if strings.HasPrefix(name, "lib/") {
		return content
	}
	lines := bytes.Split(content, []byte("\n"))
	inside := false // of a comment of several lines
	for i, line := range lines {
		text := bytes.TrimSpace(line)
		opens := !inside && bytes.HasPrefix(text, []byte("/*"))
		if end := bytes.Index(text, []byte("*/")); inside || opens {
			if inside = end < 0; inside || end == len(text)-2 {
				lines[i] = nil
			} else if !opens {
				lines[i] = text[end+2:]
			}
		} else if bytes.HasPrefix(text, []byte("//")) {
			lines[i] = nil
		}
	}
	return bytes.Join(lines, []byte("\n"))
}

// index returns index.html for a view. It names the modules that page.js and the view's own module import. Otherwise the
// browser would discover one import after the other, each a round trip later.
func (s *site) index(view string) []byte {
	const begins = "page.js"
	modules := s.imports(begins, nil)
	modules = s.imports("views/"+cmp.Or(strings.Split(view, "/")[1], "desk")+".js", modules)
	switch view {
	case "/tasks":
		modules = s.imports("views/tasks/list.js", modules)
	case "/tasks/{name}":
		modules = s.imports("views/tasks/task.js", modules)
	}
	var links bytes.Buffer
	for style := range strings.FieldsSeq(styles[view]) {
		fmt.Fprintf(&links, "  <link rel=\"stylesheet\" href=\"/static/%s\">\n", style)
	}
	for _, name := range modules {
		if name != begins {
			fmt.Fprintf(&links, "  <link rel=\"modulepreload\" href=\"/static/%s\">\n", name)
		}
	}
	index := bytes.Replace(s.page, []byte("</head>"), append(links.Bytes(), "</head>"...), 1)
	return bytes.ReplaceAll(index, []byte(`="/static/`), []byte(`="/static/`+s.version+`/`))
}

// static imports, as people and minifiers write them. A dynamic import(…) does not match.
var imported = regexp.MustCompile(`\b(?:from|import)\s*['"](\.{1,2}/[^'"]+)['"]`)

// imports adds a module, and the modules that it imports, to the known ones.
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

// page serves the web page, which uses only the public API.
func (s *server) page(m *mux.Router) {
	site := theSite()
	m.Handle("/favicon.ico", newAsset("image/svg+xml; charset=utf-8", icon).fresh()).Methods("GET", "HEAD")
	m.Handle("/problems/{kind}", s.handle(s.meaning)).Methods("GET", "HEAD")
	m.PathPrefix("/static/").Handler(s.handle(site.file)).Methods("GET", "HEAD")
	for _, view := range views {
		index := site.views[view] // made for its first reader: to find the imports of all views takes 90 ms
		m.Handle(view, document(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { index().serve(w, r, revalidate) }))).Methods("GET", "HEAD")
	}
}

// document sets the headers of a whole page: windows of other sites can't reach it, and the only browser feature that it
// may use is the one that the wall needs.
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

// asset is a public file, plain and compressed.
type asset struct {
	kind   string
	plain  []byte
	packed func() []byte // by gzip; the plain content if that is not longer
	tag    string        // of the content
}

func newAsset(kind string, content []byte) *asset {
	sum := sha256.Sum256(content)
	return &asset{kind: kind, plain: content, tag: hex.EncodeToString(sum[:8]), packed: sync.OnceValue(func() []byte {
		var b bytes.Buffer
		w, _ := gzip.NewWriterLevel(&b, gzip.BestCompression)
		_, _ = w.Write(content)
		_ = w.Close()
		if b.Len() >= len(content) {
			return content
		}
		return b.Bytes()
	})}
}

// revalidate makes a cache ask each time whether its copy is still current.
const revalidate = "no-cache"

// fresh serves the file so that a cache asks for it each time.
func (a *asset) fresh() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.serve(w, r, revalidate) })
}

// serve answers GET and HEAD, with 304 if the client has the file already.
func (a *asset) serve(w http.ResponseWriter, r *http.Request, cache string) {
	h := w.Header()
	h.Set("Content-Type", a.kind)
	h.Set("Cache-Control", cache)
	h.Set("Vary", "Accept-Encoding")
	if a.kind != kinds[".html"] { // the page's policy says what the file may do in it; opened alone it may do nothing
		h.Set("Content-Security-Policy", "default-src 'none'")
		h.Del("Referrer-Policy")
	}
	content, tag := a.plain, a.tag
	if packed := a.packed(); len(packed) < len(content) && takesGzip(r.Header.Values("Accept-Encoding")) {
		content, tag = packed, a.tag+"-gzip" // other bytes need another tag, because it is a strong one
		h.Set("Content-Encoding", "gzip")
		w = &sized{w, len(content)}
	}
	h.Set("ETag", `"`+tag+`"`)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(content))
}

// sized sets the length of a whole encoded body, which ServeContent leaves out. An answer without that body (412) or with a
// part of it (206) must not have that length: the client would wait for the rest.
type sized struct {
	http.ResponseWriter
	length int
}

func (s *sized) WriteHeader(status int) {
	switch h := s.Header(); status {
	case http.StatusOK:
		h.Set("Content-Length", strconv.Itoa(s.length))
	case http.StatusPreconditionFailed:
		h.Del("Content-Encoding")
	}
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (s *sized) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// packed compresses a handler's answer. It is for long, repetitive lists without a tag.
func packed(h handler) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		if !takesGzip(r.Header.Values("Accept-Encoding")) || r.Method == http.MethodHead {
			return h(w, r)
		}
		p := &packing{ResponseWriter: w}
		if err := h(p, r); err != nil || p.to == nil {
			return err // the caller renders the error, uncompressed
		}
		_ = p.to.Close()
		packers.Put(p.to)
		return nil
	}
}

var packers = sync.Pool{New: func() any {
	w, _ := gzip.NewWriterLevel(nil, gzip.BestSpeed)
	return w
}}

// packing compresses answers with status 200.
type packing struct {
	http.ResponseWriter
	to *gzip.Writer
}

func (p *packing) WriteHeader(status int) {
	if status == http.StatusOK {
		p.Header().Set("Content-Encoding", "gzip")
		p.Header().Set("Vary", "Accept-Encoding")
		p.to = packers.Get().(*gzip.Writer)
		p.to.Reset(p.ResponseWriter)
	}
	p.ResponseWriter.WriteHeader(status)
}

func (p *packing) Write(b []byte) (int, error) {
	if p.to == nil {
		return p.ResponseWriter.Write(b)
	}
	return p.to.Write(b)
}

// takesGzip reports whether Accept-Encoding prefers gzip to identity (RFC 9110, 12.5.3).
func takesGzip(accept []string) bool {
	const unsaid = -1
	packed, plain, others := float64(unsaid), float64(unsaid), float64(unsaid)
	for coding := range strings.SplitSeq(strings.ToLower(strings.Join(accept, ",")), ",") {
		name, parameter, _ := strings.Cut(coding, ";")
		q := 1.0
		if value, found := strings.CutPrefix(strings.TrimSpace(parameter), "q="); found {
			q, _ = strconv.ParseFloat(value, 64) // text that is no number counts as 0: not accepted
		}
		switch strings.TrimSpace(name) {
		case "gzip", "x-gzip":
			packed = q
		case "identity":
			plain = q
		case "*":
			others = q
		}
	}
	if packed == unsaid {
		packed = others
	}
	return packed > 0 && packed >= plain
}
