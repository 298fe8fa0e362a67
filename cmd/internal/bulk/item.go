// Package bulk reads items from files as people's programs write them, pushes them in batches without losing the good ones to the bad, and writes the
// history of work as CSV and NDJSON.
package bulk

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"getwork/assign"
)

// Item is an item to be pushed, as the API takes it. Nil fields are left out.
type Item struct {
	Item       string          `json:"item"`
	Priority   *int32          `json:"priority,omitempty"`
	NotBefore  *time.Time      `json:"not_before,omitempty"`
	Deadline   *time.Time      `json:"deadline,omitempty"`
	Slots      *int            `json:"slots,omitempty"`
	DoneBy     *int            `json:"done_by,omitempty"`
	Exclusive  *string         `json:"exclusive,omitempty"`
	Needs      []string        `json:"needs,omitempty"`
	NeedsUntil *time.Time      `json:"needs_until,omitempty"`
	Details    json.RawMessage `json:"details,omitempty"`
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
	if i.DoneBy == nil {
		i.DoneBy = from.DoneBy
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

// Odd says what people can't see in the key, so that it is another key than one that looks the same; "": nothing.
func (i *Item) Odd() string {
	seen := strings.TrimSpace(strings.Map(func(r rune) rune {
		switch {
		case unicode.IsSpace(r) || unicode.Is(unicode.Zs, r):
			return ' '
		case unicode.IsControl(r) || assign.Invisible(r):
			return -1
		}
		return r
	}, i.Item))
	if seen == i.Item {
		return ""
	}
	return fmt.Sprintf("the key %+q has blanks at an end, or characters that can't be seen; it is another key than %q", i.Item, seen)
}

// Format is how a file has its rows.
type Format string

// The formats. CSV begins with a row of names; NDJSON has an object or a key in quotation marks on each line. JSON is an array of these,
// or one after the other. Keys has a key on each line.
const (
	CSV    Format = "csv"
	NDJSON Format = "ndjson"
	JSON   Format = "json"
	Keys   Format = "keys"
)

// FormatOf returns the format that a file's name implies, or an empty one.
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
