// Package card has the layout of the pages that say or ask one thing: a heading, a text, and what to do next.
package card

import "html/template"

const layout = `<!doctype html>
<html lang="en">
<head>
  <meta charset="utf-8">
  <meta name="viewport" content="width=device-width, initial-scale=1">
  <meta name="color-scheme" content="light dark">
  <title>{{.Title}}: getwork</title>
  <link rel="stylesheet" href="/static/page.css">{{block "script" .}}{{end}}
</head>
<body>
  <header class="top"><a class="brand" href="/">getwork</a></header>
  <main class="log-in">
    <div class="card">
{{template "card" .}}
    </div>
  </main>
</body>
</html>
`

// Page returns the template of a page with this card, and with these scripts in its head if there are any. Both are texts of
// html/template. What the page is executed with has a Title, as a field or a method.
func Page(card, script string) *template.Template {
	t := template.Must(template.New("page").Parse(layout))
	template.Must(t.New("card").Parse(card))
	if script != "" {
		template.Must(t.New("script").Parse(script))
	}
	return t
}
