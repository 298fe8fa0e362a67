package access

import (
	"testing"

	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

// A screen opens its link, and shows how much there is, without the names of those who wait. Nothing of it says what failed.
func TestPageWallByLink(t *testing.T) {
	t.Parallel()
	at := page.NewBank(t)
	page.Leased(at.Site, "1h", "a", "b", "c")
	at.Got(at.As("Oliver", 0), "verify", 1)
	boris, screen := page.NewBrowser(t, ""), page.NewBrowser(t, "")
	comesIn(boris, at, "/users", "Boris")
	boris.Use("button", "Link for a screen")
	boris.Fill("textbox", "Name of the screen", "lobby")
	boris.Use("button", "Make the link")
	boris.Await(`document.querySelector('#the-link')`, e2e.Soon)
	link := boris.Eval(`document.querySelector('#the-link').value`)
	boris.Use("button", "Done")
	boris.Sees("lobby")

	screen.Do(chromedp.Navigate(link))
	screen.Click(`#open`)
	screen.Await(`location.pathname === '/wall' && document.querySelector('.tile')?.innerText.includes('held')`, e2e.Soon)
	screen.Await(`document.querySelector('.wall-state').innerText.trim() === 'Live'`, e2e.Soon)
	if links := screen.Eval(`[...document.querySelectorAll('#views a')].map((a) => a.textContent).join()`); links != "Wall" {
		t.Errorf("it links to %s", links)
	}
	if text := screen.Eval(`document.querySelector('#view').innerText`); text == "" || len(text) > 2000 {
		t.Errorf("it shows %s", text)
	}
	screen.Do(chromedp.Navigate(link))
	screen.Await(`!document.querySelector('#open').disabled`, e2e.Soon)
	screen.Click(`#open`)
	screen.Await(`document.querySelector('#said').textContent.includes('was opened before')`, e2e.Soon)
}
