package bulk

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"getwork/assign"
	"getwork/web/sheet"
)

// Row is a row of a file: an item, or what is wrong with it.
type Row struct {
	Line int // where it begins, from 1
	Nth  int // which item of JSON it is, from 1, where a line may have several; otherwise 0
	Item Item
	Err  error
}

// KeyRow returns the row of an item that has nothing but a key.
func KeyRow(line int, key string) Row {
	row := Row{Line: line, Item: Item{Item: key}}
	row.Err = row.Item.check()
	return row
}

// longest is the most bytes of a row, and of what one call pushes.
const longest = 1 << 20

// Read calls each for the rows of a file, one after the other, bad ones included. It returns the error of each, or of reading,
// or says why the file as a whole is none. Without a format the first character says whether the file is JSON or has keys.
func Read(r io.Reader, f Format, each func(Row) error) error {
	b := bufio.NewReaderSize(r, 64<<10)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = b.Discard(3)
	}
	if f == CSV {
		comma := separator(firstLine(b))
		return readCSV(&ends{from: b, comma: byte(comma)}, comma, each)
	}
	if f == "" {
		f = Keys
		if c := first(b); c == '[' || c == '{' {
			f = JSON
		}
	}
	b = bufio.NewReaderSize(&ends{from: b}, 64<<10)
	if f == JSON {
		return readJSON(b, each)
	}
	return readLines(b, f, each)
}

// firstLine returns the bytes before the first line end, which it does not read. It does not wait for more.
func firstLine(b *bufio.Reader) string {
	for n := 1; ; n++ {
		text, err := b.Peek(n)
		if err != nil || text[n-1] == '\n' || text[n-1] == '\r' {
			return string(text)
		}
	}
}

// first returns the first byte that is not blank, which it does not read; 0: there is none.
func first(b *bufio.Reader) byte {
	for n := 1; ; n++ {
		text, err := b.Peek(n)
		switch {
		case err != nil:
			return 0
		case !strings.ContainsRune(" \t\r\n", rune(text[n-1])):
			return text[n-1]
		}
	}
}

func readLines(b *bufio.Reader, f Format, each func(Row) error) error {
	for n := 1; ; n++ {
		line, err := readLine(b)
		switch {
		case errors.Is(err, errLong):
			err = each(Row{Line: n, Err: err})
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case len(bytes.TrimSpace(line)) > 0:
			row := KeyRow(n, strings.TrimRight(string(line), "\r\n"))
			if f != Keys {
				row = rowOf(line)
				row.Line = n
			}
			if failed := each(row); failed != nil {
				return failed
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// readJSON reads an array, or values one after the other. After a fault in the JSON itself it can't know where the next item begins;
// it passes on the fault as the last row.
func readJSON(b *bufio.Reader, each func(Row) error) error {
	in := &lines{from: b}
	d := json.NewDecoder(in)
	array := first(b) == '['
	if array {
		_, _ = d.Token()
	}
	n := 1
	broken := func(why string) error {
		if in.err != nil && !errors.Is(in.err, io.EOF) {
			return in.err
		}
		rest, _ := io.ReadAll(d.Buffered())
		begins := d.InputOffset() + int64(len(rest)-len(bytes.TrimLeft(rest, ", \t\r\n")))
		return each(Row{Line: in.at(begins), Nth: n, Err: fmt.Errorf("%s; from here on nothing was read", why)})
	}
	for ; d.More(); n++ {
		var raw json.RawMessage
		if err := d.Decode(&raw); err != nil {
			return broken(jsonFault(err))
		}
		row := rowOf(raw)
		row.Line, row.Nth = in.at(d.InputOffset()-int64(len(raw))), n
		if err := each(row); err != nil {
			return err
		}
	}
	if array {
		if _, err := d.Token(); err != nil {
			return broken("the array does not end")
		}
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return broken("there is something after the last item")
	}
	return nil
}

var errLong = errors.New("the row has more than 1 MiB; store large details elsewhere, and push their address")

// readLine returns a line, and io.EOF with the last one. Of a line that is too long it keeps nothing.
func readLine(b *bufio.Reader) (line []byte, err error) {
	long := false
	for {
		part, err := b.ReadSlice('\n')
		if len(line)+len(part) > longest {
			long, line = true, nil
		}
		if !long {
			line = append(line, part...)
		}
		switch {
		case errors.Is(err, bufio.ErrBufferFull):
			continue
		case long && (err == nil || errors.Is(err, io.EOF)):
			return nil, errLong
		}
		return line, err
	}
}

// rowOf reads a row of JSON.
func rowOf(line []byte) (row Row) {
	if row.Err = decode(line, &row.Item); row.Err == nil {
		row.Err = row.Item.check()
	}
	return row
}

// decode reads an object with the fields that the API takes, by their exact names and each at most once, or a bare key.
func decode(line []byte, item *Item) error {
	if !utf8.Valid(line) {
		return errors.New("the row is not UTF-8 text")
	}
	if assign.LoneSurrogate(line) {
		return errors.New(`the row has half of a character: \ud800 to \udfff without the other half`)
	}
	if line = bytes.TrimSpace(line); line[0] == '"' {
		return strict(line, &item.Item)
	}
	var object json.RawMessage
	if err := strict(line, &object); err != nil {
		return err
	}
	if line[0] != '{' {
		return errors.New(`a row is an object, such as {"item": "a"}, or a key in quotation marks`)
	}
	var when, deadline, until *string
	fields := map[string]any{"item": &item.Item, "priority": &item.Priority, "not_before": &when, "deadline": &deadline, "needs": &item.Needs, "needs_until": &until, "slots": &item.Slots, "done_by": &item.DoneBy, "exclusive": &item.Exclusive, "details": &item.Details}
	d := json.NewDecoder(bytes.NewReader(object))
	_, _ = d.Token() // the brace; the JSON is valid
	seen := map[string]bool{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return err
		}
		name, _ := token.(string)
		into, known := fields[name]
		switch {
		case !known:
			return fmt.Errorf("unknown field %q", name)
		case seen[name]:
			return fmt.Errorf("the field %s occurs twice; write it once", name)
		}
		seen[name] = true
		if err := d.Decode(into); err != nil {
			return fmt.Errorf("%s %s", name, jsonFault(err))
		}
	}
	for name, text := range map[string]*string{"not_before": when, "deadline": deadline, "needs_until": until} {
		if text == nil {
			continue
		}
		if err := item.setMoment(name, *text); err != nil {
			return err
		}
	}
	return nil
}

// setMoment sets not_before, deadline or needs_until.
func (i *Item) setMoment(name, text string) error {
	at, err := Moment(text)
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	switch name {
	case "deadline":
		i.Deadline = &at
	case "needs_until":
		i.NeedsUntil = &at
	default:
		i.NotBefore = &at
	}
	return nil
}

func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New(jsonFault(err))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the object")
	}
	return nil
}

// jsonFault says what is wrong with JSON, without the names of Go's types.
func jsonFault(err error) string {
	var kind *json.UnmarshalTypeError
	if errors.As(err, &kind) {
		return "can't be " + kind.Value
	}
	return strings.TrimPrefix(err.Error(), "json: ")
}

func readCSV(from io.Reader, comma rune, each func(Row) error) error {
	r := csv.NewReader(from)
	r.Comma, r.FieldsPerRecord = comma, -1
	names, err := r.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; its first row names the columns, one of which is item")
	}
	if err != nil {
		return fmt.Errorf("the row with the names of the columns: %w", err)
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if names[i] != "" && slices.Index(names, names[i]) < i {
			return fmt.Errorf("two columns have the name %q", names[i])
		}
	}
	for len(names) > 0 && names[len(names)-1] == "" { // of spreadsheets, whose tables had more columns once
		names = names[:len(names)-1]
	}
	if !slices.Contains(names, "item") {
		return fmt.Errorf("no column has the name item; the first row names the columns, and there they are %s", strings.Join(names, ", "))
	}
	for {
		cells, err := r.Read()
		var wrong *csv.ParseError
		row := Row{}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case errors.As(err, &wrong):
			row.Line, row.Err = wrong.StartLine, wrong.Err
			if wrong.Line > wrong.StartLine {
				row.Err = fmt.Errorf("%w; so the lines %d to %d were read as one row, and none of them counts: close the quotation mark, and push all of them again",
					wrong.Err, wrong.StartLine, wrong.Line)
			}
		case err != nil:
			return err
		default:
			row.Line, _ = r.FieldPos(0)
			row.Item, row.Err = fromCells(names, cells)
		}
		if err := each(row); err != nil {
			return err
		}
	}
}

