package look

import (
	"strings"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// Faults of the page are noticed, and axe finds them: a test that can't fail would look the same as a good page.
func TestFirefoxHears(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	f := page.NewFirefox(t, nil)
	s := e2e.NewSite(t, 1, "")
	f.Open(s.Nodes[0].URL)
	f.Await(`document.querySelector('#user')?.checkVisibility()`, e2e.Soon)
	wrongs := map[string]string{
		`throw new Error('nobody caught it')`:              "nobody caught it",
		`Promise.reject(new Error('nobody waits for it'))`: "nobody waits for it",
		`new Image().src = 'http://127.0.0.1:1/'`:          "img-src",
	}
	if f.Eval(`typeof trustedTypes`) == "object" {
		wrongs[`document.querySelector('#log-in').innerHTML = '<b>'`] = "require-trusted-types-for"
	}
	for wrong, says := range wrongs {
		f.Eval(`(setTimeout(() => { ` + wrong + ` }), '')`)
		e2e.Await(t, says+" is heard", e2e.Soon, func() bool { return strings.Contains(f.Said(), says) })
	}
	e2e.Await(t, "nothing else is heard", e2e.Soon, func() bool { return f.Said() == "" })
	f.Eval(`(document.querySelector('label[for=user]').remove(), '')`)
	if found := f.Axe(); !strings.Contains(found, `"id":"label"`) {
		t.Errorf("a field without a label is not found: %s", found)
	}
}
