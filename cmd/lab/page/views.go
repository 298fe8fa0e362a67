package page

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"

	"getwork/cmd/internal/e2e"
)

// Visit opens a path of a node as a user, such as "Mary,manager", and waits for the view.
func (b *Browser) Visit(address, path, user string) {
	b.T.Helper()
	name, _, _ := strings.Cut(user, ",")
	b.Opens(address + path + "#log-in=" + url.PathEscape(user))
	b.Await(fmt.Sprintf(`document.querySelector('#name')?.textContent === %q && document.querySelector('#view > *')`, name), e2e.Soon)
}

// leave gives the page an address that no test opens. Otherwise the same address with another user after its # would load nothing.
const leave = `(location.protocol.startsWith('http') && history.replaceState(null, '', '?left'), '')`

// Opens loads an address, even if the page is there already. It does not go by about:blank, after which Chromium takes a new
// process, whose start costs more CPU than all of a load.
func (b *Browser) Opens(address string) {
	b.T.Helper()
	b.Eval(leave)
	b.Do(chromedp.Navigate(address))
}

// Manager opens a path of the page as a manager with that name.
func (b *Browser) Manager(url, name, path string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(url + path + "#log-in=" + name + ",manager"))
	b.Await(fmt.Sprintf(`document.querySelector('#name')?.textContent === %q && document.querySelector('#view h1')`, name), e2e.Soon)
}

// Set types a text into a field or an editor, replacing its content.
func (b *Browser) Set(id, text string) {
	b.T.Helper()
	b.Await(fmt.Sprintf(`((e) => {
		const advanced = e?.closest('details.advanced');
		if (advanced) advanced.open = true;
		const panel = e?.closest('.panel[hidden]');
		if (panel) document.getElementById(panel.id.replace('panel-', 'tab-')).click();
		return e?.checkVisibility();
	})(document.getElementById(%q))`, id), e2e.Soon)
	b.Eval(fmt.Sprintf(`(document.getElementById(%q).focus(), document.getElementById(%[1]q).select(), '')`, id))
	b.Do(chromedp.KeyEvent(kb.Backspace), chromedp.KeyEvent(text))
	b.Await(fmt.Sprintf(`document.getElementById(%q).value.length >= %d`, id, len([]rune(text))), e2e.Soon)
}
