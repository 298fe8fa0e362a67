package notify

import (
	"encoding/json"
	"fmt"
)

// MaxPayload is the most bytes that [Message.Encode] returns. PostgreSQL refuses a NOTIFY of 8000 bytes and more, and the
// refusal would fail the round that sends it.
const MaxPayload = 7900

// NotifySQL sends a payload ($2) on a channel ($1). A round adds it to its own transaction as the last statement: the
// message goes out if and only if the round commits.
const NotifySQL = `select pg_notify($1, $2)`

// Message is the content of one NOTIFY: ids only, a hint to read the tables. Data in it could be out of date, or come from
// anybody who may connect to the database, so a receiver acts on the tables alone.
type Message struct {
	Node    string   `json:"node,omitempty"`    // the sender's node id
	Round   *Round   `json:"round,omitempty"`   // nil unless a round sent it
	Changes []Change `json:"changes,omitempty"` // at most one per task
	All     bool     `json:"all,omitempty"`     // too much changed to name: read everything again
	Again   bool     `json:"again,omitempty"`   // the sender may commit more, and sends again soon; if it doesn't, read everything again
	Rights  bool     `json:"rights,omitempty"`  // somebody's rights have ended or changed: read at once
	Even    bool     `json:"even,omitempty"`    // everything committed since Again has been announced
}

// Round names one round that has committed. Its rows carry its id.
type Round struct {
	Task     int64 `json:"task"`
	ID       int64 `json:"id"`
	Run      int64 `json:"run,omitempty"` // the run that it ended; 0 if it served from the shelf
	Requests int   `json:"requests"`      // how many requests this round answered
}

// MaxQuickRound is how many requests one of [Change.Rounds] answered at most.
const MaxQuickRound = 500

// Change names what was changed in one task, outside of a round.
type Change struct {
	Task     int64   `json:"task"`
	Rounds   []int64 `json:"rounds,omitempty"`   // rounds that answered only the clicks that started them; read like a Round
	Requests []int64 `json:"requests,omitempty"` // recorded or cancelled
	Work     []int64 `json:"work,omitempty"`     // closed or extended
	Runs     []int64 `json:"runs,omitempty"`     // started, or ended without a round
	Absences []int64 `json:"absences,omitempty"` // entered or ended; they are of no task, so Task is 0
	Settings bool    `json:"settings,omitempty"` // the task itself is new, changed, or deleted
	Waiting  bool    `json:"waiting,omitempty"`  // the node wants to run it and has no free slot
	Items    bool    `json:"items,omitempty"`    // the inbox was filled
	Many     bool    `json:"many,omitempty"`     // more ids than fit: read the task; only the ids of runs are given
}

// Encode returns the payload for one NOTIFY, never more than [MaxPayload] bytes. A message that does not fit is shortened:
// first every change with ids becomes one with Many set, then all changes become All, and last the sender is left out. The
// round is always kept. The message itself is not changed.
func (m Message) Encode() string {
	if s := marshal(m); len(s) <= MaxPayload {
		return s
	}
	coarse := m
	coarse.Changes = make([]Change, len(m.Changes))
	for i, c := range m.Changes {
		coarse.Changes[i] = c.coarse()
	}
	if s := marshal(coarse); len(s) <= MaxPayload {
		return s
	}
	coarse.Changes, coarse.All = nil, true
	if s := marshal(coarse); len(s) <= MaxPayload {
		return s
	}
	return marshal(Message{Round: m.Round, All: true})
}

// Decode reads a payload made by [Message.Encode]. It ignores unknown fields, so that nodes of two releases understand
// each other during an upgrade.
func Decode(payload string) (Message, error) {
	var m Message
	if err := json.Unmarshal([]byte(payload), &m); err != nil {
		return Message{}, fmt.Errorf("decode notification: %w", err)
	}
	return m, nil
}

// ids returns how many ids the change names.
func (c Change) ids() int {
	return len(c.Rounds) + len(c.Requests) + len(c.Work) + len(c.Runs) + len(c.Absences)
}

// silent reports whether the change is empty.
func (c Change) silent() bool {
	return c.ids() == 0 && !c.Settings && !c.Waiting && !c.Items && !c.Many
}

// coarse returns the change without ids, and with Many set if it had any.
func (c Change) coarse() Change {
	if c.ids() == 0 {
		return c
	}
	return Change{Task: c.Task, Runs: c.Runs, Settings: c.Settings, Waiting: c.Waiting, Items: c.Items, Many: true}
}

func marshal(m Message) string {
	b, err := json.Marshal(m)
	if err != nil {
		panic(fmt.Sprintf("encode notification: %v", err)) // numbers, strings and flags can always be encoded
	}
	return string(b)
}
