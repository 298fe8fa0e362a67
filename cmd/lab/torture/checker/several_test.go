package checker

import (
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

// codes has a task require a reason, and gives what was let go of under it one.
func (h *tale) codes(task int64) {
	v := &h.Tables.Versions[task-1]
	v.RequireCode, v.Codes = true, []string{"said"}
	own := func(state string) string {
		if says := ownCodes[state]; says != "" {
			return says
		}
		return "said"
	}
	for i := range h.Tables.Work {
		if w := &h.Tables.Work[i]; w.Task == task && w.ClosedAt != nil {
			w.Code = pointer(own(w.State))
		}
	}
	for _, e := range h.Entries {
		if c := e.Call; c != nil && c.Kind == history.Dispose && c.Outcome != "fail" {
			for i := range h.Tables.Work {
				if w := &h.Tables.Work[i]; w.ID == c.Work && w.Task == task {
					c.Code = "said"
				}
			}
		}
	}
}

// hold adds work that is held from a moment on, or was completed then.
func (h *tale) hold(item string, who history.Who, at float64, completed bool) {
	w := history.WorkRow{ID: int64(900 + len(h.Tables.Work)), Task: agents, Item: item, Slot: 1 + len(h.Tables.Work) - worksThen, User: who.User, Attempt: 1, AssignedAt: h.moment(at), State: "held"}
	if completed {
		w.State, w.ClosedAt, w.ClosedBy = "completed", h.at(at+1), &who.User
	}
	h.Tables.Work = append(h.Tables.Work, w)
}

// goesOn has all that is completed in the inbox go on to the other task, with what was pushed there for the last completion.
func (h *tale) goesOn(share float64, children int) {
	h.Tables.Versions[1].Onward, h.Tables.Versions[1].Share = pointer(int64(verify)), &share
	for i := range children {
		h.Tables.Items = append(h.Tables.Items, history.ItemRow{ID: int64(950 + i), Task: verify, Item: "case-a", PushedAt: h.moment(45), PushedBy: "bot", From: &h.work(caseAtoo).ID})
	}
}

// needsUntil has the item of work need something until a moment.
func (h *tale) needsUntil(i int, at float64) {
	h.call(history.Push, 0).NeedsUntil = map[string]time.Time{h.work(i).Item: h.moment(at)}
}

// needs has an item need something, and nobody be in a group.
func (h *tale) needs(i int, needs ...string) {
	h.work(i).Needs = needs
	for i := range h.Tables.Requests {
		h.Tables.Requests[i].Groups = []string{}
	}
}

func (h *tale) teaches(at float64, who history.Who, can ...string) {
	h.add(history.Call{Kind: history.Skills, Who: mary, To: who.User, Skills: can}, at, 200, can)
}

// aside adds a call that puts oliver's work aside, or takes it up again, with the end of its lease.
func (h *tale) aside(at float64, until *time.Time, lease *time.Time) {
	b := h.heldOnceMore(loan3too)
	b["later_until"], b["lease_expires_at"] = until, lease
	h.add(history.Call{Kind: history.Later, Who: oliver, Work: h.work(loan3too).ID, Until: until}, at, 200, b)
	h.tell(at+0.1, "work", b)
}

func TestBrokenBySeveral(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		change func(h *tale)
		rule   Rule
		text   string
	}{
		{"no reason", func(h *tale) { h.codes(verify); h.work(loan1).Code = nil }, Coded, "without a reason"},
		{"no reason of the server's", func(h *tale) { h.codes(agents); h.work(caseA).Code = nil }, Coded, "without a reason"},
		{"a reason that never was", func(h *tale) { h.codes(verify); h.work(loan1).Code = pointer("other") }, Coded, "did not have then"},
		{"a reason that is no more", func(h *tale) {
			h.codes(verify)
			v := h.Tables.Versions[0]
			v.Version, v.Codes, v.CreatedAt = 2, nil, h.moment(-30)
			h.Tables.Versions = append(h.Tables.Versions, v)
		}, Coded, "did not have then"},
		{"another reason than the server's", func(h *tale) { h.codes(agents); h.work(caseA).Code = pointer("_away") }, Coded, "is not that of its end"},
		{"a reason is lost", func(h *tale) { h.codes(verify); h.work(loan1).Code = pointer("_away") }, Kept, "was answered 200"},
		{"another result", func(h *tale) { h.work(loan1).Result = pointer(`{"pages":3}`) }, Kept, "was answered 200"},

		{"aside for too long", func(h *tale) { h.aside(30, pointer(h.moment(40).Add(longestAside)), nil) }, NotBefore, "for longer than may be"},
		{"aside, and expired", func(h *tale) {
			h.work(caseA).LaterUntil, h.work(caseA).Lease = h.at(39), pointer(30*time.Second)
		}, NotBefore, "ended early"},
		{"not put aside", func(h *tale) { h.aside(30, nil, nil); h.call(history.Later, 0).Until = h.at(40) }, Kept, "and not with that work, held and put aside"},

		{"done by fewer", func(h *tale) { h.Tables.Versions[1].DoneBy = pointer(2) }, Several, "is done: true, and [] of 2"},
		{"done by one twice", func(h *tale) {
			h.Tables.Items[0].DoneBy, h.Tables.Items[0].CompletedBy = pointer(2), []string{"bot", "bot"}
		}, Several, "is done: true, and [bot bot] of 2"},
		{"completed by others than its row says", func(h *tale) {
			h.Tables.Items[0].DoneBy, h.Tables.Items[0].CompletedBy = pointer(2), []string{"bot", "ann"}
		}, Several, "was completed by [bot]"},
		{"too many hold it", func(h *tale) {
			h.Tables.Items[1].DoneBy, h.Tables.Items[1].CompletedBy = pointer(2), []string{"oliver"}
			h.hold("case-b", oliver, 100, true)
			h.hold("case-b", tracy, 102, false)
			h.hold("case-b", mary, 103, false)
		}, Several, "of 2: work"},
		{"given again to who has completed it", func(h *tale) {
			h.Tables.Items[1].DoneBy, h.Tables.Items[1].CompletedBy = pointer(3), []string{"oliver"}
			h.hold("case-b", oliver, 100, true)
			h.hold("case-b", oliver, 102, false)
		}, Several, "oliver was given an item"},
		{"given again by a query", func(h *tale) {
			h.Tables.Versions[0].Once = true
			h.again(loan1)
			h.Tables.Work[worksThen].User = "oliver"
		}, Several, "oliver was given an item"},

		{"drawn, and not pushed on", func(h *tale) { h.goesOn(1, 0) }, Onward, "nothing was pushed on"},
		{"pushed on twice", func(h *tale) { h.goesOn(1, 2) }, Onward, "2 items were pushed on"},
		{"pushed on, and not drawn", func(h *tale) { h.goesOn(1e-9, 1) }, Onward, "was not drawn"},
		{"pushed on for nothing", func(h *tale) { h.goesOn(1, 1); h.Tables.Items[2].From = pointer(int64(777)) }, Onward, "there is no such row"},

		{"given to who can't", func(h *tale) { h.needs(loan1, "french") }, Able, "needs [french]"},
		{"given to who could before", func(h *tale) {
			h.needs(loan4, "french")
			h.teaches(10, oliver, "french")
			h.teaches(30, oliver)
			h.work(loan4).Request = &h.request(0).ID
		}, Able, "needs [french]"},
		{"needs nothing before its time", func(h *tale) { h.needsUntil(caseA, 60) }, Able, "as one that needs nothing"},
		{"needs something after its time", func(h *tale) {
			h.needsUntil(caseAtoo, 10)
			h.needs(caseAtoo, "desk")
			h.request(0).Groups, h.work(caseAtoo).Request = []string{"desk"}, &h.request(0).ID
		}, Able, "as one that still does"},
	} {
		t.Run(c.name, func(t *testing.T) {
			h := tale{told().end()}
			c.change(&h)
			h.wantBroken(t, c.rule, c.text)
		})
	}
}

