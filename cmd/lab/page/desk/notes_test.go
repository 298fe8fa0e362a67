package desk

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	protocol "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
	"getwork/schema/schematest"
)

// A note that is longer than the server accepts is not sent: the page says so while it is written, and by how much it
// is too long.
func TestPageNoteTooLong(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s, g := page.Behind(t, 2)
	g.Refuses(0, 0, "")
	b.Press("#note")
	write := func(text string) {
		t.Helper()
		b.Eval(fmt.Sprintf(`(() => {
			const note = document.querySelector('#work textarea');
			note.value = %q;
			note.dispatchEvent(new Event('input'));
			return '';
		})()`, text))
	}
	long := strings.Repeat("é", 3000) // 6000 bytes; the same number of ASCII letters would fit
	write(long)
	b.Shows("#cut", "The note is too long by about 952 characters.")
	b.Await(`document.querySelector('#work textarea').ariaInvalid === 'true'`, e2e.Soon)
	b.Press("#note") // and away
	for _, button := range []string{".complete", ".next", `[data-return="1h"]`} {
		b.Eval(`(document.activeElement.blur(), '')`)
		b.Press("#work li:first-child " + button)
		b.Await(`document.activeElement.matches('#work textarea')`, e2e.Soon)
		b.Shows("#said", "a is not let go of. The note is too long by about 952 characters: shorten it.")
	}
	if same := b.Eval(fmt.Sprintf(`String(document.querySelector('#work textarea').value === %q)`, long)); same != "true" {
		t.Error("the note was cut")
	}
	write(strings.Repeat("é", 2048)) // exactly at the limit
	b.Await(`!document.querySelector('#cut').textContent && document.querySelector('#work textarea').ariaInvalid !== 'true'`, e2e.Soon)
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	s.Await("the note is there as it was written", e2e.Soon, `select octet_length(note) = 4096 and state = 'completed' from getwork.work where item = 'a'`)
	if n := len(g.Dispositions()); n != 1 {
		t.Errorf("%d dispositions were sent", n)
	}
}

// A note in progress survives a reload and a crash of the tab, and goes with the work. A note on work that is lost meanwhile stays
// until it is put away.
func TestPageNoteOutlastsReload(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s := desk(t, page.UndoLasts, "1h", 2)
	b.TypeNote("half wri")
	b.Do(chromedp.Reload())
	b.Await(`document.querySelector('.sheet textarea')?.value === 'half wri'`, e2e.Soon)
	b.Await(`document.querySelector('.sheet textarea').checkVisibility()`, e2e.Soon) // it is open
	b.Do(chromedp.SendKeys(chromedp.CSS(".sheet textarea"), "tten", chromedp.NodeVisible))
	crash(b)
	b.Await(`document.querySelector('.sheet textarea')?.value === 'half written'`, e2e.Soon)
	b.Press("#work li:first-child .complete")
	b.Eval(`(passes(), '')`)
	page.Disposes(s, "a completed half written, b held")
	b.Await(`!JSON.stringify(sessionStorage).includes('half written')`, e2e.Soon)
	b.Eval(`(document.querySelector('#work textarea').value = 'of b', document.querySelector('#work textarea').dispatchEvent(new Event('input')), '')`)
	b.Await(`JSON.stringify(sessionStorage).includes('of b')`, e2e.Soon)
	b.Do(chromedp.Navigate("about:blank"))
	page.Manages(s, "POST", fmt.Sprintf("/work/%d/reassign", e2e.Column[int64](s, `select id from getwork.work where item = 'b'`)[0]), map[string]any{"user": "Tracy", "force": true})
	for range 2 { // the first visit learns that b is lost, and the second has it from the first
		b.Do(chromedp.Navigate(s.Nodes[0].URL))
		b.Shows("#work .key", "b")
		b.Press("#lost .key") // a line, until it is opened
		b.Shows("#work .why", "It is not yours any more. Your note is kept.")
		b.Await(`document.querySelector('#work textarea').value === 'of b'`, e2e.Soon)
	}
	b.Press("#work .dismiss")
	b.Works(0, e2e.Soon)
	b.Await(`!JSON.stringify(sessionStorage).includes('of b')`, e2e.Soon)

	// Older pages stored neither task nor item.
	b.Do(chromedp.Navigate(s.Nodes[0].URL + "/livez"))
	b.Eval(`(sessionStorage.setItem('getwork.desk.Oliver', '{"notes":[["999","of c"]],"kept":[]}'), '')`)
	b.Do(chromedp.Navigate(s.Nodes[0].URL))
	b.State("live", e2e.Soon)
	b.Works(0, e2e.Soon)
	b.Await(`!JSON.stringify(sessionStorage).includes('of c')`, e2e.Soon)
}

// crash ends the tab's process, as a crash would, and reloads the page, as its user would.
func crash(b *page.Browser) {
	b.T.Helper()
	crashes(b)
	b.Do(chromedp.Reload())
}

// crashes ends the tab's process, as a crash would.
func crashes(b *page.Browser) {
	b.T.Helper()
	ctx, crashed := context.WithTimeout(b.Context(), e2e.Soon)
	defer crashed()
	err := chromedp.Listen(b.Context(), func(event any) { // a page that has crashed does not answer
		if _, ended := event.(*inspector.EventTargetCrashed); ended {
			crashed()
		}
	})
	if err != nil {
		b.T.Fatal(err)
	}
	_ = chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, protocol.Crash, cdp.Empty{})
		return err
	}))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.T.Fatal("the page did not crash")
	}
}

// A user who opens another view first finds all held work at the desk, and the typed notes.
func TestPageDeskAfterAnotherView(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	b, s := desk(t, page.UndoLasts, "1h", 2)
	b.TypeNote("half written")
	b.Opens(s.Nodes[0].URL + "/wall")
	b.Shows(".wall-state", "Live")
	b.Press(".wall-controls .back")
	b.Works(2, e2e.Soon)
	b.Await(`document.querySelector('#work textarea').value === 'half written'`, e2e.Soon)
	b.Await(`!document.querySelector('#told').textContent`, e2e.Soon) // it is not new

	// Work that comes while the page is hidden is counted in its title, but in no other view's, nor once it has been seen.
	b.Press(`#views a[href="/wall"]`)
	b.Await(`document.querySelector('[data-view=wall] .wall-state')`, e2e.Soon)
	b.Eval(`(Object.defineProperty(document, 'hidden', { configurable: true, get() {
		window.arrived ||= new Error().stack.includes('arrived');
		return true;
	} }), '')`)
	s.Takes("Oliver", 1)
	b.Await(`window.arrived`, e2e.Soon)
	b.Eval(`(delete document.hidden, '')`)
	b.Press(".wall-controls .back")
	b.Works(3, e2e.Soon)
	if title := b.Eval(`document.title`); title != "Oliver · getwork" {
		t.Errorf("the title is %q", title)
	}
}
