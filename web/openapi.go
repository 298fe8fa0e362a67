package web

import (
	"embed"
	"net/http"

	"github.com/gorilla/mux"
)

// description is the API's, as OpenAPI 3.1. It is written by hand; a test compares it with the router, and with what
// the handlers really answer.
//
//go:embed openapi.json
var description []byte

//go:embed docs
var docs embed.FS

// describe serves the API's description, and a page that shows it. Both are for everybody: they tell what is public.
func (s *server) describe(m *mux.Router) {
	file := func(path, kind string, content []byte) {
		m.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-cache")
			_, _ = w.Write(content)
		}).Methods("GET", "HEAD")
	}
	file("/openapi.json", "application/json", description)
	for path, doc := range map[string]struct{ name, kind string }{
		"/docs":          {"index.html", "text/html; charset=utf-8"},
		"/docs/docs.css": {"docs.css", "text/css; charset=utf-8"},
		"/docs/docs.js":  {"docs.js", "text/javascript; charset=utf-8"},
	} {
		content, err := docs.ReadFile("docs/" + doc.name)
		if err != nil {
			panic(err) // the build left it out
		}
		file(path, doc.kind, content)
	}
}
