package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"getwork/cmd/internal/command"
)

// Table prints aligned columns. An empty cell is printed as a hyphen, so that programs can count columns. A terminal shows heads in
// bold, and states in their colours; what doesn't fit into its lines is shortened, or stands below its row.
func Table(w io.Writer, heads []string, rows [][]string) error {
	lines := [][]string{heads}
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			if cells[i] = plain(cell); cells[i] == "" {
				cells[i] = "-"
			}
		}
		lines = append(lines, cells)
	}
	var written bytes.Buffer // a line in one write
	out, columns := io.Writer(&written), 0
	if v, is := w.(*command.Visible); is {
		out, w, columns = &command.Visible{W: &written, Colour: v.Colour}, v.W, v.Columns
	}
	widths, beside := fit(lines, columns)
	for n, cells := range lines {
		for i, cell := range cells[:beside] {
			colour := command.Usual
			switch {
			case n == 0:
				colour = command.Bold
			case heads[i] == "STATE":
				colour = command.ColourOf(cell)
			}
			cell = shortened(cell, widths[i])
			_ = command.Paint(out, colour, cell)
			if i < beside-1 {
				_, _ = fmt.Fprintf(out, "%*s", widths[i]-utf8.RuneCountInString(cell)+2, "")
			}
		}
		written.WriteByte('\n')
		for i := beside; i < len(cells) && n > 0; i++ {
			if cells[i] != "-" {
				_, _ = fmt.Fprintf(out, "  %s\n", shortened(strings.ToLower(heads[i])+": "+cells[i], columns-2))
			}
		}
	}
	_, err := w.Write(written.Bytes())
	return err
}

// prose are the columns that may be shortened: nobody types what stands there into another command.
var prose = []string{"TITLE", "DETAILS", "NOTE", "ERROR", "BROWSER", "CHANGED", "LABEL"}

// leastProse is how many characters a shortened column keeps.
const leastProse = 12

// fit returns the widths of a table's columns, and how many of them stand beside each other, within a number of columns of a terminal; 0
// is no limit. It shortens the widest prose first.
func fit(lines [][]string, within int) (widths []int, beside int) {
	widths, beside = make([]int, len(lines[0])), len(lines[0])
	for _, cells := range lines {
		for i, cell := range cells {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell))
		}
	}
	whole := slices.Clone(widths)
	total := func() int {
		sum := 2 * (beside - 1)
		for _, width := range widths[:beside] {
			sum += width
		}
		return sum
	}
	for within > 0 && total() > within {
		widest := -1
		for i, head := range lines[0][:beside] {
			if slices.Contains(prose, head) && widths[i] > leastProse && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		switch {
		case widest >= 0:
			widths[widest] = max(leastProse, widths[widest]-(total()-within))
		case beside > 1:
			beside--
			copy(widths, whole)
		default:
			return widths, beside
		}
	}
	return widths, beside
}

// shortened returns at most that many characters of a text.
func shortened(text string, most int) string {
	if runes := []rune(text); len(runes) > most {
		return string(runes[:max(most-1, 0)]) + "…"
	}
	return text
}

// lean leaves out columns that are empty in every row, except the first few, which are always printed.
func lean(heads []string, rows *[][]string, always int) []string {
	var keep []int
	for column := range heads {
		if column < always || slices.ContainsFunc(*rows, func(row []string) bool { return row[column] != "" }) {
			keep = append(keep, column)
		}
	}
	pick := func(row []string) []string {
		picked := make([]string, len(keep))
		for i, column := range keep {
			picked[i] = row[column]
		}
		return picked
	}
	for i, row := range *rows {
		(*rows)[i] = pick(row)
	}
	return pick(heads)
}

// plain returns text as one line without terminal control characters: items and titles are untrusted data.
func plain(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return unicode.IsControl(r) || unicode.IsSpace(r) }), " ")
}

// printJSON prints a value for programs and for people.
func printJSON(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	var indented bytes.Buffer
	if err := json.Indent(&indented, b, "", "  "); err != nil {
		return fmt.Errorf("encode the answer: %w", err)
	}
	_, err = fmt.Fprintf(w, "%s\n", readable(indented.Bytes()))
	return err
}

// readable undoes the escapes of <, > and & in JSON that was made to stand in HTML, as a node's answers are: it returns
// "rank < 10" for "rank \u003c 10".
func readable(b []byte) []byte {
	text := make([]byte, 0, len(b))
	for len(b) > 0 {
		n := 1
		switch {
		case b[0] != '\\' || len(b) == 1:
			text = append(text, b[0])
		case len(b) >= 6 && slices.Contains(forHTML, string(b[:6])):
			n = 6
			code, _ := strconv.ParseUint(string(b[2:6]), 16, 8)
			text = append(text, byte(code))
		default: // a backslash and the escaped character, which may be another backslash
			n = 2
			text = append(text, b[:2]...)
		}
		b = b[n:]
	}
	return text
}

// forHTML is how encoding/json escapes <, > and &.
var forHTML = []string{`\u003c`, `\u003e`, `\u0026`}

// counted returns a number and its noun, in the plural if need be.
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return strconv.Itoa(n) + " " + noun + "s"
}

// zoned is how people see a time, as in psql.
const zoned = "2006-01-02 15:04:05-07:00"

// moment formats a time for people, in their own zone, which it says: a log is read elsewhere, too. The result may be typed where
// a time is asked for.
func moment(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format(zoned)
}

// minute formats a time for a list, to the minute, in the reader's own zone. It may be typed where a time is asked for, too.
func minute(t *time.Time) string {
	if t == nil {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04")
}

// ownTimes writes the times in a sentence of the server, which are UTC, in the reader's own zone.
func ownTimes(text string) string {
	return utc.ReplaceAllStringFunc(text, func(one string) string {
		t, err := time.Parse(time.RFC3339, one)
		if err != nil {
			return one
		}
		return moment(&t)
	})
}

var utc = regexp.MustCompile(`\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`)

// maxDetails is how many characters of the details a line shows; --json prints all of them.
const maxDetails = 90

// details formats an object as "name: value" pairs, in the object's own order.
func details(object json.RawMessage) string {
	d := json.NewDecoder(bytes.NewReader(object))
	if start, err := d.Token(); err != nil || start != json.Delim('{') {
		return cut(string(object))
	}
	var pairs []string
	for d.More() {
		name, err := d.Token()
		if err != nil {
			break
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			break
		}
		text := string(value)
		var s string
		if json.Unmarshal(value, &s) == nil && text != "null" {
			text = s
		}
		pairs = append(pairs, fmt.Sprintf("%v: %s", name, text))
	}
	return cut(strings.Join(pairs, ", "))
}

func cut(text string) string {
	return shortened(plain(text), maxDetails)
}
