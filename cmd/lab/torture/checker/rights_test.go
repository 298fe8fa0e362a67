package checker

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"getwork/cmd/lab/torture/history"
)

// rightsTale is a run of 60 s in which oliver's session s:x, which clients call s:1f, ends: its commit is at 10 s.
type rightsTale struct {
	history.History
	zero time.Time
}

func newRightsTale() *rightsTale {
	h := &rightsTale{zero: time.Date(2026, 7, 1, 9, 0, 0, 0, time.UTC)}
	query := "select item from loan"
	h.Tables = history.Tables{
		Now:      h.moment(60),
		Tasks:    []history.TaskRow{{ID: 1, Name: "verify", Version: 1}},
		Versions: []history.VersionRow{{Task: 1, Version: 1, Name: "verify", Query: &query, Slots: 1}},
		Credentials: []history.CredentialRow{
			{Name: "s:x", Secret: "s:1f", User: "oliver", CreatedAt: h.moment(1), ExpiresAt: h.moment(900), EndedAt: pointer(h.moment(9.9)), EndedBy: pointer("boss"), Committed: pointer(h.moment(10))},
			{Name: "t:y", Secret: "t:y", User: "tracy", CreatedAt: h.moment(1), ExpiresAt: h.moment(50)},
		},
		Acts: []history.ActRow{
			{At: h.moment(19.9), Committed: pointer(h.moment(20)), Act: "user.block", Object: "tracy"},
			{At: h.moment(30), Committed: pointer(h.moment(30.1)), Act: "user.unblock", Object: "tracy"},
		},
	}
	for at := 0.0; at <= 60; at += 0.1 {
		h.add(history.Entry{Tick: &history.Tick{Began: clockOf(at), Ended: clockOf(at), Now: h.moment(at)}})
	}
	return h
}

func clockOf(seconds float64) history.Clock { return time.Duration(seconds * float64(time.Second)) }

func (h *rightsTale) moment(seconds float64) time.Time { return h.zero.Add(clockOf(seconds)) }

func (h *rightsTale) add(e history.Entry) { h.Entries = append(h.Entries, e) }

// calls adds a call from a moment to another.
func (h *rightsTale) calls(c history.Call, from, to float64, status int) {
	c.Began, c.Ended, c.Status = clockOf(from), clockOf(to), status
	if status/100 == 2 {
		c.Body = json.RawMessage(`{}`)
	}
	h.add(history.Entry{Call: &c})
}

// served adds a request that was recorded and served at these moments, by a round of that number, with one item or nothing.
func (h *rightsTale) served(credential, user string, round int64, from, to float64, items int) *history.RequestRow {
	id := int64(len(h.Tables.Requests) + 1)
	r := history.RequestRow{ID: id, Task: 1, User: user, Wanted: 1, Requested: items, Assigned: items, State: "assigned",
		CreatedAt: h.moment(from), CompletedAt: pointer(h.moment(to)), Round: &round, Credential: &credential}
	if items == 0 {
		r.State = "cancelled"
	} else {
		h.Tables.Work = append(h.Tables.Work, history.WorkRow{ID: id, Task: 1, Item: fmt.Sprint("loan-", id), Slot: 1, User: user, Request: &id, AssignedAt: h.moment(to), State: "held"})
	}
	h.Tables.Requests = append(h.Tables.Requests, r)
	return &h.Tables.Requests[len(h.Tables.Requests)-1]
}

