package page

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// A screen opens its link, and shows how much there is, without the names of those who wait. Nothing of it says what failed.
func TestPageWallByLink(t *testing.T) {
	t.Parallel()
	at := newBank(t)
	leased(at.site, "1h", "a", "b", "c")
	at.Got(at.As("Oliver", 0), "verify", 1)
	boris, screen := newBrowser(t, ""), newBrowser(t, "")
	boris.comesIn(at, "/users", "Boris")
	boris.use("button", "Link for a screen")
	boris.fill("textbox", "Name of the screen", "lobby")
	boris.use("button", "Make the link")
	boris.await(`document.querySelector('#the-link')`, e2e.Soon)
	link := boris.eval(`document.querySelector('#the-link').value`)
	boris.use("button", "Done")
	boris.sees("lobby")

	screen.do(chromedp.Navigate(link))
	screen.click(`#open`)
	screen.await(`location.pathname === '/wall' && document.querySelector('.tile')?.innerText.includes('held')`, e2e.Soon)
	screen.await(`document.querySelector('.wall-state').innerText.trim() === 'Live'`, e2e.Soon)
	if links := screen.eval(`[...document.querySelectorAll('#views a')].map((a) => a.textContent).join()`); links != "Wall" {
		t.Errorf("it links to %s", links)
	}
	if text := screen.eval(`document.querySelector('#view').innerText`); text == "" || len(text) > 2000 {
		t.Errorf("it shows %s", text)
	}
	screen.do(chromedp.Navigate(link))
	screen.await(`!document.querySelector('#open').disabled`, e2e.Soon)
	screen.click(`#open`)
	screen.await(`document.querySelector('#said').textContent.includes('was opened before')`, e2e.Soon)
}
