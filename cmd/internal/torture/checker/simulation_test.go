package checker

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	"getwork/cmd/internal/torture/history"
)

// simulation is a service that fulfils the contract in a few lines. Everything happens in one order, each event at one
// moment, and clients see it with the delays of a network. Its histories are clean.
type simulation struct {
	*rand.Rand
	at      time.Duration // the harness's clock
	zero    time.Time     // the database's clock, at 0
	set     []setting     // the settings of the clock so far
	jumps   bool          // the clock is set now and then
	ticked  time.Duration // when the clock was read last
	entries []history.Entry
	tables  history.Tables

	people  []history.Who
	sockets map[history.Who]*history.Socket
	ids     int64
	due     map[*history.WorkRow]bool // expired leases that were not swept yet
	lossy   bool                      // some answers are lost
}

const (
	simQuery   = 1
	simLeased  = 2
	simInbox   = 3
	simSeveral = 4
)

var simNames = map[int64]string{simQuery: "query", simLeased: "leased", simInbox: "inbox", simSeveral: "several"}

func pointer[T any](v T) *T { return &v }

// simulate makes a history of that many steps, with a database whose clock may be set now and then.
func simulate(seed uint64, steps int, jumps bool) history.History {
	s := &simulation{Rand: rand.New(rand.NewPCG(seed, 1)), jumps: jumps, zero: time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC), at: time.Second,
		sockets: map[history.Who]*history.Socket{}, due: map[*history.WorkRow]bool{}, lossy: true}
	query := pointer("select item from loan order by urgency")
	for id := int64(1); id <= 4; id++ {
		s.tables.Tasks = append(s.tables.Tasks, history.TaskRow{ID: id, Name: simNames[id], Version: 1})
		v := history.VersionRow{Task: id, Version: 1, Name: simNames[id], Slots: 1}
		switch id {
		case simQuery:
			v.Query, v.MaxOpen = query, pointer(4)
		case simLeased:
			v.Query, v.MaxAttempts = query, pointer(3)
		case simSeveral:
			v.Slots = 2
		}
		s.tables.Versions = append(s.tables.Versions, v)
	}
	for i := range 8 {
		s.people = append(s.people, history.Who{User: "user" + strconv.Itoa(i)})
	}
	s.people = append(s.people, history.Who{User: "bot", Instance: "1"}, history.Who{User: "bot", Instance: "2"})
	for range steps {
		s.step()
	}
	s.quiesce()
	return history.History{Entries: s.entries, Tables: s.tables}
}

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
	s.ticked = s.at
	s.entries = append(s.entries, history.Entry{Tick: &history.Tick{Began: s.at - time.Millisecond, Ended: s.at + time.Millisecond, Now: s.now()}})
}

// jump sets the clock forward or back, by a tenth of a second to two hours.
func (s *simulation) jump() {
	s.tick()
	s.at += 2 * time.Millisecond
	ahead := time.Duration(float64(100*time.Millisecond) * math.Pow(72_000, s.Float64()))
	if s.IntN(2) == 0 {
		ahead = -ahead
	}
	if s.IntN(3) == 0 {
		ahead = 0 // it is right again
	}
	s.setClock(setting{s.at, ahead})
	s.at += 2 * time.Millisecond
	s.tick()
}

// pass lets some time pass.
func (s *simulation) pass(most time.Duration) { s.at += 1 + time.Duration(s.Int64N(int64(most))) }

func (s *simulation) id() int64 {
	s.ids++
	return s.ids
}

// call records a call that took effect just now, if it did.
func (s *simulation) call(c history.Call, status int, body any) {
	const delay = int64(30 * time.Millisecond)
	c.Began, c.Ended, c.Status = max(0, s.at-1-time.Duration(s.Int64N(delay))), s.at+1+time.Duration(s.Int64N(delay)), status
	if status/100 == 2 && s.lossy && s.IntN(50) == 0 {
		c.Status, c.Error = 0, "the connection was cut"
	} else if status/100 == 2 {
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

func (s *simulation) who() history.Who { return s.people[s.IntN(len(s.people))] }

func (s *simulation) task() int64 { return 1 + s.Int64N(4) }

// name returns a task's name.
func (s *simulation) name(task int64) string {
	if task > int64(len(s.tables.Tasks)) {
		return simNames[task]
	}
	return s.tables.Tasks[task-1].Name
}

// requestBody returns a request as it is told now.
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

func (s *simulation) setClock(to setting) {
	s.set = append(s.set, to)
	s.entries = append(s.entries, history.Entry{Fault: &history.Fault{Kind: jump, Node: -1, Began: to.at, Ended: to.at + 1}})
}

// step makes one random event.
func (s *simulation) step() {
	s.pass(40 * time.Millisecond)
	if s.jumps && s.IntN(40) == 0 {
		s.jump()
	}
	if s.at > s.ticked+time.Second {
		s.tick()
	}
	s.sweep()
	switch n := s.IntN(100); {
	case n < 25:
		s.click(s.who(), s.task())
	case n < 38:
		s.round(s.task())
	case n < 60:
		s.dispose()
	case n < 64:
		s.extend()
	case n < 68:
		s.cancel()
	case n < 74:
		s.poll()
	case n < 80:
		who := s.who()
		s.call(history.Call{Kind: history.Pipeline, Who: who}, 200, s.pipelineBody(who))
	case n < 87:
		s.push()
	case n < 89:
		s.reassign()
	case n < 90:
		s.release()
	case n < 92:
		s.redrive()
	case n < 95:
		s.connect(s.who())
	case n < 97:
		s.entries = append(s.entries, history.Entry{Sample: &history.Sample{At: s.at, Task: "query", Executions: s.IntN(2)}})
	default:
		s.tick()
	}
}
