package checker

import (
	"time"

	"getwork/cmd/internal/torture/history"
)

// A lease's holder is told when a fifth of it is left. That may come late, and then it is over first: so it is judged where a fifth is
// long, and by how many were told of all who ought to be.
const (
	longFifth   = 1500 * time.Millisecond
	leastLeases = 8
)

// judgeWarnings: most of those who hold work with a lease to its end, and have a live channel that nothing disturbs, are told before.
func (t *trial) judgeWarnings() {
	if t.clock.jumped() {
		return
	}
	warned := map[int64][]int{} // messages that say of work that its lease is about to end
	for i := range t.entries {
		var says struct{ Expiring bool }
		body, _ := t.bodies[i].(*workBody)
		if told := t.entries[i].Told; told != nil && body != nil && body.held() && decode(told.Body, &says) && says.Expiring {
			warned[body.ID] = append(warned[body.ID], i)
		}
	}
	leases, told, silent := 0, 0, []int{}
	var one *work
	for _, s := range t.sockets {
		if s.Socket == nil || s.Slow {
			continue
		}
		for _, w := range t.hadBy(s.Who) {
			due, judged := t.warning(w, s)
			if !judged {
				continue
			}
			t.judged("leases of whose end a socket was to warn")
			leases++
			heard := false
			for _, i := range warned[w.id] {
				heard = heard || t.entries[i].Told.Socket == s.ID && t.entries[i].Told.At >= due
			}
			if heard {
				told++
			} else if one == nil {
				one, silent = w, []int{s.entry}
			}
		}
	}
	if leases >= leastLeases && told*2 < leases {
		t.broken(Warned, silent, "of %d leases that ran out beside a live channel %d were warned of; of this not: %s", leases, told, one.describe())
	}
}

// warning is when the holder of work was to be warned, at the earliest, that its lease was about to end; false: nobody can tell whether
// this socket was to say so.
func (t *trial) warning(w *work, s *socket) (due history.Clock, judged bool) {
	row := w.row
	if row.Lease == nil || row.LeaseExpiresAt == nil || row.ClosedAt == nil || *row.Lease/5 < longFifth || row.ClosedAt.Before(*row.LeaseExpiresAt) {
		return 0, false
	}
	due, known := t.clock.after(row.LeaseExpiresAt.Add(-*row.Lease / 5))
	end, ends := t.clock.by(*row.LeaseExpiresAt)
	if !known || !ends || s.Live >= due || s.Ended <= end {
		return 0, false
	}
	return due, t.undisturbed(end, t.Recovery, due-t.Recovery, anyNode) == end
}

// hadBy is all that a holder ever had.
func (t *trial) hadBy(who history.Who) []*work {
	if t.holders == nil {
		t.holders = map[history.Who][]*work{}
		for _, w := range t.works {
			if w.row != nil {
				t.holders[w.holder()] = append(t.holders[w.holder()], w)
			}
		}
	}
	return t.holders[who]
}
