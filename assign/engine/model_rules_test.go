package engine

import (
	"cmp"
	"math"
	"slices"
	"time"

	"getwork/assign"
)

// The model is the contract and the design in plain values, written without reading the engine's statements. Rows of work are
// the only truth about who holds what, and everything else is counted from them each time. The model knows no locks, no
// indexes and no concurrency. Its clock counts hours, and each task has its own, so that an hour can pass for one after the
// other.
type model struct {
	tasks  []*modelTask
	limits assign.Limits // over all tasks
	moment int           // counts closings

	absences []modelAbsence // that have not ended, in the order in which they were entered
}

type modelAbsence struct {
	id               int64
	user, substitute string
}

type modelTask struct {
	id      int64
	name    string
	version int
	now     float64 // hours since the case began

	inbox         bool
	freshFor      float64 // hours
	maxCandidates int
	lease         float64 // hours; 0: none
	maxAttempts   int     // 0: no limit

	slots     int
	maxOpen   int // 0: no limit
	groups    []string
	onAway    string
	conflicts []*modelTask // the tasks that it names itself
	paused    bool

	items    []*modelItem // of an inbox: those that are not done, by age; otherwise the rows of the query's table
	works    []*modelWork
	requests []*modelRequest
	shelf    *modelSupply
	ran      modelRun
	runs     int
}

type modelItem struct {
	key       string
	prio      int
	places    int // 0: as many as the task says
	exclusive string
	notBefore float64
}

type modelWork struct {
	id        int64
	item      string
	places    int // the item's places when it was handed out
	slot      int
	exclusive string
	holder    assign.Holder
	request   *modelRequest
	attempt   int
	lease     float64
	until     float64 // of the lease
	state     string

	closed      int // the moment; 0: held
	closedAt    float64
	after       float64
	toOthers    bool
	availableAt float64
	exhausted   bool
	redriven    bool
	ranOut      bool
}

type modelRequest struct {
	id          int64
	holder      assign.Holder
	credential  string
	groups      []string
	anything    bool
	wanted      int
	lease       float64
	requested   int
	assigned    int
	state       assign.State
	reason      assign.Reason
	found       assign.Reason // why a lingering request has found nothing so far
	lingerUntil float64
	lookAfter   *float64 // nil: no round has read it
}

// modelRun is a run and its query's result.
type modelRun struct {
	given, blocked, passedOver, candidates int
	cut                                    bool
}

// modelSupply is what a round hands out, best first, each item with its number of places.
type modelSupply struct {
	items      []modelItem
	kind       string // inbox, run or shelf
	cut        bool
	usable     bool
	since      int     // the moment of the run
	ran        float64 // and its hour
	freshUntil float64 // of a shelf
}

const modelRerun = 2.4 // hours; the tasks' rerun_after

// blocks: held, put off or never to return. A blocked item with one place can't be handed out.
func (w *modelWork) blocks(now float64) bool {
	switch w.state {
	case "held":
		return true
	case "never":
		return !w.redriven
	case "returned", "failed":
		return w.availableAt > now
	}
	return false
}

// of returns the work of an item.
func (t *modelTask) of(item string) (rows []*modelWork) {
	for _, w := range t.works {
		if w.item == item {
			rows = append(rows, w)
		}
	}
	return rows
}

func (t *modelTask) placesOf(it *modelItem) int {
	switch {
	case it.exclusive != "" && (t.inbox || it.places == 0):
		return 1
	case it.places == 0:
		return t.slots
	}
	return it.places
}

// supply returns the items of the task's rows, with their places; usable are the rows that can be items at all.
func (t *modelTask) supply() (s modelSupply) {
	s.kind = "inbox"
	for _, it := range t.items {
		c := *it
		c.places = t.placesOf(it)
		if c.places == 1 || c.exclusive == "" {
			s.items = append(s.items, c)
		}
	}
	slices.SortStableFunc(s.items, func(a, b modelItem) int { return b.prio - a.prio })
	s.usable = len(s.items) > 0
	s.items = slices.DeleteFunc(s.items, func(it modelItem) bool { return it.notBefore > t.now })
	return s
}

