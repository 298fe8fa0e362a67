package assign

import (
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// Query is the SQL of a ranking query or a recheck. It is empty, and null in JSON, if the task has none.
type Query string

// MarshalJSON writes null for none.
func (q Query) MarshalJSON() ([]byte, error) {
	if q == "" {
		return []byte("null"), nil
	}
	return json.Marshal(string(q))
}

// UnmarshalJSON reads text or null. Empty text becomes a blank, so that Check refuses it; only null means no query.
func (q *Query) UnmarshalJSON(b []byte) error {
	var text *string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("a query is text, or null for none, not %s", b)
	}
	*q = ""
	if text != nil {
		*q = Query(*text)
		if *text == "" {
			*q = " "
		}
	}
	return nil
}

// MarshalYAML writes null for none.
func (q Query) MarshalYAML() (any, error) {
	if q == "" {
		return nil, nil
	}
	return string(q), nil
}

// Trimmed returns the query without white space around it and without one semicolon at its end, so that it can stand in
// brackets.
func (q Query) Trimmed() string {
	trimmed := strings.TrimSpace(string(q))
	return strings.TrimSpace(strings.TrimSuffix(trimmed, ";"))
}

// Settings are a task's settings, which managers change.
type Settings struct {
	Name          string    `json:"name" yaml:"name"`
	Title         string    `json:"title" yaml:"title"`
	Description   string    `json:"description" yaml:"description"`
	Query         Query     `json:"query,omitzero" yaml:"query"`          // one SELECT that returns a column item, best first; null for an inbox
	QueryTimeout  Duration  `json:"query_timeout" yaml:"query_timeout"`   // for one execution of the query; a run that takes longer fails
	FreshFor      Duration  `json:"fresh_for" yaml:"fresh_for"`           // how long a run's leftovers may be handed out
	StaleFor      Duration  `json:"stale_for" yaml:"stale_for"`           // how long after that, while the next run is under way
	Recheck       Query     `json:"recheck,omitzero" yaml:"recheck"`      // one SELECT on $1 text[], item keys, that returns those that still match; null for none
	MaxCandidates int       `json:"max_candidates" yaml:"max_candidates"` // how many items of a run are kept, without those that are blocked
	MaxRequest    int       `json:"max_request" yaml:"max_request"`       // the most that one request may ask for
	MaxOpen       *int      `json:"max_open" yaml:"max_open"`             // the most that one user may hold; nil for no limit
	Lease         *Duration `json:"lease" yaml:"lease"`                   // how long work is held before it goes back; nil for no limit
	Slots         int       `json:"slots" yaml:"slots"`                   // holders of an item at a time, unless the item says another number
	MaxAttempts   *int      `json:"max_attempts" yaml:"max_attempts"`     // after these an item must be redriven; nil for no limit
	Backoff       Duration  `json:"backoff" yaml:"backoff"`               // after the first failed attempt; doubled after each further one
	RerunAfter    Duration  `json:"rerun_after" yaml:"rerun_after"`       // lingering requests alone run the query at most this often
	ConflictsWith []string  `json:"conflicts_with" yaml:"conflicts_with"` // tasks; no user may hold or complete the same item under both
	Groups        []string  `json:"groups" yaml:"groups"`                 // whose members may see and take it; empty for everybody
	Position      *int      `json:"position" yaml:"position"`             // its place among the tasks, lowest first; nil: after those, by title
	Display       *Display  `json:"display" yaml:"display"`               // how an item is shown; nil: by the types and names of its details
	Paused        bool      `json:"paused" yaml:"paused"`                 // nothing is handed out; pending requests go on waiting
}

// Inbox reports whether the task has no query, and its items are pushed.
func (s *Settings) Inbox() bool { return s.Query == "" }

// Clone returns a copy that shares nothing with s, so that decoding JSON into it leaves s as it is.
func (s *Settings) Clone() Settings {
	c := *s
	c.MaxOpen, c.Lease, c.MaxAttempts = cloned(s.MaxOpen), cloned(s.Lease), cloned(s.MaxAttempts)
	c.Position, c.Display = cloned(s.Position), cloned(s.Display)
	c.ConflictsWith, c.Groups = slices.Clone(s.ConflictsWith), slices.Clone(s.Groups)
	return c
}

func cloned[T any](p *T) *T {
	if p == nil {
		return nil
	}
	v := *p
	return &v
}

