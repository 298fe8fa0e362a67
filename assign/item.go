package assign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"
)

// NewItem is an item pushed to an inbox.
type NewItem struct {
	Item       string          `json:"item"`                  // its key: 1-200 bytes UTF-8 without NUL
	Priority   int32           `json:"priority"`              // higher is handed out first; among equals the oldest
	NotBefore  *time.Time      `json:"not_before"`            // not handed out before; nil for at once
	Slots      *int            `json:"slots"`                 // how many holders at a time; nil for the task's number
	DoneBy     *int            `json:"done_by"`               // how many different users complete it; nil for the task's number
	Exclusive  *string         `json:"exclusive"`             // its group, of which one member is held at a time, with one place; nil or empty for none
	Deadline   *time.Time      `json:"deadline"`              // when it should be done; it changes no order; nil for none
	Needs      []string        `json:"needs,omitempty"`       // groups or skills, all of which its holder must have; nil for none
	NeedsUntil *time.Time      `json:"needs_until,omitempty"` // from then on it needs nothing; nil for never
	Details    json.RawMessage `json:"details"`               // an object, shown with the work; at most MaxDetails and MaxLevels
}

// Pushed is what became of a batch.
type Pushed struct {
	Accepted   int `json:"accepted"`
	Duplicates int `json:"duplicates"` // their key is open, held, put off or never, or was in the batch before
}

// MaxPush is the most items in one batch.
const MaxPush = 10_000

// CheckItem says what is wrong with an item's key; it returns "" for a good one.
func CheckItem(key string) string {
	switch {
	case len(key) < 1 || len(key) > 200:
		return fmt.Sprintf("an item's key has 1 to 200 bytes; this one has %d", len(key))
	case !utf8.ValidString(key) || strings.ContainsRune(key, 0):
		return "an item's key is UTF-8 text without NUL"
	}
	return ""
}

// Writable reports whether the API can write a time in UTC: JSON has no year before 1 or after 9999.
func Writable(t time.Time) bool { return t.UTC().Year() >= 1 && t.UTC().Year() <= 9999 }

// Check returns every field that is wrong.
func (n *NewItem) Check() (wrong []Field) {
	bad := func(is bool, field, detail string) {
		if is {
			wrong = append(wrong, Field{field, detail})
		}
	}
	if detail := CheckItem(n.Item); detail != "" {
		bad(true, "item", detail)
	}
	// JSON has no later time, and answers are in UTC: a time that a client writes in its own zone may be later there.
	bad(n.NotBefore != nil && n.NotBefore.UTC().Year() > 9999, "not_before", "a time before the year 10000 in UTC")
	bad(n.Deadline != nil && !Writable(*n.Deadline), "deadline", "a time from the year 1 to 9999 in UTC")
	bad(n.Slots != nil && (*n.Slots < 1 || *n.Slots > 10_000), "slots", "from 1 to 10000")
	bad(n.DoneBy != nil && (*n.DoneBy < 1 || *n.DoneBy > 100), "done_by", "from 1 to 100")
	if n.DoneBy != nil && *n.DoneBy > 1 {
		bad(n.Slots != nil && *n.Slots > 1, "done_by", "so many people as complete an item may hold it at a time; leave out one of slots and done_by")
		bad(n.Exclusive != nil && *n.Exclusive != "", "done_by", "an item of an exclusive group is completed by one; leave out one of exclusive and done_by")
	}
	if n.Exclusive != nil && *n.Exclusive != "" {
		bad(CheckItem(*n.Exclusive) != "", "exclusive", "a group is UTF-8 text of 1 to 200 bytes without NUL")
		bad(n.Slots != nil && *n.Slots > 1, "exclusive", "an item of an exclusive group has one place; leave out one of slots and exclusive")
	}
	if _, err := CheckSkills("needs", n.Needs, MaxNeeds); err != nil {
		bad(true, "needs", err.Error())
	}
	bad(n.NeedsUntil != nil && !Writable(*n.NeedsUntil), "needs_until", "a time from the year 1 to 9999 in UTC")
	bad(n.NeedsUntil != nil && len(n.Needs) == 0, "needs_until", "only for an item that needs something")
	details := bytes.TrimSpace(n.Details)
	bad(len(details) > 0 && !bytes.Equal(details, []byte("null")) && details[0] != '{', "details", "an object")
	if detail := CheckDetails(details); detail != "" {
		bad(true, "details", detail)
	}
	return wrong
}