// free: a user whom no rule bars could have a place of the item.
func (t *modelTask) free(s *modelSupply, it *modelItem) bool {
	held := 0
	for _, w := range t.of(it.key) {
		switch {
		case w.state == "held":
			held++
		case it.places == 1 && w.blocks(t.now):
			return false
		}
		// An item that was closed after the run may not match any more.
		if it.places == 1 && s.kind != "inbox" && w.closed > s.since {
			return false
		}
	}
	return held < it.places && !t.busy(it.exclusive)
}

// busy: a member of the exclusive group is held.
func (t *modelTask) busy(group string) bool {
	return group != "" && slices.ContainsFunc(t.works, func(w *modelWork) bool { return w.state == "held" && w.exclusive == group })
}

// may: no rule keeps this holder from the item.
func (m *model) may(t *modelTask, item string, places int, h assign.Holder) bool {
	for _, w := range t.of(item) {
		mine := w.holder.User == h.User
		if w.state == "held" && w.holder == h || mine && w.toOthers || mine && places > 1 && w.state != "held" && w.blocks(t.now) {
			return false
		}
	}
	for _, other := range m.eyes(t) {
		for _, w := range other.of(item) {
			if w.holder.User == h.User && (w.state == "held" || w.state == "completed") {
				return false
			}
		}
	}
	return true
}

// eyes returns the tasks that conflict with this one, whichever of the two names the other.
func (m *model) eyes(t *modelTask) (others []*modelTask) {
	for _, o := range m.tasks {
		if slices.Contains(t.conflicts, o) || slices.Contains(o.conflicts, t) {
			others = append(others, o)
		}
	}
	return others
}

func modelMember(t *modelTask, groups []string, anything bool) bool {
	return anything || len(t.groups) == 0 || slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(t.groups, g) })
}

// open returns how much of the task a user holds.
func (t *modelTask) open(user string) (n int) {
	for _, w := range t.works {
		if w.state == "held" && w.holder.User == user {
			n++
		}
	}
	return n
}

// room returns how many items of the task a user may still get: by its limit, and by the one over all tasks.
func (m *model) room(t *modelTask, user string) int {
	room := math.MaxInt
	if t.maxOpen > 0 {
		room = t.maxOpen - t.open(user)
	}
	limit := m.limit(user)
	if limit == nil {
		return room
	}
	held := 0
	for _, o := range m.tasks {
		held += o.open(user)
	}
	return min(room, *limit-held)
}

// limit returns how much a user may hold over all tasks; nil: as much as they like.
func (m *model) limit(user string) *int {
	if limit, named := m.limits.People[user]; named {
		return limit
	}
	return m.limits.Everybody
}

// grant gives the lowest free place of an item.
func (t *modelTask) grant(it modelItem, h assign.Holder, r *modelRequest) *modelWork {
	w := &modelWork{item: it.key, places: it.places, exclusive: it.exclusive, holder: h, request: r, state: "held", attempt: 1, lease: t.lease}
	if t.lease == 0 && r != nil {
		w.lease = r.lease
	}
	w.until = t.now + w.lease
	rows := t.of(it.key)
	for w.slot = 1; slices.ContainsFunc(rows, func(o *modelWork) bool { return o.state == "held" && o.slot == w.slot }); {
		w.slot++
	}
	for _, before := range rows { // other holders' attempts are not over
		switch before.state {
		case "held":
		case "failed", "expired":
			w.attempt = before.attempt + 1
		case "returned", "reassigned":
			w.attempt = before.attempt
		default:
			w.attempt = 1
		}
	}
	t.works = append(t.works, w)
	return w
}

// give hands out up to n places, each of the best item that the holder may have.
func (m *model) give(t *modelTask, s *modelSupply, h assign.Holder, n int, r *modelRequest) (given int) {
	for ; given < n; given++ {
		best := slices.IndexFunc(s.items, func(it modelItem) bool { return t.free(s, &it) && m.may(t, it.key, it.places, h) })
		if best < 0 {
			break
		}
		t.grant(s.items[best], h, r)
	}
	return given
}

// could returns how much give would hand out.
func (m *model) could(t *modelTask, s *modelSupply, h assign.Holder, n int) int {
	before := len(t.works)
	n = m.give(t, s, h, n, nil)
	t.works = t.works[:before]
	return n
}

