package page

import (
	"context"
	"os"
	"path/filepath"
	"strings"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
)

// Shots is the folder for pictures of each view in each state, as PNG; empty: none are taken.
var Shots = os.Getenv("GETWORK_TEST_SHOTS")

// Look is how a page is looked at: on which screen, in which colours.
type Look struct {
	Name   string
	Width  int64
	Height int64
	Scheme string
	Lang   string // empty: English
}

// Looks are two screens, each in two colour schemes.
var Looks = []Look{
	{"1280-light", 1280, 800, "light", ""},
	{"1280-dark", 1280, 800, "dark", ""},
	{"390-light", 390, 844, "light", ""},
	{"390-dark", 390, 844, "dark", ""},
}

// As makes the browser show the page in that way. Animations are off, so that the result does not depend on the moment.
func (b *Browser) As(l Look) {
	b.T.Helper()
	b.Do(chromedp.Func(func(ctx context.Context, tab *chromedp.Target) error {
		media := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{
			{Name: "prefers-color-scheme", Value: l.Scheme}, {Name: "prefers-reduced-motion", Value: "reduce"},
		}}
		if _, err := cdp.Call(ctx, tab, emulation.SetEmulatedMedia, media); err != nil {
			return err
		}
		_, err := cdp.Call(ctx, tab, emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{
			Width: l.Width, Height: l.Height, DeviceScaleFactor: 1,
		})
		return err
	}))
	b.Settle()
}

// Settle waits until everything is drawn.
func (b *Browser) Settle() {
	b.T.Helper()
	const twoFrames = `new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(() => done(true))))`
	if _, err := Run(b, chromedp.Evaluate[bool](twoFrames, chromedp.EvalAwaitPromise)); err != nil {
		b.T.Fatal(err)
	}
}

// Shoot takes a picture of the whole page, not only of the screen.
func (b *Browser) Shoot(name string) {
	b.T.Helper()
	if Shots == "" {
		return
	}
	png, err := Run(b, func(ctx context.Context, tab *chromedp.Target) ([]byte, error) {
		fast, beyond := true, true
		picture, err := cdp.Call(ctx, tab, page.CaptureScreenshot, page.CaptureScreenshotParams{OptimizeForSpeed: &fast, CaptureBeyondViewport: &beyond})
		return picture.Data, err
	})
	if err == nil {
		err = os.MkdirAll(Shots, 0o755)
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(Shots, name+".png"), png, 0o644)
	}
	if err != nil {
		b.T.Fatal(err)
	}
}

// Ragged returns what is wrong with the bar: views in more than one row or in none, texts in several lines, and more than two rows on a phone.
const Ragged = `(() => {
	const found = [], nav = document.querySelector('#views'), seen = (e) => e.checkVisibility();
	const bar = [...nav.children].filter(seen), box = (e) => e.getBoundingClientRect();
	const middle = (e) => Math.round(box(e).top + box(e).bottom) / 2;
	if (new Set(bar.map(middle)).size !== 1) found.push('views in several rows');
	if (bar.some((e) => box(e).right > box(nav).right + 1)) found.push('views over the edge');
	const [all, rest] = ['#views a', '#rest a'].map((links) => [...document.querySelectorAll(links)]);
	if (all.length < 2 || all.length !== rest.length || all.some((e, i) => e.hidden === rest[i].hidden)) found.push('a view that is nowhere, or twice');
	if (bar.length < 4) found.push('only ' + bar.length + ' views beside each other');
	for (const e of [...document.querySelectorAll('.top > :not(nav)'), ...bar].filter(seen)) {
		const lines = document.createRange();
		lines.selectNodeContents(e);
		if (box(lines).height > 32) found.push('several lines: ' + e.textContent);
	}
	const rows = new Set([...document.querySelectorAll('.top > *')].filter((e) => seen(e) && e.id !== 'rest').map((e) => Math.round(middle(e) / 12)));
	if (rows.size > (innerWidth > 800 ? 1 : 2)) found.push(rows.size + ' rows');
	return found.join('\n');
})()`

// Moving moves the pointer about until so returns true.
func (b *Browser) Moving(what string, so func() bool) {
	b.T.Helper()
	n := 0
	e2e.Await(b.T, what, 4*e2e.Soon, func() bool {
		n++
		b.Do(chromedp.MouseEvent(input.DispatchMouseEventTypeMouseMoved, 300+float64(n%100), 10))
		return so()
	})
}

// Shoot takes a picture of the page.
func (f *Firefox) Shoot(name string) {
	f.T.Helper()
	if Shots == "" {
		return
	}
	png := f.screenshot()
	err := os.MkdirAll(Shots, 0o755)
	if err == nil {
		err = os.WriteFile(filepath.Join(Shots, "firefox-"+strings.ReplaceAll(name, " ", "-")+".png"), png, 0o644)
	}
	if err != nil {
		f.T.Fatal(err)
	}
}
