package checker

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

// hooked adds a web hook to the story, which got everything at once.
func (h *tale) hooked() {
	h.Tables.Hooks = []history.HookRow{{ID: 1, Events: []string{assignedEvent, closedEvent, expiredEvent, failedEvent}}}
	h.Tables.Left = h.moment(196)
	add := func(w *history.WorkRow, kind, outcome string, at time.Time) {
		h.Tables.HookEvents = append(h.Tables.HookEvents, history.HookEventRow{Hook: 1, Task: w.Task, Item: w.Item, Type: kind, Subject: w.ID, Outcome: outcome,
			State: "delivered", Attempts: 1, CreatedAt: at, NextAt: at})
	}
	for i := range h.Tables.Work {
		w := h.work(i)
		add(w, assignedEvent, "held", w.AssignedAt)
		if kind := ending(w); kind != "" {
			add(w, kind, w.State, *w.ClosedAt)
		}
	}
	slices.SortStableFunc(h.Tables.HookEvents, func(a, b history.HookEventRow) int { return a.CreatedAt.Compare(b.CreatedAt) })
	for i := range h.Tables.HookEvents {
		e := &h.Tables.HookEvents[i]
		e.ID, e.Message = int64(i+1), fmt.Sprint("msg_", i)
		h.deliver(e, e.CreatedAt.Sub(h.moment(0))+time.Duration(i+1)*time.Millisecond, 204)
	}
}

func (h *tale) deliver(e *history.HookEventRow, at time.Duration, status int) *history.Delivery {
	d := &history.Delivery{Message: e.Message, Began: at, Ended: at + 100*time.Microsecond, Status: status}
	h.Entries = append(h.Entries, history.Entry{Delivery: d})
	return d
}

// event returns an event of a piece of work, and its first delivery.
func (h *tale) event(work int, kind string) (*history.HookEventRow, *history.Delivery) {
	for i := range h.Tables.HookEvents {
		if e := &h.Tables.HookEvents[i]; e.Subject == h.work(work).ID && e.Type == kind {
			for _, d := range h.Entries {
				if d.Delivery != nil && d.Delivery.Message == e.Message {
					return e, d.Delivery
				}
			}
		}
	}
	panic("there is no such event")
}

// lose forgets a delivery.
func (h *tale) lose(d *history.Delivery) {
	h.Entries = slices.DeleteFunc(h.Entries, func(e history.Entry) bool { return e.Delivery == d })
}

// undone makes an event one that was not delivered.
func (h *tale) undone(work int, kind string, attempts int) *history.HookEventRow {
	e, d := h.event(work, kind)
	h.lose(d)
	e.State, e.Attempts = "waiting", attempts
	return e
}

func TestBrokenHooks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(h *tale)
		rule   Rule
		text   string
	}{
		{"nothing is recorded", func(h *tale) {
			h.Tables.HookEvents = slices.DeleteFunc(h.Tables.HookEvents, func(e history.HookEventRow) bool { return e.Type == expiredEvent })
		}, Recorded, "has 0 events work.expired"},
		{"it is recorded twice", func(h *tale) {
			e, _ := h.event(loan1, closedEvent)
			again := *e
			again.ID, again.Message, again.State, again.Attempts = 999, "msg_999", "waiting", 2
			h.Tables.HookEvents = append(h.Tables.HookEvents, again)
		}, Recorded, "has 2 events work.closed"},
		{"what did not happen is recorded", func(h *tale) { e, _ := h.event(loan1, closedEvent); e.Subject = 999 }, Recorded, "which did not happen"},
		{"another end is recorded", func(h *tale) { e, _ := h.event(loan1, closedEvent); e.Outcome = "failed" }, Recorded, `is "failed"; its row says "completed"`},
		{"a failed run is not recorded", func(h *tale) { h.Tables.Runs[1].State = "failed" }, Recorded, "has 0 events run.failed"},
		{"what no row has comes", func(h *tale) { _, d := h.event(loan1, closedEvent); d.Message = "msg_999" }, Recorded, "which no row has"},
		{"it is recorded before its cause", func(h *tale) {
			a, _ := h.event(loan4, closedEvent)
			b, _ := h.event(loan4too, assignedEvent)
			a.ID, b.ID = b.ID, a.ID
		}, HooksOrder, "which came later"},
		{"it comes before its cause", func(h *tale) {
			_, a := h.event(loan4, closedEvent)
			_, b := h.event(loan4too, assignedEvent)
			b.Began = a.Began - 1
		}, HooksOrder, "had not accepted work.closed"},
		{"it comes, and what was before it was refused", func(h *tale) { _, d := h.event(loan1, assignedEvent); d.Status = 500 }, HooksOrder, "had not accepted work.assigned"},
		{"delivered, it is said", func(h *tale) { _, d := h.event(loan1, closedEvent); d.Status = 503 }, Due, "never accepted it"},
		{"due next week", func(h *tale) { h.undone(loan4too, closedEvent, 2).NextAt = h.moment(200 + 7*24*3600) }, Due, "is not due before"},
		{"given up", func(h *tale) { h.undone(loan4too, closedEvent, 2).State = "dead" }, Due, "was given up"},
		{"it comes again", func(h *tale) { e, _ := h.event(loan1, closedEvent); h.deliver(e, 40*time.Second, 204) }, Once, "came again at 40s"},
		{"it comes again, and what was broken was broken before or later, or the receiver", func(h *tale) {
			h.fault("kill", 1, 30, 31)
			h.fault("kill", 1, 112, 113)
			h.fault("receiver-fails", history.Receiver, 80, 90)
			e, _ := h.event(loan4, closedEvent)
			h.deliver(e, 110*time.Second, 204)
		}, Once, "came again at 1m50s"},
		{"it comes late", func(h *tale) {
			_, d := h.event(loan4too, closedEvent)
			d.Began, d.Ended = 150*time.Second, 151*time.Second
		}, Told, "web hook 1 was not told"},
		{"it does not come", func(h *tale) { h.undone(loan4too, closedEvent, 0) }, Told, "web hook 1 was not told"},
		{"it comes late, long after the receiver was well again", func(h *tale) {
			h.fault("receiver-fails", history.Receiver, 10, 12)
			_, d := h.event(loan4too, closedEvent)
			d.Began, d.Ended = 150*time.Second, 151*time.Second
		}, Told, "web hook 1 was not told"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tale{told().end()}
			h.hooked()
			c.change(&h)
			h.wantBroken(t, c.rule, c.text)
		})
	}
}

