package checker

import (
	"math"
	"time"

	"getwork/cmd/lab/torture/history"
)

// Rights end within so much of the commit.
const (
	endsWithin = 2 * time.Second
	// A node that is cut off from the database learns of an end when it has it back. Until then it reports nothing new.
	endsAgain = 12 * time.Second
)

// judgeWaiting: what waits under a credential that ends is cancelled, or has ended before.
func (r *rightsJudge) judgeWaiting() {
	for _, q := range r.requests {
		if q.row == nil || q.row.Credential == nil || len(q.works) > 0 {
			continue
		}
		for _, e := range r.ends[*q.row.Credential] {
			began, known := r.clock.by(e.began)
			if q.row.State == "cancelled" && q.row.CompletedAt != nil && !q.row.CompletedAt.After(e.began) && e.began.Sub(*q.row.CompletedAt) < r.patience {
				r.judged("requests that were cancelled as their credential ended")
			}
			if !known || q.row.CompletedAt != nil && q.row.CompletedAt.Before(e.began) || !q.row.CreatedAt.Before(e.began.Add(r.patience)) {
				continue
			}
			r.judged("requests that waited on when their credential had ended")
			latest := r.undisturbed(began+endsWithin+r.patience, endsAgain, began, anyNode)
			if at, known := r.clock.most(latest, latest); known && (q.row.CompletedAt == nil || q.row.CompletedAt.After(at)) && (e.until.IsZero() || e.until.After(at)) {
				r.broken(EndsSoon, q.entriesOf(), "request %d of %s, recorded at %s, waited on after its credential was %s at %s, and is %s",
					q.id, q.row.User, stamp(q.row.CreatedAt), e.why, stamp(e.began), q.row.State)
			}
		}
	}
}

// goneFor reports whether a credential was no good during all of a time, and how it had ended, as clients' clocks go.
func (r *rightsJudge) goneFor(credential string, from, to history.Clock) (e end, began history.Clock, is bool) {
	for _, e := range r.ends[credential] {
		began, known := r.clock.by(e.began)
		until := history.Clock(math.MaxInt64)
		if !e.until.IsZero() {
			at, dated := r.clock.after(e.until)
			until, known = at, known && dated
		}
		if known && began+endsWithin+r.patience < from && to < until {
			return e, began, true
		}
	}
	return end{}, 0, false
}

// judgeCalls: no call that begins two seconds after the end is answered as if there had been none.
func (r *rightsJudge) judgeCalls() {
	for _, i := range r.calls {
		c := r.entries[i].Call
		e, began, gone := r.goneFor(c.By, c.Began, c.Ended)
		if !gone || c.Status == 0 || c.Status >= 500 || c.Status == 429 || c.Kind == history.LogOut {
			continue
		}
		r.judged("calls by a credential that had ended")
		if !denied(c) {
			r.broken(EndsSoon, []int{i}, "a %s of %s at node %d, sent %s after their credential was %s, was answered %d", c.Kind, c.Who.User, c.Node,
				seconds(c.Began-began), e.why, c.Status)
		}
	}
}

// judgeHeld: an answer that is held when the credential ends comes soon.
func (r *rightsJudge) judgeHeld() {
	for _, i := range r.calls {
		c := r.entries[i].Call
		if c.Held == 0 || c.Status/100 != 2 && c.Status != 304 && !denied(c) {
			continue
		}
		for _, e := range r.ends[c.By] {
			began, known := r.clock.by(e.began)
			if !known || c.Ended < began {
				continue
			}
			latest := r.undisturbed(began+endsWithin+r.patience, endsAgain, began, c.Node)
			if at, dated := r.clock.least(c.Ended, c.Ended); c.Began < began && dated && (e.until.IsZero() || at.Before(e.until)) {
				r.judged("held answers whose caller's credential ended")
				if c.Ended > latest {
					r.broken(EndsSoon, []int{i}, "an answer to a %s of %s, held by node %d, came %s after their credential was %s, and was %d", c.Kind, c.Who.User, c.Node,
						seconds(c.Ended-began), e.why, c.Status)
				}
			}
		}
	}
}

// judgeChannels: nothing is sent to a live channel later than two seconds after its end.
func (r *rightsJudge) judgeChannels() {
	for _, s := range r.sockets {
		if s.Socket == nil || s.Slow {
			continue
		}
		for _, e := range r.ends[s.By] {
			began, known := r.clock.by(e.began)
			if !known || s.Ended < began {
				continue
			}
			if s.Live < began {
				r.judged("live channels whose user's credential ended")
			}
			latest := r.undisturbed(max(began, s.Live)+endsWithin+r.patience, endsAgain, began, s.Node)
			for _, i := range s.told {
				told := r.entries[i].Told
				at, dated := r.clock.least(told.At, told.At)
				if told.At <= latest || told.Type == "error" || !dated || !e.until.IsZero() && !at.Before(e.until) {
					continue
				}
				r.broken(EndsSoon, []int{s.entry, i}, "a live channel of %s at node %d was told of a %s %s after their credential was %s", s.Who.User, s.Node, told.Type,
					seconds(told.At-began), e.why)
				break
			}
		}
	}
}
