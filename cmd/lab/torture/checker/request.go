package checker

import (
	"cmp"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// numbers returns what is wrong with a state and its numbers, or "".
func numbers(state string, wanted, requested, assigned int, reason, failure *string) string {
	right := false
	switch state {
	case "pending":
		right = requested == wanted && assigned == 0
	case "assigned":
		right = requested == wanted && assigned == wanted
	case "partial":
		right = requested == assigned && assigned > 0 && assigned < wanted
	case "none":
		right = requested == 0 && assigned == 0 && reason != nil
	case "failed":
		right = requested == 0 && assigned == 0 && failure != nil
	case "cancelled":
		right = requested == 0 && assigned == 0
	}
	if right {
		return ""
	}
	return "the numbers of a request don't fit its state"
}

// withheld is what workers read of a failure, whatever its cause.
const withheld = "the task's query failed; managers and observers can see why"

// toldOf reports whether a client heard of a failure: why, or only that there was one, as workers are.
func toldOf(told, failure *string) bool {
	return equal(told, failure) || told != nil && failure != nil && *told == withheld
}

// requestJudge judges that each request ended, once.
type requestJudge struct{ *trial }

// judgeRequests checks the rows: each request has ended, with the work that it claims.
func (t requestJudge) judgeRequests() {
	for i := range t.tables.Requests {
		row := &t.tables.Requests[i]
		t.judged("requests")
		if wrong := numbers(row.State, row.Wanted, row.Requested, row.Assigned, row.Reason, row.Error); wrong != "" {
			t.broken(EndsOnce, nil, "%s: request %d of %s is %s, wanted %d, (%d, %d)",
				wrong, row.ID, row.User, row.State, row.Wanted, row.Requested, row.Assigned)
		}
		r := t.requests[row.ID]
		if len(r.works) != row.Assigned {
			t.broken(EndsOnce, nil, "request %d of %s says that it was assigned %d, and there are %d rows of work for it",
				row.ID, row.User, row.Assigned, len(r.works))
		}
		for _, w := range r.works {
			if w.row.Task != row.Task || w.holder() != r.holder() {
				t.broken(EndsOnce, nil, "request %d of %s%s was answered with somebody else's work: %s",
					row.ID, row.User, instance(row.Instance), w.describe())
			}
		}
		switch {
		case (row.State == "pending") != (row.CompletedAt == nil):
			t.broken(EndsOnce, nil, "request %d is %s, and has or lacks the time of its end", row.ID, row.State)
		case row.State == "pending" && !t.mayWait(row):
			t.broken(EndsOnce, r.entriesOf(), "request %d of %s%s, recorded at %s, still waits",
				row.ID, row.User, instance(row.Instance), row.CreatedAt.Format(time.StampMicro))
		}
	}
}

// endsLingering is how long a node may take to end a request whose linger time is over.
const endsLingering = 3 * time.Second

// mayWait reports whether a request may still wait at the end of the run: its task is paused, or it lingered when the nodes were
// asked to leave. The clock may have been set back since it was recorded, so that it lingers for longer than its user said, and
// nobody is left to end it.
func (t requestJudge) mayWait(row *history.RequestRow) bool {
	left := t.tables.Now
	if !t.tables.Left.IsZero() {
		left = t.tables.Left.Add(-endsLingering)
	}
	k := t.tasks[row.Task]
	return row.LingerUntil != nil && row.LingerUntil.After(left) || k != nil && k.Paused && !k.Deleted
}

// entriesOf returns the first and the last entry that name the request.
func (r *request) entriesOf() []int {
	if len(r.seen) == 0 {
		return nil
	}
	return slices.Compact([]int{r.seen[0].entry, r.seen[len(r.seen)-1].entry})
}

// judgeSightsOfRequests compares what was reported of each request with how it ended.
func (t requestJudge) judgeSightsOfRequests() {
	for _, r := range t.requests {
		if len(r.seen) == 0 {
			continue
		}
		if r.row == nil {
			t.broken(Kept, r.entriesOf(), "request %d of %s was told, and there is no such row", r.id, r.seen[0].User)
			continue
		}
		for _, s := range r.seen {
			t.judgeSightOfRequest(r, s)
		}
		t.judgeEnding(r)
	}
	t.judgeOnePending()
}

func (t requestJudge) judgeSightOfRequest(r *request, s requestSight) {
	t.judged("sights of requests")
	at, row := []int{s.entry}, r.row
	if wrong := numbers(s.State, s.Wanted, s.Requested, s.Assigned, s.Reason, s.Error); wrong != "" {
		t.broken(EndsOnce, at, "%s: request %d of %s was told as %s, wanted %d, (%d, %d)",
			wrong, r.id, s.User, s.State, s.Wanted, s.Requested, s.Assigned)
	}
	if s.User != row.User || s.Instance != row.Instance || s.Wanted != row.Wanted || !s.CreatedAt.Equal(row.CreatedAt) ||
		!t.called(row.Task, s.Task) {
		t.broken(Kept, at, "request %d was told as %s%s's, wanted %d, of %s; its row is another's, %s%s",
			r.id, s.User, instance(s.Instance), s.Wanted, s.Task, row.User, instance(row.Instance))
	}
	if c := t.entries[s.entry].Call; c != nil && c.Kind == history.Click {
		if s.User != c.Who.User || c.Key == "" && s.Instance != c.Who.Instance || !t.called(row.Task, c.Task) {
			t.broken(Kept, at, "a click of %s%s on %s was answered with request %d of %s%s on %s",
				c.Who.User, instance(c.Who.Instance), c.Task, r.id, s.User, instance(s.Instance), s.Task)
		}
		if (c.Status == 202) != s.pending() {
			t.broken(EndsOnce, at, "a click was answered %d with request %d, which is %s", c.Status, r.id, s.State)
		}
	}
	if s.pending() {
		return
	}
	t.judged("sights of ended requests")
	if same := s.State == row.State && s.Requested == row.Requested && s.Assigned == row.Assigned && equal(s.Reason, row.Reason) &&
		toldOf(s.Error, row.Error) && equalTimes(s.CompletedAt, row.CompletedAt) && equalTimes(s.RankedAt, row.RankedAt) && s.Stale == row.Stale; !same {
		t.broken(EndsOnce, at, "request %d of %s was told to have ended as %s (%d, %d), and its row says %s (%d, %d)",
			r.id, s.User,
			s.State, s.Requested, s.Assigned, row.State, row.Requested, row.Assigned)
	}
	if !sameWork(s.requestBody, r) {
		t.broken(ToldTheSame, at, "request %d of %s was told to have got other work (%d pieces) than its rows say (%d)",
			r.id, s.User, len(s.Work), len(r.works))
	}
}

// sameWork reports whether a body has exactly the work that the rows have.
func sameWork(body *requestBody, r *request) bool {
	if len(body.Work) != len(r.works) {
		return false
	}
	for _, w := range r.works {
		if !slices.ContainsFunc(body.Work, func(b workBody) bool { return b.ID == w.id && b.Item == w.row.Item }) {
			return false
		}
	}
	return true
}

func equal[T comparable](a, b *T) bool {
	return a == nil && b == nil || a != nil && b != nil && *a == *b
}

func equalTimes(a, b *time.Time) bool {
	return a == nil && b == nil || a != nil && b != nil && a.Equal(*b)
}

// judgeEnding finds answers that say that a request waits, after another said that it had ended.
func (t requestJudge) judgeEnding(r *request) {
	ended, by := forever, -1
	on := map[int64]int{} // for each socket that reported its end, the entry
	for _, s := range r.seen {
		if !s.pending() && s.ended < ended {
			ended, by = s.ended, s.entry
		}
		if s.called {
			continue
		}
		if s.pending() && on[s.socket] != 0 {
			t.broken(ToldTheSame, []int{on[s.socket] - 1, s.entry},
				"a socket told that request %d had ended, and then that it waits",
				r.id)
		}
		if !s.pending() {
			on[s.socket] = s.entry + 1
		}
	}
	for _, i := range t.cancels[r.id] {
		if c := t.entries[i].Call; c.Type == "/problems/not-pending" && c.Ended < ended {
			ended, by = c.Ended, i
		}
	}
	for _, s := range r.seen {
		if s.pending() && s.called && s.began > ended {
			t.broken(EndsOnce, []int{by, s.entry}, "request %d was told to wait at %s, and had ended by %s",
				r.id, seconds(s.began), seconds(ended))
		}
	}
}

// waited returns when a request certainly waited: from the first answer that said so until the last such call began.
func (r *request) waited() (s span[*request], entries []int) {
	s = span[*request]{from: forever, until: -forever, of: r}
	first, last := -1, -1
	for _, seen := range r.seen {
		if !seen.pending() {
			continue
		}
		if seen.ended < s.from {
			s.from, first = seen.ended, seen.entry
		}
		if seen.called && seen.began > s.until {
			s.until, last = seen.began, seen.entry
		}
	}
	return s, []int{first, last}
}

// judgeOnePending: a holder has at most one pending request for a task.
func (t requestJudge) judgeOnePending() {
	type holder struct {
		who  history.Who
		task int64
	}
	waiting := map[holder][]span[*request]{}
	for _, r := range t.requests {
		if r.row == nil {
			continue
		}
		if s, _ := r.waited(); s.from < s.until {
			t.judged("certain waits")
			h := holder{r.holder(), r.row.Task}
			if r.row.Next {
				h.task = 0
			}
			waiting[h] = append(waiting[h], s)
		}
	}
	for h, spans := range waiting {
		overlaps(spans, func(a, b span[*request]) {
			_, one := a.of.waited()
			_, two := b.of.waited()
			t.broken(EndsOnce, append(one, two...), "%s%s had two pending requests for a task at a time: %d and %d",
				h.who.User, instance(h.who.Instance), min(a.of.id, b.of.id), max(a.of.id, b.of.id))
		})
	}
}

// byID sorts requests by their ids.
func byID(a, b *request) int { return cmp.Compare(a.id, b.id) }
