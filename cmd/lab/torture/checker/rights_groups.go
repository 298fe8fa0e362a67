package checker

import (
	"encoding/json"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// judgeGroups: no round hands out work of a task that is for others to a request whose session had lost its groups. A request
// keeps the groups that it was served by; only changes of a session that the provider made known are judged.
func (r *rightsJudge) judgeGroups() {
	changes := map[string][]*history.ActRow{} // by session
	for i := range r.tables.Acts {
		if a := &r.tables.Acts[i]; a.Act == "session.change" && a.Committed != nil && a.Groups != nil {
			changes["s:"+a.Object] = append(changes["s:"+a.Object], a)
		}
	}
	for _, q := range r.requests {
		if q.row == nil || q.row.Credential == nil || q.row.CompletedAt == nil || len(q.works) == 0 || len(changes[*q.row.Credential]) == 0 {
			continue
		}
		for _, groups := range r.groupsOf(q.row.Task) {
			r.judged("served requests for a group's task, of sessions whose groups have changed")
			at := r.locked(q.row.Task, q.row.Round, *q.row.CompletedAt)
			if c := r.lost(changes[*q.row.Credential], groups, at, *q.row.CompletedAt); c != nil {
				r.broken(Served, q.entriesOf(), "request %d of %s, recorded at %s, was served at %s with work for %v; their groups were changed to %s at %s",
					q.id, q.row.User, stamp(q.row.CreatedAt), stamp(*q.row.CompletedAt), groups, *c.Groups, stamp(*c.Committed))
			}
		}
	}
}

// groupsOf returns the groups that a task was for in all of its versions; none: it was for everybody, or that changed.
func (r *rightsJudge) groupsOf(task int64) (all [][]string) {
	k := r.tasks[task]
	if k == nil || len(k.versions) == 0 || len(k.versions[0].Groups) == 0 {
		return nil
	}
	for _, v := range k.versions[1:] {
		if !slices.Equal(v.Groups, k.versions[0].Groups) {
			return nil
		}
	}
	return [][]string{k.versions[0].Groups}
}

// groupsWithin is how long after a change of groups a click by what was read before may still be recorded and served: nodes
// keep what they have read of a credential for a second, and a live channel ends after two.
const groupsWithin = endsWithin

// lost returns the change by which a session had lost all of a task's groups, from some time before its round to its end.
func (r *rightsJudge) lost(changes []*history.ActRow, groups []string, locked, served time.Time) *history.ActRow {
	for i, c := range changes {
		if !c.Committed.Add(groupsWithin+r.patience).Before(locked) || i+1 < len(changes) && !changes[i+1].At.After(served) {
			continue
		}
		var has []string
		if json.Unmarshal([]byte(*c.Groups), &has) == nil && !slices.ContainsFunc(groups, func(g string) bool { return slices.Contains(has, g) }) {
			return c
		}
	}
	return nil
}
