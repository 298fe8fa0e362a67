package assign

import (
	"encoding/json"
	"time"
)

// Preview is what a ranking query would give and cost, without a run.
type Preview struct {
	Plan       json.RawMessage `json:"plan"`        // as "explain (format json)" writes it, getwork's wrapping included
	Cost       float64         `json:"cost"`        // the planner's total, in its own units
	DurationMS float64         `json:"duration_ms"` // of the execution, the rows read
	Given      int64           `json:"given"`       // rows that the query gave
	Blocked    int64           `json:"blocked"`     // of them held, put off or never
	PassedOver int64           `json:"passed_over"` // of them without a usable item
	Rows       []PreviewRow    `json:"rows"`        // the best that are not blocked, at most limit
}

// PreviewRow is one item that could be handed out.
type PreviewRow struct {
	Rank      int64           `json:"rank"` // which row of the query it was, from 1
	Item      string          `json:"item"`
	Slots     int             `json:"slots"`
	Exclusive *string         `json:"exclusive"`
	Details   json.RawMessage `json:"details"`
}

// Explanation is how an item stands in a task, as a manager reads it.
type Explanation struct {
	Task      string          `json:"task"`
	Item      string          `json:"item"`
	Matches   bool            `json:"matches"`   // the task has it: its query gives it, or it is in the inbox
	Source    string          `json:"source"`    // where that was read: shelf, query or inbox
	Rank      *int64          `json:"rank"`      // from 1; of an inbox among what is ready, null if it is not
	Slots     int             `json:"slots"`     // how many holders it may have at a time
	Exclusive *string         `json:"exclusive"` // its group, of which one member is held at a time
	Details   json.RawMessage `json:"details"`   // null if it does not match
	Held      []Work          `json:"held"`
	Available bool            `json:"available"` // somebody whom no rule bars could have it now
	Why       Why             `json:"why"`
	Until     *time.Time      `json:"until"`  // when what keeps it back ends by itself; null: it does not, or nothing does
	Text      string          `json:"text"`   // Why, for people
	Barred    []Barred        `json:"barred"` // who could not have it even if it is available
	History   []Work          `json:"history"`
}

// Barred is somebody whom a rule keeps from an item that others may have.
type Barred struct {
	User     string     `json:"user"`
	Instance string     `json:"instance,omitempty"` // only this one of his; empty: all
	Because  string     `json:"because"`            // reads on after "he": holds it
	Until    *time.Time `json:"until"`              // null: for good, or until somebody acts
}

// Why names what keeps an item from being handed out; if several things do, the first of these.
type Why string

// What can keep an item back.
const (
	WhyNoMatch    Why = "no_match"    // the task does not have it
	WhyPassedOver Why = "passed_over" // the query gives it with places and a group that can't be
	WhyRecheck    Why = "recheck"     // it is on the shelf, but the task's recheck does not return it any more
	WhyHeld       Why = "held"        // all its places are taken
	WhyNever      Why = "never"       // somebody said so, or its attempts are used up; a manager can redrive it
	WhyPutOff     Why = "put_off"     // returned for a while, or waiting after a failed attempt
	WhyGroupHeld  Why = "group_held"  // another member of its exclusive group is held
	WhyNotDue     Why = "not_due"     // pushed for later
	WhyPaused     Why = "paused"      // the task hands out nothing
	WhyNextRun    Why = "next_run"    // it matches, but the shelf that is handed out now does not have it
	WhyAvailable  Why = "available"   // nothing does
)
