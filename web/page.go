package web

import (
	"embed"
	"net/http"

	"github.com/gorilla/mux"
)

//go:embed static
var static embed.FS

// page serves the web page, which uses nothing but the public API. Its files are plain: what is written is what
// the browser gets, and getwork.js is for others to use, too.
func (s *server) page(m *mux.Router) {
	file := func(path, name, kind string) {
		m.HandleFunc(path, func(w http.ResponseWriter, _ *http.Request) {
			b, err := static.ReadFile("static/" + name)
			if err != nil {
				http.Error(w, "not found", http.StatusNotFound)
				return
			}
			w.Header().Set("Content-Type", kind)
			w.Header().Set("Cache-Control", "no-cache")
			_, _ = w.Write(b)
		}).Methods("GET", "HEAD")
	}
	file("/", "index.html", "text/html; charset=utf-8")
	file("/static/page.css", "page.css", "text/css; charset=utf-8")
	for _, name := range []string{"getwork.js", "page.js", "cards.js", "words.js"} {
		file("/static/"+name, name, "text/javascript; charset=utf-8")
	}
}
