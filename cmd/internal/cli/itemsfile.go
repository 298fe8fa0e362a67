package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	"getwork/assign"
	"getwork/cmd/internal/bulk"
	"getwork/cmd/internal/command"
	"getwork/web"
	api "getwork/ws/client"
)

// pushItem is an item to be pushed, as the API takes it.
type pushItem = bulk.Item

func itemsOf(keys []string) []pushItem {
	items := make([]pushItem, len(keys))
	for i, key := range keys {
		items[i].Item = key
	}
	return items
}

// maxItems is the largest file of items, in bytes.
const maxItems = 256 << 20

// readItems reads a file: a JSON array, JSON objects one after the other, or a key per line. The first character tells
// which, unless keysOnly.
func readItems(ctx context.Context, name string, keysOnly bool) ([]pushItem, error) {
	b, err := readAtMost(ctx, name, maxItems)
	if err != nil {
		return nil, err
	}
	if name == "-" {
		name = "standard input"
	}
	b = bytes.TrimPrefix(b, []byte("\ufeff"))
	if !utf8.Valid(b) {
		return nil, command.Usage("%s is not UTF-8 text", name)
	}
	var items []pushItem
	start := bytes.TrimSpace(b)
	switch {
	case keysOnly || len(start) == 0 || start[0] != '[' && start[0] != '{':
		items = itemsOf(lines(string(b)))
	case assign.LoneSurrogate(b):
		err = errors.New(`half of a character: \ud800 to \udfff without the other half`)
	case start[0] == '[':
		items, err = readArray(b)
	default:
		items, err = readObjects(b)
	}
	if err != nil {
		return nil, command.Usage("%s: %w", name, err)
	}
	if len(items) == 0 {
		return nil, command.Usage("%s has no item in it", name)
	}
	return items, nil
}

// lines returns the lines of a text that are not blank, without line ends.
func lines(text string) []string {
	var keys []string
	for line := range strings.Lines(text) {
		if line = strings.TrimRight(line, "\r\n"); strings.TrimSpace(line) != "" {
			keys = append(keys, line)
		}
	}
	return keys
}

