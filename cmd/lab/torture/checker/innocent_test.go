package checker

import (
	"encoding/json"
	"slices"
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

// A rule finds nothing if there is nothing to judge.
func TestNotBroken(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		change func(h *tale)
		rule   Rule
	}{
		"what is better is put off":  {func(h *tale) { h.returns("loan-2", "loan-3") }, Best},
		"what is better comes later": {func(h *tale) { h.returns("loan-3", "loan-0") }, Best},
		"what is better is not due":  {func(h *tale) { h.Tables.Items[1].Priority = 5; h.call(history.Push, 0).Later = []string{"case-b"} }, Best},
		"what is better was returned to others": {func(h *tale) {
			h.returns("loan-0", "loan-3")
			w := *h.work(loan2)
			w.ID, w.Item, w.Request, w.ToOthers, w.AssignedAt, w.ClosedAt, w.AvailableAt = -1, "loan-0", nil, true, h.moment(-20), h.at(-19), h.at(-19)
			h.Tables.Work = append(h.Tables.Work, w)
		}, Best},
		"it was completed before it was done": {func(h *tale) { h.finishes("loan-1", 4.5); h.again(loan1) }, DoneIsDone},
		"a task of a group's is not found by others": {func(h *tale) {
			h.Tables.Versions[0].Groups = []string{"desk"}
			h.refuse(history.Click, "verify", 404)
		}, Accepted},
		"a task that was deleted": {func(h *tale) { h.Tables.Tasks[0].Deleted = true; h.refuse(history.Click, "verify", 404) }, Accepted},
		"it lingered for less than the first run took": {func(h *tale) {
			h.returns("loan-3")
			h.endsFor(0, "none", "no_match")
			h.request(0).LingerUntil, h.request(0).CompletedAt = h.at(1.5), h.at(1.5)
		}, Reasons},
		"a manager claims it for them":    {func(h *tale) { h.call(history.Claim, 0).Who, h.call(history.Claim, 0).To = mary, "oliver" }, Kept},
		"an item that is claimed is gone": {func(h *tale) { h.refuse(history.Claim, "verify", 404) }, Accepted},
		"a click that is too much":        {func(h *tale) { h.refuse(history.Click, "verify", 429) }, Accepted},
		"each other task has some turns":  {func(h *tale) { h.turns(4) }, Fair},
		"it waits for a run of its own": {func(h *tale) {
			h.turns(6)
			h.Tables.Runs[0].FinishedAt = h.at(101)
		}, Fair},
		"all were warned":         {func(h *tale) { h.runOut(true) }, Warned},
		"a limit that is reached": {func(h *tale) { *h.Tables.Versions[0].MaxOpen = 1; h.endsFor(2, "partial", "at_limit") }, Reasons},
	} {
		t.Run(name, func(t *testing.T) {
			h := tale{told().end()}
			c.change(&h)
			for _, v := range Check(h.History) {
				if v.Rule == c.rule {
					t.Error(v)
				}
			}
		})
	}
}

