package bench

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// drawn is what a reader of the picture finds in it.
type drawn struct {
	Title   string   `xml:"title"`
	Style   string   `xml:"style"`
	Texts   []string `xml:"text"`
	Circles []struct {
		Class string  `xml:"class,attr"`
		X     float64 `xml:"cx,attr"`
		Y     float64 `xml:"cy,attr"`
		Says  string  `xml:"title"`
	} `xml:"circle"`
	Lines []struct {
		Points string `xml:"points,attr"`
	} `xml:"polyline"`
}

func draw(t *testing.T, p plot) drawn {
	t.Helper()
	b, err := p.svg()
	if err != nil {
		t.Fatal(err)
	}
	var d drawn
	decoder := xml.NewDecoder(bytes.NewReader(b))
	if err := decoder.Decode(&d); err != nil {
		t.Fatalf("%v in\n%s", err, b)
	}
	for {
		token, err := decoder.Token()
		if errors.Is(err, io.EOF) {
			break
		}
		if text, ok := token.(xml.CharData); err != nil || !ok || strings.TrimSpace(string(text)) != "" {
			t.Fatalf("%v %v behind the picture", token, err)
		}
	}
	return d
}

// Each point is where its values belong: tenfold is the same way each time, and half as much half as high.
func TestPlot(t *testing.T) {
	d := draw(t, plot{
		Title: "Clicks & <more>", X: "users", Y: "clicks/s",
		Curves: []curve{
			{"one node", []point{{1, 0}, {10, 1000}, {100, 2000}}},
			{"two nodes", []point{{1, 500}, {10, 1500}, {100, 1900}}},
		},
	})
	if d.Title != "Clicks & <more>" {
		t.Errorf("title %q", d.Title)
	}
	const left, middle, right = plotLeft + plotInset, (plotLeft + plotRight) / 2, plotRight - plotInset
	const height = float64(plotBottom - plotTop)
	want := [][2]float64{
		{left, plotBottom}, {middle, plotBottom - height/2}, {right, plotTop},
		{left, plotBottom - height/4}, {middle, plotBottom - height*3/4}, {right, plotBottom - height*19/20},
	}
	if len(d.Circles) != len(want) {
		t.Fatalf("%d points, want %d", len(d.Circles), len(want))
	}
	var lines []string
	for i, c := range d.Circles {
		if math.Abs(c.X-want[i][0]) > 0.1 || math.Abs(c.Y-want[i][1]) > 0.1 {
			t.Errorf("point %d (%s) is at %v,%v, want %v", i, c.Says, c.X, c.Y, want[i])
		}
		lines = append(lines, strconv.FormatFloat(c.X, 'f', -1, 64)+","+strconv.FormatFloat(c.Y, 'f', -1, 64))
	}
	for i, class := range []string{"p0", "p0", "p0", "p1", "p1", "p1"} {
		if d.Circles[i].Class != class {
			t.Errorf("point %d is drawn as %s, want %s", i, d.Circles[i].Class, class)
		}
	}
	for i, l := range d.Lines {
		if want := strings.Join(lines[3*i:3*i+3], " "); l.Points != want {
			t.Errorf("line %d goes %s, its points are %s", i, l.Points, want)
		}
	}
	if says := d.Circles[4].Says; says != "two nodes 10: 1.5k" {
		t.Errorf("a point says %q", says)
	}
	texts := []string{"Clicks & <more>", "0", "500", "1k", "1.5k", "2k", "1", "10", "100", "users", "clicks/s",
		"0", "1k", "2k", "500", "1.5k", "1.9k", "● one node", "● two nodes"}
	if diff := cmp.Diff(texts, d.Texts); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(d.Style, "prefers-color-scheme:dark") {
		t.Error("it has no colours for the dark")
	}
}

func TestLogarithmicPlot(t *testing.T) {
	d := draw(t, plot{Title: "t", LogY: true, Curves: []curve{{"", []point{{100, 20}, {1000, 200}, {10000, 1000}}}}})
	const height = float64(plotBottom - plotTop)
	for i, want := range []float64{plotBottom - height*math.Log10(2)/2, plotBottom - height*(1+math.Log10(2))/2, plotTop} {
		if got := d.Circles[i].Y; math.Abs(got-want) > 0.1 {
			t.Errorf("point %d is at %v, want %v", i, got, want)
		}
	}
}

func TestPlotRefuses(t *testing.T) {
	points := []point{{1, 1}}
	for name, p := range map[string]plot{
		"no curve":        {},
		"too many curves": {Curves: make([]curve, mostCurves+1)},
		"no points":       {Curves: []curve{{}}},
		"x of 0":          {Curves: []curve{{"", []point{{0, 1}}}}},
		"y of 0":          {LogY: true, Curves: []curve{{"", []point{{1, 0}}}}},
		"below 0":         {Curves: []curve{{"", []point{{1, -1}}}}},
		"no number":       {Curves: []curve{{"", points}, {"", []point{{1, math.NaN()}}}}},
		"no end":          {Curves: []curve{{"", []point{{1, math.Inf(1)}}}}},
	} {
		if b, err := p.svg(); err == nil {
			t.Errorf("%s: %s", name, b)
		}
	}
}

func TestShort(t *testing.T) {
	for v, want := range map[float64]string{0: "0", 0.0123456: "0.0123", 7: "7", 99.95: "100", 999: "999", 1000: "1k", 28437: "28.4k", 1e6: "1M", 12.5e6: "12.5M"} {
		if got := short(v); got != want {
			t.Errorf("%v is written %s, want %s", v, got, want)
		}
	}
}

// A single point, and nothing but zeros, can be shown.
func TestPlotOfLittle(t *testing.T) {
	d := draw(t, plot{Title: "t", Curves: []curve{{"", []point{{5, 0}}}}})
	if c := d.Circles[0]; c.X != (plotLeft+plotRight)/2 || c.Y != plotBottom {
		t.Errorf("the point is at %v,%v", c.X, c.Y)
	}
}
