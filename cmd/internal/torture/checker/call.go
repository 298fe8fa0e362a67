package checker

import (
	"cmp"
	"net/http"
	"slices"
	"time"

	"getwork/cmd/internal/torture/history"
)

// refused reports whether a call certainly had no effect.
func refused(c *history.Call) bool {
	return c.Status >= 300 && c.Status < 500 && c.Status != http.StatusTooManyRequests && c.Status != http.StatusRequestTimeout
}

// unknown reports whether a call may or may not have had its effect.
func unknown(c *history.Call) bool { return !refused(c) && c.Status/100 != 2 }

// lingers is how long a call whose answer nobody read may still be at work, once nothing keeps its node from working.
const lingers = 30 * time.Second

// alive is a moment at which an unknown call is over: after that it changes nothing any more. Its node, or the database,
// may have been frozen with it.
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
const anyNode = -2

// A frozen path of the listener alone is no excuse for longer than a node may take to notice it: then it reads everything
// again, every few seconds.
const (
	deafening = "proxy-freeze-listener"
	noticed   = 30 * time.Second
)

// still is how long nobody reads the clock, past all nodes and proxies, only if the machine stands still, or the database. It is
// read several times in a second.
const still = 3 * time.Second

// stillness are the times in which nobody read the clock, as faults of the database: nodes stood still, too.
func stillness(ticks []*history.Tick) (faults []*history.Fault) {
	ticks = slices.SortedStableFunc(slices.Values(ticks), func(a, b *history.Tick) int { return cmp.Compare(a.Began, b.Began) })
	for i := 1; i < len(ticks); i++ {
		if from, until := ticks[i-1].Began, ticks[i].Ended; until-from > still {
			faults = append(faults, &history.Fault{Kind: "still", Node: -1, Began: from, Ended: until})
		}
	}
	return faults
}

// undisturbed puts off a moment until what disturbed the node, or the database, since from has been over for so long.
func (t *trial) undisturbed(until, over time.Duration, from history.Clock, node int) history.Clock {
	for again := true; again; {
		again = false
		for _, f := range t.faults {
			if f.Kind == jump {
				continue // nothing that has to do with answers and sockets goes by the database's clock
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

// sent is when the click was sent, at the earliest, that became this request: the first that was answered with it, or one
// before that whose answer nobody read, and that may have been at work still when the request was recorded. false: nobody is
// known to have clicked.
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
	for _, name := range t.tasks[r.row.Task].names {
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
