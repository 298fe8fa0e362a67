package oidc

import (
	"html/template"
	"net/http"
	"net/url"

	"getwork/assign"
)

// failed is the page of somebody who does not come in. It looks like the others, and uses the same style sheet.
var failed = template.Must(template.New("").Parse(`<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{{.Title}}: getwork</title>
  <link rel="stylesheet" href="/static/page.css">
</head>
<body>
  <header class="top"><a class="brand" href="/">getwork</a></header>
  <main class="log-in">
    <div class="card">
      <h1>{{.Title}}</h1>
      <p>{{.Text}}</p>
      <p><a href="{{.Again}}">Try again</a></p>
    </div>
  </main>
</body>
</html>
`))

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
