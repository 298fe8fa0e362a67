package assign

import (
	"fmt"
	"math"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Display says how an item of a task is shown to people. Work's details stay as the query gave them: whoever shows an item
// applies Display to them.
type Display struct {
	Title  string         `json:"title,omitempty" yaml:"title,omitempty"`   // template over the details, such as "{borrower}, {city}"; none: the item's key
	One    string         `json:"one,omitempty" yaml:"one,omitempty"`       // what one item is called, such as "loan"
	Many   string         `json:"many,omitempty" yaml:"many,omitempty"`     // what several are called, such as "loans"
	URL    string         `json:"url,omitempty" yaml:"url,omitempty"`       // template of the address where the work is done
	Fields []DisplayField `json:"fields,omitempty" yaml:"fields,omitempty"` // in the order in which they are shown
	Others string         `json:"others,omitempty" yaml:"others,omitempty"` // columns that Fields does not name: folded (the default), shown or hidden
}

// DisplayField says how one column of the details is shown.
type DisplayField struct {
	Column    string            `json:"column" yaml:"column"`
	Label     string            `json:"label,omitempty" yaml:"label,omitempty"`           // none: the column's name in words
	Format    string            `json:"format,omitempty" yaml:"format,omitempty"`         // one of DisplayFormats; none: by the value's type and the column's name
	Currency  string            `json:"currency,omitempty" yaml:"currency,omitempty"`     // of money: three letters, such as CHF
	Badges    map[string]string `json:"badges,omitempty" yaml:"badges,omitempty"`         // of a badge: one of DisplayColours by value
	StandsOut string            `json:"stands_out,omitempty" yaml:"stands_out,omitempty"` // a Condition, such as "wrong > 0"
	Folded    bool              `json:"folded,omitempty" yaml:"folded,omitempty"`         // shown on demand
}

var (
	// DisplayFormats are the formats of a column. A percentage of 12.5 is shown as 12.5 %.
	DisplayFormats = []string{"text", "number", "money", "date", "iban", "percentage", "link", "badge"}

	// DisplayColours are what a badge's value means.
	DisplayColours = []string{"plain", "good", "warn", "bad"}

	// LinkSchemes are the schemes of addresses that a page opens.
	LinkSchemes = []string{"https", "mailto", "tel", "sip", "sms"}
)

var (
	currency = regexp.MustCompile(`^[A-Z]{3}$`)
	braces   = regexp.MustCompile(`\{([^{}]*)\}`)
)

// check adds what is wrong, and where.
func (d *Display) check(wrong func(bad bool, field, detail string)) {
	if d == nil {
		return
	}
	bad := func(bad bool, what string, args ...any) { wrong(bad, "display", fmt.Sprintf(what, args...)) }
	bad(len(d.Title) > 500, "title has at most 500 bytes")
	bad(len(d.One) > 50 || len(d.Many) > 50, "one and many have at most 50 bytes each")
	bad((d.One == "") != (d.Many == ""), `one and many belong together, such as "loan" and "loans"`)
	bad(!validTemplate(d.Title), `title names columns in braces, such as "{borrower}, {city}"; each brace needs its other one`)
	if fault := linkFault(d.URL); fault != "" {
		bad(true, "url %s", fault)
	}
	bad(d.Others != "" && !slices.Contains([]string{"folded", "shown", "hidden"}, d.Others), `others is folded, shown or hidden, not %q`, d.Others)
	bad(len(d.Fields) > 100, "at most 100 fields")
	seen := map[string]bool{}
	for i, f := range d.Fields {
		at := fmt.Sprintf("fields[%d]", i)
		if f.Column != "" {
			at += fmt.Sprintf(" (%s)", f.Column)
		}
		bad(f.Column == "" || len(f.Column) > 200, "%s: column names a column of the query, in 1 to 200 bytes", at)
		bad(seen[f.Column], "%s: this column stands there twice", at)
		seen[f.Column] = true
		if fault := f.fault(); fault != "" {
			bad(true, "%s: %s", at, fault)
		}
	}
	wrong(hasNULs(d), "display", "text without NUL")
}

// fault returns what is wrong with the field besides its column; "" if nothing is.
func (f *DisplayField) fault() string {
	switch {
	case len(f.Label) > 200:
		return "label has at most 200 bytes"
	case f.Format != "" && !slices.Contains(DisplayFormats, f.Format):
		return fmt.Sprintf("format is one of %s, not %q", strings.Join(DisplayFormats, ", "), f.Format)
	case f.Format == "money" && !currency.MatchString(f.Currency):
		return `money needs a currency of three letters, such as "CHF"`
	case f.Format != "money" && f.Currency != "":
		return `currency belongs to the format "money"`
	case f.Format != "badge" && len(f.Badges) > 0:
		return `badges belong to the format "badge"`
	case len(f.Badges) > 50:
		return "at most 50 badges"
	}
	for value, colour := range f.Badges {
		if len(value) > 200 || !slices.Contains(DisplayColours, colour) {
			return fmt.Sprintf("badges give each value one of %s; %q has %q", strings.Join(DisplayColours, ", "), value, colour)
		}
	}
	if f.StandsOut != "" {
		if _, err := ParseCondition(f.StandsOut); err != nil {
			return "stands_out: " + err.Error()
		}
	}
	return ""
}

func validTemplate(template string) bool {
	left := braces.ReplaceAllStringFunc(template, func(one string) string {
		if strings.TrimSpace(one[1:len(one)-1]) == "" {
			return one
		}
		return ""
	})
	return !strings.ContainsAny(left, "{}")
}

// linkFault returns what is wrong with the template of an address. No column may choose the scheme or the host, because the
// details may have been typed by anybody.
func linkFault(template string) string {
	if template == "" {
		return ""
	}
	scheme, rest, found := strings.Cut(template, ":")
	address, err := url.Parse(braces.ReplaceAllString(template, "x"))
	host, _, _ := strings.Cut(strings.TrimPrefix(rest, "//"), "/")
	host, _, _ = strings.Cut(host, "?")
	host, _, _ = strings.Cut(host, "#")
	switch {
	case len(template) > 2000:
		return "has at most 2000 bytes"
	case !validTemplate(template):
		return `names columns in braces, such as "https://loans.example/{item}"; each brace needs its other one`
	case !found || !slices.Contains(LinkSchemes, scheme):
		return fmt.Sprintf("begins with one of %s:, such as https://loans.example/{item}", strings.Join(LinkSchemes, ":, "))
	case err != nil || strings.ContainsFunc(template, func(r rune) bool { return r <= ' ' || r == '\\' || r == 0x7f }):
		return "is not an address"
	case scheme == "https" && (!strings.HasPrefix(rest, "//") || address.Hostname() == "" || address.User != nil):
		return "needs a host after https://, and no user before it"
	case scheme == "https" && strings.ContainsAny(host, "{}"):
		return "names its host itself; columns stand in the path, the query or the fragment"
	}
	return ""
}

func hasNULs(d *Display) bool {
	texts := []string{d.Title, d.One, d.Many, d.URL}
	for _, f := range d.Fields {
		texts = append(texts, f.Column, f.Label, f.StandsOut)
		for value := range f.Badges {
			texts = append(texts, value)
		}
	}
	return slices.ContainsFunc(texts, func(s string) bool { return strings.ContainsRune(s, 0) })
}

// Condition says when a value stands out: a column, and what it is compared with. Without an operator it holds if the column
// has a value that is not false, 0, or empty.
type Condition struct {
	Column   string
	Operator string // = != > >= < <=, or "" for none
	Number   float64
	Text     string
	IsText   bool // compared with Text, and not with Number
}

var condition = regexp.MustCompile(`^\s*([^\s=!<>'"{}]+)\s*(?:(=|!=|>=|<=|>|<)\s*(?:(-?\d+(?:\.\d+)?)|'([^']*)'|"([^"]*)"|(true|false)))?\s*$`)

// ParseCondition reads a condition such as "wrong > 0", "status = 'late'" or "overdrawn".
func ParseCondition(text string) (Condition, error) {
	found := condition.FindStringSubmatch(text)
	if found == nil || len(text) > 300 {
		return Condition{}, fmt.Errorf(`a condition is a column, or a column compared by =, !=, >, >=, < or <= with a number, 'text', true or false, such as "wrong > 0", not %q`, text)
	}
	c := Condition{Column: found[1], Operator: found[2], Text: found[4] + found[5] + found[6]}
	c.IsText = found[3] == ""
	if !c.IsText {
		c.Number, _ = strconv.ParseFloat(found[3], 64)
	}
	return c, nil
}

// Holds reports whether the condition is true of details that were read from JSON. A column that is missing or null meets no
// condition, not even one with !=. Text that is no number meets no comparison with a number. Read the details with
// [encoding/json.Decoder.UseNumber]: as a float64, the number 1234567 would be compared with text as 1.234567e+06.
func (c Condition) Holds(details map[string]any) bool {
	value, there := details[c.Column]
	if !there || value == nil {
		return false
	}
	text := fmt.Sprint(value) // a float64 or a json.Number, as the caller read it
	number, err := strconv.ParseFloat(text, 64)
	isNumber := err == nil && !math.IsNaN(number) // the text "NaN" is read without an error, and is neither less nor more than a number
	switch {
	case c.Operator == "":
		return text != "" && text != "false" && !(isNumber && number == 0)
	case c.IsText:
		return c.is(strings.Compare(text, c.Text))
	case !isNumber:
		return false
	case number < c.Number:
		return c.is(-1)
	case number > c.Number:
		return c.is(1)
	}
	return c.is(0)
}

// is reports whether the operator fits how the value compares.
func (c Condition) is(compared int) bool {
	switch c.Operator {
	case "=":
		return compared == 0
	case "!=":
		return compared != 0
	case ">":
		return compared > 0
	case ">=":
		return compared >= 0
	case "<":
		return compared < 0
	}
	return compared <= 0
}

// Fill returns the template with the values of columns in the place of their names; text turns a value into text. The column
// item is the item's key if the details have none. A column that is missing or null leaves nothing.
func Fill(template, item string, details map[string]any, text func(column string, value any) string) string {
	return braces.ReplaceAllStringFunc(template, func(one string) string {
		column := strings.TrimSpace(one[1 : len(one)-1])
		value, there := details[column]
		switch {
		case there && value != nil:
			return text(column, value)
		case column == "item" && !there:
			return text(column, item)
		}
		return ""
	})
}

// Link returns the address where the work on an item is done; "" if there is none. Each value is percent-encoded as a whole, so
// that details which anybody may have typed add neither a path segment nor a parameter. Read the details with
// [encoding/json.Decoder.UseNumber]: as a float64, the number 1234567 would be written as 1.234567e+06.
func (d *Display) Link(item string, details map[string]any) string {
	if d == nil || d.URL == "" {
		return ""
	}
	return Fill(d.URL, item, details, func(_ string, value any) string {
		return strings.ReplaceAll(url.QueryEscape(fmt.Sprint(value)), "+", "%20")
	})
}