func (r *modelRequest) end(state assign.State, assigned int, reason assign.Reason) {
	r.state, r.requested, r.assigned, r.reason = state, assigned, assigned, reason
}

func (t *modelTask) pending() (waiting []*modelRequest) {
	for _, r := range t.requests {
		if r.state == assign.Pending {
			waiting = append(waiting, r)
		}
	}
	return waiting
}

// left: a round has left the request lingering, and its look_after has not come.
func (r *modelRequest) left(now float64) bool {
	return r.lingerUntil > 0 && r.lookAfter != nil && *r.lookAfter > now
}

// round serves all waiting requests, first come first served, each with the best items that it may have. If nothing is left for the
// first of those that were left lingering, it reads none of them: their chunks are longer than a line here.
func (m *model) round(t *modelTask, s *modelSupply) {
	before := len(t.works)
	spent, came, due := false, false, false
	var unread []*modelRequest
	for _, r := range t.pending() {
		if r.left(t.now) {
			if !came && (spent || m.could(t, s, assign.Holder{User: "a stranger"}, 1) == 0) && (s.kind != "run" || !s.cut) {
				unread = append(unread, r)
				continue
			}
			came = true // and so will the others
		}
		due = due || r.lookAfter != nil && *r.lookAfter <= t.now
		room := r.wanted
		room = min(room, m.room(t, r.holder.User))
		switch {
		case !modelMember(t, r.groups, r.anything):
			r.end(assign.None, 0, assign.Rules)
		case m.isAway(r.holder.User):
			r.end(assign.None, 0, assign.Away)
		case room <= 0:
			r.end(assign.None, 0, assign.AtLimit)
		case spent:
			r.waitForRun(t.now)
		default:
			spent = m.answer(t, s, r, room, len(t.works) > before)
		}
	}
	given := t.works[before:]
	if slices.ContainsFunc(given, func(w *modelWork) bool { return m.limit(w.holder.User) != nil }) { // work with seats is written by user
		slices.SortStableFunc(given, func(a, b *modelWork) int { return cmp.Compare(a.holder.User, b.holder.User) })
	}
	if spent {
		s.freshUntil = t.now
		return
	}
	again := t.again(s)
	for _, r := range unread {
		if (s.kind == "run" || due || !math.IsInf(again, 1)) && (*r.lookAfter < min(t.now+modelRerun/2, r.lingerUntil) || *r.lookAfter > again) {
			r.lookAt(min(t.now+modelRerun, r.lingerUntil, again))
		}
	}
}

// again returns when the first user who put off an item of several places may have it again; others could have it all the
// time.
func (t *modelTask) again(s *modelSupply) float64 {
	first := math.Inf(1)
	for _, it := range s.items {
		for _, w := range t.of(it.key) {
			if s.kind == "inbox" && it.places > 1 && w.availableAt > t.now && w.blocks(t.now) {
				first = min(first, w.availableAt)
			}
		}
	}
	return first
}

func (r *modelRequest) lookAt(time float64) { r.lookAfter = &time }

// waitForRun makes a request a reason to run now. Lingering requests that have heard that there is nothing start a run alone
// only at their look_after.
func (r *modelRequest) waitForRun(now float64) {
	if r.lookAfter == nil {
		r.lookAt(now)
	}
}

