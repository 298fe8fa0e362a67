package checker

import (
	"cmp"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// hookJudge judges web hooks: what the tables have for them, and what came to their receiver.
type hookJudge struct {
	*trial
	came map[string][]*history.Delivery // by message, in the order in which they came
	well map[int64][]*history.Delivery  // what the receiver accepted of each hook in time, in the same order
	bad  map[int64][]*history.Delivery  // all else, likewise
	left history.Clock                  // the nodes were asked to leave after that

	before map[int64]*history.HookEventRow // the event of the same item before an event
	behind map[int64]history.Clock         // when all events had come that the hook was to get before an event
	within time.Duration                   // how long an event may take to come
}

// A node waits for ten seconds for an answer. So one that the receiver gave within five came in time, unless the way to it was cut.
const answersWithin = 5 * time.Second

func newHookJudge(t *trial) hookJudge {
	j := hookJudge{trial: t, came: map[string][]*history.Delivery{}, well: map[int64][]*history.Delivery{}, bad: map[int64][]*history.Delivery{},
		before: map[int64]*history.HookEventRow{}, behind: map[int64]history.Clock{}, within: t.PushWithin}
	for i := range t.entries {
		if d := t.entries[i].Delivery; d != nil {
			j.came[d.Message] = append(j.came[d.Message], d)
		}
	}
	began := func(a, b *history.Delivery) int { return cmp.Compare(a.Began, b.Began) }
	type line struct {
		hook int64
		item itemKey
	}
	last, latest := map[line]*history.HookEventRow{}, map[int64]history.Clock{}
	for i := range t.tables.HookEvents {
		e := &t.tables.HookEvents[i]
		of := line{e.Hook, itemKey{e.Task, e.Item}}
		j.before[e.ID], last[of] = last[of], e
		j.behind[e.ID] = latest[e.Hook]
		slices.SortStableFunc(j.came[e.Message], began)
		if a := j.before[e.ID]; e.Attempts == 1 && len(j.came[e.Message]) > 0 && (a == nil || a.Attempts == 1) {
			latest[e.Hook] = max(latest[e.Hook], j.came[e.Message][0].Began)
		}
		for _, d := range j.came[e.Message] {
			if j.inTime(d) {
				j.well[e.Hook] = append(j.well[e.Hook], d)
			} else {
				j.bad[e.Hook] = append(j.bad[e.Hook], d)
			}
		}
	}
	for _, of := range []map[int64][]*history.Delivery{j.well, j.bad} {
		for _, all := range of {
			slices.SortStableFunc(all, began)
		}
	}
	j.left = -forever
	if left, known := t.clock.after(t.tables.Left); known && !t.tables.Left.IsZero() {
		j.left = left
	}
	return j
}

// accepted reports whether the receiver answered with 2xx.
func accepted(d *history.Delivery) bool { return d.Status/100 == 2 }

// inTime reports whether the receiver answered with 2xx, in time and with nothing on the way.
func (j hookJudge) inTime(d *history.Delivery) bool {
	return accepted(d) && d.Ended-d.Began < answersWithin && !atWork(j.outages, d.Began, d.Ended+answersWithin)
}

// atWork reports whether one of the faults was at work between two moments.
func atWork(faults []*history.Fault, from, to history.Clock) bool {
	return slices.ContainsFunc(faults, func(f *history.Fault) bool { return f.Began <= to && f.Ended >= from })
}

func (j hookJudge) judgeHooks() {
	for h := range j.tables.Hooks {
		hook := &j.tables.Hooks[h]
		of := map[subject][]*history.HookEventRow{}
		for i := range j.tables.HookEvents {
			if e := &j.tables.HookEvents[i]; e.Hook == hook.ID {
				of[subject{e.Type, e.Subject}] = append(of[subject{e.Type, e.Subject}], e)
			}
		}
		j.judgeRecorded(hook, of)
		j.judgeOrder(of)
	}
	known := map[string]bool{}
	for i := range j.tables.HookEvents {
		e := &j.tables.HookEvents[i]
		known[e.Message] = true
		j.judgeDelivered(e)
		j.judgeAgain(e)
	}
	for message := range j.came {
		if !known[message] {
			j.broken(Recorded, nil, "a receiver was told of %s, which no row has", message)
		}
	}
}

// subject is what an event is about: a type, and the id of the work or the run.
type subject struct {
	kind string
	id   int64
}

const (
	assignedEvent, closedEvent, expiredEvent, failedEvent = "work.assigned", "work.closed", "work.expired", "run.failed"
)

// ending returns the type of the event of work's end; "" means that it is held.
func ending(row *history.WorkRow) string {
	switch {
	case row.State == "held":
		return ""
	case row.ClosedBy == nil:
		return expiredEvent
	}
	return closedEvent
}

// judgeRecorded: a hook has one event for each thing that happened and that it is to get, and no other. All hooks were there from the
// start.
func (j hookJudge) judgeRecorded(hook *history.HookRow, of map[subject][]*history.HookEventRow) {
	expected := map[subject]bool{}
	one := func(kind string, task, id int64, outcome string) {
		if kind == "" || hook.Task != nil && *hook.Task != task || !slices.Contains(hook.Events, kind) {
			return
		}
		s := subject{kind, id}
		expected[s] = true
		j.judged("events for web hooks")
		if n := len(of[s]); n != 1 {
			j.broken(Recorded, nil, "web hook %d has %d events %s of %d, which happened once", hook.ID, n, kind, id)
		} else if e := of[s][0]; e.Outcome != outcome || e.Task != task {
			j.broken(Recorded, nil, "web hook %d is told that %d of task %d is %q; its row says %q, of task %d", hook.ID, id, e.Task, e.Outcome, outcome, task)
		}
	}
	for i := range j.tables.Work {
		row := &j.tables.Work[i]
		one(assignedEvent, row.Task, row.ID, "held")
		one(ending(row), row.Task, row.ID, row.State)
	}
	for i := range j.tables.Runs {
		switch row, failed := &j.tables.Runs[i], (subject{failedEvent, j.tables.Runs[i].ID}); {
		case row.State == "failed", row.State == "lost":
			one(failedEvent, row.Task, row.ID, "")
		case row.State == "cancelled" && len(of[failed]) == 1: // another node called it lost, before its own said why it had ended
			expected[failed] = true
		}
	}
	for s := range of {
		if !expected[s] {
			j.broken(Recorded, nil, "web hook %d has an event %s of %d, which did not happen", hook.ID, s.kind, s.id)
		}
	}
}

// judgeOrder: of an item the next event comes when the receiver has accepted the one before, whatever breaks. Where several hold an item
// at a time, this is so for each of them.
func (j hookJudge) judgeOrder(of map[subject][]*history.HookEventRow) {
	for _, it := range j.items {
		var before *history.HookEventRow
		for _, w := range it.works {
			if !it.single() {
				before = nil
			}
			for _, kind := range []string{assignedEvent, ending(w.row)} {
				for _, e := range of[subject{kind, w.id}] {
					if before != nil {
						j.judgeNext(before, e)
					}
					before = e
				}
			}
		}
	}
}

func (j hookJudge) judgeNext(a, b *history.HookEventRow) {
	j.judged("events of an item, and the one before")
	if a.ID >= b.ID {
		j.broken(HooksOrder, nil, "of item %q, %s of %d is recorded after %s of %d, which came later", a.Item, a.Type, a.Subject, b.Type, b.Subject)
	}
	if len(j.came[b.Message]) == 0 {
		return
	}
	first := j.came[b.Message][0]
	before := func(d *history.Delivery) bool { return accepted(d) && d.Ended <= first.Began } // an earlier one may end later, too late for its node
	if !slices.ContainsFunc(j.came[a.Message], before) {
		j.broken(HooksOrder, nil, "of item %q, %s of %d came at %s, and the receiver had not accepted %s of %d", b.Item, b.Type, b.Subject, seconds(first.Began), a.Type, a.Subject)
	}
}

// The longest that an event waits after an attempt, as it is documented: 5 s, 20 s, 80 s and so on up to 8 h, each up to a fifth longer. An
// attempt that is under way, or whose node died, has half a minute.
func longestWait(attempts int) time.Duration {
	wait := 5 * time.Second
	for range attempts - 1 {
		wait = min(4*wait, 8*time.Hour)
	}
	return max(wait+wait/5, 30*time.Second)
}

// judgeDelivered: what the tables have as delivered was accepted; and all else is still due, neither later than after the longest wait
// nor for longer than ten seconds, unless something is broken.
func (j hookJudge) judgeDelivered(e *history.HookEventRow) {
	j.judged("events delivered, or due")
	came := j.came[e.Message]
	switch {
	case e.State == "delivered" && !slices.ContainsFunc(came, accepted):
		j.broken(Due, nil, "%s of %d is delivered, and the receiver never accepted it", e.Type, e.Subject)
	case e.State == "delivered" && e.Attempts == 1:
		j.judgeSoon(e, came[0].Began)
	case e.State == "waiting" && e.Attempts == 0:
		j.judgeSoon(e, forever)
	case e.State == "waiting" && !j.clock.jumped() && e.NextAt.Sub(j.tables.Now) > longestWait(e.Attempts):
		j.broken(Due, nil, "%s of %d was tried %d times, and is not due before %s", e.Type, e.Subject, e.Attempts, e.NextAt.Format(time.StampMicro))
	case e.State == "dead":
		j.broken(Due, nil, "%s of %d was given up within three days", e.Type, e.Subject)
	}
}

// judgeSoon: an event comes within ten seconds of its commit, or of the acceptance of the one before it, if nothing is broken and the
// hook does not wait after a failure. If a node could not write down that the one before was accepted, that one comes again first, and
// its last acceptance counts. If more happens than can be sent at once, it comes with those that happened just before. at is when it
// came; forever: it did not.
func (j hookJudge) judgeSoon(e *history.HookEventRow, at history.Clock) {
	if j.clock.jumped() { // what is due goes by the database's clock
		return
	}
	due := j.written(e.CreatedAt)
	if a := j.before[e.ID]; a != nil {
		if a.State != "delivered" {
			return
		}
		for _, d := range j.came[a.Message] {
			if accepted(d) {
				due = max(due, d.Ended)
			}
		}
	}
	if due == forever {
		return
	}
	by := max(due, j.behind[e.ID]) + j.within
	for again := true; again; {
		later := max(by, j.undisturbed(by, j.Recovery, due-j.Recovery, anyNode))
		if well := j.wellSince(e.Hook, later); well > later-j.within {
			later = well + min(j.within, forever-well)
		}
		by, again = later, later > by
	}
	if by >= j.left {
		return
	}
	j.judged("events that a web hook was to be told of soon")
	if at > by {
		j.broken(Told, nil, "web hook %d was not told by %s of %s of %d, which it was to be told of from %s on", e.Hook, seconds(by), e.Type, e.Subject, seconds(due))
	}
}

// certainlyClaimed is how long before it came an event may have been claimed.
const certainlyClaimed = 2 * time.Second

// wellSince returns when a hook certainly did not wait any more after its last failure before a moment: an event was accepted that was
// sent after that.
func (j hookJudge) wellSince(hook int64, before history.Clock) history.Clock {
	failed := -forever
	for _, d := range j.bad[hook] {
		if d.Began <= before {
			failed = max(failed, d.Ended)
		}
	}
	for _, f := range j.outages {
		if f.Began <= before {
			failed = max(failed, f.Ended)
		}
	}
	if failed == -forever {
		return failed
	}
	for _, d := range j.well[hook] {
		if d.Began >= failed+certainlyClaimed {
			return d.Ended
		}
	}
	return forever
}

// judgeAgain: what the receiver accepted in time does not come again, unless something was broken: the node died, or could not write the
// answer down. Then it comes again when its half minute is over.
func (j hookJudge) judgeAgain(e *history.HookEventRow) {
	came := j.came[e.Message]
	first := slices.IndexFunc(came, j.inTime)
	if first < 0 {
		return
	}
	j.judged("events that a receiver accepted")
	for _, d := range came[first+1:] {
		if !atWork(j.faults, came[first].Began-j.Recovery, d.Began) {
			j.broken(Once, nil, "%s of %d came again at %s, and nothing was broken since it was accepted at %s", e.Type, e.Subject, seconds(d.Began), seconds(came[first].Ended))
		}
	}
}
