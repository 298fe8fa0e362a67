package assign

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"sync"
)

// Details travel with their item's work in every answer, event and snapshot. So they are bounded where they come in, and so are the
// details that one answer carries, and those that a node holds for all answers: otherwise one item blanks the page of its holder,
// and one user's calls take a node's memory.
const (
	MaxDetails = 64 << 10 // bytes of an item's details
	MaxLevels  = 64       // objects and arrays in each other, the details themselves included
	MaxCarried = 8 << 20  // bytes of details in one answer, snapshot or page; the rest of its work comes without

	// MaxInFlight is how many bytes of large answers a node holds at a time, and how many bytes of details it reads at once for many
	// holders. A quarter of it is for one user.
	MaxInFlight = 64 << 20
)

// NoDetails stands in the database for details that a query returned, and that are beyond the limits.
const NoDetails = "null"

// CheckDetails says what keeps details from being handed out with their item; it returns "" if they may be.
func CheckDetails(details []byte) string {
	switch {
	case len(details) > MaxDetails:
		return fmt.Sprintf("details have at most %d bytes; these have %d: keep large ones elsewhere, and push their address", MaxDetails, len(details))
	case tooDeep(details):
		return TooDeep
	}
	return ""
}

// TooDeep refuses details with too many levels.
var TooDeep = fmt.Sprintf("details have at most %d levels of objects and arrays in each other: flatten them, or send the deep part as text", MaxLevels)

func tooDeep(text []byte) bool {
	if bytes.Count(text, []byte("{"))+bytes.Count(text, []byte("[")) <= MaxLevels {
		return false
	}
	_, deep := Deeper(text, MaxLevels)
	return deep
}

// Deeper reports whether JSON has more levels of objects and arrays than that, and in which of its elements or members, from 0.
func Deeper(text []byte, levels int) (element int, deep bool) {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			if depth++; depth > levels {
				return element, true
			}
		case c == '}' || c == ']':
			depth--
		case c == ',' && depth == 1:
			element++
		}
	}
	return 0, false
}

// SetDetails gives work what the database has of its details.
func (w *Work) SetDetails(details json.RawMessage) {
	w.Details, w.DetailsLeftOut = details, false
	if string(details) == NoDetails {
		w.Details, w.DetailsLeftOut = json.RawMessage("{}"), true
	}
}

// LeaveOut leaves the work's details out, and what it came to.
func (w *Work) LeaveOut() {
	w.Details, w.Result, w.DetailsLeftOut = json.RawMessage("{}"), nil, true
}

// Carried counts the bytes of details in one answer.
type Carried struct {
	Most  int // MaxCarried if 0
	bytes int
}

// Fits adds details of so many bytes, if there is room for them.
func (c *Carried) Fits(n int) bool {
	most := c.Most
	if most == 0 {
		most = MaxCarried
	}
	if c.bytes+n > most {
		return false
	}
	c.bytes += n
	return true
}

// withoutDetails returns a copy of the work without details. Other connections share the original.
func withoutDetails(work []Work) []Work {
	bare := make([]Work, len(work))
	for i := range work {
		bare[i] = work[i]
		bare[i].LeaveOut()
	}
	return bare
}

// WithoutDetails returns the request without the details of its work.
func (r Request) WithoutDetails() Request {
	r.Work = withoutDetails(r.Work)
	return r
}

// WithoutDetails returns the event without the details of its work.
func (e Event) WithoutDetails() Event {
	switch body := e.Body.(type) {
	case *Request:
		request := body.WithoutDetails()
		return Event{Type: e.Type, Body: &request, Request: &request}
	case *Work:
		work := *body
		work.LeaveOut()
		return Event{Type: e.Type, Body: &work}
	case Pipeline:
		body.Work = withoutDetails(body.Work)
		return Event{Type: e.Type, Body: body}
	}
	return e
}

// SizeOf returns about how many bytes the JSON of work and of so many requests takes.
func SizeOf(work []Work, requests int) int {
	const each = 384
	n := each * (len(work) + requests)
	for i := range work {
		n += len(work[i].Details) + len(work[i].Result)
	}
	return n
}

// size returns about how many bytes the event's message takes, if it has work.
func (e Event) size() int {
	switch body := e.Body.(type) {
	case *Request:
		return SizeOf(body.Work, 1)
	case *Work:
		return SizeOf([]Work{*body}, 0)
	case Pipeline:
		return SizeOf(body.Work, len(body.Requests))
	}
	return 0
}

// Room bounds the large answers that a node holds in memory until their clients have taken them. The zero value is ready for use.
type Room struct {
	mu    sync.Mutex
	taken int
	users map[string]int
}

// small is the size of answers that are not counted: the bounds on calls and live channels bound them, and they must not wait for
// the large ones of others.
const small = 8 << 10

// Take makes room for n bytes of a user's answer. The user gives back what was counted. A user without any answer in flight may have
// one that is larger than their part, or nobody could ever read it.
func (r *Room) Take(user string, n int) (counted int, ok bool) {
	if n <= small {
		return 0, true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.taken > 0 && r.taken+n > MaxInFlight || r.users[user] > 0 && r.users[user]+n > MaxInFlight/4 {
		return 0, false
	}
	if r.users == nil {
		r.users = map[string]int{}
	}
	r.taken += n
	r.users[user] += n
	return n, true
}

// Give gives back what Take has counted for the user.
func (r *Room) Give(user string, counted int) {
	if counted == 0 {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.taken -= counted
	if r.users[user] -= counted; r.users[user] == 0 {
		delete(r.users, user)
	}
}

// Fit makes room for an event, and leaves its details out if there is none.
func (r *Room) Fit(user string, e Event) (fitting Event, counted int) {
	counted, ok := r.Take(user, e.size())
	if !ok {
		e = e.WithoutDetails()
	}
	return e, counted
}

// LoneSurrogate reports whether a string in valid JSON has half of a character: an escape from \ud800 to \udfff that is not one of
// a pair. encoding/json reads each as U+FFFD, so that two different keys would become one.
func LoneSurrogate(text []byte) bool {
	for {
		i := bytes.IndexByte(text, '\\')
		if i < 0 {
			return false
		}
		half := escapedUnit(text[i:])
		switch {
		case half < 0xd800 || half > 0xdfff:
			text = text[min(i+2, len(text)):] // what follows \u are digits
		case half >= 0xdc00, !low(escapedUnit(text[i+6:])):
			return true
		default:
			text = text[i+12:]
		}
	}
}

// escapedUnit returns the number of the escape \u and four digits that the text begins with, or 0.
func escapedUnit(text []byte) uint64 {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	n, _ := strconv.ParseUint(string(text[2:6]), 16, 16)
	return n
}

func low(unit uint64) bool { return unit >= 0xdc00 && unit <= 0xdfff }