// separator guesses what separates the cells: what most spreadsheets write, depending on the country.
func separator(head string) rune {
	best := ','
	for _, s := range []rune{';', '\t'} {
		if strings.Count(head, string(s)) > strings.Count(head, string(best)) {
			best = s
		}
	}
	return best
}

func fromCells(names, cells []string) (i Item, err error) {
	if len(cells) < len(names) {
		return i, fmt.Errorf("the row has %d cells, and there are %d columns", len(cells), len(names))
	}
	more := map[string]json.RawMessage{}
	for at, cell := range cells {
		if at >= len(names) || names[at] == "" {
			if strings.TrimSpace(cell) != "" {
				return i, fmt.Errorf("column %d has no name, and here it has %.40q; name it in the first row, or put quotation marks around the cell whose text was divided", at+1, cell)
			}
			continue
		}
		switch {
		case !utf8.ValidString(cell):
			return i, fmt.Errorf("%s is not UTF-8 text", names[at])
		case strings.ContainsRune(cell, 0):
			return i, fmt.Errorf("%s has the character NUL, which PostgreSQL can't keep", names[at])
		case cell == "":
			continue
		}
		cell = sheet.Plain(cell)
		switch name := names[at]; name {
		case "item":
			i.Item = cell
		case "priority":
			n, err := strconv.ParseInt(strings.TrimSpace(cell), 10, 32)
			if err != nil {
				return i, fmt.Errorf("priority must be a whole number, not %q", cell)
			}
			priority := int32(n)
			i.Priority = &priority
		case "slots", "done_by":
			n, err := strconv.Atoi(strings.TrimSpace(cell))
			if err != nil {
				return i, fmt.Errorf("%s must be a whole number, not %q", name, cell)
			}
			if name == "slots" {
				i.Slots = &n
			} else {
				i.DoneBy = &n
			}
		case "not_before", "deadline", "needs_until":
			if err := i.setMoment(name, cell); err != nil {
				return i, err
			}
		case "exclusive":
			i.Exclusive = &cell
		case "needs": // french,senior, or as PostgreSQL prints an array
			for group := range strings.SplitSeq(strings.Trim(cell, "{} "), ",") {
				if group = strings.Trim(group, ` "`); group != "" {
					i.Needs = append(i.Needs, group)
				}
			}
		case "details":
			var object map[string]json.RawMessage
			if err := strict([]byte(cell), &object); err != nil {
				return i, fmt.Errorf("details must be a JSON object, such as {\"amount\": 12}: %w", err)
			}
			for key, value := range object {
				more[key] = value
			}
		default:
			text, err := json.Marshal(cell)
			if err != nil {
				return i, err
			}
			more[name] = text
		}
	}
	if len(more) > 0 {
		if i.Details, err = json.Marshal(more); err != nil {
			return i, err
		}
	}
	return i, i.check()
}
