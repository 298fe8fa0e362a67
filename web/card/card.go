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
  <link rel="icon" href="/static/look/favicon.svg">
  <link rel="stylesheet" href="/static/look/tokens.css">
  <link rel="stylesheet" href="/static/look/base.css">
  <link rel="stylesheet" href="/static/page.css">{{block "script" .}}{{end}}
</head>
<body>
  <main class="door"><div>
    <a class="brand named" href="/"><svg viewBox="0 0 26 26" aria-hidden="true"><rect class="desk-of" width="26" height="26" rx="7"/><path class="sheet-of" d="M8.2 5.2 16.6 4a2 2 0 0 1 2.3 1.7l1.7 12.1a2 2 0 0 1-1.7 2.3l-8.4 1.2a2 2 0 0 1-2.3-1.7L6.5 7.5a2 2 0 0 1 1.7-2.3z"/><path class="tick" d="m10.2 13.3 2.6 2.2 4-5.6" stroke-width="2.2" stroke-linecap="round" stroke-linejoin="round"/></svg>getwork</a>
    <div class="sheet paper">
{{template "card" .}}
    </div>
  </div></main>
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
