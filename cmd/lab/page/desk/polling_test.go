package desk

import (
	"fmt"
	"testing"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// faster makes a page's clock and timers run that many times faster, until a test calls atSpeed in the page.
func faster(times int) string {
	return fmt.Sprintf(`(() => {
		const later = window.setTimeout, now = Date.now;
		let times = %d, base = now(), shown = base;
		window.setTimeout = (f, ms, ...rest) => later(f, ms / times, ...rest);
		Date.now = () => shown + times * (now() - base);
		window.atSpeed = (n) => { shown = Date.now(); base = now(); times = n; };
	})()`, times)
}

// If the socket is refused, the page polls, says so, and gets its work. When a socket becomes possible, the page uses
// it.
func TestPagePolls(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, faster(5)+bannersNoted)
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	address, allow := page.WithoutSockets(t, s.Nodes[0])
	b.LogIn(address, "Oliver")
	b.Await(`banners.includes('The live connection is lost; polling every 10 s.')`, e2e.Soon)
	b.Eval(`(banners.length = 0, '')`)
	b.GetWork(3)
	b.Await(`banners.includes('The live connection is lost; polling every 5 s.')`, e2e.Soon)
	b.Banner("The live connection is lost; polling every 20 s.", e2e.Soon)
	open()
	b.Works(3, e2e.Soon)
	b.Await(`document.querySelector('.task .ended').textContent.includes('You got 3 items')`, e2e.Soon)
	allow()
	b.Eval(`(atSpeed(1), '')`) // a socket has five seconds to say hello, not one
	b.State("live", 3*e2e.Soon)
	b.Await(`document.querySelector('#banner').hidden`, e2e.Soon)
}

// bannersNoted is a page script that records the banner's texts.
const bannersNoted = `;window.banners = [];
addEventListener('DOMContentLoaded', () => {
	const banner = document.querySelector('#banner-text');
	if (banner) new MutationObserver(() => banners.push(banner.textContent)).observe(banner, { subtree: true, childList: true, characterData: true });
})`

// After 15 minutes of polling the page stops, and says so. The request stays, and a button resumes.
func TestPageStopsAsking(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b := page.NewBrowser(t, faster(5))
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	address, allow := page.WithoutSockets(t, s.Nodes[0])
	b.LogIn(address, "Oliver")
	b.State("polling", e2e.Soon)
	b.GetWork(3)
	b.Eval(`(atSpeed(200), '')`) // no sooner, or polling may stop before the click
	b.Banner("Stopped polling after 15 minutes without a live connection. Your request stays", 3*e2e.Soon)
	if p, err := s.As("Oliver", 0).Pipeline(t.Context()); err != nil || len(p.Requests) != 1 {
		t.Errorf("the pipeline is %+v, %v; the request should still wait", p, err)
	}
	allow()
	b.Eval(`(atSpeed(1), '')`) // a socket has five seconds to say hello, not a 200th of that
	b.Click("#resume")
	b.State("live", e2e.Soon)
	open()
	b.Works(3, e2e.Soon)
}

// The page's node is killed and comes back: so does the page, and the request is still answered.
func TestPageNodeKilled(t *testing.T) {
	t.Parallel()
	b := page.NewBrowser(t, "")
	s := e2e.NewSite(t, 1, "")
	open := page.Gated(s)
	b.LogIn(s.Nodes[0].URL, "Oliver")
	b.State("live", e2e.Soon)
	b.GetWork(2)
	s.Nodes[0].Kill()
	b.Banner("the server can’t be reached. Your request stays; trying again", e2e.Soon)
	s.Nodes[0].Restart()
	b.State("live", 3*e2e.Soon)
	open()
	b.Works(2, 3*e2e.Soon)
}