// These histories look wrong, but are not.
var innocent = []struct {
	name   string
	change func(h *tale)
}{
	{"nothing", func(*tale) {}},
	{"a second click gets the pending request", func(h *tale) {
		h.add(history.Call{Kind: history.Click, Who: tracy, Task: "verify", Count: 3, Key: "other"}, 1.5, 202, h.waiting(1))
	}},
	{"a key that is sent while another request waits makes one of its own later", func(h *tale) {
		h.call(history.Click, 2).Key = "k"
		h.add(history.Call{Kind: history.Click, Who: tracy, Task: "verify", Count: 3, Key: "k"}, 1.5, 202, h.waiting(1))
	}},
	{"a completion that nobody read an answer of, and that was made", func(h *tale) {
		c := h.call(history.Dispose, 0)
		c.Status, c.Body = 0, nil
	}},
	{"a completion that nobody read an answer of, and that wasn't made", func(h *tale) {
		h.add(history.Call{Kind: history.Dispose, Who: bot1, Work: h.work(caseA).ID, Outcome: "complete"}, 40.1, 0, nil)
	}},
	{"completed again after it was swept: refused", func(h *tale) {
		h.add(history.Call{Kind: history.Dispose, Who: oliver, Work: h.work(loan1).ID, Outcome: "never"}, 30, 409, nil).Type = alreadyClosed
	}},
	{"the same again", func(h *tale) {
		h.add(history.Call{Kind: history.Dispose, Who: bot2, Work: h.work(caseAtoo).ID, Outcome: "complete"}, 100, 200, h.workNow(caseAtoo))
	}},
	{"returned after a manager has released it", func(h *tale) {
		h.add(history.Call{Kind: history.Dispose, Who: oliver, Work: h.work(loan3too).ID, Outcome: "return", After: "0s"}, 100, 200, h.workNow(loan3too))
		h.add(history.Call{Kind: history.Dispose, Who: oliver, Work: h.work(loan3too).ID, Outcome: "complete"}, 90, 409, nil).Type = alreadyClosed
	}},
	{"returned by a manager, and then by its holder", func(h *tale) {
		h.work(loan2).ClosedBy = pointer("mary")
		h.add(history.Call{Kind: history.Dispose, Who: tracy, Work: h.work(loan2).ID, Outcome: "complete"}, 4.9, 409, nil).Type = alreadyClosed
		h.add(history.Call{Kind: history.Dispose, Who: mary, Work: h.work(loan2).ID, Outcome: "return", After: "10s"}, 4.8, 0, nil)
	}},
	{"it lingers still", func(h *tale) {
		r := h.request(last)
		r.State, r.CompletedAt, r.Requested, r.LingerUntil = "pending", nil, r.Wanted, h.at(300)
		h.call(history.Cancel, 0).Status, h.call(history.Cancel, 0).Body = 503, nil
		h.tellOf(last, -1)
	}},
	{"it lingered still when the nodes left", func(h *tale) {
		r := h.request(last)
		r.State, r.CompletedAt, r.Requested, r.LingerUntil = "pending", nil, r.Wanted, h.at(198)
		h.Tables.Left = h.moment(196)
		h.call(history.Cancel, 0).Status, h.call(history.Cancel, 0).Body = 503, nil
		h.tellOf(last, -1)
	}},
	{"a rule passed over the first", func(h *tale) {
		h.work(loan1).Rank, h.work(loan2).Rank = pointer(int64(2)), pointer(int64(1))
		w := *h.work(loan2)
		w.ID, w.Request, w.User, w.ToOthers, w.Rank, w.Run = -1, nil, "oliver", true, nil, nil
		w.AssignedAt, w.ClosedAt, w.AvailableAt, w.After, w.ClosedBy = h.moment(-2), h.at(-1), h.at(-1), pointer(time.Duration(0)), pointer("oliver")
		h.Tables.Work = append(h.Tables.Work, w)
	}},
	{"four eyes passed over the first", func(h *tale) {
		h.request(0).Round, h.request(0).CompletedAt = pointer(int64(1000)), h.at(2.2)
		h.Tables.Versions[0].Conflicts = []int64{agents}
		w := *h.work(loan2)
		w.ID, w.Task, w.Request, w.User, w.Rank, w.Run = -1, agents, nil, "oliver", nil, nil
		h.Tables.Work = append(h.Tables.Work, w)
		h.Tables.Items = append(h.Tables.Items, history.ItemRow{ID: 998, Task: agents, Item: "loan-2", PushedBy: "setup"})
		h.tellOf(0, 2.2)
	}},
	{"a manager releases what ran out, before it is swept", func(h *tale) {
		w := h.work(caseA)
		w.State, w.ClosedBy, w.After, w.AvailableAt = "returned", pointer("mary"), pointer(time.Duration(0)), w.ClosedAt
		h.work(caseAtoo).Attempt = 1
		change(h.call(history.Click, 4), `"attempt":2`, `"attempt":1`)
		change(h.call(history.Dispose, 3), `"attempt":2`, `"attempt":1`)
	}},
	{"a socket that reads slowly", func(h *tale) {
		h.drop("request")
		for _, e := range h.Entries {
			if e.Socket != nil {
				e.Socket.Slow = true
			}
		}
	}},
	{"a socket that ended soon after", func(h *tale) {
		h.drop("request")
		h.drop("work")
		for _, e := range h.Entries {
			if e.Socket != nil {
				e.Socket.Ended = 10 * time.Second
			}
		}
	}},
	{"a snapshot that it waits no more in", func(h *tale) {
		h.tellOf(0, -1)
		h.tell(5, "snapshot", map[string]any{"work": []any{}, "requests": []any{}})
	}},
	{"told when its node went on", func(h *tale) {
		h.fault("freeze", 0, 1.9, 60)
		h.tellOf(0, 79)
	}},
	{"told late, since the machine stood still", func(h *tale) {
		h.Entries = slices.DeleteFunc(h.Entries, func(e history.Entry) bool { // so nobody read the clock
			return e.Tick != nil && e.Tick.Began > 2*time.Second && e.Tick.Ended < 40*time.Second
		})
		h.tellOf(0, 45)
	}},
	{"answered late, where the others took as long", func(h *tale) {
		h.promise(time.Second)
		for n := range 5 {
			h.call(history.Click, n).Ended += 400 * time.Millisecond
		}
		h.call(history.Click, 3).Ended += 4 * time.Second
	}},
	{"answered late by a node that stood still", func(h *tale) {
		h.promise(time.Second)
		c := h.call(history.Click, 3)
		c.Ended += 6 * time.Second
		h.fault("freeze", c.Node, c.Began.Seconds(), c.Ended.Seconds())
	}},
	{"answered late, since another node stood still", func(h *tale) {
		h.promise(time.Second)
		c := h.call(history.Click, 3)
		c.Ended += 5 * time.Second
		h.fault("freeze", c.Node+1, c.Began.Seconds(), c.Ended.Seconds())
	}},
	{"served over all tasks, to a click that got no answer, before another on the task got none", func(h *tale) {
		c := h.call(history.Click, 2)
		h.request(2).Next = true
		c.Task, c.Status, c.Body, c.Tag = "*", 0, nil, ""
		h.add(history.Call{Kind: history.Click, Who: c.Who, Task: "verify", Count: 1}, 150, 0, nil)
	}},
	{"a claim that was over by its answer", func(h *tale) {
		c := h.call(history.Claim, 0)
		c.Body, _ = json.Marshal(h.workNow(loan4))
		c.Ended = h.at(76).Sub(h.moment(0))
	}},
	{"claimed and let go of before the next snapshot", func(h *tale) {
		h.untell(loan4)
		h.tell(62, "snapshot", map[string]any{"work": []any{}, "requests": []any{}})
	}},
	{"a click that was lost, and done late", func(h *tale) {
		h.fault("freeze", 0, 0.5, 10)
		h.add(history.Call{Kind: history.Click, Who: tracy, Task: "verify", Count: 1}, 0.9, 0, nil)
		h.request(0).Round, h.request(0).CompletedAt = pointer(int64(1000)), h.at(2.2)
		h.tellOf(0, 2.2)
	}},
}

func TestInnocent(t *testing.T) {
	t.Parallel()
	for _, c := range innocent {
		t.Run(c.name, func(t *testing.T) {
			h := tale{told().end()}
			c.change(&h)
			if found := Check(h.History); len(found) > 0 {
				t.Errorf("nothing is wrong, and found is %v", found)
			}
		})
	}
}
