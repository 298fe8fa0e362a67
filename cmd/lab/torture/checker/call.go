package checker

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// refused reports whether a call certainly had no effect. Rights may end after the effect, while the answer is held.
func refused(c *history.Call) bool {
	return !denied(c) && c.Status >= 300 && c.Status < 500 && c.Status != http.StatusTooManyRequests && c.Status != http.StatusRequestTimeout
}

// denied reports whether a call was refused for lack of rights.
func denied(c *history.Call) bool {
	return c.Status == http.StatusUnauthorized || c.Status == http.StatusForbidden
}

// unknown reports whether a call may or may not have had its effect.
func unknown(c *history.Call) bool { return !refused(c) && c.Status/100 != 2 }

// lingers is how long a call whose answer was lost may still be at work once its node can work again.
const lingers = 30 * time.Second

// alive returns a moment after which an unknown call changes nothing any more. Its node, or the database, may have been
// frozen with it.
func (t *trial) alive(i int) history.Clock {
	at, known := t.over[i]
	if !known {
		c := t.entries[i].Call
		at = t.undisturbed(c.Ended+lingers, lingers, c.Began, c.Node)
		t.over[i] = at
	}
	return at
}

// anyNode stands for all nodes.
const anyNode = -3

// A frozen path of only the listener is no excuse for longer than a node may take to notice it. After that the node
// reads everything again, every few seconds.
const (
	deafening = "proxy-freeze-listener"
	noticed   = 30 * time.Second
)

// still is the longest time without a tick that does not mean that the machine or the database stood still. The clock
// is read several times a second, past all nodes and proxies.
const still = 3 * time.Second

// stillness returns the times without a tick, as faults of the database: nodes stood still, too.
func stillness(ticks []*history.Tick) (faults []*history.Fault) {
	ticks = slices.SortedStableFunc(slices.Values(ticks), func(a, b *history.Tick) int { return cmp.Compare(a.Began, b.Began) })
	for i := 1; i < len(ticks); i++ {
		if from, until := ticks[i-1].Began, ticks[i].Ended; until-from > still {
			faults = append(faults, &history.Fault{Kind: "still", Node: -1, Began: from, Ended: until})
		}
	}
	return faults
}

// undisturbed postpones a moment until the disturbances of the node or the database since from have been over for long
// enough.
func (t *trial) undisturbed(until, over time.Duration, from history.Clock, node int) history.Clock {
	for again := true; again; {
		again = false
		for _, f := range t.faults {
			if f.Kind == jump {
				continue // answers and sockets do not depend on the database's clock
			}
			ended := f.Ended
			if f.Kind == deafening {
				ended = min(ended, f.Began+noticed)
			}
			if (f.Node == node || f.Node < 0 || node == anyNode) && f.Began < until && ended >= from && ended+over > until {
				until, again = ended+over, true
			}
		}
	}
	return until
}

// sent returns the earliest time at which the click that became this request was sent. That is the first click answered
// with it, or an earlier one whose answer was lost and that may still have been at work when the request was recorded.
// It returns false if no click is known.
func (t *trial) sent(id int64) (began history.Clock, known bool) {
	r := t.requests[id]
	if r == nil || r.row == nil || t.tasks[r.row.Task] == nil {
		return 0, false
	}
	began = forever
	if i, answered := t.clicked[id]; answered {
		began = t.entries[i].Call.Began
	}
	created, dated := t.clock.after(r.row.CreatedAt)
	names := t.tasks[r.row.Task].names
	if r.row.Next { // no click on the task alone has made it
		names = []string{"*"}
	}
	for _, name := range names {
		for _, i := range t.lost[asker{r.holder(), name}] {
			c := t.entries[i].Call
			if c.Began >= began {
				break
			}
			if !dated || t.alive(i) >= created {
				return c.Began, true
			}
		}
	}
	return began, began < forever
}
