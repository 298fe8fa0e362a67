package demo

import (
	"bytes"
	"context"
	"flag"
	"fmt"
	"image"
	"image/color"
	"image/gif"
	"image/png"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/chromedp/cdproto/cdp"
	protocol "github.com/chromedp/cdproto/page"
	"github.com/chromedp/chromedp"

	"getwork/cmd/internal/e2e"
	"getwork/cmd/lab/page"
)

var pictures = flag.String("pictures", "", "take the README's and the guides' pictures, and write them to this folder")

// The pictures of the README and the guides are taken of the real page, by one command: make pictures.
func TestPictures(t *testing.T) { // not parallel: a picture should not show a busy machine
	if *pictures == "" {
		t.Skip("make pictures takes them")
	}
	b := page.NewBrowser(t, "")
	d := e2e.StartDemo(t, e2e.DemoDir(t), "--nodes", "3", "--loans", "1500")
	nodes := d.Ready()
	b.As(page.Look{Width: 1366, Height: 1000, Scheme: "light"})
	b.Do(chromedp.Navigate(d.Page()))
	clicks := `[...document.querySelectorAll('button')].some((e) => /^Get (W|w)ork: Verify/.test(e.ariaLabel ?? '') && (e.click(), true))`
	for i, who := range []string{"Oliver", "Tracy", "Mia"} {
		awaitIn(b, nodes[i], fmt.Sprintf(`document.querySelector('#name').textContent === %q && document.querySelector('#chip').dataset.state === 'live'`, who), 4*e2e.Soon)
	}
	b.Eval(`(document.querySelector('#panes').scrollIntoView(), '')`)
	var film film
	b.Do(chromedp.EmulateViewport(1366, 640))
	film.shoot(b, 2*time.Second)
	awaitIn(b, nodes[0], clicks, e2e.Soon)
	film.shoot(b, 2*time.Second)
	awaitIn(b, nodes[1], clicks, e2e.Soon)
	film.shoot(b, 8*time.Second)
	for _, who := range []string{"Oliver", "Tracy"} { // however busy the machine is
		db := databaseOf(d)
		e2e.Await(t, who+" holds a loan", soonPlayed, func() bool {
			var held int
			told(t, db, `select count(*) from getwork.work where state = 'held' and user_name = '`+who+`'`, &held)
			return held > 0
		})
	}
	film.shoot(b, 6*time.Second)
	film.write(t, filepath.Join(*pictures, "demo.gif"))

	for name, url := range map[string]string{"page-desk": nodes[0] + "/#log-in=Oliver", "page-floor": nodes[2] + "/floor#log-in=Mia,manager"} {
		b.As(page.Look{Width: 1366, Height: 850, Scheme: "light"})
		b.Do(chromedp.Navigate(url))
		b.Await(`document.querySelector('#chip')?.dataset.state === 'live' && document.querySelector('#view').innerText.includes('Verify')`, 4*e2e.Soon)
		b.Settle()
		if err := os.WriteFile(filepath.Join(*pictures, name+".png"), shot(b), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// shot returns what the window shows, as PNG.
func shot(b *page.Browser) []byte {
	b.T.Helper()
	picture, err := page.Run(b, func(ctx context.Context, tab *chromedp.Target) ([]byte, error) {
		got, err := cdp.Call(ctx, tab, protocol.CaptureScreenshot, protocol.CaptureScreenshotParams{})
		return got.Data, err
	})
	if err != nil {
		b.T.Fatal(err)
	}
	return picture
}

// film is an animation: pictures, and how long each is shown.
type film struct {
	frames []image.Image
	shown  []time.Duration
}

// shoot films for that long. What doesn't change costs nothing.
func (f *film) shoot(b *page.Browser, long time.Duration) {
	b.T.Helper()
	tick := time.NewTicker(400 * time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(long); time.Now().Before(end); <-tick.C {
		began := time.Now()
		frame, err := png.Decode(bytes.NewReader(shot(b)))
		if err != nil {
			b.T.Fatal(err)
		}
		f.frames = append(f.frames, frame)
		f.shown = append(f.shown, max(400*time.Millisecond, time.Since(began)))
	}
}

// write writes a GIF with the film's commonest colours. After the first picture it has only the part of each that changed.
func (f *film) write(t *testing.T, file string) {
	t.Helper()
	of := paletteOf(f.frames)
	out := gif.GIF{Config: image.Config{ColorModel: of, Width: f.frames[0].Bounds().Dx(), Height: f.frames[0].Bounds().Dy()}}
	nearest := map[color.RGBA]uint8{}
	var before *image.Paletted
	for i, frame := range f.frames {
		now := image.NewPaletted(frame.Bounds(), of)
		var changed image.Rectangle
		for y := range now.Rect.Dy() {
			for x := range now.Rect.Dx() {
				c := rgb(frame.At(x, y))
				index, known := nearest[c]
				if !known {
					index = uint8(of.Index(c)) //nolint:gosec // there are 256 at most
					nearest[c] = index
				}
				now.SetColorIndex(x, y, index)
				if before == nil || before.ColorIndexAt(x, y) != index {
					changed = changed.Union(image.Rect(x, y, x+1, y+1))
				}
			}
		}
		hundredths := int(f.shown[i] / (10 * time.Millisecond))
		if changed.Empty() {
			out.Delay[len(out.Delay)-1] += hundredths
			continue
		}
		out.Image = append(out.Image, now.SubImage(changed).(*image.Paletted))
		out.Delay = append(out.Delay, hundredths)
		before = now
	}
	var written bytes.Buffer
	if err := gif.EncodeAll(&written, &out); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(file, written.Bytes(), 0o644); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s: %d pictures, %d KiB", file, len(out.Image), written.Len()/1024)
}

func rgb(c color.Color) color.RGBA {
	r, g, b, _ := c.RGBA()
	return color.RGBA{uint8(r >> 8), uint8(g >> 8), uint8(b >> 8), 255} //nolint:gosec // they have 16 bits
}

// paletteOf returns the 256 commonest colours, of which a page has few besides the edges of letters.
func paletteOf(frames []image.Image) (of color.Palette) {
	often := map[color.RGBA]int{}
	for _, frame := range []image.Image{frames[0], frames[len(frames)/2], frames[len(frames)-1]} {
		size := frame.Bounds()
		for y := range size.Dy() {
			for x := range size.Dx() {
				often[rgb(frame.At(x, y))]++
			}
		}
	}
	all := make([]color.RGBA, 0, len(often))
	for c := range often {
		all = append(all, c)
	}
	slices.SortFunc(all, func(a, b color.RGBA) int { return often[b] - often[a] })
	for _, c := range all[:min(len(all), 256)] {
		of = append(of, c)
	}
	return of
}
