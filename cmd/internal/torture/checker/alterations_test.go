package checker

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"getwork/cmd/internal/torture/history"
)

// remove drops one row.
func remove[R any](r *rand.Rand, rows *[]R, fits func(*R) bool) bool {
	i := r.IntN(len(*rows))
	if !fits(&(*rows)[i]) {
		return false
	}
	*rows = slices.Delete(*rows, i, i+1)
	return true
}

// alter changes one random row of those that it can change.
func alter[R any](r *rand.Rand, rows []R, change func(*R) bool) bool {
	for range 200 {
		i := r.IntN(len(rows))
		was := rows[i]
		if change(&rows[i]) {
			return true
		}
		rows[i] = was
	}
	return false
}

// entry does the same for entries, from a random one on.
func entry(r *rand.Rand, h *history.History, change func(*history.Entry) bool) bool {
	from := r.IntN(len(h.Entries))
	for i := range h.Entries {
		if change(&h.Entries[(from+i)%len(h.Entries)]) {
			return true
		}
	}
	return false
}

func was(state *string, from, to string) bool {
	if *state != from {
		return false
	}
	*state = to
	return true
}

func says(body *json.RawMessage, from, to string) bool {
	if !strings.Contains(string(*body), from) {
		return false
	}
	*body = json.RawMessage(strings.ReplaceAll(string(*body), from, to))
	return true
}

// seenEnded reports whether somebody was told that the request has ended.
func seenEnded(h *history.History, body json.RawMessage) bool {
	var r requestBody
	_ = json.Unmarshal(body, &r)
	t := newTrial(*h, Config{})
	return slices.ContainsFunc(t.requests[r.ID].seen, func(s requestSight) bool { return !s.pending() })
}

// seenEndedBefore reports whether somebody was told, before a call was made, that its request had ended.
func seenEndedBefore(h *history.History, c *history.Call) bool {
	t := newTrial(*h, Config{})
	return slices.ContainsFunc(t.requests[c.Request].seen, func(s requestSight) bool { return !s.pending() && s.ended < c.Began })
}

// tellAnother tells another user that they hold what somebody certainly holds. It makes that user's row agree, with
// another time.
func tellAnother(r *rand.Rand, h *history.History) bool {
	t := newTrial(*h, Config{})
	for range 100 {
		row := h.Tables.Work[r.IntN(len(h.Tables.Work))]
		s, _ := t.certainly(t.works[row.ID])
		if s.until-s.from < 100*time.Millisecond || s.until == forever {
			continue
		}
		other := row
		other.ID, other.User, other.State, other.ClosedAt = 1_000_000, "nobody", "held", nil
		other.AssignedAt = other.AssignedAt.Add(time.Hour) // so that the tables show nothing wrong
		b, _ := json.Marshal((&simulation{}).workBody(&other))
		c := history.Call{Kind: history.Claim, Who: history.Who{User: "nobody"}, Task: simNames[row.Task], Item: row.Item, Status: 201, Body: b,
			Began: s.from + 1, Ended: s.from + 2}
		h.Tables.Work = append(h.Tables.Work, other)
		h.Entries = append(h.Entries, history.Entry{Call: &c})
		return true
	}
	return false
}

// swapInRound swaps what the first and the last of a round got.
func swapInRound(r *rand.Rand, h *history.History) bool {
	of := map[int64][]*history.WorkRow{}
	for i := range h.Tables.Work {
		if w := &h.Tables.Work[i]; w.Request != nil && w.Rank != nil {
			of[*w.Request] = append(of[*w.Request], w)
		}
	}
	for range 5000 {
		a, b := h.Tables.Requests[r.IntN(len(h.Tables.Requests))], h.Tables.Requests[r.IntN(len(h.Tables.Requests))]
		if sameRound(&a, &b) && a.ID < b.ID && len(of[a.ID]) == 1 && len(of[b.ID]) == 1 && a.User != b.User {
			one, two := of[a.ID][0], of[b.ID][0]
			if declined(h, a.User, one.Task) {
				continue
			}
			one.Rank, two.Rank = two.Rank, one.Rank
			return true
		}
	}
	return false
}

func declined(h *history.History, user string, task int64) bool {
	return slices.ContainsFunc(h.Tables.Work, func(w history.WorkRow) bool { return w.User == user && w.Task == task && w.ToOthers })
}

// overtake makes a request end later than one that was sent after it.
func overtake(r *rand.Rand, h *history.History) bool {
	return alter(r, h.Tables.Requests, func(row *history.RequestRow) bool {
		if row.Round == nil || row.Wanted > 1 || row.Reason != nil || row.Task != simQuery {
			return false
		}
		for _, later := range h.Tables.Requests {
			if later.Task == row.Task && later.Assigned > 0 && later.CreatedAt.After(row.CreatedAt.Add(100*time.Millisecond)) && !sameRound(row, &later) {
				row.Round, row.CompletedAt = pointer(*later.Round+1), pointer(later.CompletedAt.Add(time.Microsecond))
				return true
			}
		}
		return false
	})
}

// silence drops everything that a socket told of a request's end.
func silence(r *rand.Rand, h *history.History) bool {
	t := newTrial(*h, Config{PushWithin: time.Second})
	pushJudge{t}.judgeTold()
	for range 500 {
		i := r.IntN(len(h.Entries))
		told := h.Entries[i].Told
		if told == nil || told.Type != "request" {
			continue
		}
		body := t.bodies[i].(*requestBody)
		s := t.sockets[told.Socket]
		if before, _, known := (pushJudge{t}).ending(t.requests[body.ID]); !known || s.Socket == nil || s.Live >= before || s.Ended < told.At+3*time.Second {
			continue
		}
		h.Entries = slices.Delete(h.Entries, i, i+1)
		return true
	}
	return false
}

// silenceWork drops everything that a socket told of a work's end.
func silenceWork(r *rand.Rand, h *history.History) bool {
	t := newTrial(*h, Config{PushWithin: time.Second})
	for range 500 {
		i := r.IntN(len(h.Entries))
		told := h.Entries[i].Told
		if told == nil || told.Type != "work" {
			continue
		}
		body := t.bodies[i].(*workBody)
		s := t.sockets[told.Socket]
		if s.Socket == nil || body.held() || s.Ended < told.At+3*time.Second {
			continue
		}
		if n, known := (pushJudge{t}).taken(t.works[body.ID]); !known || s.Live >= n.before || n.by > told.At+time.Second {
			continue
		}
		h.Entries = slices.Delete(h.Entries, i, i+1)
		return true
	}
	return false
}