// answer is a round's answer to one request that may have room items. It reports whether the shelf is spent.
func (m *model) answer(t *modelTask, s *modelSupply, r *modelRequest, room int, went bool) (spent bool) {
	can, anybody := m.could(t, s, r.holder, room), m.could(t, s, assign.Holder{User: "a stranger"}, room)
	switch {
	case can < room && s.kind == "shelf" && s.cut: // the request waits for a run; if items are lacking, nobody overtakes it
		r.waitForRun(t.now)
		return anybody < room
	case can > 0:
		m.give(t, s, r.holder, room, r)
		switch {
		case can == r.wanted:
			r.end(assign.Assigned, can, "")
		case can == room:
			r.end(assign.Partial, can, assign.AtLimit)
		case anybody > can:
			r.end(assign.Partial, can, assign.Rules)
		default:
			r.end(assign.Partial, can, "")
		}
		return false
	case s.kind == "run" && s.cut && anybody == 0 && went: // the others took all that was kept: the next run is for this request
		r.lookAt(t.now)
		return false
	}
	reason := assign.Rules
	if anybody == 0 {
		reason = assign.AllHeld
	}
	if !s.usable {
		reason = assign.NoMatch
	}
	if r.lingerUntil > t.now { // a request that was left so a moment ago is not written again
		again := t.again(s)
		if r.lookAfter == nil || r.found != reason || *r.lookAfter < min(t.now+modelRerun/2, r.lingerUntil) || *r.lookAfter > again {
			r.lookAt(min(t.now+modelRerun, r.lingerUntil, again))
		}
		r.found = reason
		return false
	}
	r.end(assign.None, 0, reason)
	return false
}

// run executes the query and serves all waiting requests from its result. The rest is the shelf.
func (m *model) run(t *modelTask) {
	s := t.supply()
	s.kind, s.since, s.ran = "run", m.moment, t.now
	t.runs++
	t.ran = modelRun{given: len(t.items), passedOver: len(t.items) - len(s.items)}
	s.items = slices.DeleteFunc(s.items, func(it modelItem) bool {
		return it.places == 1 && slices.ContainsFunc(t.of(it.key), func(w *modelWork) bool { return w.blocks(t.now) })
	})
	t.ran.blocked = t.ran.given - t.ran.passedOver - len(s.items)
	if s.cut = len(s.items) > t.maxCandidates; s.cut {
		s.items = m.best(t, s.items, t.maxCandidates)
	}
	t.ran.candidates, t.ran.cut = len(s.items), s.cut
	m.round(t, &s)
	if t.freshFor > 0 {
		s.kind, s.freshUntil = "shelf", t.now+t.freshFor
		t.shelf = &s
	}
}

// best returns the n best items: first those that are not full and whose group is not busy.
func (m *model) best(t *modelTask, items []modelItem, n int) []modelItem {
	kept := map[string]bool{}
	for _, free := range []bool{true, false} {
		for _, it := range items {
			if len(kept) < n && t.free(&modelSupply{since: m.moment}, &it) == free {
				kept[it.key] = true
			}
		}
	}
	return slices.DeleteFunc(items, func(it modelItem) bool { return !kept[it.key] })
}

func (t *modelTask) fresh() bool { return t.shelf != nil && t.shelf.freshUntil > t.now }

// serve is a round without a run, if one is possible.
func (m *model) serve(t *modelTask) bool {
	switch {
	case t.paused:
		return false
	case t.inbox:
		s := t.supply()
		m.round(t, &s)
	case t.fresh():
		m.round(t, t.shelf)
	default:
		return false
	}
	return true
}

// look serves the requests that can be served: those that no round has read, those whose look_after has come and, if
// something has become free, all lingering ones, as far as that needs no run.
func (m *model) look(t *modelTask, stirred bool) {
	for {
		servable, due := false, false
		for _, r := range t.pending() {
			if r.lingerUntil > 0 && r.lingerUntil <= t.now && (r.lookAfter != nil || t.paused) {
				r.end(assign.None, 0, cmp.Or(r.found, assign.NoMatch))
				if t.paused {
					r.reason = assign.Paused
				}
				continue
			}
			servable = servable || r.lookAfter == nil || *r.lookAfter <= t.now
			due = due || r.lookAfter != nil && *r.lookAfter <= t.now
		}
		switch {
		case t.paused || len(t.pending()) == 0:
			return
		case servable && t.inbox || stirred && (t.inbox || t.fresh()):
			m.serve(t)
		case !servable:
			return
		case t.fresh() && !due:
			m.serve(t)
		default:
			m.run(t)
		}
		stirred = false
	}
}

// freed: work of the task was closed. Its holder may now have the item in the tasks that conflict with this one.
func (m *model) freed(t *modelTask) {
	m.look(t, true)
	for _, other := range m.eyes(t) {
		m.look(other, true)
	}
}

