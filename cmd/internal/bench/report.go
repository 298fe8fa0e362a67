package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Report is all figures, with the facts.
type Report struct {
	Facts      Facts
	References []*Figure // what was measured at the start and at the end
	Figures    []*Figure
	Conclusion string // a sentence for people; empty: none
}

// Ratio returns the ratio of the figure to its limit. It is the median of the rounds' ratios, since a disturbance of a
// round affects both.
func (f *Figure) Ratio() (ratio float64, known bool) {
	if f.Limit == nil || len(f.Values) == 0 || f.Limit.Median() == 0 {
		return 0, false
	}
	if ratios := f.ratios(); ratios != nil {
		return Quantile(ratios, 0.5), true
	}
	return f.Median() / f.Limit.Median(), true
}

// ratios returns each round's ratio to the limit, or nil if not every round has one.
func (f *Figure) ratios() (ratios []float64) {
	if len(f.Values) != len(f.Limit.Values) || slices.Contains(f.Limit.Values, 0) {
		return nil
	}
	for i, v := range f.Values {
		ratios = append(ratios, v/f.Limit.Values[i])
	}
	return ratios
}

// goal formats the goal for people.
func (f *Figure) goal() string {
	if f.Goal == nil {
		return ""
	}
	unit := " " + f.Unit
	if !f.Goal.Absolute && f.Limit != nil {
		unit = "x"
	}
	var parts []string
	if f.Goal.AtLeast != nil {
		parts = append(parts, "≥ "+exact(*f.Goal.AtLeast)+unit)
	}
	if f.Goal.AtMost != nil {
		parts = append(parts, "≤ "+exact(*f.Goal.AtMost)+unit)
	}
	return strings.Join(parts, ", ")
}

// Thousands formats a number with gaps, for people.
func Thousands(n int) string {
	text := fmt.Sprint(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// exact formats a number with all its digits.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// legible formats a measured number with three digits, or all before the point.
func legible(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1000:
		return Thousands(int(math.Round(v)))
	case size >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case size >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func (f *Figure) span() string {
	if len(f.Values) < 2 {
		return ""
	}
	return legible(slices.Min(f.Values)) + " – " + legible(slices.Max(f.Values))
}

var columns = []string{"figure", "unit", "median", "range", "limit", "ratio", "goal", "verdict"}

func (r *Report) cells(f *Figure) []string {
	cells := []string{f.Name, f.Unit, legible(f.Median()), f.span(), "", "", f.goal(), ""}
	if f.Limit != nil {
		cells[4] = legible(f.Limit.Median())
	}
	if ratio, known := f.Ratio(); known {
		cells[5] = strconv.FormatFloat(ratio, 'f', 2, 64)
	}
	if verdict, noise, known := r.Verdict(f); known {
		cells[7] = fmt.Sprintf("%s (%s)", verdict, percent(noise))
	}
	return cells
}

// note describes the figure's limit, and whatever else must be known.
func (f *Figure) note() string {
	var parts []string
	if f.Limit != nil {
		limit := "its limit is " + f.Limit.Name
		if f.Limit.Note != "" {
			limit += " (" + f.Limit.Note + ")"
		}
		if span := f.Limit.span(); span != "" {
			limit += ", " + span + " " + f.Limit.Unit
		}
		parts = append(parts, limit)
	}
	if f.Note != "" {
		parts = append(parts, f.Note)
	}
	return strings.Join(parts, "; ")
}

// Markdown returns the report for people on a terminal: the table, and a note on each figure.
func (r *Report) Markdown() string {
	var notes strings.Builder
	for _, f := range r.Figures {
		if note := f.note(); note != "" {
			fmt.Fprintf(&notes, "- **%s**: %s.\n", f.Name, note)
		}
	}
	if r.Conclusion != "" {
		fmt.Fprintf(&notes, "\n%s\n", r.Conclusion)
	}
	return r.Table() + "\n" + notes.String()
}

// Table returns the facts and the figures, which a page shows. The page itself explains them.
func (r *Report) Table() string {
	rows := [][]string{columns, {"---", "---", "---:", "---:", "---:", "---:", "---", "---"}}
	for _, f := range r.Figures {
		rows = append(rows, r.cells(f))
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	var table strings.Builder
	for _, row := range rows {
		for i, cell := range row {
			width := -widths[i]
			if i >= 2 && i <= 5 { // numbers
				width = widths[i]
			}
			fmt.Fprintf(&table, "| %*s ", width, cell)
		}
		table.WriteString("|\n")
	}
	return "- " + strings.Join(append(r.Facts.Lines(), r.noiseLines()...), "\n- ") + "\n\n" + table.String()
}

// noiseLines describe the machine's noise, if it was measured.
func (r *Report) noiseLines() []string {
	var parts []string
	for _, f := range r.References {
		if noise, known := spread(f.Values); known {
			parts = append(parts, fmt.Sprintf("%s: %s and %s %s (%s)", f.Name, legible(f.Values[0]), legible(f.Values[1]), f.Unit, percent(noise)))
		}
	}
	if len(parts) == 0 {
		return nil
	}
	return []string{"the machine's noise, by the same figures at the start and at the end: " + strings.Join(parts, "; ")}
}

// JSON writes the report for programs, as one document.
func (r *Report) JSON(w io.Writer) error {
	type evaluated struct {
		*Figure
		Median  float64  `json:"median"`
		Ratio   *float64 `json:"ratio,omitempty"`
		Noise   *float64 `json:"noise,omitempty"`
		Verdict Verdict  `json:"verdict,omitempty"`
		Met     *bool    `json:"met,omitempty"` // left out within the noise
	}
	document := struct {
		Facts      Facts       `json:"facts"`
		Noise      []evaluated `json:"noise"`
		Figures    []evaluated `json:"figures"`
		Conclusion string      `json:"conclusion,omitempty"`
	}{r.Facts, []evaluated{}, []evaluated{}, r.Conclusion}
	for _, f := range r.References {
		e := evaluated{Figure: f, Median: f.Median()}
		if noise, known := spread(f.Values); known {
			e.Noise = &noise
		}
		document.Noise = append(document.Noise, e)
	}
	for _, f := range r.Figures {
		e := evaluated{Figure: f, Median: f.Median()}
		if ratio, known := f.Ratio(); known {
			e.Ratio = &ratio
		}
		if verdict, noise, known := r.Verdict(f); known {
			e.Verdict, e.Noise = verdict, &noise
			if met := verdict == GoalMet; verdict != WithinNoise {
				e.Met = &met
			}
		}
		document.Figures = append(document.Figures, e)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}
