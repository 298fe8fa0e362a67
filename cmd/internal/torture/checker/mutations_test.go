package checker

import (
	"encoding/json"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"getwork/cmd/internal/torture/history"
)

// mutation breaks a clean history in one place. It returns false if there was nothing to break.
type mutation func(r *rand.Rand, h *history.History) bool

// mutated is a mutation with the least share of cases in which it must be caught.
type mutated struct {
	least float64
	mutation
}

// underJumps are the shares if the clock was set, for mutations that change a time of the tables by less than can be
// told then.
var underJumps = map[string]float64{
	"a lease ends early": 0, "one of a run begins before the other is over": 0, "work put off comes back early": 0,
	"work is handed out once too often": 0, "work is assigned before the last holder let go": 0.7,
	"somebody is served a round too early": 0.4, "a pipeline lacks something": 0.4,
}

// mutations are possible effects of bugs in the service, each with the least share of cases in which it must be caught.
// A share is less than 1 if nobody may have seen the effect, or if the mutated history may still be valid.
var mutations = map[string]mutated{
	"a row of work is lost": {0.95, func(r *rand.Rand, h *history.History) bool {
		return remove(r, &h.Tables.Work, func(*history.WorkRow) bool { return true })
	}},
	"a row of a request is lost": {1, func(r *rand.Rand, h *history.History) bool {
		return remove(r, &h.Tables.Requests, func(*history.RequestRow) bool { return true })
	}},
	"a pushed item is lost": {0.7, func(r *rand.Rand, h *history.History) bool {
		return remove(r, &h.Tables.Items, func(*history.ItemRow) bool { return true })
	}},
	"an item is pushed twice": {0.7, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Items, func(row *history.ItemRow) bool {
			h.Tables.Items = append(h.Tables.Items, *row)
			return len(slices.DeleteFunc(slices.Clone(h.Tables.Items), func(o history.ItemRow) bool { return o.Item != row.Item })) == 2
		})
	}},
	"work has another holder": {0.95, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool { row.User = "nobody"; return true })
	}},
	"an item is given to another at the same time": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			again := *row
			again.ID, again.User, again.Request = 1_000_000, "nobody", nil
			h.Tables.Work = append(h.Tables.Work, again)
			return again.ClosedAt == nil || again.ClosedAt.After(again.AssignedAt)
		})
	}},
	"two are told of one item at a time": {0.9, tellAnother},
	"work is assigned before the last holder let go": {0.95, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			for _, o := range h.Tables.Work {
				if o.Task == row.Task && o.Item == row.Item && o.ID < row.ID && o.Slot == row.Slot && o.ClosedAt.Sub(o.AssignedAt) > time.Millisecond {
					row.AssignedAt = o.ClosedAt.Add(-time.Microsecond)
					return true
				}
			}
			return false
		})
	}},
	"a completion is forgotten": {0.95, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			return was(&row.State, "completed", "expired")
		})
	}},
	"a note is lost": {0.8, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool { row.Note = pointer("other"); return row.State == "completed" })
	}},
	"a request never ends": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Requests, func(row *history.RequestRow) bool {
			row.State, row.CompletedAt, row.Requested = "pending", nil, row.Wanted
			return true
		})
	}},
	"a cancelled request is served": {0.95, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Requests, func(row *history.RequestRow) bool {
			row.Reason = pointer("all_held")
			return was(&row.State, "cancelled", "none")
		})
	}},
	"the numbers are wrong": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Requests, func(row *history.RequestRow) bool { row.Requested++; return true })
	}},
	"one of a run begins before the other is over": {1, func(r *rand.Rand, h *history.History) bool {
		first := map[int64]bool{}
		return alter(r, h.Tables.Runs, func(row *history.RunRow) bool {
			for _, o := range h.Tables.Runs {
				if o.Task == row.Task && o.ID < row.ID && o.FinishedAt.Sub(o.StartedAt) > time.Microsecond {
					row.StartedAt, first[row.Task] = o.FinishedAt.Add(-time.Microsecond), true
				}
			}
			return first[row.Task]
		})
	}},
	"two executions at a time": {1, func(r *rand.Rand, h *history.History) bool {
		return entry(r, h, func(e *history.Entry) bool {
			if e.Sample == nil {
				return false
			}
			e.Sample = &history.Sample{At: e.Sample.At, Task: e.Sample.Task, Executions: 2}
			return true
		})
	}},
	"the result of a lost run is used": {0.4, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Runs, func(row *history.RunRow) bool { row.State = "lost"; return true })
	}},
	"the second gets the better item":      {1, swapInRound},
	"somebody is served a round too early": {0.6, overtake},
	"work put off comes back early": {0.9, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			if row.AvailableAt == nil || row.Task == simSeveral || row.RedrivenBy != nil {
				return false
			}
			for _, o := range h.Tables.Work {
				if o.Task == row.Task && o.Item == row.Item && o.ID > row.ID && o.AssignedAt.After(*row.AvailableAt) {
					row.AvailableAt = pointer(o.AssignedAt.Add(time.Microsecond))
					return true
				}
			}
			return false
		})
	}},
	"never comes back": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			if row.RedrivenBy == nil || row.Task == simSeveral {
				return false
			}
			row.RedrivenBy, row.AvailableAt = nil, nil
			return slices.ContainsFunc(h.Tables.Work, func(o history.WorkRow) bool { return o.Task == row.Task && o.Item == row.Item && o.ID > row.ID })
		})
	}},
	"a lease ends early": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			if row.State == "expired" {
				row.ClosedAt = pointer(row.LeaseExpiresAt.Add(-time.Microsecond))
			}
			return row.State == "expired"
		})
	}},
	"work is completed after its lease": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool {
			if row.State != "completed" || row.LeaseExpiresAt == nil {
				return false
			}
			row.LeaseExpiresAt = pointer(row.ClosedAt.Add(-time.Microsecond))
			return true
		})
	}},
	"an attempt is not counted": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Work, func(row *history.WorkRow) bool { row.Attempt++; return row.Task != simSeveral })
	}},
	"work is handed out once too often": {1, func(r *rand.Rand, h *history.History) bool {
		return alter(r, h.Tables.Items, func(row *history.ItemRow) bool {
			if row.DoneAt == nil || row.Task != simInbox {
				return false
			}
			for _, w := range h.Tables.Work {
				if w.Task == row.Task && w.Item == row.Item && !w.AssignedAt.After(*row.DoneAt) && !w.AssignedAt.Before(row.PushedAt) {
					row.DoneAt = pointer(w.AssignedAt.Add(-time.Microsecond))
					return true
				}
			}
			return false
		})
	}},
	"a poll says something else": {1, func(r *rand.Rand, h *history.History) bool {
		return entry(r, h, func(e *history.Entry) bool {
			return e.Call != nil && e.Call.Kind == history.Status && says(&e.Call.Body, `"state":"assigned"`, `"state":"partial"`)
		})
	}},
	"a poll is told that nothing has changed": {0.9, func(r *rand.Rand, h *history.History) bool {
		first := map[int64]string{} // the tag of an answer that said that it waits
		var request requestBody
		for _, e := range h.Entries {
			if c := e.Call; c != nil && c.Tag != "" && decode(c.Body, &request) && request.pending() {
				first[request.ID] = c.Tag
			}
		}
		return entry(r, h, func(e *history.Entry) bool {
			c := e.Call
			if c == nil || c.Kind != history.Status || first[c.Request] == "" || !seenEndedBefore(h, c) {
				return false
			}
			c.Status, c.Match, c.Tag, c.Body = 304, first[c.Request], "", nil
			return true
		})
	}},
	"a push says something else": {1, func(r *rand.Rand, h *history.History) bool {
		return entry(r, h, func(e *history.Entry) bool {
			return e.Told != nil && e.Told.Type == "request" && says(&e.Told.Body, `"item":"`, `"item":"not `)
		})
	}},
	"an ended request is told to wait": {1, func(r *rand.Rand, h *history.History) bool {
		return entry(r, h, func(e *history.Entry) bool {
			if e.Call == nil || e.Call.Kind != history.Click || e.Call.Body == nil {
				return false
			}
			late := *e.Call
			late.Kind, late.Status, late.Began = history.Status, 200, time.Hour
			late.Ended = late.Began + 1
			h.Entries = append(h.Entries, history.Entry{Call: &late})
			return seenEnded(h, late.Body)
		})
	}},
	"a socket is not told":         {0.95, silence},
	"a socket is not told of work": {0.9, silenceWork},
	"a pipeline lacks something": {0.5, func(r *rand.Rand, h *history.History) bool {
		return entry(r, h, func(e *history.Entry) bool {
			if e.Call == nil || e.Call.Kind != history.Pipeline || !strings.Contains(string(e.Call.Body), `"held"`) {
				return false
			}
			e.Call.Body = json.RawMessage(`{"work":[],"requests":[]}`)
			return true
		})
	}},
	"a key begins a second request": {0.9, func(r *rand.Rand, h *history.History) bool {
		first := map[string]*history.Call{}
		return entry(r, h, func(e *history.Entry) bool {
			if e.Call == nil || e.Call.Kind != history.Click || e.Call.Body == nil {
				return false
			}
			at := e.Call.Task + e.Call.Who.User
			if first[at] == nil {
				first[at] = e.Call
				return false
			}
			var one, two requestBody
			_, _ = decode(first[at].Body, &one), decode(e.Call.Body, &two)
			e.Call.Key = first[at].Key
			return one.ID != two.ID
		})
	}},
	"who lost work completes it": {0.9, func(r *rand.Rand, h *history.History) bool {
		return entry(r, h, func(e *history.Entry) bool {
			if e.Call == nil || e.Call.Type != leaseLost {
				return false
			}
			e.Call.Status, e.Call.Type = 200, ""
			return true
		})
	}},
	"somebody holds more than allowed": {1, func(_ *rand.Rand, h *history.History) bool {
		v := &h.Tables.Versions[0]
		*v.MaxOpen = 1
		return true
	}},
}
