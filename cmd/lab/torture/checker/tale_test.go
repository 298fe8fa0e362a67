package checker

import (
	"encoding/json"
	"slices"
	"strings"
	"time"

	"getwork/cmd/lab/torture/history"
)

// tale is the story, with methods that change it.
type tale struct{ history.History }

func (h *tale) work(i int) *history.WorkRow { return &h.Tables.Work[i] }

func (h *tale) request(i int) *history.RequestRow { return &h.Tables.Requests[i] }

// call returns the n-th call of a kind.
func (h *tale) call(kind history.Kind, n int) *history.Call {
	for _, e := range h.Entries {
		if e.Call != nil && e.Call.Kind == kind {
			if n == 0 {
				return e.Call
			}
			n--
		}
	}
	panic("there is no such call")
}

// add adds a call that was answered with that body a little later.
func (h *tale) add(c history.Call, at float64, status int, body any) *history.Call {
	c.Began, c.Status = time.Duration(at*float64(time.Second)), status
	c.Ended = c.Began + 10*time.Millisecond
	if body != nil {
		c.Body, _ = json.Marshal(body)
	}
	h.Entries = append(h.Entries, history.Entry{Call: &c})
	return &c
}

// away adds an absence that nobody ends.
func (h *tale) away(user string, at float64) {
	h.Tables.Absences = append(h.Tables.Absences, history.AbsenceRow{ID: 997, User: user, From: h.moment(at)})
	h.add(history.Call{Kind: history.Away, Who: mary, To: user}, at, 201, map[string]any{"id": "997"})
}

// refuse adds a call of tracy's that is refused.
func (h *tale) refuse(kind history.Kind, task string, status int) {
	h.add(history.Call{Kind: kind, Who: tracy, Task: task}, 3, status, nil)
}

// tell adds a message of oliver's socket.
func (h *tale) tell(at float64, kind string, body any) {
	b, _ := json.Marshal(body)
	var id int64
	for _, e := range h.Entries {
		if e.Socket != nil {
			id = e.Socket.ID
		}
	}
	h.Entries = append(h.Entries, history.Entry{Told: &history.Told{Socket: id, At: time.Duration(at * float64(time.Second)), Type: kind, Body: b}})
}

// tellOf changes when a socket reports a request's end; a negative time means never.
func (h *tale) tellOf(i int, at float64) {
	h.Entries = slices.DeleteFunc(h.Entries, func(e history.Entry) bool {
		var body requestBody
		return e.Told != nil && e.Told.Type == "request" && decode(e.Told.Body, &body) && body.ID == h.request(i).ID
	})
	if at < 0 {
		return
	}
	body := h.requestNow(i)
	for j, w := range h.Tables.Work {
		if w.Request != nil && *w.Request == h.request(i).ID && h.moment(at).Before(*w.ClosedAt) {
			body["work"] = []any{h.heldOnceMore(j)}
		}
	}
	h.tell(at, "request", body)
	late := h.Entries[len(h.Entries)-1]
	before := slices.IndexFunc(h.Entries, func(e history.Entry) bool { return e.Told != nil && e.Told.At > late.Told.At })
	if before >= 0 {
		h.Entries = slices.Insert(h.Entries[:len(h.Entries)-1], before, late)
	}
}

// drop drops all messages of a kind.
func (h *tale) drop(kind string) {
	var kept []history.Entry
	for _, e := range h.Entries {
		if e.Told == nil || e.Told.Type != kind {
			kept = append(kept, e)
		}
	}
	h.Entries = kept
}

// promise sets a time limit for each click.
func (h *tale) promise(within time.Duration) {
	for _, e := range h.Entries {
		if e.Call != nil && e.Call.Kind == history.Click {
			e.Call.Within = within
		}
	}
}

// untell drops only the messages about one piece of work.
func (h *tale) untell(i int) {
	h.Entries = slices.DeleteFunc(h.Entries, func(e history.Entry) bool {
		var body workBody
		return e.Told != nil && e.Told.Type == "work" && decode(e.Told.Body, &body) && body.ID == h.work(i).ID
	})
}

