package web

import (
	"embed"
	"encoding/json"
	"fmt"
	"net/http"
	"path"
	"slices"
	"strings"

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
	for _, name := range []string{"docs.css", "docs.js"} {
		content, err := docs.ReadFile("docs/" + name)
		if err != nil {
			panic(err) // the build left it out
		}
		file("/docs/"+name, kinds[path.Ext(name)], content)
	}
	s.guides(m)
}

// queryParameters reads from the description which query parameters each operation has, by method and path.
func queryParameters() map[string][]string {
	type parameter struct {
		Ref  string `json:"$ref"`
		In   string
		Name string
	}
	var d struct {
		Paths      map[string]map[string]struct{ Parameters []parameter }
		Components struct{ Parameters map[string]parameter }
	}
	if err := json.Unmarshal(description, &d); err != nil {
		panic(fmt.Errorf("openapi.json: %w", err)) // the build has another file
	}
	names := map[string][]string{}
	for path, methods := range d.Paths {
		for method, o := range methods {
			operation := strings.ToUpper(method) + " " + path
			for _, p := range o.Parameters {
				if p.Ref != "" {
					p = d.Components.Parameters[strings.TrimPrefix(p.Ref, "#/components/parameters/")]
				}
				if p.In == "query" {
					names[operation] = append(names[operation], p.Name)
				}
			}
		}
	}
	return names
}

// refuseOthers refuses a query parameter that an operation doesn't have: a misspelt filter would show everybody's.
func refuseOthers(r *http.Request, known []string) error {
	v, err := parameters(r)
	if err != nil {
		return err
	}
	for name := range v {
		if slices.Contains(known, name) {
			continue
		}
		if len(known) == 0 {
			return refuseField(name, "there is no parameter %q; this call has none after the question mark", name)
		}
		return refuseField(name, "there is no parameter %q; this call has: %s", name, strings.Join(known, ", "))
	}
	return nil
}
