package checker

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

// Each rule is broken in every way possible; the violation's text names it.
var broken = []struct {
	name   string
	change func(h *tale)
	rule   Rule
	text   string
}{
	{"two hold a place at a time", func(h *tale) { h.work(loan4too).AssignedAt = h.moment(60.5) }, HeldInTurn, "one place was held twice"},
	{"a place too many", func(h *tale) { h.work(loan1).Slot = 2 }, HeldOnce, "was given a further one"},
	{"too many hold an item", func(h *tale) {
		h.work(loan4too).AssignedAt, h.work(loan4too).Slot = h.moment(60.5), 2
	}, HeldInTurn, "2 held an item of 1 places"},
	{"a holder holds an item twice", func(h *tale) {
		h.work(loan4too).AssignedAt, h.work(loan4too).User, h.work(loan4too).Slot = h.moment(60.5), "oliver", 2
	}, HeldInTurn, "a holder held an item twice"},
	{"two of a group", func(h *tale) { h.work(loan1).Exclusive, h.work(loan2).Exclusive = pointer("g"), pointer("g") }, HeldInTurn, "two of an exclusive group were held at a time"},
	{"two of a group, as they were told", func(h *tale) {
		h.work(loan1).Exclusive, h.work(loan2).Exclusive = pointer("g"), pointer("g")
		h.add(history.Call{Kind: history.Extend, Who: tracy, Work: h.work(loan2).ID}, 2.6, 200, h.heldOnceMore(loan2))
	}, HeldOnce, `the exclusive group "g" was held by two, as they were told`},
	{"two are told of one place", func(h *tale) {
		b := h.heldOnceMore(loan1)
		b["id"], b["user"] = "999", "tracy"
		h.add(history.Call{Kind: history.Claim, Who: tracy, Task: "verify", Item: "loan-1"}, 3.5, 201, b)
	}, HeldOnce, `place 1 of item "loan-1" of verify was held by two, as they were told`},
	{"one is told of two places", func(h *tale) {
		b := h.heldOnceMore(loan1)
		b["id"], b["slot"] = "999", 2
		h.add(history.Call{Kind: history.Claim, Who: oliver, Task: "verify", Item: "loan-1"}, 3.5, 201, b)
	}, HeldOnce, "which one holder held twice"},
	{"there is no order", func(h *tale) { // too short to be certain of any moment
		w := *h.work(loan4too)
		w.ID, w.Item, w.AssignedAt, w.ClosedAt, w.State, w.AvailableAt = 999, "loan-1", h.moment(100), h.at(101), "completed", nil
		h.Tables.Work = append(h.Tables.Work, w)
		h.add(history.Call{Kind: history.Claim, Who: tracy, Task: "verify", Item: "loan-1"}, 3, 201, h.heldOnceMore(worksThen))
		h.add(history.Call{Kind: history.Dispose, Who: tracy, Work: 999, Outcome: "complete"}, 3.005, 200, h.workNow(worksThen))
	}, HeldOnce, "there is no order"},

	{"the second best", func(h *tale) { h.returns("loan-0", "loan-3") }, Best, `item "loan-0", which is better, was free`},
	{"the second best of an inbox", func(h *tale) { h.Tables.Items[1].Priority = 5 }, Best, `item "case-b", which is better, was free`},
	{"less than there was", func(h *tale) {
		h.returns("loan-3", "loan-9")
		h.request(2).Wanted, h.request(2).State = 2, "partial"
	}, Best, `and item "loan-9" was free`},
	{"nothing, with some there", func(h *tale) { h.returns("loan-3"); h.endsFor(2, "none", "no_match") }, Reasons, "the query always returns some"},
	{"nothing, with some in the inbox", func(h *tale) { h.endsFor(4, "none", "no_match") }, Reasons, "there were items in the inbox"},
	{"all held, of nothing", func(h *tale) { h.returns(); h.endsFor(2, "none", "all_held") }, Reasons, "the query never returns any"},
	{"rules, without any", func(h *tale) { h.returns("loan-3"); h.endsFor(2, "none", "rules") }, Reasons, "no rule keeps anything"},
	{"a limit, without one", func(h *tale) { h.endsFor(4, "none", "at_limit") }, Reasons, "the task has no limit"},
	{"a limit that is not reached", func(h *tale) { h.endsFor(2, "partial", "at_limit") }, Reasons, "held less than the limit"},
	{"paused, by nobody", func(h *tale) { h.endsFor(2, "none", "paused") }, Reasons, "nobody has paused"},
	{"some, since all are held", func(h *tale) { h.endsFor(2, "partial", "all_held") }, Reasons, "something was handed out"},
	{"what is done is handed out", func(h *tale) { h.finishes("loan-1", 3.9); h.again(loan1) }, DoneIsDone, "that was finished by 3.9s"},
	{"a key is refused", func(h *tale) {
		h.call(history.Click, 1).Key = "k"
		h.add(history.Call{Kind: history.Click, Who: h.call(history.Click, 1).Who, Task: h.call(history.Click, 1).Task, Key: "k"}, 100, 422, nil)
	}, OnceAKey, "was refused with the body"},
	{"nobody is warned", func(h *tale) { h.runOut(false) }, Warned, "of 8 leases that ran out beside a live channel 0 were warned of"},

	{"not told, as another node is killed", func(h *tale) { h.untell(loan3too); h.fault("kill", 2, 49, 51) }, ToldStill, "did not tell"},
	{"another task has one turn after the other", func(h *tale) { h.turns(6) }, Fair, "in which task 2 began 5"},

	{"two executions", func(h *tale) {
		h.Entries = append(h.Entries, history.Entry{Sample: &history.Sample{At: time.Second, Task: "verify", Executions: 2}})
	}, OneRun, "2 executions"},
	{"two runs", func(h *tale) { h.Tables.Runs[1].StartedAt = h.moment(1.9) }, OneRun, "before run"},
	{"a run without end", func(h *tale) { h.Tables.Runs[0].FinishedAt, h.Tables.Runs[0].State = nil, "running" }, OneRun, "before run"},
	{"a lost run's result", func(h *tale) { h.Tables.Runs[0].State = "lost" }, OneRun, "was handed out"},

	{"a request waits for ever", func(h *tale) {
		r := h.request(last)
		r.State, r.CompletedAt, r.Requested = "pending", nil, r.Wanted
	}, EndsOnce, "still waits"},
	{"it lingered, but not any more when the nodes left", func(h *tale) {
		r := h.request(last)
		r.State, r.CompletedAt, r.Requested, r.LingerUntil = "pending", nil, r.Wanted, h.at(190)
		h.Tables.Left = h.moment(196)
	}, EndsOnce, "still waits"},
	{"an accepted request is gone", func(h *tale) { h.Tables.Requests = h.Tables.Requests[1:] }, Kept, "there is no such row"},
	{"numbers of a row", func(h *tale) { h.request(0).Requested = 0 }, EndsOnce, "the numbers of a request don't fit"},
	{"numbers in an answer", func(h *tale) { change(h.call(history.Status, 0), `"assigned":1`, `"assigned":0`) }, EndsOnce, "was told as"},
	{"less work than was assigned", func(h *tale) { h.work(loan2).Request = nil }, EndsOnce, "there are 0 rows of work"},
	{"somebody else's work", func(h *tale) { h.work(loan2).User = "oliver" }, EndsOnce, "somebody else's work"},
	{"a time of its end too much", func(h *tale) { h.request(last).CompletedAt = nil }, EndsOnce, "lacks the time of its end"},
	{"a stale ranking in an answer", func(h *tale) { change(h.call(history.Status, 0), `"assigned":1`, `"assigned":1,"stale":true`) }, EndsOnce, "was told to have ended"},
	{"it ended otherwise", func(h *tale) { h.request(1).CompletedAt = h.at(2.2) }, EndsOnce, "was told to have ended"},
	{"waits after its end", func(h *tale) {
		h.add(history.Call{Kind: history.Status, Who: tracy, Request: h.request(1).ID}, 3, 200, h.waiting(1))
	}, EndsOnce, "was told to wait at"},
	{"waits after not-pending", func(h *tale) {
		h.add(history.Call{Kind: history.Cancel, Who: tracy, Request: h.request(1).ID}, 2.1, 409, nil).Type = notPending
		h.add(history.Call{Kind: history.Status, Who: tracy, Request: h.request(1).ID}, 2.2, 200, h.waiting(1))
	}, EndsOnce, "was told to wait at"},
	{"waits after its end, on a socket", func(h *tale) { h.tell(100, "request", h.waiting(0)) }, ToldTheSame, "had ended, and then that it waits"},
	{"a click that is accepted, and over", func(h *tale) { h.call(history.Click, 0).Status = 201 }, EndsOnce, "answered 201"},
	{"a click that gets another's request", func(h *tale) { h.call(history.Click, 0).Who = tracy }, Kept, "was answered with request"},
	{"one key, two requests", func(h *tale) { h.call(history.Click, 1).Key, h.call(history.Click, 2).Key = "k", "k" }, OnceAKey, "one Idempotency-Key"},
	{"two pending requests", func(h *tale) {
		h.add(history.Call{Kind: history.Status, Who: tracy, Request: h.request(1).ID}, 6.3, 200, h.waiting(1))
	}, EndsOnce, "two pending requests"},
	{"a request of another user", func(h *tale) { h.request(1).User = "nobody" }, Kept, "its row is another's"},

	{"the second gets the better", func(h *tale) { h.work(loan1).Rank, h.work(loan2).Rank = pointer(int64(2)), pointer(int64(1)) }, InOrder, "what the former could have had"},
	{"the first gets nothing", func(h *tale) {
		h.Tables.Work[loan1].Request, h.Tables.Versions[0].MaxOpen = nil, nil
		r := h.request(0)
		r.State, r.Requested, r.Assigned, r.Reason = "none", 0, 0, pointer("all_held")
	}, InOrder, "what the former could have had"},
	{"the second is served a round before", func(h *tale) {
		h.request(0).Round, h.request(0).CompletedAt = pointer(int64(1000)), h.at(2.2)
	}, InOrder, "was served before it"},

	{"a click is answered late", func(h *tale) {
		h.promise(time.Second)
		h.call(history.Click, 3).Ended += 6 * time.Second
	}, Prompt, "took 6."},
	{"a click is answered late, although another node has lost its locks", func(h *tale) {
		h.promise(time.Second)
		c := h.call(history.Click, 3)
		c.Ended += 8 * time.Second
		h.fault("freeze", c.Node+1, c.Began.Seconds(), c.Ended.Seconds())
	}, Prompt, "took 8."},

	{"a click is malformed", func(h *tale) { h.refuse(history.Click, "verify", 400) }, Accepted, "was answered 400"},
	{"a poll is malformed", func(h *tale) { h.refuse(history.Status, "", 400) }, Accepted, "was answered 400"},
	{"a click finds no task", func(h *tale) { h.refuse(history.Click, "verify", 404) }, Accepted, "its task verify exists"},
	{"a push finds no task", func(h *tale) { h.refuse(history.Push, "agents", 404) }, Accepted, "its task agents exists"},

	{"a completion is lost", func(h *tale) { h.work(loan1).State = "expired" }, Kept, "was answered 200"},
	{"another way to return", func(h *tale) { h.work(loan2).After = pointer(time.Hour) }, Kept, "was answered 200"},
	{"to others", func(h *tale) { h.work(loan2).ToOthers = true }, Kept, "was answered 200"},
	{"disposed work is gone", func(h *tale) { h.Tables.Work = h.Tables.Work[1:] }, Kept, "there is no such row"},
	{"closed at another time", func(h *tale) { h.work(loan1).ClosedAt = h.at(4.5) }, Kept, "or another time or note"},
	{"another note", func(h *tale) { h.work(loan1).Note = pointer("well") }, Kept, "or another time or note"},
	{"another item", func(h *tale) { h.work(loan1).Item = "loan-9" }, Kept, "its row is other"},
	{"held after it was let go of", func(h *tale) {
		h.add(history.Call{Kind: history.Extend, Who: oliver, Work: h.work(loan1).ID}, 4.5, 200, h.heldOnceMore(loan1))
	}, Kept, "was told to be held at"},
	{"held after it was let go of, on a socket", func(h *tale) { h.tell(100, "work", h.heldOnceMore(loan1)) }, ToldTheSame, "is over, and then that it is held"},
	{"an extension is lost", func(h *tale) { h.work(caseA).LeaseExpiresAt = h.at(38) }, Kept, "its row says that it ended before"},
	{"an extension of nothing", func(h *tale) { change(h.call(history.Extend, 0), `"held"`, `"expired"`) }, Kept, "not with that work, held"},
	{"completed after lease-lost", func(h *tale) {
		h.work(caseA).State, h.work(caseA).ClosedBy = "completed", pointer("bot")
		h.add(history.Call{Kind: history.Dispose, Who: bot1, Work: h.work(caseA).ID, Outcome: "complete"}, 43, 200, nil)
	}, Kept, "let go of with"},
	{"lease-lost, and completed", func(h *tale) { h.work(caseA).State = "completed" }, Kept, "its lease had run out"},
	{"closed already, and held", func(h *tale) {
		h.add(history.Call{Kind: history.Dispose, Who: oliver, Work: h.work(loan1).ID, Outcome: "complete"}, 3, 409, nil).Type = alreadyClosed
	}, Kept, "refused as closed already"},
	{"extended after lease-lost", func(h *tale) {
		h.add(history.Call{Kind: history.Extend, Who: bot1, Work: h.work(caseA).ID}, 43, 200, h.heldOnceMore(caseA))
	}, Kept, "extend of it after"},
	{"a reassignment is lost", func(h *tale) { h.work(loan3).State, h.work(loan3).ClosedBy = "expired", nil }, Kept, "was reassigned as work"},
	{"reassigned to another", func(h *tale) { h.call(history.Reassign, 0).To = "tracy" }, Kept, "was to be reassigned to"},
	{"a claim of what is another's", func(h *tale) { change(h.call(history.Claim, 0), `"oliver"`, `"tracy"`) }, Kept, "a claim of item"},
	{"a claim for somebody, and others get it", func(h *tale) {
		c := h.call(history.Claim, 0)
		c.Who, c.To = mary, "tracy"
	}, Kept, "for tracy was answered"},
	{"handed out without its deadline", func(h *tale) { h.Tables.Items[0].Deadline = h.at(300) }, Kept, "with another deadline than it was pushed with"},
	{"told with another deadline", func(h *tale) { change(h.call(history.Claim, 0), `"user"`, `"deadline":"2026-11-30T09:00:00Z","user"`) }, Kept, "with another deadline than its row has"},
	{"a claim of another item", func(h *tale) { h.call(history.Claim, 0).Item = "loan-7" }, Kept, "a claim of item"},
	{"a claim is lost", func(h *tale) { h.Tables.Work = h.Tables.Work[:loan4too] }, Kept, "there is no such row"},
	{"a cancel is lost", func(h *tale) {
		h.request(last).State, h.request(last).Reason = "none", pointer("no_match")
	}, Kept, "to cancel request"},
	{"a request that was cancelled is gone", func(h *tale) { h.Tables.Requests = h.Tables.Requests[:last] }, Kept, "was cancelled, and there is no such row"},
	{"not pending, and cancelled", func(h *tale) {
		h.add(history.Call{Kind: history.Cancel, Who: oliver, Request: h.request(last).ID}, 80.5, 409, nil).Type = notPending
	}, Kept, "to cancel request"},
	{"a click without a request", func(h *tale) { h.call(history.Click, 3).Body = nil }, Kept, "and not with a request"},
	{"a change is lost", func(h *tale) {
		h.add(history.Call{Kind: history.Update, Who: mary, Task: "verify", Paused: pointer(true)}, 90, 200, map[string]int{"version": 2})
	}, Kept, "there is no such version"},
	{"a pushed item is lost", func(h *tale) { h.Tables.Items = h.Tables.Items[:1] }, Kept, "was pushed to agents"},
	{"a push is done twice", func(h *tale) {
		again := h.Tables.Items[0]
		again.ID, again.DoneAt = 999, nil
		h.Tables.Items = append(h.Tables.Items, again)
	}, Kept, "was pushed by feeder 1 times, and there are 2 rows"},
	{"fewer items than were accepted", func(h *tale) { change(h.call(history.Push, 0), `"accepted":2`, `"accepted":3`) }, Kept, "3 items of feeder were accepted"},
	{"a release is lost", func(h *tale) { h.work(loan3too).ClosedBy = pointer("oliver") }, Kept, "release said that it was about 1"},
	{"a redrive is lost", func(h *tale) { h.work(loan4).RedrivenBy = pointer("nobody") }, Kept, "redrive said that it was about 1"},

	{"back before its time", func(h *tale) { h.work(loan4).AvailableAt = h.at(75.5) }, NotBefore, "that was put off until"},
	{"never, and back", func(h *tale) { h.work(loan4).AvailableAt, h.work(loan4).RedrivenBy = nil, nil }, NotBefore, "that was never to return"},
	{"to who returned it to others", func(h *tale) {
		h.work(loan4).ToOthers, h.work(loan4too).User = true, "oliver"
	}, NotBefore, "who had returned it to others"},
	{"back within the hour, as was told", func(h *tale) {
		w := *h.work(loan2)
		w.ID, w.Request, w.State, w.User, w.ClosedAt, w.After, w.AvailableAt, w.ClosedBy = 999, nil, "held", "oliver", nil, nil, nil, nil
		w.AssignedAt = h.moment(16)
		h.Tables.Work = append(h.Tables.Work, w)
		h.add(history.Call{Kind: history.Claim, Who: oliver, Task: "verify", Item: "loan-2"}, 12, 201, h.workNow(worksThen))
	}, NotBefore, "and told to be held by oliver"},
	{"a lease ends early", func(h *tale) { h.work(caseA).ClosedAt = h.at(39.9) }, NotBefore, "a lease ended early"},
	{"completed after its lease", func(h *tale) { h.work(caseAtoo).LeaseExpiresAt = h.at(44.9) }, NotBefore, "was let go of after its lease"},
	{"asked for after the lease's end, and done", func(h *tale) {
		h.work(caseAtoo).LeaseExpiresAt, h.work(caseAtoo).ClosedAt = h.at(44.5), h.at(44.5)
	}, NotBefore, "its lease was over by"},
	{"let go of at the very end, again and again", func(h *tale) {
		for i := range 3 {
			w := *h.work(caseAtoo)
			w.ID, w.Item, w.Request, w.LeaseExpiresAt = int64(990+i), "other-"+itoa(int64(i)), nil, w.ClosedAt
			h.Tables.Work = append(h.Tables.Work, w)
		}
	}, NotBefore, "in the very microsecond"},
	{"handed out before it was pushed", func(h *tale) { h.Tables.Items[0].PushedAt = h.moment(20) }, NotBefore, "that was not pushed, or was done"},
	{"handed out after it was done", func(h *tale) { h.Tables.Items[0].DoneAt = h.at(30) }, NotBefore, "that was not pushed, or was done"},
	{"an item is lost", func(h *tale) { h.Tables.Items[1].Parked = true }, Kept, "is lost"},
	{"an item is held, and free", func(h *tale) {
		w := *h.work(caseAtoo)
		w.ID, w.Item, w.State, w.ClosedAt, w.Attempt, w.Request = 999, "case-b", "held", nil, 1, nil
		h.Tables.Work = append(h.Tables.Work, w)
	}, HeldOnce, "is held, and can be handed out"},

	{"a poll tells of other work", func(h *tale) { change(h.call(history.Status, 0), `"item":"loan-2"`, `"item":"loan-7"`) }, ToldTheSame, "to have got other work"},
	{"a poll is told that nothing has changed", func(h *tale) {
		h.call(history.Click, 1).Tag = "waits"
		h.add(history.Call{Kind: history.Status, Who: tracy, Request: h.request(1).ID, Match: "waits"}, 3, 304, nil)
	}, EndsOnce, "was told to wait at"},
	{"a poll is told that nothing has changed since another's request was told", func(h *tale) {
		h.call(history.Click, 0).Tag = "waits"
		h.add(history.Call{Kind: history.Status, Who: tracy, Request: h.request(1).ID, Match: "waits"}, 1.5, 304, nil)
	}, ToldTheSame, "which nobody was told of it"},
	{"one ETag for two answers", func(h *tale) {
		h.call(history.Click, 1).Tag, h.call(history.Status, 0).Tag = "same", "same"
	}, ToldTheSame, "stands for two answers"},
	{"a socket says nothing", func(h *tale) { h.drop("request") }, Told, "had ended, which it had"},
	{"a socket says nothing of work's end", func(h *tale) { h.untell(loan1) }, Told, "was over, which it had"},
	{"a socket says nothing of work that was claimed", func(h *tale) { h.untell(loan4) }, Told, "was given"},
	{"a socket says nothing of an extension", func(h *tale) {
		b := h.heldOnceMore(loan3too)
		b["lease_expires_at"] = h.at(60)
		h.work(loan3too).LeaseExpiresAt = h.at(60)
		h.add(history.Call{Kind: history.Extend, Who: oliver, Work: h.work(loan3too).ID}, 30, 200, b)
	}, Told, "was extended"},
	{"a socket says it late, and nobody else saw it", func(h *tale) { h.tellOf(0, 60) }, Told, "and did not tell by"},
	{"a listener that stands still is no excuse for ever", func(h *tale) {
		h.fault("proxy-freeze-listener", 0, 1.9, 189)
		h.tellOf(0, 100)
	}, Told, "and did not tell by"},
	{"a pipeline lacks work", func(h *tale) { h.call(history.Pipeline, 1).Body = json.RawMessage(`{"work":[],"requests":[]}`) }, ToldTheSame, "the pipeline did not have it"},
	{"a pipeline lacks a request", func(h *tale) {
		h.add(history.Call{Kind: history.Pipeline, Who: tracy}, 6.2, 200, map[string]any{"work": []any{}, "requests": []any{}})
	}, ToldTheSame, "the pipeline did not have it"},
	{"a pipeline has another's", func(h *tale) {
		h.add(history.Call{Kind: history.Pipeline, Who: tracy}, 3.2, 200, map[string]any{"work": []any{h.heldOnceMore(loan1)}})
	}, ToldTheSame, "the pipeline of tracy has work"},
	{"a pipeline has another's request", func(h *tale) {
		h.add(history.Call{Kind: history.Pipeline, Who: tracy}, 1.5, 200, map[string]any{"work": []any{}, "requests": []any{h.waiting(0), h.waiting(1)}})
	}, ToldTheSame, "the pipeline of tracy has request"},

	{"an expiry is not counted", func(h *tale) { h.work(caseAtoo).Attempt = 1 }, Limits, "attempt 1 should have been 2"},
	{"too many attempts", func(h *tale) { h.Tables.Versions[1].MaxAttempts = pointer(1) }, Limits, "attempt 2 of at most 1"},
	{"exhausted too early", func(h *tale) { h.work(caseA).State, h.work(caseA).Exhausted = "never", true }, Limits, "exhausted: true"},
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
	{"more than one may hold over all tasks", func(h *tale) {
		h.Tables.Limits = []history.LimitsRow{{Everybody: pointer(1)}}
		w := *h.work(loan1)
		w.ID, w.Task, w.Request, w.Run = 999, agents, nil, nil
		h.Tables.Work = append(h.Tables.Work, w)
		h.Tables.Items = append(h.Tables.Items, history.ItemRow{ID: 998, Task: agents, Item: "loan-1", PushedBy: "setup"})
	}, Limits, "held 2 at a time over all tasks, of which 1 are allowed"},
	{"more than one may hold, as they were told", func(h *tale) {
		h.Tables.Versions[0].MaxOpen = pointer(1)
		b := h.heldOnceMore(loan3too)
		h.add(history.Call{Kind: history.Extend, Who: oliver, Work: h.work(loan3too).ID}, 2.2, 200, b)
	}, Limits, "as they were told, of which 1 are allowed"},
	{"work for whoever is away", func(h *tale) { h.away("oliver", 10) }, Absent, "oliver was away, and was given"},
	{"kept work of whoever is away", func(h *tale) {
		h.Tables.Versions[0].OnAway = pointer("release")
		h.away("oliver", 25)
	}, Absent, "oliver was away, and kept"},
	{"a request of whoever is away", func(h *tale) {
		h.request(last).CompletedAt = h.at(95)
		h.away("oliver", 78)
	}, Absent, "went on waiting"},
	{"an absence that is lost", func(h *tale) {
		h.add(history.Call{Kind: history.Away, Who: mary, To: "oliver"}, 10, 201, map[string]any{"id": "7"})
	}, Kept, "has no row"},
	{"away without an absence", func(h *tale) {
		r := h.request(last)
		r.State, r.Reason = "none", pointer("away")
	}, Reasons, "never away"},
}

func TestBroken(t *testing.T) {
	t.Parallel()
	for _, c := range broken {
		t.Run(c.name, func(t *testing.T) {
			h := tale{told().end()}
			c.change(&h)
			h.wantBroken(t, c.rule, c.text)
		})
	}
}

func (h *tale) wantBroken(t *testing.T, rule Rule, text string) {
	t.Helper()
	found := Check(h.History)
	for _, v := range found {
		if v.Rule == rule && strings.Contains(v.Text, text) {
			return
		}
	}
	t.Errorf("want a violation of %q that says %q; found %v", rule, text, found)
}
