package page

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/chromedp"
)

// scripts run in a page of the node, beside the page's own client: they have getwork.js, until(so), which waits for
// something, and noted, to which note(client) writes a client's events.
const scripts = `
	const { connect, rest, Problem } = await import('/static/getwork.js');
	const until = async (so, what) => {
		for (const end = performance.now() + 20000; !await so(); await new Promise((f) => setTimeout(f, 10))) {
			if (performance.now() > end) throw new Error('waited in vain for ' + so + ' ' + JSON.stringify(window.noted));
		}
	};
	const noted = window.noted ??= [];
	const note = (client, ...types) => types.forEach((type) => client.addEventListener(type, ({ detail }) => noted.push(
		type === 'state' ? detail.name + (detail.reason ? ' ' + detail.reason : '')
		: type + (detail ? ' ' + (detail.item ?? detail.name ?? detail.task ?? detail.type ?? detail.user) + ' ' + (detail.state ?? '') : ''))));
`

// InPage runs a script in the page, and returns its result, decoded from JSON.
func InPage[T any](b *Browser, script string) (v T) {
	b.T.Helper()
	text, err := Run(b, chromedp.Evaluate[string](`(async () => {`+scripts+script+`})().then((v) => JSON.stringify(v ?? null), (e) => JSON.stringify({ failed: e.stack }))`, chromedp.EvalAwaitPromise))
	if err != nil {
		b.T.Fatal(err)
	}
	if strings.HasPrefix(text, `{"failed":`) {
		b.T.Fatal(text)
	}
	if err := json.Unmarshal([]byte(text), &v); err != nil {
		b.T.Fatalf("%s: %v", text, err)
	}
	return v
}

// Workbench opens a page of a node where nobody is logged in, so that scripts have the connection for themselves.
func Workbench(t *testing.T, url, user, role string) *Browser {
	t.Helper()
	b := NewBrowser(t, "")
	b.Do(chromedp.Navigate(url + "/livez"))
	InPage[any](b, fmt.Sprintf(`await rest().logIn(%q, %q)`, user, role))
	return b
}