func TestInnocentOfSeveral(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(h *tale){
		"all have reasons": func(h *tale) { h.codes(verify); h.codes(agents) },
		"a reason of the version before": func(h *tale) {
			h.codes(verify)
			v := h.Tables.Versions[0]
			v.Version, v.Codes, v.CreatedAt = 2, nil, h.moment(60)
			h.Tables.Versions = append(h.Tables.Versions, v)
		},
		"taken up again before it was due": func(h *tale) {
			h.aside(30, h.at(45), h.at(75))
			h.aside(35, nil, h.at(65))
			h.work(loan3too).LeaseExpiresAt = h.at(65)
		},
		"two complete it": func(h *tale) {
			h.Tables.Items[1].DoneBy, h.Tables.Items[1].CompletedBy, h.Tables.Items[1].DoneAt = pointer(2), []string{"oliver", "tracy"}, h.at(103)
			h.hold("case-b", oliver, 100, true)
			h.hold("case-b", tracy, 102, true)
		},
		"drawn, and pushed on":               func(h *tale) { h.goesOn(1, 1) },
		"drawn, and open there already":      func(h *tale) { h.goesOn(1, 1); h.Tables.Items[2].From = nil; h.Tables.Items[2].PushedAt = h.moment(3) },
		"given to who can":                   func(h *tale) { h.teaches(1, oliver, "french", "german"); h.needs(loan1, "french") },
		"given to who could a moment before": func(h *tale) { h.teaches(1, oliver, "french"); h.teaches(1.5, oliver); h.needs(loan1, "french") },
		"needs nothing any more":             func(h *tale) { h.needsUntil(caseAtoo, 20) },
		"given to a member":                  func(h *tale) { h.needs(loan1, "desk"); h.request(0).Groups = []string{"desk"} },
	} {
		t.Run(name, func(t *testing.T) {
			h := tale{told().end()}
			change(&h)
			for _, v := range Check(h.History) {
				switch v.Rule {
				case Coded, Several, Onward, Able, Kept, NotBefore, HeldOnce:
					t.Error(v)
				}
			}
		})
	}
}
