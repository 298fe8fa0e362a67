package checker

import (
	"math/rand/v2"
	"time"

	"getwork/cmd/lab/torture/history"
)

// The rules are tried on this small story. Oliver and Tracy are people, bot is a program with two instances, mary is a
// manager.
var (
	oliver, tracy, mary, feeder = history.Who{User: "oliver"}, history.Who{User: "tracy"}, history.Who{User: "mary"}, history.Who{User: "feeder"}
	bot1, bot2                  = history.Who{User: "bot", Instance: "1"}, history.Who{User: "bot", Instance: "2"}
)

// The story's tasks.
const (
	verify = 1 // a query
	agents = 2 // an inbox with leases of 30 s, and three attempts
)

// The story's work, by its index in the tables.
const (
	loan1     = iota // oliver's, completed
	loan2            // tracy's, returned for 10 s
	loan3            // tracy's, reassigned
	caseA            // bot/1's, extended, expired
	loan3too         // oliver's, released
	caseAtoo         // bot/2's, completed
	loan4            // oliver's, never, redriven
	loan4too         // tracy's, failed
	worksThen = iota
)

// last is the index of the story's last request: oliver's, cancelled.
const last = 5

// story tells the story; a test can add events before end.
type story struct{ *simulation }

func begin() story {
	s := story{&simulation{Rand: rand.New(rand.NewPCG(1, 1)), zero: time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC),
		sockets: map[history.Who]*history.Socket{}}}
	query := "select item from loan order by urgency"
	s.tables.Tasks = []history.TaskRow{{ID: verify, Name: "verify", Version: 1}, {ID: agents, Name: "agents", Version: 1}}
	s.tables.Versions = []history.VersionRow{
		{Task: verify, Version: 1, Name: "verify", Query: &query, Slots: 1, MaxOpen: pointer(5)},
		{Task: agents, Version: 1, Name: "agents", Slots: 1, MaxAttempts: pointer(3)},
	}
	return s
}

func (s story) until(seconds float64) { s.at = time.Duration(seconds * float64(time.Second)) }

func (s story) clicks(at float64, who history.Who, task int64, count int) *history.RequestRow {
	s.until(at)
	s.tables.Requests = append(s.tables.Requests, history.RequestRow{ID: s.id(), Task: task, User: who.User, Instance: who.Instance,
		Wanted: count, Requested: count, State: "pending", CreatedAt: s.now()})
	r := &s.tables.Requests[len(s.tables.Requests)-1]
	s.call(history.Call{Kind: history.Click, Who: who, Task: s.name(task), Count: count}, 202, s.requestBody(r))
	return r
}

// runs adds a run, and a round that gives each request, by index, one item.
func (s story) runs(from, to float64, items ...string) {
	s.until(from)
	run, round := s.id(), s.id()
	row := history.RunRow{ID: run, Task: verify, Node: "1", State: "finished", StartedAt: s.now()}
	s.until(to)
	row.FinishedAt = pointer(s.now())
	s.tables.Runs = append(s.tables.Runs, row)
	rank := int64(0)
	for i := range s.tables.Requests {
		r := &s.tables.Requests[i]
		if r.State != "pending" || r.Task != verify {
			continue
		}
		who := history.Who{User: r.User, Instance: r.Instance}
		for ; r.Assigned < r.Wanted && len(items) > 0; items = items[1:] {
			rank++
			w := s.give(verify, items[0], who, 1, 1)
			w.Request, w.Run, w.Rank = pointer(r.ID), &run, pointer(rank)
			r.Assigned++
		}
		s.ends(r, round, &run)
	}
}

func (s story) ends(r *history.RequestRow, round int64, run *int64) {
	r.State, r.Requested, r.CompletedAt, r.Round, r.Run = "partial", r.Assigned, pointer(s.now()), &round, run
	switch r.Assigned {
	case r.Wanted:
		r.State = "assigned"
	case 0:
		r.State, r.Reason = "none", pointer("all_held")
	}
	s.tell(history.Who{User: r.User, Instance: r.Instance}, "request", s.requestBody(r))
}

// takes adds a click on the inbox that is served at once.
func (s story) takes(at float64, who history.Who, item string, attempt int) {
	s.until(at)
	r := history.RequestRow{ID: s.id(), Task: agents, User: who.User, Instance: who.Instance, Wanted: 1, Assigned: 1, CreatedAt: s.now()}
	w := s.give(agents, item, who, 1, attempt)
	w.Request, w.LeaseExpiresAt = pointer(r.ID), pointer(s.now().Add(30*time.Second))
	s.ends(&r, s.id(), nil)
	s.tables.Requests = append(s.tables.Requests, r)
	s.call(history.Call{Kind: history.Click, Who: who, Task: "agents", Count: 1}, 201, s.requestBody(&r))
}

func (s story) disposes(at float64, work int, outcome, state string, after *time.Duration) {
	s.until(at)
	w := &s.tables.Work[work]
	c := history.Call{Kind: history.Dispose, Who: history.Who{User: w.User, Instance: w.Instance}, Work: w.ID, Outcome: outcome}
	s.close(w, state, w.User)
	if after != nil {
		c.After, w.After, w.AvailableAt = after.String(), after, pointer(s.now().Add(*after))
	}
	if outcome == "fail" {
		w.AvailableAt = pointer(s.now().Add(30 * time.Second))
	}
	s.call(c, 200, s.workBody(w))
	s.tell(c.Who, "work", s.workBody(w))
}

