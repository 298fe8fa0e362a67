package web

import (
	"embed"
	"path"

	"github.com/gorilla/mux"
)

// description describes the API in OpenAPI 3.1. It is written by hand; tests compare it with the router, and with the
// handlers' real answers.
//
//go:embed openapi.json
var description []byte

// liveDescription describes the live channel in AsyncAPI 3. Its bodies are those of the description, by reference; package contract
// holds the messages of the tests against it.
//
//go:embed asyncapi.json
var liveDescription []byte

//go:embed docs
var docs embed.FS

// describe serves the API's description, and a page that shows it. Both are public.
func (s *server) describe(m *mux.Router) {
	file := func(path, kind string, content []byte) {
		m.Handle(path, newAsset(kind, content).fresh()).Methods("GET", "HEAD")
	}
	file("/openapi.json", "application/json", description)
	file("/asyncapi.json", "application/json", liveDescription)
	for address, name := range map[string]string{"/docs": "index.html", "/docs/": "index.html", "/docs/docs.css": "docs.css", "/docs/docs.js": "docs.js"} {
		content, err := docs.ReadFile("docs/" + name)
		if err != nil {
			panic(err) // the build left it out
		}
		file(address, kinds[path.Ext(name)], content)
	}
}
