package assign

import (
	"encoding/json"
	"time"
)

// Preview is what a ranking query would return and cost, without a run.
type Preview struct {
	Plan       json.RawMessage `json:"plan"`             // as "explain (format json)" writes it, getwork's wrapping included
	Cost       float64         `json:"cost"`             // the planner's total, in its own units
	DurationMS float64         `json:"duration_ms"`      // of the execution, the rows read
	Given      int64           `json:"given"`            // rows that the query returned
	Blocked    int64           `json:"blocked"`          // those of them that are held, put off or never
	PassedOver int64           `json:"passed_over"`      // those of them without a usable item
	LeftOut    int64           `json:"details_left_out"` // those of the rows whose details are beyond the limits of an item
	Rows       []PreviewRow    `json:"rows"`             // the best rows that are not blocked, at most limit
}

// PreviewRow is one item that could be handed out.
type PreviewRow struct {
	Rank      int64           `json:"rank"` // its row in the query's result, from 1
	Item      string          `json:"item"`
	Slots     int             `json:"slots"`
	Exclusive *string         `json:"exclusive"`
	Deadline  *time.Time      `json:"deadline,omitempty"`
	Needs     []string        `json:"needs,omitempty"` // groups or skills, all of which its holder must have
	Details   json.RawMessage `json:"details"`
	LeftOut   bool            `json:"details_left_out,omitempty"` // they are beyond the limits of an item
}

// Contender is what a task's query is compared with: a query, or that of one of the task's versions.
type Contender struct {
	Query   *Query `json:"query"`
	Version *int   `json:"version"`
}

// Comparison says how another query ranks differently from a task's own, on one snapshot. If the task's own query fails, it says nothing
// of items.
type Comparison struct {
	Task    string    `json:"task"`
	Version int       `json:"version"` // of the task, whose query is the old one
	Old     Ranking   `json:"old"`
	New     Ranking   `json:"new"`
	In      []Shift   `json:"in"`      // items that come into the best limit, by their rank
	Out     []Shift   `json:"out"`     // those that fall out of them, by the rank that they had
	Moved   []Shift   `json:"moved"`   // those that are among them with both, at another rank
	Same    int       `json:"same"`    // how many are, at the same rank
	Both    int       `json:"both"`    // how many items both return, of those that a run would keep
	Overlap []Overlap `json:"overlap"` // of the best 10, 100 and 1,000
}

// Ranking is what one of two compared queries returned and cost.
type Ranking struct {
	Plan       json.RawMessage `json:"plan"`        // as "explain (format json)" writes it; null if it can't be planned
	Cost       float64         `json:"cost"`        // the planner's total, in its own units
	DurationMS float64         `json:"duration_ms"` // of the execution, the rows read
	Given      int64           `json:"given"`       // rows that it returned
	PassedOver int64           `json:"passed_over"` // those of them without a usable item, or with one that they returned before
	Items      int             `json:"items"`       // as many as a run would keep; a rank is an item's place among them, from 1
	Error      string          `json:"error,omitempty"`
}

// Shift is one item whose rank differs.
type Shift struct {
	Item string `json:"item"`
	Rank *int   `json:"rank,omitempty"` // where it comes in, or fell out
	From *int   `json:"from,omitempty"` // its old rank; absent if the old query does not return it
	To   *int   `json:"to,omitempty"`   // its new one
	Held bool   `json:"held,omitempty"` // somebody holds it now
}

// Overlap is how many of the best items of two rankings are the same.
type Overlap struct {
	Best   int `json:"best"`   // 10, 100 or 1,000
	Of     int `json:"of"`     // how many there are, if fewer
	Common int `json:"common"` // how many of them both have
}

// Explanation says whether and why an item can be handed out, as a manager reads it.
type Explanation struct {
	Task      string          `json:"task"`
	Item      string          `json:"item"`
	Matches   bool            `json:"matches"`   // the task has it: its query returns it, or it is in the inbox
	Source    string          `json:"source"`    // where it was found: shelf, query or inbox
	Rank      *int64          `json:"rank"`      // from 1; in an inbox, among the ready items; null if it is not ready
	Slots     int             `json:"slots"`     // how many holders it may have at a time
	Exclusive *string         `json:"exclusive"` // its group, of which one member is held at a time
	Deadline  *time.Time      `json:"deadline,omitempty"`
	Needs     []string        `json:"needs,omitempty"`            // groups or skills, all of which its holder must have
	Details   json.RawMessage `json:"details"`                    // null if it does not match
	LeftOut   bool            `json:"details_left_out,omitempty"` // they are beyond the limits of an item
	Held      []Work          `json:"held"`
	Available bool            `json:"available"` // a user whom no rule bars could have it now
	Why       Why             `json:"why"`
	Until     *time.Time      `json:"until"`  // when the obstacle ends by itself; null if it does not, or if there is none
	Text      string          `json:"text"`   // Why, for people
	Barred    []Barred        `json:"barred"` // users who can't have it even if it is available
	Could     []Recipient     `json:"could"`  // who is here, and whether they could be given it; nobody if it does not match
	History   []Work          `json:"history"`
}

// Recipient is somebody who has a live channel, waits, or asked for work lately.
type Recipient struct {
	User    string `json:"user"`
	May     bool   `json:"may"`               // a claim in their name gets the item
	Because string `json:"because,omitempty"` // what it would be refused with
}

// Barred is a user whom a rule keeps from an item that others may have.
type Barred struct {
	User     string     `json:"user"`
	Instance string     `json:"instance,omitempty"` // only this instance; empty for all
	Because  string     `json:"because"`            // continues a sentence that begins with the user: "holds it"
	Until    *time.Time `json:"until"`              // null if for good, or until somebody acts
}

// Why names what keeps an item from being handed out: the first of the following that applies.
type Why string

// The values of Why, in the order in which they are checked.
const (
	WhyNoMatch    Why = "no_match"    // the task does not have it
	WhyPassedOver Why = "passed_over" // the query returns it with both several places and a group, which is impossible
	WhyRecheck    Why = "recheck"     // it is on the shelf, but the task's recheck no longer returns it
	WhyHeld       Why = "held"        // all its places are taken
	WhyNever      Why = "never"       // its holder or a manager said so, or its attempts are used up; a manager can redrive it
	WhyPutOff     Why = "put_off"     // returned for a while, or waiting after a failed attempt
	WhyGroupHeld  Why = "group_held"  // another member of its exclusive group is held
	WhyNotDue     Why = "not_due"     // pushed for later
	WhyPaused     Why = "paused"      // the task is paused
	WhyNextRun    Why = "next_run"    // it matches, but the present shelf does not have it
	WhyAvailable  Why = "available"   // nothing keeps it back
)

// Schema is what a ranking query may read.
type Schema struct {
	Tables []Table `json:"tables"`           // those that need no schema's name come first
	Cut    bool    `json:"cut"`              // there are more
	Reason string  `json:"reason,omitempty"` // why a table is not offered that lies in getwork's own schema; empty: none does
}

// Table is a table or a view, with the columns that a ranking query may read.
type Table struct {
	Name    string   `json:"name"` // as a query writes it: quoted, and with its schema, if it must be
	View    bool     `json:"view"`
	Columns []Column `json:"columns"`
}

// Column is a column of a table.
type Column struct {
	Name string `json:"name"` // as a query writes it
	Type string `json:"type"`
}
