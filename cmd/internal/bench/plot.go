package bench

import (
	"encoding/xml"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// plot is a small picture of how something grows. Its x axis is logarithmic, since what is asked is what ten times as
// much costs, and marks what was measured.
type plot struct {
	Title  string
	X, Y   string // what the axes show, with units
	LogY   bool
	Curves []curve
}

// curve is a line through points, whose x are above 0 and ascend.
type curve struct {
	Name   string // may be empty where there is but one
	Points []point
}

type point struct{ X, Y float64 }

// The picture in its own units: letters that can be read on a phone, where it is scaled down to some 340.
const (
	plotWidth, plotHeight = 420, 300
	plotLeft, plotRight   = 58, 404
	plotTop, plotBottom   = 84, 238
	plotInset             = 22 // of the first and the last point
)

// plotStyle has its own background, so that letters can be read on it whatever the page around it looks like. The
// colours differ in lightness, too.
const plotStyle = `
svg{font:15px system-ui,sans-serif}
.back{fill:#fff} text{fill:#1f2328} .grid{stroke:#d1d9e0} .axis{stroke:#59636e} .title{font-weight:600} .value{font-size:14px;paint-order:stroke;stroke:#fff;stroke-width:3px}
.line{fill:none;stroke-width:2.5} .c0{stroke:#0550ae} .c1{stroke:#bc4c00} .p0,.n0{fill:#0550ae} .p1,.n1{fill:#bc4c00}
@media(prefers-color-scheme:dark){
.back{fill:#0d1117} text{fill:#e6edf3} .value{stroke:#0d1117} .grid{stroke:#30363d} .axis{stroke:#9198a1}
.c0{stroke:#79c0ff} .c1{stroke:#ffa657} .p0,.n0{fill:#79c0ff} .p1,.n1{fill:#ffa657}}
`

// mostCurves is how many have a colour.
const mostCurves = 2

// svg draws the plot: a document of its own.
func (p plot) svg() ([]byte, error) {
	if len(p.Curves) == 0 || len(p.Curves) > mostCurves {
		return nil, fmt.Errorf("plot %q: it has %d curves, and can show 1 to %d", p.Title, len(p.Curves), mostCurves)
	}
	x, y, err := p.scales()
	if err != nil {
		return nil, fmt.Errorf("plot %q: %w", p.Title, err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%[1]d" height="%[2]d" role="img">`, plotWidth, plotHeight)
	fmt.Fprintf(&b, "\n<title>%s</title>\n<style>%s</style>\n", escaped(p.Title), plotStyle)
	fmt.Fprintf(&b, `<rect class="back" width="%d" height="%d" rx="6"/>`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<text class="title" x="14" y="25">%s</text>`+"\n", escaped(p.Title))
	p.axes(&b, x, y)
	for i, c := range p.Curves {
		c.draw(&b, i, x, y)
	}
	p.values(&b, x, y)
	p.names(&b)
	b.WriteString("</svg>\n")
	return []byte(b.String()), nil
}

func (p plot) scales() (x, y scale, err error) {
	var xs, ys []float64
	for _, c := range p.Curves {
		for _, at := range c.Points {
			xs, ys = append(xs, at.X), append(ys, at.Y)
		}
	}
	if x, err = exactScale(xs, plotLeft+plotInset, plotRight-plotInset); err != nil {
		return x, y, fmt.Errorf("x: %w", err)
	}
	if p.LogY {
		y, err = decadeScale(ys, plotBottom, plotTop)
	} else {
		y, err = linearScale(ys, plotBottom, plotTop)
	}
	if err != nil {
		return x, y, fmt.Errorf("y: %w", err)
	}
	return x, y, nil
}

func (p plot) axes(b *strings.Builder, x, y scale) {
	for _, tick := range y.ticks {
		at := y.at(tick)
		fmt.Fprintf(b, `<line class="grid" x1="%d" x2="%d" y1="%s" y2="%[3]s"/>`, plotLeft, plotRight, number(at))
		fmt.Fprintf(b, `<text text-anchor="end" x="%d" y="%s">%s</text>`+"\n", plotLeft-8, number(at+5), short(tick))
	}
	for _, tick := range x.ticks {
		at := x.at(tick)
		fmt.Fprintf(b, `<line class="axis" x1="%s" x2="%[1]s" y1="%d" y2="%d"/>`, number(at), plotBottom, plotBottom+5)
		fmt.Fprintf(b, `<text text-anchor="middle" x="%s" y="%d">%s</text>`+"\n", number(at), plotBottom+22, short(tick))
	}
	fmt.Fprintf(b, `<line class="axis" x1="%d" x2="%d" y1="%d" y2="%[3]d"/>`+"\n", plotLeft, plotRight, plotBottom)
	fmt.Fprintf(b, `<text text-anchor="middle" x="%d" y="%d">%s</text>`+"\n", (plotLeft+plotRight)/2, plotHeight-14, escaped(p.X))
	fmt.Fprintf(b, `<text x="14" y="44" class="value">%s</text>`+"\n", escaped(p.Y))
}

// draw draws the line and its points.
func (c curve) draw(b *strings.Builder, i int, x, y scale) {
	at := make([]string, len(c.Points))
	for j, p := range c.Points {
		at[j] = number(x.at(p.X)) + "," + number(y.at(p.Y))
	}
	fmt.Fprintf(b, `<polyline class="line c%d" points="%s"/>`+"\n", i, strings.Join(at, " "))
	for _, p := range c.Points {
		fmt.Fprintf(b, `<circle class="p%d" cx="%s" cy="%s" r="4"><title>%s</title></circle>`+"\n", i, number(x.at(p.X)), number(y.at(p.Y)),
			escaped(strings.TrimSpace(c.Name+" "+short(p.X)+": "+short(p.Y))))
	}
}

// values writes what each point says above it, or below if it is the lower one of two.
func (p plot) values(b *strings.Builder, x, y scale) {
	for i, c := range p.Curves {
		for _, at := range c.Points {
			beside := -9.0
			if p.lower(i, at) {
				beside = 20
			}
			fmt.Fprintf(b, `<text class="value n%d" text-anchor="middle" x="%s" y="%s">%s</text>`+"\n", i,
				number(x.at(at.X)), number(y.at(at.Y)+beside), short(at.Y))
		}
	}
}

// lower reports whether another curve has a higher point at the same x, or as high a one and comes first.
func (p plot) lower(i int, at point) bool {
	for j, c := range p.Curves {
		for _, other := range c.Points {
			if j != i && other.X == at.X && (other.Y > at.Y || other.Y == at.Y && j < i) {
				return true
			}
		}
	}
	return false
}

// names says which curve is which, if there is more than one.
func (p plot) names(b *strings.Builder) {
	if len(p.Curves) < 2 {
		return
	}
	for i, c := range p.Curves {
		fmt.Fprintf(b, `<text class="value n%d" text-anchor="end" x="%d" y="%d">● %s</text>`+"\n", i, plotRight, 44+17*i, escaped(c.Name))
	}
}

// scale maps values to places in the picture.
type scale struct {
	log      bool
	low, up  float64 // the values at both ends
	from, to float64 // where those are
	ticks    []float64
}

// exactScale is logarithmic, goes from the least value to the greatest, and marks each.
func exactScale(values []float64, from, to float64) (scale, error) {
	low, up, err := bounds(values, true)
	if err != nil {
		return scale{}, err
	}
	if low == up {
		low, up = low/10, up*10 // in the middle
	}
	sorted := slices.Sorted(slices.Values(values))
	return scale{log: true, low: low, up: up, from: from, to: to, ticks: slices.Compact(sorted)}, nil
}

// decadeScale is logarithmic, and goes from a power of ten to another.
func decadeScale(values []float64, from, to float64) (scale, error) {
	low, up, err := bounds(values, true)
	if err != nil {
		return scale{}, err
	}
	const rounding = 1e-9
	first, last := math.Floor(math.Log10(low)+rounding), math.Ceil(math.Log10(up)-rounding)
	last = max(last, first+1)
	s := scale{log: true, low: math.Pow(10, first), up: math.Pow(10, last), from: from, to: to}
	for power := first; power <= last; power++ {
		s.ticks = append(s.ticks, math.Pow(10, power))
	}
	return s, nil
}

// linearScale begins at 0, so that what is twice as much looks so, and has steps of 1, 2 or 5, at most five.
func linearScale(values []float64, from, to float64) (scale, error) {
	_, up, err := bounds(values, false)
	if err != nil {
		return scale{}, err
	}
	if up == 0 {
		up = 1
	}
	const most = 5
	step := math.Pow(10, math.Floor(math.Log10(up/most)))
	for _, factor := range []float64{1, 2, 5, 10} {
		if up/(step*factor) <= most {
			step *= factor
			break
		}
	}
	steps := math.Ceil(up / step)
	s := scale{up: steps * step, from: from, to: to}
	for n := range int(steps) + 1 {
		s.ticks = append(s.ticks, float64(n)*step)
	}
	return s, nil
}

// bounds are the least and the greatest value; on a logarithmic scale 0 has no place.
func bounds(values []float64, log bool) (low, up float64, err error) {
	if len(values) == 0 {
		return 0, 0, errors.New("there is nothing to show")
	}
	for _, v := range values {
		if math.IsNaN(v) || math.IsInf(v, 0) || v < 0 || log && v == 0 {
			return 0, 0, fmt.Errorf("%v can't be shown", v)
		}
	}
	return slices.Min(values), slices.Max(values), nil
}

// at is where a value is.
func (s scale) at(v float64) float64 {
	part := (v - s.low) / (s.up - s.low)
	if s.log {
		part = math.Log(v/s.low) / math.Log(s.up/s.low)
	}
	return s.from + part*(s.to-s.from)
}

// short writes a number for people: 1500 is 1.5k.
func short(v float64) string {
	for _, unit := range []struct {
		size float64
		sign string
	}{{1e6, "M"}, {1e3, "k"}} {
		if v >= unit.size {
			return strconv.FormatFloat(significant(v/unit.size), 'f', -1, 64) + unit.sign
		}
	}
	return strconv.FormatFloat(significant(v), 'f', -1, 64)
}

// significant keeps three digits.
func significant(v float64) float64 {
	rounded, _ := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 3, 64), 64)
	return rounded
}

// number writes a coordinate.
func number(v float64) string {
	return strconv.FormatFloat(math.Round(v*10)/10, 'f', -1, 64)
}

func escaped(text string) string {
	var b strings.Builder
	_ = xml.EscapeText(&b, []byte(text))
	return b.String()
}
