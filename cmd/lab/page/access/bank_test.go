package access

import (
	"github.com/chromedp/chromedp"

	"getwork/cmd/lab/page"
)

// comesIn opens an address, and logs in at the provider by the page's link.
func comesIn(b *page.Browser, at *page.Bank, path, user string) {
	b.T.Helper()
	b.Do(chromedp.Navigate(at.Address + path))
	follows(b, "Log in")
	b.Picks(user)
}

// follows follows the link of the page for those who are not logged in.
func follows(b *page.Browser, link string) {
	b.T.Helper()
	b.Shows("#log-in a.button", link)
	b.Eval(`(document.querySelector('#log-in a.button').click(), '')`)
}