func TestHooksNotBroken(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(h *tale){
		"all is well": func(*tale) {},
		"it comes again and is accepted while a slow receiver still has it, and then the next comes": func(h *tale) {
			h.fault("receiver-slow", history.Receiver, 0, 200)
			a, first := h.event(loan4, closedEvent)
			_, next := h.event(loan4too, assignedEvent)
			h.deliver(a, next.Began-time.Millisecond, 204)
			first.Ended = next.Began + time.Second
		},
		"a hook for a part": func(h *tale) {
			h.Tables.Hooks[0].Events, h.Tables.Hooks[0].Task = []string{closedEvent}, pointer(int64(agents))
			h.Tables.HookEvents = slices.DeleteFunc(h.Tables.HookEvents, func(e history.HookEventRow) bool { return e.Type != closedEvent || e.Task != agents })
			h.Entries = slices.DeleteFunc(h.Entries, func(e history.Entry) bool {
				return e.Delivery != nil && !slices.ContainsFunc(h.Tables.HookEvents, func(row history.HookEventRow) bool { return row.Message == e.Delivery.Message })
			})
		},
		"it is still due": func(h *tale) { h.undone(loan4too, closedEvent, 3).NextAt = h.moment(290) },
		"it comes again after a kill": func(h *tale) {
			e, _ := h.event(loan1, closedEvent)
			h.deliver(e, 40*time.Second, 204)
			h.fault("kill", 1, 5, 6)
		},
		"it is refused, and comes again": func(h *tale) {
			e, d := h.event(loan1, closedEvent)
			d.Status = 500
			h.deliver(e, 10*time.Second, 204)
			e.Attempts = 2
		},
		"it is accepted too late, and comes again": func(h *tale) {
			e, d := h.event(loan1, closedEvent)
			d.Ended += 12 * time.Second
			h.deliver(e, 20*time.Second, 204)
			e.Attempts = 2
		},
		"its answer is lost, and it comes again": func(h *tale) {
			e, _ := h.event(loan1, closedEvent)
			h.fault("receiver-away", history.Receiver, 4, 5)
			h.deliver(e, 10*time.Second, 204)
			e.Attempts = 2
		},
		"it comes late, as the receiver was away": func(h *tale) {
			_, d := h.event(loan4too, closedEvent)
			d.Began, d.Ended = 150*time.Second, 150*time.Second
			h.fault("receiver-away", history.Receiver, 76, 149)
		},
		"more happens than can be told at once": func(h *tale) {
			_, a := h.event(caseAtoo, closedEvent)
			_, b := h.event(loan3too, closedEvent)
			a.Began, b.Began = 53*time.Second, 62*time.Second
			a.Ended, b.Ended = a.Began, b.Began
		},
		"it comes late, as the one before it came again": func(h *tale) {
			h.fault("kill", 1, 68, 70)
			a, _ := h.event(loan4too, assignedEvent)
			h.deliver(a, 150*time.Second, 204)
			a.Attempts = 2
			_, d := h.event(loan4too, closedEvent)
			d.Began, d.Ended = 151*time.Second, 151*time.Second
		},
		"it does not come, as the one before it is to come again": func(h *tale) {
			h.fault("kill", 1, 68, 70)
			a, _ := h.event(loan4too, assignedEvent)
			a.State, a.Attempts = "waiting", 1
			h.undone(loan4too, closedEvent, 0)
		},
		"it comes late, as a node was frozen": func(h *tale) {
			_, d := h.event(loan4too, closedEvent)
			d.Began, d.Ended = 120*time.Second, 120*time.Second
			h.fault("freeze", 2, 76, 100)
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := tale{told().end()}
			h.hooked()
			change(&h)
			for _, v := range Check(h.History) {
				t.Error(v)
			}
		})
	}
}
