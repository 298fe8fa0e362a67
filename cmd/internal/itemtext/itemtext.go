// Package itemtext writes items as a task's display wants them shown, for terminals. The web page does the same in
// web/static/views/desk/display.js.
package itemtext

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"getwork/assign"
)

// Item is an item as text.
type Item struct {
	Title string
	Link  string // where the work is done; "": nowhere
	Lines []Line
}

// Line is one column of an item's details.
type Line struct {
	Label, Value string
	StandsOut    bool
	Folded       bool
}

// Of returns work's item as the display wants it; nil: as the details' types suggest.
func Of(d *assign.Display, w assign.Work) (Item, error) {
	columns, details, err := read(w.Details)
	if err != nil {
		return Item{}, fmt.Errorf("read the details of work %d: %w", w.ID, err)
	}
	if d == nil {
		d = &assign.Display{Others: "shown"}
	}
	item := Item{Title: w.Item, Link: d.Link(w.Item, details)}
	fields := slices.Clone(d.Fields)
	named := func(column string) int {
		return slices.IndexFunc(fields, func(f assign.DisplayField) bool { return f.Column == column })
	}
	title := assign.Fill(d.Title, w.Item, details, func(column string, value any) string {
		if i := named(column); i >= 0 {
			return text(fields[i], value)
		}
		return text(assign.DisplayField{}, value)
	})
	if title = strings.TrimSpace(title); title != "" {
		item.Title = title
	}
	if d.Others != "hidden" {
		for _, column := range columns {
			if named(column) < 0 {
				fields = append(fields, assign.DisplayField{Column: column, Folded: d.Others != "shown"})
			}
		}
	}
	for _, f := range fields {
		value, there := details[f.Column]
		if !there {
			continue
		}
		line := Line{Label: f.Label, Value: text(f, value), Folded: f.Folded}
		if line.Label == "" {
			line.Label = label(f.Column)
		}
		if c, err := assign.ParseCondition(f.StandsOut); err == nil {
			line.StandsOut = c.Holds(details)
		}
		item.Lines = append(item.Lines, line)
	}
	return item, nil
}

// read returns the details and their columns in order. Numbers keep their digits.
func read(raw json.RawMessage) (columns []string, details map[string]any, err error) {
	if len(raw) == 0 {
		return nil, nil, nil
	}
	all := json.NewDecoder(bytes.NewReader(raw))
	all.UseNumber()
	if err := all.Decode(&details); err != nil {
		return nil, nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	if _, err := d.Token(); err != nil {
		return nil, nil, err
	}
	for d.More() {
		name, err := d.Token()
		if err != nil {
			return nil, nil, err
		}
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, nil, err
		}
		columns = append(columns, fmt.Sprint(name))
	}
	return columns, details, nil
}

// text writes a value in the field's format. A value that does not fit the format is written as it is.
func text(f assign.DisplayField, value any) string {
	switch v := value.(type) {
	case nil:
		return "-"
	case bool:
		if v {
			return "yes"
		}
		return "no"
	case json.Number:
		switch f.Format {
		case "money":
			return f.Currency + " " + grouped(v.String())
		case "percentage":
			return v.String() + " %"
		}
		return v.String()
	case string:
		switch f.Format {
		case "iban":
			return inFours(v)
		case "date":
			if at, err := time.Parse(time.RFC3339, v); err == nil {
				return at.Format(time.DateOnly)
			}
		}
		return v
	}
	b, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(b)
}

// grouped separates the thousands of a decimal number.
func grouped(number string) string {
	whole, rest, fraction := strings.Cut(number, ".")
	sign, digits := "", whole
	if strings.HasPrefix(whole, "-") {
		sign, digits = "-", whole[1:]
	}
	if strings.ContainsAny(number, "eE") {
		return number
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	if fraction {
		return sign + digits + "." + rest
	}
	return sign + digits
}

// inFours writes an IBAN as people read it.
func inFours(iban string) string {
	compact := strings.ReplaceAll(iban, " ", "")
	var groups []string
	for ; len(compact) > 4; compact = compact[4:] {
		if !utf8.RuneStart(compact[4]) {
			return iban
		}
		groups = append(groups, compact[:4])
	}
	return strings.Join(append(groups, compact), " ")
}

// label is a column's name in words: days_overdue is "Days overdue".
func label(column string) string {
	words := strings.TrimSpace(strings.ReplaceAll(column, "_", " "))
	first, size := utf8.DecodeRuneInString(words)
	if words == "" {
		return column
	}
	return string(unicode.ToUpper(first)) + words[size:]
}