// rivals returns the tasks that conflict with this one and have waiting requests. Which of two such tasks gets first what
// becomes free in both is not promised, so the test lets one of them wait at a time.
func (m *model) rivals(t *modelTask) []*modelTask {
	return slices.DeleteFunc(m.eyes(t), func(o *modelTask) bool { return len(o.pending()) == 0 })
}

// ---- what people do

// click asks for work; nil: the task does not exist for the user.
func (m *model) click(t *modelTask, who assign.Who, count int, linger, lease float64) *modelRequest {
	if !modelMember(t, who.Groups, who.Anything) {
		return nil
	}
	h := who.Holder
	var r *modelRequest
	if i := slices.IndexFunc(t.requests, func(r *modelRequest) bool { return r.state == assign.Pending && r.holder == h }); i >= 0 {
		r = t.requests[i]
		r.credential, r.groups, r.anything = who.Credential, who.Groups, who.Anything
	} else {
		r = &modelRequest{holder: h, credential: who.Credential, groups: who.Groups, anything: who.Anything, wanted: count, requested: count, state: assign.Pending}
		if t.lease == 0 {
			r.lease = lease
		}
		if linger > 0 {
			r.lingerUntil = t.now + linger
		}
		switch {
		case t.paused && linger == 0:
			r.end(assign.None, 0, assign.Paused)
		case m.isAway(h.User):
			r.end(assign.None, 0, assign.Away)
		case m.room(t, h.User) <= 0:
			r.end(assign.None, 0, assign.AtLimit)
		}
		t.requests = append(t.requests, r)
	}
	ended := r.state != assign.Pending
	m.serve(t)
	if !ended {
		m.look(t, false)
	}
	return r
}

// waitsUnder returns what waits under a credential, in all tasks.
func (m *model) waitsUnder(credential string) (waiting []*modelRequest) {
	for _, t := range m.tasks {
		for _, r := range t.pending() {
			if r.credential == credential {
				waiting = append(waiting, r)
			}
		}
	}
	return waiting
}

// end cancels what waits under a credential.
func (m *model) end(credential string) int {
	waiting := m.waitsUnder(credential)
	for _, r := range waiting {
		r.end(assign.Cancelled, 0, "")
	}
	return len(waiting)
}

func (m *model) move(from, to string) {
	for _, r := range m.waitsUnder(from) {
		r.credential = to
	}
}

// regroup gives other groups to what waits under a credential. The next round goes by them.
func (m *model) regroup(credential string, groups []string) (changed int) {
	for _, r := range m.waitsUnder(credential) {
		if !slices.Equal(r.groups, groups) {
			r.groups = groups
			changed++
		}
	}
	return changed
}

// push adds items to an inbox, and counts those that exist already.
func (m *model) push(t *modelTask, items []modelItem) (accepted int) {
	for _, it := range items {
		it.places = max(it.places, 0)
		there := func(o *modelItem) bool { return o.key == it.key }
		blocked := func(w *modelWork) bool {
			return w.state == "held" || t.placesOf(&it) == 1 && w.blocks(t.now)
		}
		if slices.ContainsFunc(t.items, there) || slices.ContainsFunc(t.of(it.key), blocked) {
			continue
		}
		t.items = append(t.items, &it)
		accepted++
	}
	if accepted > 0 {
		m.look(t, true)
	}
	return accepted
}

// claim gives a named item to a holder, or returns the possible refusals; his: the holder had it already.
func (m *model) claim(t *modelTask, item string, h assign.Holder, groups []string, anything bool) (his bool, against []assign.Kind) {
	if !modelMember(t, groups, anything) {
		return false, []assign.Kind{assign.NotFound}
	}
	if slices.ContainsFunc(t.of(item), func(w *modelWork) bool { return w.state == "held" && w.holder == h }) {
		return true, nil
	}
	it := m.named(t, item)
	if it == nil {
		against = []assign.Kind{assign.NotFound}
		if t.paused { // either refusal may come first
			against = append(against, assign.NotAvailable)
		}
		return false, against
	}
	if t.paused || it.notBefore > t.now || m.isAway(h.User) || m.room(t, h.User) <= 0 || !m.may(t, item, it.places, h) {
		against = append(against, assign.NotAvailable)
	}
	held := 0
	for _, w := range t.of(item) {
		if w.state == "held" {
			held++
		} else if it.places == 1 && w.blocks(t.now) {
			against = append(against, assign.NotAvailable)
		}
	}
	if held >= it.places || t.busy(it.exclusive) {
		against = append(against, assign.NoSlot)
	}
	if len(against) == 0 {
		t.grant(*it, h, nil)
	}
	return false, against
}

