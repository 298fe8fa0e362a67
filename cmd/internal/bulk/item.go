// Package bulk reads items from CSV and NDJSON, pushes them in batches without losing the good ones to the bad, and writes the
// history of work as CSV and NDJSON.
package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// Item is an item to be pushed, as the API takes it. Nil fields are left out.
type Item struct {
	Item      string          `json:"item"`
	Priority  *int32          `json:"priority,omitempty"`
	NotBefore *time.Time      `json:"not_before,omitempty"`
	Slots     *int            `json:"slots,omitempty"`
	Exclusive *string         `json:"exclusive,omitempty"`
	Details   json.RawMessage `json:"details,omitempty"`
}

// FillIn sets the fields that the item does not set itself.
func (i *Item) FillIn(from Item) {
	if i.Priority == nil {
		i.Priority = from.Priority
	}
	if i.NotBefore == nil {
		i.NotBefore = from.NotBefore
	}
	if i.Slots == nil {
		i.Slots = from.Slots
	}
	if i.Exclusive == nil {
		i.Exclusive = from.Exclusive
	}
}

// maxKey is the most bytes of an item's key.
const maxKey = 200

// check finds what the server would refuse about a key, without asking it.
func (i *Item) check() error {
	switch {
	case i.Item == "":
		return errors.New("the item has no key")
	case len(i.Item) > maxKey:
		return fmt.Errorf("the key has %d bytes; %d are the most", len(i.Item), maxKey)
	case !utf8.ValidString(i.Item) || strings.ContainsRune(i.Item, 0):
		return errors.New("the key is not UTF-8 text without NUL")
	}
	return nil
}

// Format is how a file has its rows.
type Format string

// The formats. CSV begins with a row of names; NDJSON has an object on each line.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
)

// FormatOf returns the format that a file's name tells, or an empty one.
func FormatOf(file string) Format {
	name := strings.ToLower(file)
	switch {
	case strings.HasSuffix(name, ".csv"):
		return CSV
	case strings.HasSuffix(name, ".ndjson"), strings.HasSuffix(name, ".jsonl"):
		return NDJSON
	}
	return ""
}
