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

func (s *simulation) click(who history.Who, task int64) {
	c := history.Call{Kind: history.Click, Who: who, Task: simNames[task], Count: 1 + s.IntN(3), Key: "key" + strconv.Itoa(len(s.entries))}
	r := s.pending(who, task)
	if r == nil {
		s.tables.Requests = append(s.tables.Requests, history.RequestRow{ID: s.id(), Task: task, User: who.User, Instance: who.Instance,
			Wanted: c.Count, Requested: c.Count, State: "pending", CreatedAt: s.now()})
		r = &s.tables.Requests[len(s.tables.Requests)-1]
	}
	s.call(c, 202, s.requestBody(r))
}

func (s *simulation) pending(who history.Who, task int64) *history.RequestRow {
	for i := range s.tables.Requests {
		if r := &s.tables.Requests[i]; r.State == "pending" && r.Task == task && r.User == who.User && r.Instance == who.Instance {
			return r
		}
	}
	return nil
}

// supply returns the items that a round may hand out, best first.
func (s *simulation) supply(task int64) (items []string) {
	switch task {
	case simQuery, simLeased:
		for i := range 12 {
			items = append(items, "loan"+strconv.Itoa(i))
		}
		s.Shuffle(len(items), func(i, j int) { items[i], items[j] = items[j], items[i] })
		return items
	}
	var rows []*history.ItemRow
	for i := range s.tables.Items {
		if row := &s.tables.Items[i]; row.Task == task && row.DoneAt == nil {
			rows = append(rows, row)
		}
	}
	slices.SortStableFunc(rows, func(a, b *history.ItemRow) int { return b.Priority - a.Priority })
	for _, row := range rows {
		items = append(items, row.Item)
	}
	return items
}

// fits returns the place of an item that a user may have; 0 means none.
func (s *simulation) fits(task int64, item string, who history.Who) (slot, attempt int) {
	places := 1
	if task == simSeveral {
		places = 2
	}
	taken, attempt := map[int]bool{}, 1
	for i := range s.tables.Work {
		w := &s.tables.Work[i]
		if w.Task != task || w.Item != item {
			continue
		}
		own := w.User == who.User
		blocks := w.State == "never" || w.State == "returned" || w.State == "failed"
		blocks = blocks && (w.AvailableAt == nil || w.AvailableAt.After(s.now()))
		switch {
		case w.State == "held" && own, blocks && (own || places == 1), w.ToOthers && own:
			return 0, 0
		case w.State == "held":
			taken[w.Slot] = true
		case w.State == "failed" || w.State == "expired":
			attempt = w.Attempt + 1
		case w.State == "returned" || w.State == "reassigned":
			attempt = w.Attempt
		default:
			attempt = 1
		}
	}
	for slot = 1; slot <= places; slot++ {
		if !taken[slot] {
			return slot, attempt
		}
	}
	return 0, 0
}

func (s *simulation) openOf(task int64, user string) (n int) {
	for i := range s.tables.Work {
		if w := &s.tables.Work[i]; w.Task == task && w.User == user && w.State == "held" {
			n++
		}
	}
	return n
}

func (s *simulation) give(task int64, item string, who history.Who, slot, attempt int) *history.WorkRow {
	w := history.WorkRow{ID: s.id(), Task: task, Item: item, Slot: slot, User: who.User, Instance: who.Instance, Attempt: attempt, AssignedAt: s.now(), State: "held"}
	if task == simLeased {
		w.LeaseExpiresAt = pointer(s.now().Add(600 * time.Millisecond))
	}
	s.tables.Work = append(s.tables.Work, w)
	return &s.tables.Work[len(s.tables.Work)-1]
}

// round answers all requests that wait on a task; it first runs the query, if there is one.
func (s *simulation) round(task int64) {
	var run *int64
	if task == simQuery || task == simLeased {
		run = pointer(s.id())
		s.tables.Runs = append(s.tables.Runs, history.RunRow{ID: *run, Task: task, Node: "1", State: "finished", StartedAt: s.now()})
		s.pass(20 * time.Millisecond)
		s.tables.Runs[len(s.tables.Runs)-1].FinishedAt = pointer(s.now())
		s.sweep()
	}
	id, items := s.id(), s.supply(task)
	for i := range s.tables.Requests {
		if r := &s.tables.Requests[i]; r.Task == task && r.State == "pending" {
			s.serve(r, id, run, items)
			s.tell(history.Who{User: r.User, Instance: r.Instance}, "request", s.requestBody(r))
		}
	}
}

