package checker

import (
	"cmp"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// gap is a time in which an item with one place could be handed out.
type gap struct {
	put   time.Time     // not free before that, by the database's clock
	sure  history.Clock // the former holding was certainly over by then
	until *work         // the holding that ended it; nil: none did
}

// bestJudge judges that each got the best item that was free.
type bestJudge struct{ *trial }

// gaps returns the gaps of an item, in order.
func (t bestJudge) gaps(it *item) (all []gap) {
	g := gap{sure: -forever}
	for _, w := range it.works {
		g.until = w
		all = append(all, g)
		row := w.row
		done := row.State == "completed" && len(it.pushed) > 0
		if row.ClosedAt == nil || row.State == "never" || done {
			return all
		}
		g = gap{sure: t.written(*row.ClosedAt)}
		for _, s := range w.seen {
			if !s.held() {
				g.sure = min(g.sure, s.ended)
			}
		}
		if t.movedSince(g.sure) {
			g.sure = forever
		}
		if row.AvailableAt != nil {
			g.put = *row.AvailableAt
		}
	}
	g.until = nil
	return append(all, g)
}

// moving is the fault of a database that goes on in another cluster. Until the new cluster's transaction ids have
// passed those of the old one, items that were closed in the old one may be held back.
const moving = "restore"

// movedSince reports whether the database certainly or possibly moved to another cluster after a moment.
func (t bestJudge) movedSince(at history.Clock) bool {
	return slices.ContainsFunc(t.faults, func(f *history.Fault) bool { return f.Kind == moving && f.Ended >= at })
}

// wasFree reports whether an item was certainly free for the whole time from since, which was no earlier than began, to
// until, and its next holder got it from another round.
func (t bestJudge) wasFree(gaps []gap, began history.Clock, since, until time.Time, round int64) bool {
	n, _ := slices.BinarySearchFunc(gaps, until, func(g gap, at time.Time) int {
		if g.until == nil || g.until.row.AssignedAt.After(at) {
			return 1
		}
		return -1
	})
	if n == len(gaps) {
		return false
	}
	g := gaps[n]
	if g.until != nil && g.until.row.Request != nil {
		if r := t.requests[*g.until.row.Request]; r != nil && r.row != nil && r.row.Round != nil && *r.row.Round == round {
			return false
		}
	}
	return g.sure <= began && !g.put.After(since)
}

// supply is what a task could hand out, best first.
type supply struct {
	task  *task
	items []*item // items that nobody ever had, without works
	gaps  [][]gap
	place map[string]int
	cut   bool
	whole bool            // the query's whole result; otherwise an inbox
	since []history.Clock // for each item, when it certainly existed
	given []*work         // all work that the task handed out, in order of time
}

// add adds the next item.
func (t bestJudge) add(s *supply, key string, since history.Clock) {
	it := t.items[itemKey{s.task.ID, key}]
	if it == nil {
		it = &item{key: itemKey{s.task.ID, key}, places: 1}
	}
	s.place[key] = len(s.items)
	s.items, s.since = append(s.items, it), append(s.since, since)
	s.gaps = append(s.gaps, t.gaps(it))
}

// supplies returns the supplies of all tasks whose order is known: inboxes, and tasks whose query's result does not
// change.
func (t bestJudge) supplies() (all []*supply) {
	for i := range t.entries {
		r := t.entries[i].Ranking
		if r == nil || t.task(r.Task) == nil {
			continue
		}
		s := &supply{task: t.task(r.Task), place: map[string]int{}, cut: r.Cut, whole: true}
		for _, key := range r.Items {
			t.add(s, key, -forever)
		}
		all = append(all, s)
	}
	later := map[itemKey]bool{}
	for _, i := range t.calls {
		if c := t.entries[i].Call; c.Kind == history.Push && t.task(c.Task) != nil {
			for _, key := range c.Later {
				later[itemKey{t.task(c.Task).ID, key}] = true
			}
		}
	}
	for _, k := range t.tasks {
		if !k.inbox || !k.single || k.rules {
			continue
		}
		s := &supply{task: k, place: map[string]int{}}
		var rows []*history.ItemRow
		for _, it := range t.items {
			if it.key.task == k.ID && it.single() && len(it.pushed) == 1 && it.pushed[0].Exclusive == nil && !later[it.key] {
				rows = append(rows, it.pushed[0])
			}
		}
		slices.SortFunc(rows, func(a, b *history.ItemRow) int {
			return cmp.Or(cmp.Compare(b.Priority, a.Priority), cmp.Compare(a.ID, b.ID))
		})
		for _, row := range rows {
			t.add(s, row.Item, t.written(row.PushedAt))
		}
		all = append(all, s)
	}
	return all
}

// better returns an item among the first so many that was certainly free for the whole time, and that no rule kept from
// the user. It returns nil if there is none.
func (t bestJudge) better(s *supply, before int, user string, since, until time.Time, round int64) *item {
	began, known := t.clock.after(since)
	for i := 0; known && i < before; i++ {
		if s.since[i] <= began && t.wasFree(s.gaps[i], began, since, until, round) && !t.barred(user, s.items[i].key) {
			return s.items[i]
		}
	}
	return nil
}

// looked returns a moment after which a round that wrote at a given time read what was free: its run's start, or what its run calls the
// last that it has seen where queries have a login of their own, or the last time that another round handed out work of the task. Rounds of a task come one after the other.
func (t bestJudge) looked(s *supply, r *request, at time.Time) (since time.Time, known bool) {
	if s.whole {
		if r.row.Run == nil {
			return since, false
		}
		n, found := slices.BinarySearchFunc(t.tables.Runs, *r.row.Run, func(row history.RunRow, id int64) int { return cmp.Compare(row.ID, id) })
		if !found {
			return since, false
		}
		run := t.tables.Runs[n]
		if run.SeenUntil != nil && run.SeenUntil.Before(run.StartedAt) {
			return *run.SeenUntil, true
		}
		return run.StartedAt, true
	}
	n, _ := slices.BinarySearchFunc(s.given, at, func(w *work, at time.Time) int { return w.row.AssignedAt.Compare(at) })
	for n--; n >= 0; n-- {
		w := s.given[n]
		if w.row.Request == nil || *w.row.Request != r.id && !t.together(*w.row.Request, r) {
			return w.row.AssignedAt, true
		}
	}
	return since, false
}

// together reports whether one round answered both requests.
func (t bestJudge) together(id int64, r *request) bool {
	other := t.requests[id]
	return other != nil && other.row != nil && sameRound(other.row, r.row)
}

// judgeBest: users got the best items that were certainly free, and no free item was withheld from users who got less
// than they wanted. The tables' times show what was free, so nothing is judged if the clock was set.
func (t bestJudge) judgeBest() {
	if t.clock.jumped() {
		return
	}
	for _, s := range t.supplies() {
		for _, w := range t.works {
			if w.row != nil && w.row.Task == s.task.ID {
				s.given = append(s.given, w)
			}
		}
		slices.SortFunc(s.given, func(a, b *work) int { return a.row.AssignedAt.Compare(b.row.AssignedAt) })
		for _, r := range t.requests {
			if r.row != nil && r.row.Task == s.task.ID && r.row.Round != nil && r.row.CompletedAt != nil {
				t.judgeGiven(s, r)
			}
		}
	}
}

func (t bestJudge) judgeGiven(s *supply, r *request) {
	for _, w := range r.works {
		place, known := s.place[w.row.Item]
		since, looked := t.looked(s, r, w.row.AssignedAt)
		if !known || !looked {
			continue
		}
		t.judged("items given, and whether they were the best")
		if it := t.better(s, place, r.row.User, since, w.row.AssignedAt, *r.row.Round); it != nil {
			t.broken(Best, nil, "item %q, which is better, was free from %s on: %s", it.key.item, since.Format(time.StampMicro), w.describe())
			return
		}
	}
	if r.row.Assigned == r.row.Wanted || s.cut || passed(r.row) || r.row.State == "failed" {
		return
	}
	if since, looked := t.looked(s, r, *r.row.CompletedAt); looked {
		t.judged("requests that got less, and whether there was more")
		if it := t.better(s, len(s.items), r.row.User, since, *r.row.CompletedAt, *r.row.Round); it != nil {
			t.broken(Best, nil, "request %d of %s ended at %s as %s with %d of %d, and item %q was free from %s on", r.id, r.row.User,
				r.row.CompletedAt.Format(time.StampMicro), r.row.State, r.row.Assigned, r.row.Wanted, it.key.item, since.Format(time.StampMicro))
		}
	}
}
