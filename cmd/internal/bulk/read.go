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
	"time"
	"unicode/utf8"

	"getwork/assign"
)

// Row is a row of a file: an item, or what is wrong with it.
type Row struct {
	Line int // where it begins, from 1
	Item Item
	Err  error
}

// longest is the most bytes of a row, and of what one call pushes.
const longest = 1 << 20

// Read calls each for the rows of a file, one after the other, bad ones included. It returns the error of each, or of reading,
// or says why the file as a whole is none. when reads the column not_before.
func Read(r io.Reader, f Format, when func(string) (time.Time, error), each func(Row) error) error {
	b := bufio.NewReaderSize(r, 64<<10)
	if mark, err := b.Peek(3); err == nil && string(mark) == "\ufeff" {
		_, _ = b.Discard(3)
	}
	if f == NDJSON {
		return readLines(b, each)
	}
	return readCSV(b, when, each)
}

func readLines(b *bufio.Reader, each func(Row) error) error {
	for n := 1; ; n++ {
		line, err := readLine(b)
		switch {
		case errors.Is(err, errLong):
			err = each(Row{Line: n, Err: err})
		case err != nil && !errors.Is(err, io.EOF):
			return err
		case len(bytes.TrimSpace(line)) > 0:
			row := Row{Line: n}
			if row.Err = decode(line, &row.Item); row.Err == nil {
				row.Err = row.Item.check()
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

// decode reads an object with the fields that the API takes, or a bare key.
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
	return strict(line, item)
}

func strict(text []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(text))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return errors.New(strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return errors.New("there is something after the object")
	}
	return nil
}

func readCSV(b *bufio.Reader, when func(string) (time.Time, error), each func(Row) error) error {
	head, err := b.ReadString('\n')
	if err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	r := csv.NewReader(io.MultiReader(strings.NewReader(head), b))
	r.Comma, r.FieldsPerRecord = separator(head), -1
	names, err := r.Read()
	if errors.Is(err, io.EOF) {
		return errors.New("the file is empty; its first row names the columns, one of which is item")
	}
	if err != nil {
		return fmt.Errorf("the row with the names of the columns: %w", err)
	}
	for i := range names {
		names[i] = strings.TrimSpace(names[i])
		if slices.Index(names, names[i]) < i {
			return fmt.Errorf("two columns have the name %q", names[i])
		}
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
			row.Item, row.Err = fromCells(names, cells, when)
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

func fromCells(names, cells []string, when func(string) (time.Time, error)) (i Item, err error) {
	if len(cells) != len(names) {
		return i, fmt.Errorf("the row has %d cells, and there are %d columns", len(cells), len(names))
	}
	more := map[string]json.RawMessage{}
	for at, cell := range cells {
		if !utf8.ValidString(cell) {
			return i, fmt.Errorf("%s is not UTF-8 text", names[at])
		}
		if cell == "" {
			continue
		}
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
		case "slots":
			n, err := strconv.Atoi(strings.TrimSpace(cell))
			if err != nil {
				return i, fmt.Errorf("slots must be a whole number, not %q", cell)
			}
			i.Slots = &n
		case "not_before":
			at, err := when(strings.TrimSpace(cell))
			if err != nil {
				return i, fmt.Errorf("not_before must be a time such as 2030-01-31T08:00:00Z, not %q", cell)
			}
			i.NotBefore = &at
		case "exclusive":
			i.Exclusive = &cell
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
