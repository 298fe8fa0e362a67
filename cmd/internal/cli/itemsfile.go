package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
	"unicode/utf8"

	"getwork/cmd/internal/command"
)

// pushItem is an item to be pushed, as the API takes it. Nil fields are left out.
type pushItem struct {
	Item      string          `json:"item"`
	Priority  *int32          `json:"priority,omitempty"`
	NotBefore *time.Time      `json:"not_before,omitempty"`
	Slots     *int            `json:"slots,omitempty"`
	Exclusive *string         `json:"exclusive,omitempty"`
	Details   json.RawMessage `json:"details,omitempty"`
}

// fillIn sets the fields that the item does not set itself.
func (p *pushItem) fillIn(from pushItem) {
	if p.Priority == nil {
		p.Priority = from.Priority
	}
	if p.NotBefore == nil {
		p.NotBefore = from.NotBefore
	}
	if p.Slots == nil {
		p.Slots = from.Slots
	}
	if p.Exclusive == nil {
		p.Exclusive = from.Exclusive
	}
}

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