func readArray(b []byte) ([]pushItem, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	_, _ = d.Token() // the bracket
	var items []pushItem
	for d.More() {
		item, err := readItem(d, len(items))
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if _, err := d.Token(); err != nil {
		return nil, fmt.Errorf("the array does not end: %w", err)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, errors.New("there is something after the array")
	}
	return items, nil
}

func readObjects(b []byte) ([]pushItem, error) {
	d := json.NewDecoder(bytes.NewReader(b))
	var items []pushItem
	for d.More() {
		item, err := readItem(d, len(items))
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	if _, err := d.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("there is something else after item %d", len(items))
	}
	return items, nil
}

// readItem reads an object, or a bare key.
func readItem(d *json.Decoder, n int) (item pushItem, err error) {
	var raw json.RawMessage
	if err := d.Decode(&raw); err != nil {
		return item, fmt.Errorf("item %d: %w; with --keys-only each line of the file is a key", n+1, err)
	}
	if raw[0] == '"' {
		return item, json.Unmarshal(raw, &item.Item)
	}
	strict := json.NewDecoder(bytes.NewReader(raw))
	strict.DisallowUnknownFields()
	if err := strict.Decode(&item); err != nil {
		return item, fmt.Errorf("item %d: %s", n+1, strings.TrimPrefix(err.Error(), "json: "))
	}
	return item, nil
}

// pushRows pushes a file of CSV or NDJSON row by row: in batches, however long it is, and the good rows of a file that also has
// bad ones.
func (c itemsPushCmd) pushRows(ctx context.Context, s *command.Streams, path string, format bulk.Format) error {
	fill, err := c.fill()
	if err != nil {
		return err
	}
	client, err := c.Connect(web.Agent)
	if err != nil {
		return err
	}
	client.Retry = api.Retry{Tries: 6} // a push is repeated only if the server has not begun it
	from, name := os.Stdin, "standard input"
	if c.File != "-" {
		name = c.File
		if from, err = os.Open(c.File); err != nil {
			return command.AsUsage(err)
		}
		defer from.Close()
	}
	file := untilDone(ctx, from)
	defer file.Close()
	progress := command.NewProgress(s)
	bad, heard := []badRow{}, false // heard: the last push may have been carried out although it failed
	p := &bulk.Pusher{
		Push: func(ctx context.Context, items []bulk.Item) (pushed assign.Pushed, err error) {
			_, err = client.Do(ctx, Call{Method: "POST", Path: path, Body: items}, &pushed)
			heard = mayBeHeard(err)
			return pushed, oneItem(err)
		},
		Bad: func(line int, why string) {
			progress.Clear()
			bad = append(bad, badRow{line, why})
			_, _ = fmt.Fprintf(s.Errs, "%s:%d: %s\n", name, line, why)
		},
		Pushed: func(t bulk.Totals) {
			progress.Show("%d rows: %d pushed, %d duplicates, %d bad", t.Rows, t.Accepted, t.Duplicates, t.Bad)
		},
	}
	when := func(text string) (time.Time, error) { return timeOf(text, time.Now()) }
	err = bulk.Read(file, format, when, func(row bulk.Row) error {
		if ctx.Err() != nil {
			return ErrInterrupted
		}
		if row.Line < c.FromLine {
			return nil
		}
		row.Item.FillIn(fill)
		return p.Add(ctx, row)
	})
	switch {
	case ctx.Err() != nil:
		err = ErrInterrupted
	case err == nil:
		err = p.Flush(ctx)
	case p.Totals.Rows == 0:
		err = command.Usage("%s: %w", name, err)
	}
	progress.Clear()
	t := p.Totals
	switch from := p.From(); {
	case err == nil || from == 0:
	case heard:
		err = fmt.Errorf("the rows from line %d on may be pushed or not: %w\n--from-line %d pushes them when the fault is mended; of what is pushed twice, only items that were completed meanwhile are pushed anew", from, err, from)
	default:
		err = fmt.Errorf("the rows from line %d on are not pushed: %w\n--from-line %d pushes them when the fault is mended", from, err, from)
	}
	if err == nil && t.Bad > 0 {
		err = fmt.Errorf("%s bad, of %d; correct them and push them again, best alone: items of the other rows that were completed meanwhile would be pushed anew", areBad(t.Bad), t.Rows)
	}
	if c.JSON {
		return errors.Join(err, printJSON(s.Out, struct {
			bulk.Totals
			Errors []badRow `json:"errors"`
		}{t, bad}))
	}
	if t.Rows > 0 {
		if _, failed := fmt.Fprintln(s.Out, pushedText(assign.Pushed{Accepted: t.Accepted, Duplicates: t.Duplicates}, c.Task)); failed != nil {
			err = errors.Join(err, failed)
		}
	}
	return err
}

// mayBeHeard reports whether the server may have carried out a push that failed: it did not refuse it, and a connection was made.
// An interrupted push counts as heard, because its answer is not known.
func mayBeHeard(err error) bool {
	var r *refused
	var none *unreached
	switch {
	case err == nil:
		return false
	case errors.As(err, &r):
		return r.Status/100 != 4
	case errors.As(err, &none):
		return !none.unsent
	}
	return true
}

// badRow is a row that was not pushed.
type badRow struct {
	Line  int    `json:"line"`
	Error string `json:"error"`
}

func areBad(n int) string {
	if n == 1 {
		return "1 row is"
	}
	return strconv.Itoa(n) + " rows are"
}

// oneItem turns a refusal that names an item, as "[3].priority", into a [bulk.Refusal].
func oneItem(err error) error {
	var r *refused
	if !errors.As(err, &r) || r.Status != http.StatusBadRequest || len(r.Errors) == 0 {
		return err
	}
	index, field, found := strings.Cut(strings.TrimPrefix(r.Errors[0].Field, "["), "]")
	at, wrong := strconv.Atoi(index)
	if !found || wrong != nil {
		return err
	}
	why := r.Errors[0].Detail
	if field = strings.TrimPrefix(field, "."); field != "" {
		why = field + ": " + why
	}
	return &bulk.Refusal{Index: at, Why: why}
}
