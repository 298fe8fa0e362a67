package checker

import (
	"time"
)

// judgeSightsOfWork compares what was reported of each piece of work with its row.
func (t *trial) judgeSightsOfWork() {
	for _, w := range t.works {
		if len(w.seen) == 0 {
			continue
		}
		if w.row == nil {
			t.broken(Kept, []int{w.seen[0].entry}, "%s was told of work %d (item %q), and there is no such row",
				w.seen[0].User, w.id, w.seen[0].Item)
			continue
		}
		for _, s := range w.seen {
			t.judgeSightOfWork(w, s)
		}
		t.judgeClosing(w)
	}
}

func (t *trial) judgeSightOfWork(w *work, s workSight) {
	t.judged("sights of work")
	at, row := []int{s.entry}, w.row
	if s.Item != row.Item || s.User != row.User || s.Instance != row.Instance || s.Slot != row.Slot || s.Attempt != row.Attempt ||
		!s.AssignedAt.Equal(row.AssignedAt) || !t.called(row.Task, s.Task) {
		t.broken(Kept, at,
			"work %d was told as item %q of %s, held by %s%s in place %d, attempt %d; its row is other: %s, attempt %d",
			w.id, s.Item, s.Task,
			s.User, instance(s.Instance), s.Slot, s.Attempt, w.describe(), row.Attempt)
		return
	}
	if s.Deadline != nil && !equalTimes(s.Deadline, row.Deadline) { // an older node tells none
		t.broken(Kept, at, "work %d was told with another deadline than its row has: %s", w.id, w.describe())
	}
	if s.held() {
		shorter := row.LeaseExpiresAt != nil && s.LeaseExpiresAt != nil && row.LeaseExpiresAt.Before(*s.LeaseExpiresAt)
		if s.LeaseExpiresAt != nil && row.LeaseExpiresAt == nil || shorter && !t.clock.jumped() && !t.takenUp(w) { // extended after the clock was set back
			t.broken(Kept, at, "the lease of work %d was told to end at %s; its row says that it ended before",
				w.id, s.LeaseExpiresAt.Format(time.StampMicro))
		}
		return
	}
	t.judged("sights of closed work")
	if s.State != row.State || !equalTimes(s.ClosedAt, row.ClosedAt) || !equal(s.Note, row.Note) || s.Code != nil && !equal(s.Code, row.Code) {
		t.broken(Kept, at, "work %d was told to be %s; its row says otherwise, or another time or note: %s",
			w.id, s.State, w.describe())
	}
}

// judgeClosing finds answers that say that work is held, after another said that it was let go of.
func (t *trial) judgeClosing(w *work) {
	closed, by := forever, -1
	on := map[int64]int{}
	for _, s := range w.seen {
		if !s.held() && s.ended < closed {
			closed, by = s.ended, s.entry
		}
		if s.called {
			continue
		}
		if s.held() && on[s.socket] != 0 {
			t.broken(ToldTheSame, []int{on[s.socket] - 1, s.entry},
				"a socket told that work %d is over, and then that it is held",
				w.id)
		}
		if !s.held() {
			on[s.socket] = s.entry + 1
		}
	}
	for _, s := range w.seen {
		if s.held() && s.called && s.began > closed {
			t.broken(Kept, []int{by, s.entry}, "work %d was told to be held at %s, and was over by %s",
				w.id, seconds(s.began), seconds(closed))
		}
	}
}