// named finds an item as a claim does: in the inbox, on the fresh shelf, or by the query.
func (m *model) named(t *modelTask, item string) *modelItem {
	is := func(it modelItem) bool { return it.key == item }
	if !t.inbox && t.fresh() {
		if i := slices.IndexFunc(t.shelf.items, is); i >= 0 {
			it := &t.shelf.items[i]
			rows := t.of(item)
			blocked := slices.ContainsFunc(rows, func(w *modelWork) bool { return w.blocks(t.now) })
			since := slices.ContainsFunc(rows, func(w *modelWork) bool { return w.closed > t.shelf.since })
			if it.places > 1 || blocked || !since {
				return it
			}
		}
	}
	for _, it := range t.items {
		c := *it
		c.places = t.placesOf(it)
		if is(c) && (c.places == 1 || c.exclusive == "") {
			return &c
		}
	}
	return nil
}

// close closes held work.
func (m *model) close(t *modelTask, w *modelWork, state string) {
	m.moment++
	w.closed, w.closedAt, w.state = m.moment, t.now, state
	if state == "completed" && t.inbox {
		t.items = slices.DeleteFunc(t.items, func(it *modelItem) bool { return it.key == w.item })
	}
}

func (t *modelTask) exhausted(w *modelWork) bool {
	return t.maxAttempts > 0 && w.attempt >= t.maxAttempts
}

// expire ends work whose lease ran out; the attempt counts. A program that let its lease run out counts as dead, and its
// request ends.
func (m *model) expire(t *modelTask, w *modelWork) {
	for _, r := range t.requests {
		if r.state == assign.Pending && r.holder == w.holder && w.holder.Instance != "" {
			r.end(assign.Cancelled, 0, "")
		}
	}
	state := "expired"
	if w.exhausted = t.exhausted(w); w.exhausted {
		state = "never"
	}
	m.close(t, w, state)
	w.ranOut = true
}

// dispose closes work; refused: it was closed before, in another way.
func (m *model) dispose(t *modelTask, w *modelWork, outcome string, after float64, others bool) (refused assign.Kind) {
	state := string(assign.Disposition{Outcome: outcome}.State())
	switch {
	case w.state == "held":
	case w.ranOut:
		return assign.LeaseLost
	case w.after == after && w.toOthers == others && (w.state == state && !w.exhausted || w.exhausted && outcome == "fail"):
		return ""
	default:
		return assign.AlreadyClosed
	}
	if outcome == "fail" && t.exhausted(w) {
		state, w.exhausted = "never", true
	}
	w.after, w.toOthers = after, others
	m.close(t, w, state)
	if state == "returned" {
		w.availableAt = t.now + after
	}
	return ""
}

// reassign gives held work to another user of these groups; against: why not. If that user has it already, nothing happens. Strangers
// have no groups, and must have held something, or be forced.
func (m *model) reassign(t *modelTask, w *modelWork, to string, groups []string, force bool) (against assign.Kind) {
	passed, against := m.passOn(t, w, to, groups, force)
	if passed {
		m.freed(t)
	}
	return against
}

// passOn is reassign before the task is woken; passed: it has a new holder.
func (m *model) passOn(t *modelTask, w *modelWork, to string, groups []string, force bool) (passed bool, against assign.Kind) {
	h := assign.Holder{User: to}
	stranger := to == "newcomer"
	for _, o := range m.tasks {
		stranger = stranger && !slices.ContainsFunc(o.works, func(x *modelWork) bool { return x.holder.User == to })
	}
	switch {
	case w.state != "held":
		return false, assign.AlreadyClosed
	case w.holder == h:
		return false, ""
	case stranger && !force, !modelMember(t, groups, false), m.isAway(to):
		return false, assign.NotAvailable
	}
	w.state = "reassigned"
	limit := m.room(t, to) <= 0
	may := m.may(t, w.item, math.MaxInt, h)
	w.state = "held"
	if limit || !may {
		return false, assign.NotAvailable
	}
	m.close(t, w, "reassigned")
	given := t.grant(modelItem{key: w.item, places: w.places, exclusive: w.exclusive}, h, nil)
	given.slot, given.attempt = w.slot, w.attempt
	return true, ""
}

