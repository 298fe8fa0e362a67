package checker

import (
	"slices"
	"strconv"
	"time"

	"getwork/cmd/internal/torture/history"
)

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
