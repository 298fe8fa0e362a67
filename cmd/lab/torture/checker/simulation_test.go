package checker

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"getwork/cmd/lab/torture/history"
)

// simulation is a service that does what it is told. Everything happens in one order, each event at one moment, and clients see it
// with the delays of a network.
type simulation struct {
	*rand.Rand
	at      time.Duration // the harness's clock
	zero    time.Time     // the database's clock, at 0
	set     []setting     // the settings of the clock so far
	entries []history.Entry
	tables  history.Tables
	sockets map[history.Who]*history.Socket
	ids     int64
}

func pointer[T any](v T) *T { return &v }

// setting is a setting of the database's clock, to be ahead by so much.
type setting struct{ at, ahead time.Duration }

// now returns the time of the database's clock.
func (s *simulation) now() time.Time {
	now := s.zero.Add(s.at)
	for _, one := range slices.Backward(s.set) {
		if one.at <= s.at {
			now = now.Add(one.ahead)
			break
		}
	}
	return now.Truncate(time.Microsecond)
}

// tick reads the clock.
func (s *simulation) tick() {
	s.entries = append(s.entries, history.Entry{Tick: &history.Tick{Began: s.at - time.Millisecond, Ended: s.at + time.Millisecond, Now: s.now()}})
}

func (s *simulation) setClock(to setting) {
	s.set = append(s.set, to)
	s.entries = append(s.entries, history.Entry{Fault: &history.Fault{Kind: jump, Node: -1, Began: to.at, Ended: to.at + 1}})
}

func (s *simulation) id() int64 {
	s.ids++
	return s.ids
}

// call records a call that took effect just now.
func (s *simulation) call(c history.Call, status int, body any) {
	const delay = int64(30 * time.Millisecond)
	c.Began, c.Ended, c.Status = max(0, s.at-1-time.Duration(s.Int64N(delay))), s.at+1+time.Duration(s.Int64N(delay)), status
	if status/100 == 2 {
		c.Body, _ = json.Marshal(body)
		if c.Kind == history.Click || c.Kind == history.Status {
			c.Tag = tagOf(c.Body)
		}
	}
	s.entries = append(s.entries, history.Entry{Call: &c})
}

// tagOf returns the ETag of a body.
func tagOf(body []byte) string { return fmt.Sprintf("%x", sha256.Sum256(body)) }

// tell pushes to a holder's socket, if there is one.
func (s *simulation) tell(who history.Who, kind string, body any) {
	if socket := s.sockets[who]; socket != nil {
		b, _ := json.Marshal(body)
		s.entries = append(s.entries, history.Entry{Told: &history.Told{Socket: socket.ID, At: s.at + 1, Type: kind, Body: b}})
	}
}

// name returns a task's name.
func (s *simulation) name(task int64) string {
	return s.tables.Tasks[task-1].Name
}

// requestBody returns a request as it is sent now.
func (s *simulation) requestBody(r *history.RequestRow) map[string]any {
	works := []any{}
	for i := range s.tables.Work {
		if w := &s.tables.Work[i]; w.Request != nil && *w.Request == r.ID {
			works = append(works, s.workBody(w))
		}
	}
	return map[string]any{"id": strconv.FormatInt(r.ID, 10), "task": s.name(r.Task), "user": r.User, "instance": r.Instance, "wanted": r.Wanted,
		"requested": r.Requested, "assigned": r.Assigned, "state": r.State, "reason": r.Reason, "error": r.Error, "created_at": r.CreatedAt,
		"completed_at": r.CompletedAt, "work": works}
}

func (s *simulation) workBody(w *history.WorkRow) map[string]any {
	return map[string]any{"id": strconv.FormatInt(w.ID, 10), "task": s.name(w.Task), "item": w.Item, "user": w.User, "instance": w.Instance, "slot": w.Slot,
		"assigned_at": w.AssignedAt, "lease_expires_at": w.LeaseExpiresAt, "attempt": w.Attempt, "state": w.State, "closed_at": w.ClosedAt, "note": w.Note}
}

func (s *simulation) pipelineBody(who history.Who) map[string]any {
	works, requests := []any{}, []any{}
	for i := range s.tables.Work {
		if w := &s.tables.Work[i]; w.State == "held" && w.User == who.User && w.Instance == who.Instance {
			works = append(works, s.workBody(w))
		}
	}
	for i := range s.tables.Requests {
		if r := &s.tables.Requests[i]; r.State == "pending" && r.User == who.User && r.Instance == who.Instance {
			requests = append(requests, s.requestBody(r))
		}
	}
	return map[string]any{"work": works, "requests": requests}
}

func (s *simulation) give(task int64, item string, who history.Who, slot, attempt int) *history.WorkRow {
	w := history.WorkRow{ID: s.id(), Task: task, Item: item, Slot: slot, User: who.User, Instance: who.Instance, Attempt: attempt, AssignedAt: s.now(), State: "held"}
	s.tables.Work = append(s.tables.Work, w)
	return &s.tables.Work[len(s.tables.Work)-1]
}

func (s *simulation) close(w *history.WorkRow, state, by string) {
	w.State, w.ClosedAt = state, pointer(s.now())
	if by != "" {
		w.ClosedBy = &by
	}
	if state == "completed" {
		for i := range s.tables.Items {
			if row := &s.tables.Items[i]; row.Task == w.Task && row.Item == w.Item && row.DoneAt == nil {
				row.DoneAt = pointer(s.now())
			}
		}
	}
}

// connect opens a holder's socket, or ends it.
func (s *simulation) connect(who history.Who) {
	if old := s.sockets[who]; old != nil {
		old.Ended = s.at + 2
		s.entries = append(s.entries, history.Entry{Socket: old})
		delete(s.sockets, who)
		return
	}
	s.sockets[who] = &history.Socket{ID: s.id(), Who: who, Live: s.at + 2}
	s.tell(who, "snapshot", s.pipelineBody(who))
}
