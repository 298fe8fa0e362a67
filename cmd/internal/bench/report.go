package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Report is all that was measured, and on what.
type Report struct {
	Facts   Facts
	Figures []Figure
}

// Ratio is the figure to its limit: the median of the rounds' ratios, since what disturbs a round disturbs both.
func (f *Figure) Ratio() (ratio float64, known bool) {
	if f.Limit == nil || len(f.Values) == 0 || f.Limit.Median() == 0 {
		return 0, false
	}
	if len(f.Values) != len(f.Limit.Values) {
		return f.Median() / f.Limit.Median(), true
	}
	var ratios Figure
	for i, v := range f.Values {
		if f.Limit.Values[i] == 0 {
			return f.Median() / f.Limit.Median(), true
		}
		ratios.Values = append(ratios.Values, v/f.Limit.Values[i])
	}
	return ratios.Median(), true
}

// Met tells whether the goal was reached; known is false if there is none, or nothing to hold against it.
func (f *Figure) Met() (met, known bool) {
	if f.Goal == nil || len(f.Values) == 0 {
		return false, false
	}
	value := f.Median()
	if !f.Goal.Absolute && f.Limit != nil {
		ratio, known := f.Ratio()
		if !known {
			return false, false
		}
		value = ratio
	}
	return (f.Goal.AtLeast == nil || value >= *f.Goal.AtLeast) && (f.Goal.AtMost == nil || value <= *f.Goal.AtMost), true
}

// goal is what people read of it.
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

// exact is a number as somebody wrote it.
func exact(v float64) string { return strconv.FormatFloat(v, 'g', -1, 64) }

// legible is a measured number: three digits, or all before the point.
func legible(v float64) string {
	switch size := math.Abs(v); {
	case size >= 1000:
		return thousands(int(math.Round(v)))
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

var columns = []string{"figure", "unit", "median", "range", "limit", "ratio", "goal", "met"}

func (f *Figure) cells() []string {
	cells := []string{f.Name, f.Unit, legible(f.Median()), f.span(), "", "", f.goal(), ""}
	if f.Limit != nil {
		cells[4] = legible(f.Limit.Median())
	}
	if ratio, known := f.Ratio(); known {
		cells[5] = strconv.FormatFloat(ratio, 'f', 2, 64)
	}
	if met, known := f.Met(); known {
		cells[7] = map[bool]string{true: "yes", false: "no"}[met]
	}
	return cells
}

// note says what its limit is, and what else has to be known.
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

// lines are the figures of the table: points of a plot are none.
func (r *Report) lines() []Figure {
	return slices.DeleteFunc(slices.Clone(r.Figures), func(f Figure) bool { return strings.HasPrefix(f.Key, growthPrefix) })
}

// Text prints the report for a terminal.
func (r *Report) Text(w io.Writer) error {
	var b strings.Builder
	for _, line := range r.Facts.Lines() {
		fmt.Fprintln(&b, line)
	}
	b.WriteString("\n")
	rows := [][]string{columns}
	for _, f := range r.lines() {
		rows = append(rows, f.cells())
	}
	widths := make([]int, len(columns))
	for _, row := range rows {
		for i, cell := range row {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	for _, row := range rows {
		var line strings.Builder
		for i, cell := range row {
			gap := strings.Repeat(" ", widths[i]-utf8.RuneCountInString(cell))
			if i >= 2 && i <= 5 { // numbers
				cell = gap + cell
			} else {
				cell += gap
			}
			line.WriteString(cell + "  ")
		}
		fmt.Fprintln(&b, strings.TrimRight(line.String(), " "))
	}
	b.WriteString("\n")
	for _, f := range r.lines() {
		if note := f.note(); note != "" {
			fmt.Fprintf(&b, "%s: %s.\n", f.Name, note)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// Markdown is the report as a part of a page.
func (r *Report) Markdown() string {
	var b strings.Builder
	for _, line := range r.Facts.Lines() {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	fmt.Fprintf(&b, "\n| %s |\n| --- | --- | ---: | ---: | ---: | ---: | --- | --- |\n", strings.Join(columns, " | "))
	for _, f := range r.lines() {
		fmt.Fprintf(&b, "| %s |\n", strings.Join(f.cells(), " | "))
	}
	b.WriteString("\n")
	for _, f := range r.lines() {
		if note := f.note(); note != "" {
			fmt.Fprintf(&b, "- **%s**: %s.\n", f.Name, note)
		}
	}
	return b.String()
}

// JSON prints the report for programs: one document.
func (r *Report) JSON(w io.Writer) error {
	type evaluated struct {
		Figure
		Median float64  `json:"median"`
		Ratio  *float64 `json:"ratio,omitempty"`
		Met    *bool    `json:"met,omitempty"`
	}
	document := struct {
		Facts   Facts       `json:"facts"`
		Figures []evaluated `json:"figures"`
	}{Facts: r.Facts, Figures: []evaluated{}}
	for _, f := range r.Figures {
		e := evaluated{Figure: f, Median: f.Median()}
		if ratio, known := f.Ratio(); known {
			e.Ratio = &ratio
		}
		if met, known := f.Met(); known {
			e.Met = &met
		}
		document.Figures = append(document.Figures, e)
	}
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	return encoder.Encode(document)
}

// The page that the report is written into, and between which of its lines.
const (
	page      = "benchmarks.md"
	pageBegin = "<!-- table -->\n"
	pageEnd   = "<!-- /table -->"
)

// CheckPage tells beforehand whether Write will find where to write.
func CheckPage(folder string) error {
	_, _, err := readPage(folder)
	return err
}

func readPage(folder string) (before, after string, err error) {
	path := filepath.Join(folder, page)
	text, err := os.ReadFile(path)
	if err != nil {
		return "", "", err
	}
	before, rest, begun := strings.Cut(string(text), pageBegin)
	_, after, ended := strings.Cut(rest, pageEnd)
	if !begun || !ended {
		return "", "", fmt.Errorf("%s has no lines %q and %q, between which the table belongs", path, strings.TrimSpace(pageBegin), pageEnd)
	}
	return before, after, nil
}

// Write puts the report into a folder's page, and draws the plots beside it.
func (r *Report) Write(folder string) error {
	before, after, err := readPage(folder)
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(folder, page), []byte(before+pageBegin+r.Markdown()+pageEnd+after), 0o644); err != nil {
		return err
	}
	return WritePlots(folder, r.Figures)
}
