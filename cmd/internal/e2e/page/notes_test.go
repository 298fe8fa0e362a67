package page

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/inspector"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// A note that is longer than the server accepts is not sent: the page says so while it is written, and by how much it
// is too long.
func TestPageNoteTooLong(t *testing.T) {
	t.Parallel()
	b, s, g := behind(t, 2)
	g.refuses(0, 0, "")
	b.press("#work li:first-child summary")
	write := func(text string) {
		t.Helper()
		b.eval(fmt.Sprintf(`(() => {
			const note = document.querySelector('#work textarea');
			note.value = %q;
			note.dispatchEvent(new Event('input'));
			return '';
		})()`, text))
	}
	long := strings.Repeat("é", 3000) // 6000 bytes; the same number of ASCII letters would fit
	write(long)
	b.shows("#work li:first-child details .error", "The note is too long by about 952 characters.")
	b.await(`document.querySelector('#work textarea').ariaInvalid === 'true'`, e2e.Soon)
	b.press("#work li:first-child summary") // and away
	for _, button := range []string{".complete", ".next", `[data-return="1h"]`} {
		b.eval(`(document.activeElement.blur(), '')`)
		b.press("#work li:first-child " + button)
		b.await(`document.activeElement.matches('#work textarea')`, e2e.Soon)
		b.shows("#said", "a is not let go of. The note is too long by about 952 characters: shorten it.")
	}
	if same := b.eval(fmt.Sprintf(`String(document.querySelector('#work textarea').value === %q)`, long)); same != "true" {
		t.Error("the note was cut")
	}
	write(strings.Repeat("é", 2048)) // exactly at the limit
	b.await(`!document.querySelector('#work details .error').textContent && document.querySelector('#work textarea').ariaInvalid !== 'true'`, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	s.Await("the note is there as it was written", e2e.Soon, `select octet_length(note) = 4096 and state = 'completed' from getwork.work where item = 'a'`)
	if n := len(g.dispositions()); n != 1 {
		t.Errorf("%d dispositions were sent", n)
	}
}

// A note in progress survives a reload and a crash of the tab, and goes with the work.
func TestPageNoteOutlastsReload(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 2)
	b.typeNote("half wri")
	b.do(chromedp.Reload())
	b.await(`document.querySelector('#work li:first-child textarea')?.value === 'half wri'`, e2e.Soon)
	b.await(`document.querySelector('#work li:first-child textarea').checkVisibility()`, e2e.Soon) // it is open
	b.do(chromedp.SendKeys(chromedp.CSS("#work li:first-child textarea"), "tten", chromedp.NodeVisible))
	b.crash()
	b.await(`document.querySelector('#work li:first-child textarea')?.value === 'half written'`, e2e.Soon)
	b.press("#work li:first-child .complete")
	b.eval(`(passes(), '')`)
	s.disposes("a completed half written, b held")
	b.await(`!JSON.stringify(sessionStorage).includes('half written')`, e2e.Soon)
	b.eval(`(document.querySelector('#work textarea').value = 'of b', document.querySelector('#work textarea').dispatchEvent(new Event('input')), '')`)
	b.await(`JSON.stringify(sessionStorage).includes('of b')`, e2e.Soon)
	b.do(chromedp.Navigate("about:blank"))
	s.manages("POST", fmt.Sprintf("/work/%d/reassign", column[int64](s, `select id from getwork.work where item = 'b'`)[0]), map[string]any{"user": "Tracy"})
	b.do(chromedp.Navigate(s.Nodes[0].URL))
	b.works(0, e2e.Soon)
	b.state("live", e2e.Soon)
	b.await(`!JSON.stringify(sessionStorage).includes('of b')`, e2e.Soon)
}

// crash ends the tab's process, as a crash would, and reloads the page, as its user would.
func (b *browser) crash() {
	b.t.Helper()
	b.crashes()
	b.do(chromedp.Reload())
}

// crashes ends the tab's process, as a crash would.
func (b *browser) crashes() {
	b.t.Helper()
	ctx, crashed := context.WithTimeout(b.ctx, e2e.Soon)
	defer crashed()
	err := chromedp.Listen(b.ctx, func(event any) { // a page that has crashed does not answer
		if _, ended := event.(*inspector.EventTargetCrashed); ended {
			crashed()
		}
	})
	if err != nil {
		b.t.Fatal(err)
	}
	_ = chromedp.Do(ctx, chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		_, err := cdp.Call(ctx, tab, page.Crash, cdp.Empty{})
		return err
	}))
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		b.t.Fatal("the page did not crash")
	}
}

// A user who opens another view first finds all held work at the desk, and the typed notes.
func TestPageDeskAfterAnotherView(t *testing.T) {
	t.Parallel()
	b, s := desk(t, undoLasts, "1h", 2)
	b.typeNote("half written")
	b.do(chromedp.Navigate("about:blank"), chromedp.Navigate(s.Nodes[0].URL+"/wall"))
	b.shows(".wall-state", "Live")
	b.press(".wall-controls .back")
	b.works(2, e2e.Soon)
	b.await(`document.querySelector('#work textarea').value === 'half written'`, e2e.Soon)
	b.await(`!document.querySelector('#told').textContent`, e2e.Soon) // it is not new
}