func (m *model) isAway(user string) bool {
	return slices.ContainsFunc(m.absences, func(a modelAbsence) bool { return a.user == user })
}

// away begins an absence: what the user waits for ends, and what they hold goes to the substitute, whose groups these are, or back.
func (m *model) away(a modelAbsence, groups []string) {
	m.absences = append(m.absences, a)
	var stirred []*modelTask
	for _, t := range m.tasks {
		for _, r := range t.pending() {
			if r.holder.User == a.user {
				r.end(assign.None, 0, assign.Away)
			}
		}
		var back []*modelWork
		for _, w := range slices.Clone(t.works) {
			if w.state != "held" || w.holder.User != a.user || t.onAway == assign.KeepAway {
				continue
			}
			if len(stirred) == 0 || stirred[len(stirred)-1] != t {
				stirred = append(stirred, t)
			}
			passed := false
			if t.onAway == assign.PassAway && a.substitute != "" {
				passed, _ = m.passOn(t, w, a.substitute, groups, false)
			}
			if !passed {
				back = append(back, w)
			}
		}
		for _, w := range back {
			m.close(t, w, "returned")
			w.availableAt = t.now
		}
	}
	for _, t := range stirred {
		m.freed(t)
	}
}

// redrive puts back items that are never to return: the named ones, or those whose attempts were used up.
func (m *model) redrive(t *modelTask, items []string) int {
	back := map[string]bool{}
	for _, w := range t.works {
		if w.state == "never" && !w.redriven && (items == nil && w.exhausted || slices.Contains(items, w.item)) {
			w.redriven = true
			back[w.item] = true
		}
	}
	if len(back) > 0 {
		m.look(t, true)
	}
	return len(back)
}

// hour lets an hour pass for a task.
func (m *model) hour(t *modelTask) {
	ready := t.readyItems()
	t.now++
	stirred, expired := t.readyItems() > ready, false
	for _, w := range t.works {
		if w.state == "held" && w.lease > 0 && w.until <= t.now {
			m.expire(t, w)
			expired = true
		}
	}
	if expired {
		m.freed(t)
	}
	m.look(t, stirred)
}

// ready: only the holders of its places and the rules keep an item of an inbox from being handed out.
func (t *modelTask) ready(it *modelItem) bool {
	blocked := func(w *modelWork) bool { return t.placesOf(it) == 1 && w.blocks(t.now) }
	return it.notBefore <= t.now && !slices.ContainsFunc(t.of(it.key), blocked)
}

func (t *modelTask) readyItems() (n int) {
	for _, it := range t.items {
		if t.inbox && t.ready(it) {
			n++
		}
	}
	return n
}

// retain removes what is over and binds nobody any more.
func (m *model) retain() {
	for _, t := range m.tasks {
		rule := len(m.eyes(t)) > 0
		all := slices.Clone(t.works)
		redriven := func(w *modelWork) bool { // and no attempt that stays would count on without it
			return w.redriven && !slices.ContainsFunc(all, func(o *modelWork) bool { return o.item == w.item && o.toOthers && o.id < w.id })
		}
		t.works = slices.DeleteFunc(t.works, func(w *modelWork) bool {
			if t.shelf != nil && w.closedAt >= t.shelf.ran { // it keeps the item from being handed out from that run
				return false
			}
			return !w.blocks(t.now) && (w.state != "never" || redriven(w)) && !w.toOthers && (w.state != "completed" || !rule)
		})
		t.requests = slices.DeleteFunc(t.requests, func(r *modelRequest) bool {
			if r.state == assign.Pending {
				return false
			}
			r.id = 0
			return true
		})
	}
}

func modelHours(h float64) assign.Duration {
	return assign.Duration(time.Duration(h * float64(time.Hour)))
}
