package checker

import (
	"cmp"
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// rightsJudge judges what happens after rights have ended.
//
// An end is a transaction. Its commit record has a time, and from some moment after that everybody sees it; at the latest when
// the call that ended it was answered. A round may serve whoever it saw before. So a request that was served breaks a rule only
// if its round certainly took the assign lock when everybody saw the end: if a round of the same task, with a smaller number,
// wrote later than that. Rounds of a task have the lock one after another, and take their number under it.
type rightsJudge struct {
	*trial
	ends     map[string][]end // by the names of credentials, as requests and as clients have them
	ours     map[string]*history.CredentialRow
	before   map[int64][]written // for each task, what its rounds wrote, by their numbers
	patience time.Duration       // for what a busy machine does late
}

// end is a time in which a credential gave no rights.
type end struct {
	began time.Time // the commit record
	from  time.Time // everybody has seen it, by the database's clock
	until time.Time // it gives rights again; zero: never
	why   string
}

// written says that by this round something had been written at that time.
type written struct {
	round int64
	at    time.Time
}

const (
	// longestRound is more than a round takes from its lock to its last write, also if its node stands still: then PostgreSQL
	// ends its transaction.
	longestRound = 25 * time.Second
)

func newRightsJudge(t *trial) *rightsJudge {
	r := &rightsJudge{trial: t, ends: map[string][]end{}, ours: map[string]*history.CredentialRow{}, before: map[int64][]written{}}
	if len(t.tables.Credentials) == 0 || t.clock.jumped() {
		return r
	}
	r.patience = time.Second + busier*usual(t.entries)
	for i := range t.tables.Credentials {
		c := &t.tables.Credentials[i]
		r.ours[c.Name], r.ours[c.Secret] = c, c
		if c.Committed != nil && c.EndedBy != nil {
			r.add(c, end{began: *c.Committed, from: r.seen(*c.Committed, r.endedBy(c)), why: "ended by " + *c.EndedBy})
		}
		r.add(c, end{began: c.ExpiresAt, from: c.ExpiresAt, why: "over"}) // by the clock, which all see
	}
	r.blocks()
	r.sortRounds()
	return r
}

// usual returns the median time of calls whose answers are not held.
func usual(entries []history.Entry) time.Duration {
	var took []time.Duration
	for i := range entries {
		if c := entries[i].Call; c != nil && c.Held == 0 && c.Status/100 == 2 {
			took = append(took, c.Ended-c.Began)
		}
	}
	if len(took) == 0 {
		return 0
	}
	slices.Sort(took)
	return took[len(took)/2]
}

func (r *rightsJudge) add(c *history.CredentialRow, e end) {
	r.ends[c.Name] = append(r.ends[c.Name], e)
	if c.Secret != c.Name {
		r.ends[c.Secret] = append(r.ends[c.Secret], e)
	}
}

// seen returns when everybody sees a commit: some time after its record was written, or when somebody heard of it, if that is
// earlier.
func (r *rightsJudge) seen(committed time.Time, told func(*history.Call) bool) time.Time {
	from := committed.Add(r.patience)
	for _, i := range r.calls {
		c := r.entries[i].Call
		if c.Status/100 == 2 && told(c) {
			if at, known := r.clock.most(c.Ended, c.Ended); known && !at.Before(committed) && at.Before(from) {
				from = at
			}
		}
	}
	return from
}

// endedBy returns a function that reports whether a call, once it is answered with a 2xx, has certainly ended a credential.
func (r *rightsJudge) endedBy(c *history.CredentialRow) func(*history.Call) bool {
	created, known := r.clock.by(c.CreatedAt)
	return func(call *history.Call) bool {
		switch call.Kind {
		case history.LogOut, history.EndToken:
			return call.To == c.Secret
		case history.Rebind:
			return call.To == c.User && known && call.Began > created+r.patience
		case history.EndAll: // those that there were
			return call.To == c.User && c.Name[0] == 's' && known && call.Began > created+r.patience
		}
		return false
	}
}

// blocks adds the times in which users were blocked.
func (r *rightsJudge) blocks() {
	type block struct{ from, until *history.ActRow }
	blocked := map[string][]block{}
	for i := range r.tables.Acts {
		a := &r.tables.Acts[i]
		all := blocked[a.Object]
		switch {
		case a.Act == "user.block":
			blocked[a.Object] = append(all, block{from: a})
		case a.Act == "user.unblock" && len(all) > 0:
			all[len(all)-1].until = a
		}
	}
	for _, c := range r.tables.Credentials {
		for _, b := range blocked[c.User] {
			if b.from.Committed == nil {
				continue
			}
			e := end{began: *b.from.Committed, why: "blocked"}
			if b.until != nil {
				e.until = b.until.At
			}
			began, known := r.clock.after(*b.from.Committed)
			e.from = r.seen(*b.from.Committed, func(call *history.Call) bool { // the call may have found them blocked already
				return call.Kind == history.Block && call.To == c.User && known && call.Ended >= began
			})
			r.add(&c, e)
		}
	}
}

// sortRounds finds what the rounds of each task wrote, and when.
func (r *rightsJudge) sortRounds() {
	for _, q := range r.requests {
		if q.row == nil || q.row.Round == nil || q.row.CompletedAt == nil {
			continue
		}
		r.before[q.row.Task] = append(r.before[q.row.Task], written{*q.row.Round, *q.row.CompletedAt})
	}
	for _, all := range r.before {
		slices.SortFunc(all, func(a, b written) int { return cmp.Compare(a.round, b.round) })
		for i := 1; i < len(all); i++ {
			if all[i].at.Before(all[i-1].at) {
				all[i].at = all[i-1].at
			}
		}
	}
}

// locked returns a time at which a round had certainly not taken the assign lock yet, given what it wrote.
func (r *rightsJudge) locked(task int64, round *int64, wrote time.Time) (at time.Time) {
	at = wrote.Add(-longestRound)
	if now, known := r.clock.by(wrote); known && r.undisturbed(now, longestRound, now-longestRound, anyNode) == now {
		at = wrote.Add(-r.patience)
	}
	if round == nil {
		return at
	}
	all := r.before[task]
	i, _ := slices.BinarySearchFunc(all, *round, func(w written, round int64) int { return cmp.Compare(w.round, round) })
	if i > 0 && all[i-1].at.After(at) {
		at = all[i-1].at
	}
	return at
}

// over returns the end that a credential certainly had between two times; false: none.
func (r *rightsJudge) over(credential string, from, to time.Time) (end, bool) {
	for _, e := range r.ends[credential] {
		if e.from.Before(from) && (e.until.IsZero() || e.until.After(to)) {
			return e, true
		}
	}
	return end{}, false
}

func (r *rightsJudge) judgeRights() {
	if len(r.ours) == 0 {
		return
	}
	r.judgeServed()
	r.judgeClaims()
	r.judgeGroups()
	r.judgeWaiting()
	r.judgeCalls()
	r.judgeHeld()
	r.judgeChannels()
}

// judgeServed: no round hands out work to a request whose credential had ended.
func (r *rightsJudge) judgeServed() {
	for _, q := range r.requests {
		if q.row == nil || q.row.Credential == nil || q.row.CompletedAt == nil || len(q.works) == 0 {
			continue
		}
		name := *q.row.Credential
		if len(r.ends[name]) > 0 {
			r.judged("served requests whose credential has ended at some time")
		}
		if e, is := r.over(name, r.locked(q.row.Task, q.row.Round, *q.row.CompletedAt), *q.row.CompletedAt); is {
			r.broken(Served, q.entriesOf(), "request %d of %s, recorded at %s, was served at %s; its credential %s was %s, which was committed at %s and seen by all at %s",
				q.id, q.row.User, stamp(q.row.CreatedAt), stamp(*q.row.CompletedAt), name, e.why, stamp(e.began), stamp(e.from))
		}
	}
}

// judgeClaims: no claim gets an item by a credential that had ended.
func (r *rightsJudge) judgeClaims() {
	for _, i := range r.calls {
		c := r.entries[i].Call
		body, _ := r.bodies[i].(*workBody)
		if c.Kind != history.Claim || c.Status != 201 || body == nil || r.works[body.ID] == nil || r.works[body.ID].row == nil {
			continue
		}
		at := r.works[body.ID].row.AssignedAt
		if e, is := r.over(c.By, r.locked(0, nil, at), at); is {
			r.broken(Served, []int{i}, "%s claimed item %q at %s; their credential was %s at %s", c.Who.User, c.Item, stamp(at), e.why, stamp(e.began))
		}
	}
}

func stamp(at time.Time) string { return at.Format(time.StampMicro) }
