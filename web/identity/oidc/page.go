package oidc

import (
	"net/http"
	"net/url"

	"getwork/assign"
	"getwork/web/card"
)

// failed is the page of somebody who does not come in.
var failed = card.Page(`<h1>{{.Title}}</h1>
      <p>{{.Text}}</p>
      <p><a href="{{.Again}}">Try again</a></p>`, `
  <script type="module" src="/static/card.js"></script>`)

// page shows a refusal, and a link to try again.
func page(w http.ResponseWriter, p assign.Problem, returnTo string) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Add("Vary", "Accept")
	w.WriteHeader(p.Status)
	again := "/auth/login"
	if returnTo != "/" {
		again += "?" + url.Values{"return_to": {returnTo}}.Encode()
	}
	_ = failed.Execute(w, struct{ Title, Text, Again string }{p.Title, p.Detail, again}) // the browser may have gone
}
