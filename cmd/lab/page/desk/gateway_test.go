package desk

import (
	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// cutOff cuts the page's socket, and waits until the page is live with another.
func cutOff(b *page.Browser) {
	b.T.Helper()
	b.Eval(`(window.before = sockets, cut(), '')`)
	b.Await(`sockets > before && document.querySelector('#chip').dataset.state === 'live'`, 2*e2e.Soon)
}
