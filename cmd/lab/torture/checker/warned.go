package checker

import (
	"bytes"
	"time"

	"getwork/cmd/lab/torture/history"
)

// A lease's holder is warned when a fifth of the lease is left. The warning may come late, after the lease's end. So
// only leases are judged whose fifth is long, and only the share of holders who were warned.
const (
	longFifth   = 1500 * time.Millisecond
	leastLeases = 8
)

// judgeWarnings: most holders whose lease expires while they have a live channel that nothing disturbs are warned
// before.
func (t *trial) judgeWarnings() {
	if t.clock.jumped() {
		return
	}
	warned := map[int64][]int{} // for each work, the messages that its lease is about to end
	for i := range t.entries {
		var says struct{ Expiring bool }
		body, _ := t.bodies[i].(*workBody)
		if told := t.entries[i].Told; told != nil && body != nil && body.held() && decode(told.Body, &says) && says.Expiring {
			warned[body.ID] = append(warned[body.ID], i)
		}
		if told := t.entries[i].Told; told != nil && told.Type == "snapshot" && bytes.Contains(told.Body, []byte(`"expiring":true`)) { // a node without LISTEN reports by snapshots
			var all struct {
				Work []struct {
					ID       int64 `json:",string"`
					Expiring bool
				}
			}
			if decode(told.Body, &all) {
				for _, w := range all.Work {
					if w.Expiring {
						warned[w.ID] = append(warned[w.ID], i)
					}
				}
			}
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

// warning returns the earliest time at which the holder of work was to be warned of its lease's end; false means that
// nobody can say whether this socket had to warn.
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

// hadBy returns everything that a holder ever had.
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
