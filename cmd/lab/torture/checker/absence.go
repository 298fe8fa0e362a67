package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

const (
	// servedUntil is how long after an absence is in force and committed a round that has read before may still give its user work.
	servedUntil = 5 * time.Second

	// treatedWithin is how long what its user waits for and holds may stay, on a busy machine.
	treatedWithin = 8 * time.Second
)

// letsGo reports whether the task never let people who are away keep its work.
func (k *task) letsGo() bool {
	return len(k.versions) > 0 && !slices.ContainsFunc(k.versions, func(v *history.VersionRow) bool { return v.OnAway == nil || *v.OnAway == "keep" })
}

// due returns a time so long after another, or later if something was broken meanwhile or just before.
func (t *trial) due(at time.Time, within time.Duration) (time.Time, bool) {
	from, known := t.clock.after(at)
	if !known {
		return at, false
	}
	return at.Add(t.undisturbed(from+within, t.Recovery, from, anyNode) - from), true
}

// judgeAbsences: whoever is away is given nothing; what they wait for ends, and what they hold of tasks that don't let them keep it is
// theirs no more. Only absences whose call was answered are judged, from then on: by the times in the tables, which a clock that leaps
// would confuse.
func (t *trial) judgeAbsences() {
	if t.clock.jumped() {
		return
	}
	rows := map[int64]*history.AbsenceRow{}
	for i := range t.tables.Absences {
		rows[t.tables.Absences[i].ID] = &t.tables.Absences[i]
	}
	for _, i := range t.calls {
		c := t.entries[i].Call
		var entered struct {
			ID int64 `json:"id,string"`
		}
		if c.Kind != history.Away || c.Status/100 != 2 || !decode(c.Body, &entered) {
			continue
		}
		a := rows[entered.ID]
		if a == nil {
			t.broken(Kept, []int{i}, "an absence of %s was answered 201, and has no row", c.To)
			continue
		}
		t.judged("absences")
		t.judgeAbsence(i, a, a.From.Add(c.Ended-c.Began))
	}
}

// judgeAbsence judges one absence, which was in force and committed by that time.
func (t *trial) judgeAbsence(entry int, a *history.AbsenceRow, began time.Time) {
	end := t.tables.Now
	if !t.tables.Left.IsZero() {
		end = t.tables.Left
	}
	for _, ends := range []*time.Time{a.Until, a.EndedAt} {
		if ends != nil && ends.Before(end) {
			end = *ends
		}
	}
	late := func(since, until time.Time, within time.Duration) bool {
		if since.Before(began) {
			since = began
		}
		due, known := t.due(since, within)
		return known && due.Before(end) && until.After(due)
	}
	for _, w := range t.works {
		if w.row == nil || w.row.User != a.User || w.row.AssignedAt.After(end) {
			continue
		}
		if due, known := t.due(began, servedUntil); known && w.row.AssignedAt.After(due) {
			t.broken(Absent, []int{entry}, "%s was away, and was given %s", a.User, w.describe())
		}
		closed := t.tables.Now
		if w.row.ClosedAt != nil {
			closed = *w.row.ClosedAt
		}
		if k := t.tasks[w.row.Task]; k != nil && k.letsGo() && late(w.row.AssignedAt, closed, treatedWithin) {
			t.broken(Absent, []int{entry}, "%s was away, and kept %s", a.User, w.describe())
		}
	}
	for i := range t.tables.Requests {
		r := &t.tables.Requests[i]
		if r.User != a.User || r.CreatedAt.After(end) {
			continue
		}
		completed := t.tables.Now
		if r.CompletedAt != nil {
			completed = *r.CompletedAt
		}
		if late(r.CreatedAt, completed, treatedWithin) {
			t.broken(Absent, []int{entry}, "%s was away, and request %d went on waiting", a.User, r.ID)
		}
	}
}
