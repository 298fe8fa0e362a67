package checker

import (
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"getwork/cmd/internal/torture/history"
)

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