func (s story) claims(at float64, who history.Who, item string) {
	s.until(at)
	w := s.give(verify, item, who, 1, 1)
	s.call(history.Call{Kind: history.Claim, Who: who, Task: "verify", Item: item}, 201, s.workBody(w))
}

func (s story) asks(at float64, who history.Who) {
	s.until(at)
	s.call(history.Call{Kind: history.Pipeline, Who: who}, 200, s.pipelineBody(who))
}

func (s story) polls(at float64, request int) {
	s.until(at)
	r := &s.tables.Requests[request]
	s.call(history.Call{Kind: history.Status, Who: history.Who{User: r.User, Instance: r.Instance}, Request: r.ID}, 200, s.requestBody(r))
}

// refused adds a call that is refused with that problem.
func (s story) refused(at float64, c history.Call, problem string) {
	s.until(at)
	s.call(c, 409, nil)
	s.entries[len(s.entries)-1].Call.Type = problem
}

// told returns the story.
func told() story { return toldUnder() }

// toldUnder returns the story under a clock with these settings.
func toldUnder(set ...setting) story {
	s := begin()
	for _, one := range set {
		s.setClock(one)
	}
	s.until(0.5)
	s.connect(oliver)
	s.until(0.6)
	s.tables.Items = append(s.tables.Items, history.ItemRow{ID: s.id(), Task: agents, Item: "case-a", PushedAt: s.now(), PushedBy: "feeder"},
		history.ItemRow{ID: s.id(), Task: agents, Item: "case-b", PushedAt: s.now(), PushedBy: "feeder"})
	s.call(history.Call{Kind: history.Push, Who: feeder, Task: "agents", Items: []string{"case-a", "case-b"}}, 200, map[string]int{"accepted": 2, "duplicates": 0})
	s.clicks(1, oliver, verify, 1)
	s.clicks(1.2, tracy, verify, 1)
	s.runs(1.1, 2, "loan-1", "loan-2")
	s.polls(2.5, 1)
	s.asks(3, oliver)
	s.disposes(4, loan1, "complete", "completed", nil)
	s.disposes(5, loan2, "return", "returned", pointer(10*time.Second))
	s.clicks(6, tracy, verify, 1)
	s.polls(6.5, 2)
	s.runs(6.1, 7, "loan-3")
	s.polls(7.5, 2)
	s.takes(8, bot1, "case-a", 1)
	s.until(10)
	w := &s.tables.Work[caseA]
	w.LeaseExpiresAt = pointer(s.now().Add(30 * time.Second))
	s.call(history.Call{Kind: history.Extend, Who: bot1, Work: w.ID}, 200, s.workBody(w))
	s.until(20)
	old := &s.tables.Work[loan3]
	s.close(old, "reassigned", "mary")
	id := old.ID
	given := s.give(verify, "loan-3", oliver, 1, 1)
	s.call(history.Call{Kind: history.Reassign, Who: mary, Work: id, To: "oliver"}, 200, s.workBody(given))
	s.tell(oliver, "work", s.workBody(given))
	s.asks(25, oliver)
	s.until(40.4)
	s.close(&s.tables.Work[caseA], "expired", "")
	s.takes(41, bot2, "case-a", 2)
	s.refused(42, history.Call{Kind: history.Dispose, Who: bot1, Work: s.tables.Work[caseA].ID, Outcome: "complete"}, leaseLost)
	s.disposes(45, caseAtoo, "complete", "completed", nil)
	s.until(50)
	w = &s.tables.Work[loan3too]
	s.close(w, "returned", "mary")
	w.After, w.AvailableAt = pointer(time.Duration(0)), pointer(s.now())
	s.call(history.Call{Kind: history.Release, Who: mary, To: "oliver"}, 200, map[string]int{"count": 1})
	s.tell(oliver, "work", s.workBody(w))
	s.claims(60, oliver, "loan-4")
	s.disposes(61, loan4, "never", "never", nil)
	s.until(70)
	s.tables.Work[loan4].RedrivenBy, s.tables.Work[loan4].AvailableAt = pointer("mary"), pointer(s.now())
	s.call(history.Call{Kind: history.Redrive, Who: mary, Task: "verify", Items: []string{"loan-4"}}, 200, map[string]int{"count": 1})
	s.claims(75, tracy, "loan-4")
	s.disposes(76, loan4too, "fail", "failed", nil)
	r := s.clicks(80, oliver, verify, 2)
	s.until(81)
	r.State, r.Requested, r.CompletedAt = "cancelled", 0, pointer(s.now())
	s.call(history.Call{Kind: history.Cancel, Who: oliver, Request: r.ID}, 200, s.requestBody(r))
	s.tell(oliver, "request", s.requestBody(r))
	return s
}

// end closes what is open, and returns the history.
func (s story) end() history.History {
	s.until(190)
	for who := range s.sockets {
		s.connect(who)
	}
	s.until(200)
	s.tables.Now = s.now()
	for at := range 200 {
		s.until(float64(at))
		s.tick()
	}
	return history.History{Entries: s.entries, Tables: s.tables}
}
