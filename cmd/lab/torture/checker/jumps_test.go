package checker

import (
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

// jumps are the clock's settings in the story: two hours ahead while case-a is held, then an hour behind, then right
// again.
var jumps = []setting{{15 * time.Second, 2 * time.Hour}, {30 * time.Second, -time.Hour}, {65 * time.Second, 0}}

// later postpones a time.
func later(at **time.Time, by time.Duration) { *at = pointer((*at).Add(by)) }

// The rules are also found broken under a clock that was set: those that need no clock, and those broken by something
// that the clock can't have shown.
var brokenUnderJumps = []struct {
	name   string
	change func(h *tale)
	rule   Rule
	text   string
}{
	{"two hold a place at a time", func(h *tale) { h.work(loan4).ClosedAt = h.at(78); h.drop("work") }, HeldInTurn, "one place was held twice"},
	{"a place is given that is held still", func(h *tale) {
		h.work(loan4).State, h.work(loan4).ClosedAt, h.work(loan4).RedrivenBy, h.work(loan4).AvailableAt = "held", nil, nil, nil
		h.work(loan4too).ClosedAt = pointer(h.work(loan4too).AssignedAt) // for no time
	}, HeldOnce, "one place was held twice"},
	{"two are told of one place", func(h *tale) {
		b := h.heldOnceMore(loan1)
		b["id"], b["user"] = "999", "tracy"
		h.add(history.Call{Kind: history.Claim, Who: tracy, Task: "verify", Item: "loan-1"}, 3.5, 201, b)
	}, HeldOnce, `place 1 of item "loan-1" of verify was held by two, as they were told`},
	{"two runs", func(h *tale) { h.Tables.Runs[1].StartedAt = h.moment(1.9) }, OneRun, "before run"},
	{"a run without end", func(h *tale) { h.Tables.Runs[0].FinishedAt, h.Tables.Runs[0].State = nil, "running" }, OneRun, "before run"},
	{"a request waits for ever", func(h *tale) {
		r := h.request(last)
		r.State, r.CompletedAt, r.Requested = "pending", nil, r.Wanted
	}, EndsOnce, "still waits"},
	{"the second is served a round before", func(h *tale) {
		h.request(0).Round, h.request(0).CompletedAt = pointer(int64(1000)), h.at(2.2)
	}, InOrder, "was served before it"},
	{"a completion is lost", func(h *tale) { h.work(loan1).State = "expired" }, Kept, "was answered 200"},
	{"put off for longer than the clock can tell", func(h *tale) {
		w := h.work(loan4)
		w.State, w.RedrivenBy, w.After, w.AvailableAt = "returned", nil, pointer(10*time.Hour), pointer(w.ClosedAt.Add(10*time.Hour))
	}, NotBefore, "that was put off until"},
	{"never, and back", func(h *tale) { h.work(loan4).AvailableAt, h.work(loan4).RedrivenBy = nil, nil }, NotBefore, "that was never to return"},
	{"to who returned it to others", func(h *tale) {
		h.work(loan4).ToOthers, h.work(loan4too).User = true, "oliver"
	}, NotBefore, "who had returned it to others"},
	{"put off, and told to be held, before the clock was set", func(h *tale) {
		w := *h.work(loan2)
		w.ID, w.Request, w.State, w.User, w.ClosedAt, w.After, w.AvailableAt, w.ClosedBy = 999, nil, "held", "oliver", nil, nil, nil, nil
		w.AssignedAt = h.moment(16)
		h.Tables.Work = append(h.Tables.Work, w)
		h.add(history.Call{Kind: history.Claim, Who: oliver, Task: "verify", Item: "loan-2"}, 12, 201, h.workNow(worksThen))
	}, NotBefore, "and told to be held by oliver"},
	{"a lease ends though the clock was never so late", func(h *tale) { later(&h.work(caseA).LeaseExpiresAt, 3*time.Hour) }, NotBefore, "a lease ended early"},
	{"asked for after the lease's end, and done", func(h *tale) {
		w := h.work(caseAtoo)
		w.LeaseExpiresAt = pointer(w.AssignedAt.Add(time.Second))
		w.ClosedAt = w.LeaseExpiresAt
	}, NotBefore, "its lease was over by then"},
	{"handed out before it was pushed", func(h *tale) { h.Tables.Items[0].PushedAt = h.moment(9) }, NotBefore, "that was not pushed, or was done"},
	{"a socket says nothing", func(h *tale) { h.drop("request") }, Told, "and did not tell by"},
	{"an expiry is not counted", func(h *tale) { h.work(caseAtoo).Attempt = 1 }, Limits, "attempt 1 should have been 2"},
	{"four eyes", func(h *tale) {
		h.Tables.Versions[0].Conflicts = []int64{agents}
		w := *h.work(loan1)
		w.ID, w.Task, w.Request, w.Run, w.AssignedAt, w.ClosedAt = 999, agents, nil, nil, h.moment(100), h.at(101)
		h.Tables.Work = append(h.Tables.Work, w)
		h.Tables.Items = append(h.Tables.Items, history.ItemRow{ID: 998, Task: agents, Item: "loan-1", PushedBy: "setup"})
	}, Limits, "under another task"},
	{"more than one may hold", func(h *tale) {
		h.Tables.Versions[0].MaxOpen = pointer(1)
		h.work(loan3too).AssignedAt = h.moment(3)
	}, Limits, "oliver held 2 at a time, of which 1 are allowed"},
}

// The clock was ahead for a second, and right again before somebody clicked: that does not excuse what the click got.
func TestPutOffUnderAJumpThatIsOver(t *testing.T) {
	t.Parallel()
	h := tale{toldUnder(setting{4500 * time.Millisecond, 11 * time.Hour}, setting{5500 * time.Millisecond, 0}).end()}
	w := h.work(loan1)
	w.State, w.After, w.AvailableAt = "returned", pointer(10*time.Hour), pointer(w.ClosedAt.Add(10*time.Hour))
	h.work(loan3).Item = "loan-1"
	h.wantBroken(t, NotBefore, "that was put off until")
}

func TestBrokenUnderJumps(t *testing.T) {
	t.Parallel()
	for _, c := range brokenUnderJumps {
		t.Run(c.name, func(t *testing.T) {
			h := tale{toldUnder(jumps...).end()}
			c.change(&h)
			h.wantBroken(t, c.rule, c.text)
		})
	}
}

// These histories look wrong only because of the clock.
var innocentUnderJumps = []struct {
	name   string
	jumps  []setting
	change func(h *tale)
}{
	{"nothing", jumps, func(*tale) {}},
	{"the tables say that two held it at a time", []setting{{62 * time.Second, -14 * time.Second}}, func(*tale) {}}, // loan-4
	{"a run seems to begin before the last is over", []setting{{3 * time.Second, -5 * time.Second}}, func(*tale) {}},
	{"put off for ten hours, which the clock leapt over", []setting{{62 * time.Second, 11 * time.Hour}}, func(h *tale) {
		w := h.work(loan4)
		w.State, w.RedrivenBy, w.After, w.AvailableAt = "returned", nil, pointer(10*time.Hour), pointer(w.ClosedAt.Add(10*time.Hour))
		h.call(history.Redrive, 0).Body = []byte(`{"count":0}`)
		h.untell(loan4)
		h.tell(61.1, "work", h.workNow(loan4))
		c := h.call(history.Dispose, 4)
		c.Outcome, c.After = "return", "10h0m0s"
		change(c, `"never"`, `"returned"`)
	}},
	{"a lease is over at once, and not when the clock is set back", []setting{{41500 * time.Millisecond, time.Hour}, {43 * time.Second, 0}}, func(h *tale) {
		h.add(history.Call{Kind: history.Dispose, Who: bot2, Work: h.work(caseAtoo).ID, Outcome: "complete"}, 42.5, 409, nil).Type = leaseLost
	}},
	{"extended when the clock was set back, for less time than before, and told that it is lost", []setting{{15 * time.Second, -time.Hour}}, func(h *tale) {
		h.add(history.Call{Kind: history.Extend, Who: bot1, Work: h.work(caseA).ID}, 16, 409, nil).Type = leaseLost
		h.work(caseA).LeaseExpiresAt = pointer(h.work(caseA).ClosedAt.Add(-time.Second))
	}},
	{"reassigned at the end of its lease, which the clock leapt over and showed later", []setting{{18 * time.Second, 10 * time.Minute}, {62 * time.Second, -50 * time.Second}, {100 * time.Second, 0}}, func(h *tale) {
		w := h.work(loan3)
		w.LeaseExpiresAt, w.ClosedAt = h.at(18.5), h.at(18.5)
	}},
	{"set between two ticks twice", jumps, func(h *tale) {
		h.fault(jump, -1, 100.2, 100.2)
		h.fault(jump, -1, 100.4, 100.4)
		h.Tables.Runs[1].StartedAt = h.moment(1.9) // nobody knows
	}},
}

func TestInnocentUnderJumps(t *testing.T) {
	t.Parallel()
	for _, c := range innocentUnderJumps {
		t.Run(c.name, func(t *testing.T) {
			h := tale{toldUnder(c.jumps...).end()}
			c.change(&h)
			if found := Check(h.History); len(found) > 0 {
				t.Errorf("nothing is wrong, and found is %v", found)
			}
		})
	}
}
