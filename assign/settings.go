package assign

import (
	"regexp"
	"strings"
	"time"
)

// Settings are what a manager decides about a task.
type Settings struct {
	Name          string   `json:"name" yaml:"name"`
	Title         string   `json:"title" yaml:"title"`
	Description   string   `json:"description" yaml:"description"`
	Query         string   `json:"query" yaml:"query"` // one SELECT that returns a column item, best first
	QueryTimeout  Duration `json:"query_timeout" yaml:"query_timeout"`
	FreshFor      Duration `json:"fresh_for" yaml:"fresh_for"` // how long leftovers of a run may be handed out
	MaxCandidates int      `json:"max_candidates" yaml:"max_candidates"`
	MaxRequest    int      `json:"max_request" yaml:"max_request"`
	RerunAfter    Duration `json:"rerun_after" yaml:"rerun_after"` // lingering requests alone run the query at most this often
	Paused        bool     `json:"paused" yaml:"paused"`

	Lease *Duration `json:"-" yaml:"-"` // how long work is held before it goes back; nil: until it is let go of
}

// DefaultSettings are those of a task that says nothing.
func DefaultSettings() Settings {
	return Settings{
		QueryTimeout:  Duration(2 * time.Minute),
		MaxCandidates: 1000,
		MaxRequest:    5,
		RerunAfter:    Duration(time.Minute),
	}
}

var slug = regexp.MustCompile(`^[a-z0-9][a-z0-9-]{0,62}$`)

// check names every field that is wrong.
func (s *Settings) check() error {
	var fields []Field
	wrong := func(bad bool, field, detail string) {
		if bad {
			fields = append(fields, Field{field, detail})
		}
	}
	const day = Duration(24 * time.Hour)
	wrong(!slug.MatchString(s.Name), "name", "a name is 1 to 63 of a-z, 0-9 and hyphens, and does not begin with a hyphen")
	for name, text := range map[string]string{"title": s.Title, "description": s.Description, "query": s.Query} {
		wrong(strings.ContainsRune(text, 0), name, "text without NUL")
	}
	wrong(len(s.Title) > 200, "title", "a title has at most 200 bytes")
	wrong(len(s.Description) > 10_000, "description", "a description has at most 10000 bytes")
	wrong(len(s.Query) > 500_000, "query", "a query has at most 500000 bytes")
	wrong(trimQuery(s.Query) == "", "query", "a task needs a query: one SELECT that returns a column item, best first")
	wrong(s.QueryTimeout < Duration(time.Millisecond) || s.QueryTimeout > day, "query_timeout", `from "1ms" to "24h"`)
	wrong(s.FreshFor < 0 || s.FreshFor > day, "fresh_for", `from "0s" to "24h"`)
	wrong(s.MaxCandidates < 1 || s.MaxCandidates > 1_000_000, "max_candidates", "from 1 to 1000000")
	wrong(s.MaxRequest < 1 || s.MaxRequest > 1000, "max_request", "from 1 to 1000")
	wrong(s.RerunAfter < Duration(time.Second) || s.RerunAfter > day, "rerun_after", `from "1s" to "24h"`)
	if len(fields) > 0 {
		return &Refusal{Kind: Invalid, Detail: fields[0].Field + ": " + fields[0].Detail, Fields: fields}
	}
	return nil
}

const settingsColumns = `v.title, v.description, v.query,
  (extract(epoch from v.query_timeout) * 1000000)::bigint, (extract(epoch from v.fresh_for) * 1000000)::bigint,
  v.max_candidates, v.max_request,
  (extract(epoch from v.lease) * 1000000)::bigint, (extract(epoch from v.rerun_after) * 1000000)::bigint`

// intoSettings are the places for settingsColumns; done turns the intervals into durations.
func intoSettings(s *Settings) (into []any, done func()) {
	var timeout, fresh, rerun int64
	var lease *int64
	return []any{&s.Title, &s.Description, &s.Query, &timeout, &fresh, &s.MaxCandidates, &s.MaxRequest, &lease, &rerun},
		func() {
			s.QueryTimeout, s.FreshFor, s.RerunAfter = ofMicros(timeout), ofMicros(fresh), ofMicros(rerun)
			s.Lease = ofMicrosOrNil(lease)
		}
}