func TestEndsOfRights(t *testing.T) {
	t.Parallel()
	end := history.Call{Kind: history.EndAll, Who: history.Who{User: "boss"}, To: "oliver"}
	read := func(by string) history.Call {
		return history.Call{Kind: history.Pipeline, Who: history.Who{User: "oliver"}, By: by}
	}
	freeze := history.Entry{Fault: &history.Fault{Kind: "freeze", Node: 0, Began: clockOf(9), Ended: clockOf(25)}}
	told := func(h *rightsTale, socket history.Socket, at float64) {
		socket.ID, socket.Who, socket.Status = 1, history.Who{User: "oliver"}, -1
		h.add(history.Entry{Socket: &socket})
		h.add(history.Entry{Told: &history.Told{Socket: 1, At: clockOf(at), Type: "tasks", Body: json.RawMessage(`{}`)}})
	}
	for name, c := range map[string]struct {
		change func(h *rightsTale)
		rule   Rule
		text   string
	}{
		"nothing": {func(*rightsTale) {}, "", ""},
		"served by a round after another that saw the end": {func(h *rightsTale) {
			h.calls(end, 9.8, 10.05, 204)
			h.served("t:y", "tracy", 1, 10, 10.1, 1)
			h.served("s:x", "oliver", 2, 10, 10.2, 1)
		}, Served, "request 2 of oliver"},
		"served by a round that may have had the lock before": {func(h *rightsTale) {
			h.calls(end, 9.8, 10.05, 204)
			h.served("t:y", "tracy", 1, 9, 10.04, 1)
			h.served("s:x", "oliver", 2, 9, 10.2, 1)
		}, "", ""},
		"served long after, by the first round": {func(h *rightsTale) { h.served("s:x", "oliver", 1, 10, 15, 1) }, Served, "request 1 of oliver"},
		"served long after, by the first round, while a node stood still": {func(h *rightsTale) {
			h.add(freeze)
			h.served("s:x", "oliver", 1, 10, 11.9, 1)
		}, "", ""},
		"served while blocked":     {func(h *rightsTale) { h.served("t:y", "tracy", 1, 21, 25, 1) }, Served, "request 1 of tracy"},
		"served after the block":   {func(h *rightsTale) { h.served("t:y", "tracy", 1, 31, 32, 1) }, "", ""},
		"served when it was over":  {func(h *rightsTale) { h.served("t:y", "tracy", 1, 49, 53, 1) }, Served, "its credential t:y was over"},
		"served to a live session": {func(h *rightsTale) { h.served("s:x", "oliver", 1, 8, 9, 1) }, "", ""},
		"claimed": {func(h *rightsTale) {
			h.served("t:y", "oliver", 1, 15, 16, 1)
			h.Tables.Work[0].Request = nil
			h.calls(history.Call{Kind: history.Claim, Who: history.Who{User: "oliver"}, By: "s:1f", Task: "verify", Item: "loan-1"}, 15.99, 16, 201)
			h.Entries[len(h.Entries)-1].Call.Body = json.RawMessage(`{"id":"1","task":"verify","item":"loan-1","user":"oliver","slot":1,"state":"held"}`)
		}, Served, `oliver claimed item "loan-1"`},
		"cancelled soon":               {func(h *rightsTale) { h.served("s:x", "oliver", 1, 5, 11, 0) }, "", ""},
		"cancelled late":               {func(h *rightsTale) { h.served("s:x", "oliver", 1, 5, 17, 0) }, EndsSoon, "request 1 of oliver"},
		"cancelled late after a fault": {func(h *rightsTale) { h.add(freeze); h.served("s:x", "oliver", 1, 5, 17, 0) }, "", ""},
		"a call":                       {func(h *rightsTale) { h.calls(read("s:1f"), 14, 14.01, 200) }, EndsSoon, "was answered 200"},
		"a call that is refused":       {func(h *rightsTale) { h.calls(read("s:1f"), 14, 14.01, 401) }, "", ""},
		"a call soon after":            {func(h *rightsTale) { h.calls(read("s:1f"), 10.9, 11, 200) }, "", ""},
		"a call while blocked":         {func(h *rightsTale) { h.calls(read("t:y"), 25, 25.1, 200) }, EndsSoon, "was answered 200"},
		"a call after the block":       {func(h *rightsTale) { h.calls(read("t:y"), 31, 31.1, 200) }, "", ""},
		"a held answer": {func(h *rightsTale) {
			c := read("s:1f")
			c.Held = clockOf(10)
			h.calls(c, 8, 18, 200)
		}, EndsSoon, "held by node 0"},
		"a channel":            {func(h *rightsTale) { told(h, history.Socket{By: "s:1f", Live: clockOf(5), Ended: clockOf(20)}, 16) }, EndsSoon, "a live channel of oliver"},
		"a channel soon after": {func(h *rightsTale) { told(h, history.Socket{By: "s:1f", Live: clockOf(5), Ended: clockOf(20)}, 11.5) }, "", ""},
		"a channel of a frozen": {func(h *rightsTale) {
			h.add(freeze)
			told(h, history.Socket{By: "s:1f", Live: clockOf(5), Ended: clockOf(40)}, 26)
		}, "", ""},
		"a slow channel": {func(h *rightsTale) {
			told(h, history.Socket{By: "s:1f", Live: clockOf(5), Ended: clockOf(20), Slow: true}, 16)
		}, "", ""},
		"for a group's task": {func(h *rightsTale) {
			h.Tables.Versions[0].Groups = []string{"desk"}
			h.Tables.Credentials[0].Committed, h.Tables.Credentials[0].EndedAt, h.Tables.Credentials[0].EndedBy = nil, nil, nil
			h.Tables.Acts = append(h.Tables.Acts, history.ActRow{At: h.moment(4.9), Committed: pointer(h.moment(5)), Act: "session.change", Object: "x", Groups: pointer(`["night"]`)})
			h.served("s:x", "oliver", 1, 11, 12, 1)
		}, Served, `their groups were changed to ["night"]`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := newRightsTale()
			c.change(h)
			found := map[Rule]string{}
			for _, v := range Check(h.History) {
				if v.Rule == Served || v.Rule == EndsSoon {
					found[v.Rule] = v.Text
				}
			}
			switch {
			case c.rule == "" && len(found) > 0:
				t.Errorf("it found %v", found)
			case c.rule != "" && !strings.Contains(found[c.rule], c.text):
				t.Errorf("it found %v, want %q with %q", found, c.rule, c.text)
			}
		})
	}
}