// DefaultSettings returns the values of settings that a new task does not name.
func DefaultSettings() Settings {
	return Settings{
		QueryTimeout:  Duration(2 * time.Minute),
		MaxCandidates: 1000,
		MaxRequest:    5,
		Slots:         1,
		Backoff:       Duration(30 * time.Second),
		RerunAfter:    Duration(time.Minute),
		ConflictsWith: []string{},
		Groups:        []string{},
	}
}

var slug = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// IsTaskName reports whether a task can have that name: a slug. Other text must not reach the database, which may be unable
// to store it.
func IsTaskName(name string) bool { return slug.MatchString(name) }

// Check returns a [Refusal] that names every wrong field. It sorts the groups, and removes repeated ones.
func (s *Settings) Check() error {
	if s.Groups == nil {
		s.Groups = []string{}
	}
	slices.Sort(s.Groups)
	s.Groups = slices.Compact(s.Groups)
	var fields []Field
	wrong := func(bad bool, field, detail string) {
		if bad {
			fields = append(fields, Field{field, detail})
		}
	}
	const day = Duration(24 * time.Hour)
	wrong(!IsTaskName(s.Name), "name", "a name is 1 to 63 of a-z, 0-9 and hyphens, and does not begin with a hyphen")
	for name, text := range map[string]string{"title": s.Title, "description": s.Description, "query": string(s.Query), "recheck": string(s.Recheck)} {
		wrong(strings.ContainsRune(text, 0), name, "text without NUL")
	}
	wrong(len(s.Title) > 200, "title", "a title has at most 200 bytes")
	wrong(len(s.Description) > 10_000, "description", "a description has at most 10000 bytes")
	wrong(len(s.Query) > 500_000, "query", "a query has at most 500000 bytes")
	wrong(s.Query != "" && s.Query.Trimmed() == "", "query", "a query is one SELECT that returns a column item, best first; null makes the task an inbox")
	wrong(len(s.Recheck) > 500_000, "recheck", "a recheck has at most 500000 bytes")
	wrong(s.Recheck != "" && s.Recheck.Trimmed() == "", "recheck", "a recheck is one SELECT on $1 text[] that returns the items that still match, or null for none")
	wrong(s.Recheck != "" && s.Inbox(), "recheck", "an inbox has no query whose items could be checked again; its recheck is null")
	wrong(s.QueryTimeout < Duration(time.Millisecond) || s.QueryTimeout > day, "query_timeout", `from "1ms" to "24h"`)
	wrong(s.FreshFor < 0 || s.FreshFor > day, "fresh_for", `from "0s" to "24h"`)
	wrong(s.StaleFor < 0 || s.StaleFor > day, "stale_for", `from "0s" to "24h"`)
	wrong(s.MaxCandidates < 1 || s.MaxCandidates > 1_000_000, "max_candidates", "from 1 to 1000000")
	wrong(s.MaxRequest < 1 || s.MaxRequest > 1000, "max_request", "from 1 to 1000")
	wrong(s.MaxOpen != nil && (*s.MaxOpen < 1 || *s.MaxOpen > 1_000_000), "max_open", "from 1 to 1000000, or null for no limit")
	wrong(s.Lease != nil && (*s.Lease < Duration(time.Second) || *s.Lease > 7*day), "lease", `from "1s" to "168h", or null for none`)
	wrong(s.Slots < 1 || s.Slots > 10_000, "slots", "from 1 to 10000")
	wrong(s.MaxAttempts != nil && (*s.MaxAttempts < 1 || *s.MaxAttempts > 1_000_000), "max_attempts", "from 1 to 1000000, or null for no limit")
	wrong(s.Backoff < Duration(time.Millisecond) || s.Backoff > day, "backoff", `from "1ms" to "24h"`)
	wrong(slices.Contains(s.ConflictsWith, s.Name), "conflicts_with", "a task does not conflict with itself")
	wrong(len(s.ConflictsWith) > 100, "conflicts_with", "at most 100 tasks")
	wrong(len(s.Groups) > 100, "groups", "at most 100 groups")
	for _, g := range s.Groups {
		wrong(CheckGroup(g) != nil, "groups", "a group has 1 to 128 bytes of UTF-8 without commas, control characters and blanks around it")
	}
	wrong(s.RerunAfter < Duration(time.Second) || s.RerunAfter > day, "rerun_after", `from "1s" to "24h"`)
	wrong(s.Position != nil && (*s.Position < -1_000_000 || *s.Position > 1_000_000), "position", "from -1000000 to 1000000, or null for none")
	s.Display.check(wrong)
	if len(fields) > 0 {
		return &Refusal{Kind: Invalid, Detail: fields[0].Field + ": " + fields[0].Detail, Fields: fields}
	}
	return nil
}