func (s *simulation) serve(r *history.RequestRow, round int64, run *int64, items []string) {
	who := history.Who{User: r.User, Instance: r.Instance}
	limited := false
	for rank, item := range items {
		if limited = r.Task == simQuery && s.openOf(r.Task, r.User) >= 4; r.Assigned == r.Wanted || limited {
			break
		}
		slot, attempt := s.fits(r.Task, item, who)
		if slot == 0 {
			continue
		}
		w := s.give(r.Task, item, who, slot, attempt)
		w.Request, w.Run = &r.ID, run
		if run != nil {
			w.Rank = pointer(int64(rank + 1))
		}
		r.Assigned++
	}
	r.State, r.Requested, r.CompletedAt, r.Round, r.Run = "partial", r.Assigned, pointer(s.now()), &round, run
	switch {
	case r.Assigned == r.Wanted:
		r.State = "assigned"
	case r.Assigned == 0 && limited:
		r.State, r.Reason = "none", pointer("at_limit")
	case r.Assigned == 0:
		r.State, r.Reason = "none", pointer("all_held")
	}
}

// held picks a random piece of held work whose lease is not over.
func (s *simulation) held() *history.WorkRow {
	var held []*history.WorkRow
	for i := range s.tables.Work {
		if w := &s.tables.Work[i]; w.State == "held" && !s.due[w] {
			held = append(held, w)
		}
	}
	if len(held) == 0 {
		return nil
	}
	return held[s.IntN(len(held))]
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

func (s *simulation) dispose() {
	w := s.held()
	if w == nil {
		return
	}
	who := history.Who{User: w.User, Instance: w.Instance}
	c := history.Call{Kind: history.Dispose, Who: who, Work: w.ID}
	switch n := s.IntN(20); {
	case n < 10:
		c.Outcome = "complete"
		s.close(w, "completed", w.User)
	case n < 14:
		after := time.Duration(s.IntN(3)) * 400 * time.Millisecond
		c.Outcome, c.After = "return", after.String()
		if s.IntN(3) == 0 {
			c.To = "others"
		}
		s.close(w, "returned", w.User)
		w.After, w.ToOthers, w.AvailableAt = &after, c.To == "others", pointer(s.now().Add(after))
	case n < 16:
		c.Outcome = "never"
		s.close(w, "never", w.User)
	default:
		c.Outcome = "fail"
		s.close(w, "failed", w.User)
		w.AvailableAt = pointer(s.now().Add(200 * time.Millisecond))
		s.exhaust(w)
	}
	s.call(c, 200, s.workBody(w))
	s.tell(who, "work", s.workBody(w))
	if s.IntN(10) == 0 {
		s.pass(40 * time.Millisecond)
		s.call(c, 200, s.workBody(w))
	}
}

func (s *simulation) exhaust(w *history.WorkRow) {
	if w.Task == simLeased && w.Attempt >= 3 {
		w.State, w.Exhausted, w.AvailableAt = "never", true, nil
	}
}

// sweep ends leases. Some expired ones stay until the next time, but nobody can use them any more.
func (s *simulation) sweep() {
	for i := range s.tables.Work {
		w := &s.tables.Work[i]
		if w.State != "held" || w.LeaseExpiresAt == nil || w.LeaseExpiresAt.After(s.now()) {
			continue
		}
		if s.due[w] = s.IntN(3) == 0; s.due[w] {
			s.call(history.Call{Kind: history.Dispose, Who: history.Who{User: w.User, Instance: w.Instance}, Work: w.ID, Outcome: "complete"}, 409, nil)
			s.entries[len(s.entries)-1].Call.Type = leaseLost
			continue
		}
		s.close(w, "expired", "")
		s.exhaust(w)
		s.tell(history.Who{User: w.User, Instance: w.Instance}, "work", s.workBody(w))
	}
}

func (s *simulation) extend() {
	w := s.held()
	if w == nil {
		return
	}
	if w.LeaseExpiresAt != nil {
		w.LeaseExpiresAt = pointer(s.now().Add(600 * time.Millisecond))
	}
	s.call(history.Call{Kind: history.Extend, Who: history.Who{User: w.User, Instance: w.Instance}, Work: w.ID}, 200, s.workBody(w))
}

func (s *simulation) cancel() {
	if len(s.tables.Requests) == 0 {
		return
	}
	r := &s.tables.Requests[len(s.tables.Requests)-1-s.IntN(min(8, len(s.tables.Requests)))]
	who := history.Who{User: r.User, Instance: r.Instance}
	c := history.Call{Kind: history.Cancel, Who: who, Request: r.ID}
	switch r.State {
	case "pending":
		r.State, r.Requested, r.CompletedAt = "cancelled", 0, pointer(s.now())
		s.tell(who, "request", s.requestBody(r))
		fallthrough
	case "cancelled":
		s.call(c, 200, s.requestBody(r))
	default:
		s.call(c, 409, nil)
		s.entries[len(s.entries)-1].Call.Type = notPending
	}
}

func (s *simulation) poll() {
	if len(s.tables.Requests) == 0 {
		return
	}
	r := &s.tables.Requests[len(s.tables.Requests)-1-s.IntN(min(12, len(s.tables.Requests)))]
	c := history.Call{Kind: history.Status, Who: history.Who{User: r.User, Instance: r.Instance}, Request: r.ID}
	body, _ := json.Marshal(s.requestBody(r))
	tag := tagOf(body)
	known := slices.ContainsFunc(s.entries, func(e history.Entry) bool { return e.Call != nil && e.Call.Tag == tag })
	if known && tag < "8" { // in half of all cases
		c.Match = tag
		s.call(c, 304, nil)
		return
	}
	s.call(c, 200, s.requestBody(r))
}

func (s *simulation) push() {
	task := simInbox + s.Int64N(2)
	c := history.Call{Kind: history.Push, Who: history.Who{User: "feeder"}, Task: simNames[task]}
	accepted := 0
	for range 1 + s.IntN(4) {
		item := "case" + strconv.Itoa(s.IntN(40))
		c.Items = append(c.Items, item)
		if s.known(task, item) {
			continue
		}
		accepted++
		s.tables.Items = append(s.tables.Items, history.ItemRow{ID: s.id(), Task: task, Item: item, Priority: s.IntN(3), PushedAt: s.now(), PushedBy: "feeder"})
	}
	s.call(c, 200, map[string]int{"accepted": accepted, "duplicates": len(c.Items) - accepted})
}

// known reports whether a key is a duplicate: open, held, put off or never.
func (s *simulation) known(task int64, item string) bool {
	return slices.ContainsFunc(s.tables.Items, func(row history.ItemRow) bool { return row.Task == task && row.Item == item && row.DoneAt == nil }) ||
		slices.ContainsFunc(s.tables.Work, func(w history.WorkRow) bool {
			return w.Task == task && w.Item == item && (w.State == "held" || w.State != "completed" && (w.AvailableAt == nil || w.AvailableAt.After(s.now())))
		})
}

func (s *simulation) reassign() {
	w := s.held()
	if w == nil || w.Task == simQuery {
		return
	}
	old, id := *w, w.ID
	to := history.Who{User: s.who().User}
	w.State = "reassigned" // its place and its group are free
	slot, _ := s.fits(w.Task, w.Item, to)
	w.State = "held"
	if slot == 0 || to.User == w.User || to.User == "bot" {
		return
	}
	s.close(w, "reassigned", "mary")
	s.tell(history.Who{User: old.User, Instance: old.Instance}, "work", s.workBody(w))
	given := s.give(old.Task, old.Item, to, old.Slot, old.Attempt)
	s.call(history.Call{Kind: history.Reassign, Who: history.Who{User: "mary"}, Work: id, To: to.User}, 200, s.workBody(given))
	s.tell(to, "work", s.workBody(given))
}

func (s *simulation) release() {
	user, n := s.who().User, 0
	for i := range s.tables.Work {
		w := &s.tables.Work[i]
		if w.State == "held" && w.User == user {
			s.close(w, "returned", "mary")
			w.After, w.AvailableAt = pointer(time.Duration(0)), pointer(s.now())
			s.tell(history.Who{User: w.User, Instance: w.Instance}, "work", s.workBody(w))
			n++
		}
	}
	s.call(history.Call{Kind: history.Release, Who: history.Who{User: "mary"}, To: user}, 200, map[string]int{"count": n})
}

func (s *simulation) redrive() {
	task, items := s.task(), map[string]bool{}
	for i := range s.tables.Work {
		if w := &s.tables.Work[i]; w.Task == task && w.State == "never" && w.RedrivenBy == nil {
			items[w.Item] = true
			w.RedrivenBy, w.AvailableAt = pointer("mary"), pointer(s.now())
		}
	}
	s.call(history.Call{Kind: history.Redrive, Who: history.Who{User: "mary"}, Task: simNames[task]}, 200, map[string]int{"count": len(items)})
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

// quiesce ends waiting requests and, some time later, the sockets.
func (s *simulation) quiesce() {
	for task := int64(1); task <= 4; task++ {
		s.pass(10 * time.Millisecond)
		s.round(task)
	}
	for range 5 {
		s.pass(time.Second)
		s.tick()
	}
	s.sweep()
	for _, who := range s.people {
		s.pass(10 * time.Millisecond)
		s.call(history.Call{Kind: history.Pipeline, Who: who}, 200, s.pipelineBody(who))
		if s.sockets[who] != nil {
			s.connect(who)
		}
	}
	s.pass(time.Second)
	s.park()
	s.tables.Now = s.now()
}

// park marks the items of the inbox that are not available.
func (s *simulation) park() {
	for i := range s.tables.Items {
		row := &s.tables.Items[i]
		row.Parked = row.Task == simInbox && row.DoneAt == nil && slices.ContainsFunc(s.tables.Work, func(w history.WorkRow) bool {
			return w.Task == row.Task && w.Item == row.Item && (w.State == "held" || w.State == "never" && w.RedrivenBy == nil)
		})
	}
}