// requestNow and workNow return the final bodies of a request and of work.
func (h *tale) requestNow(i int) map[string]any {
	return (&simulation{tables: h.Tables}).requestBody(h.request(i))
}

func (h *tale) workNow(i int) map[string]any {
	return (&simulation{tables: h.Tables}).workBody(h.work(i))
}

// heldOnceMore returns the work's body from when it was held.
func (h *tale) heldOnceMore(i int) map[string]any {
	b := h.workNow(i)
	b["state"], b["closed_at"] = "held", nil
	return b
}

func (h *tale) waiting(i int) map[string]any {
	b := h.requestNow(i)
	b["state"], b["requested"], b["assigned"], b["completed_at"], b["work"], b["reason"] = "pending", b["wanted"], 0, nil, []any{}, nil
	return b
}

func (h *tale) fault(kind string, node int, from, to float64) {
	h.Entries = append(h.Entries, history.Entry{Fault: &history.Fault{Kind: kind, Node: node, Began: time.Duration(from * 1e9), Ended: time.Duration(to * 1e9)}})
}

// moment returns a time of the database's clock.
func (h *tale) moment(at float64) time.Time {
	return h.Tables.Now.Add(time.Duration((at - 200) * float64(time.Second)))
}

func (h *tale) at(at float64) *time.Time { return pointer(h.moment(at)) }

// body changes a call's body.
func change(c *history.Call, from, to string) {
	if !strings.Contains(string(c.Body), from) {
		panic("the body has no " + from + ": " + string(c.Body))
	}
	c.Body = json.RawMessage(strings.Replace(string(c.Body), from, to, 1))
}

// returns makes the query of verify always return these items.
func (h *tale) returns(items ...string) {
	h.Entries = append(h.Entries, history.Entry{Ranking: &history.Ranking{Task: "verify", Items: items}})
}

// endsFor changes how a request ended.
func (h *tale) endsFor(i int, state, reason string) {
	h.request(i).State, h.request(i).Reason = state, &reason
}

// finishes marks an item as done in the world that the query reads.
func (h *tale) finishes(item string, at float64) {
	began := time.Duration(at * float64(time.Second))
	h.Entries = append(h.Entries, history.Entry{Done: &history.Done{Task: "verify", Item: item, Began: began - time.Millisecond, Ended: began}})
}

// again has a user get an item once more.
func (h *tale) again(i int) {
	w := *h.work(i)
	w.ID, w.User, w.Request, w.AssignedAt, w.ClosedAt = 999, "nobody", nil, h.moment(100), h.at(101)
	h.Tables.Work = append(h.Tables.Work, w)
}

// turns has a request of tracy's wait for 10 s, in which another task has that many runs.
func (h *tale) turns(n int) {
	h.request(2).CreatedAt = h.moment(100)
	h.Tables.Runs[1].StartedAt, h.Tables.Runs[1].FinishedAt = h.moment(110), h.at(111)
	for i := range n {
		at := 100.5 + float64(i)
		h.Tables.Runs = append(h.Tables.Runs, history.RunRow{ID: int64(900 + i), Task: agents, State: "finished", StartedAt: h.moment(at), FinishedAt: h.at(at + 0.9)})
	}
}

// runOut lets eight leases of oliver's expire while oliver's socket is open, with or without warnings.
func (h *tale) runOut(warns bool) {
	for i := range 8 {
		at := 90 + float64(i)
		w := history.WorkRow{ID: int64(900 + i), Task: agents, Item: "lease-" + itoa(int64(i)), Slot: 1, User: "oliver", Attempt: 1, AssignedAt: h.moment(at),
			Lease: pointer(30 * time.Second), LeaseExpiresAt: h.at(at + 30), State: "expired", ClosedAt: h.at(at + 30.1)}
		h.Tables.Work = append(h.Tables.Work, w)
		if warns {
			body := h.heldOnceMore(len(h.Tables.Work) - 1)
			body["expiring"] = true
			h.tell(at+24.1, "work", body)
		}
	}
}
