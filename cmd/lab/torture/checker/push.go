package checker

import (
	"slices"
	"time"

	"getwork/cmd/lab/torture/history"
)

// news is something that its owner's sockets must report.
type news struct {
	what       string        // the kind, for the report
	text       string        // what happened, for a violation
	before, by history.Clock // a moment when it certainly had not happened yet, and one when it certainly had
	tells      func(i int) bool
	entries    []int
}

// pushJudge judges what sockets reported.
type pushJudge struct{ *trial }

// judgeTold: a socket that was open before something happened to its holder, and stayed open for long enough
// afterwards, reported it. Faults of the socket's own node and of the database may delay that, but do not excuse it. Faults
// of other nodes, such as the one that wrote it, do not even delay it.
func (t pushJudge) judgeTold() {
	of := map[history.Who][]*socket{}
	for _, s := range t.sockets {
		if s.Socket != nil && !s.Slow && s.Live < s.Ended {
			of[s.Who] = append(of[s.Who], s)
		}
	}
	for _, r := range t.requests {
		if r.row == nil || r.row.CompletedAt == nil || len(of[r.holder()]) == 0 {
			continue
		}
		if n, known := t.ended(r); known {
			t.judgeNews(n, of[r.holder()])
		}
	}
	for _, w := range t.works {
		if w.row == nil || len(of[w.holder()]) == 0 {
			continue
		}
		for _, what := range []func(*work) (news, bool){t.given, t.taken} {
			if n, known := what(w); known {
				t.judgeNews(n, of[w.holder()])
			}
		}
		for _, i := range w.let {
			body, _ := t.bodies[i].(*workBody)
			if kind := t.entries[i].Call.Kind; body != nil && (kind == history.Later || kind == history.Extend && body.LeaseExpiresAt != nil) {
				t.judgeNews(t.extended(w, i), of[w.holder()])
			}
		}
	}
}

func (t pushJudge) judgeNews(n news, sockets []*socket) {
	for _, s := range sockets {
		if s.Live < n.before && s.Ended >= n.by+t.PushWithin {
			t.judgeSocket(n, s)
		}
	}
}

// ending returns a moment when a request certainly still waited, and one when it certainly had ended: as clients saw
// it, or by its time in the tables, since the only client that saw it may be the socket that reported it too late.
func (t pushJudge) ending(r *request) (before, by history.Clock, known bool) {
	if before, known = t.sent(r.id); !known {
		return 0, 0, false
	}
	by = forever
	for _, s := range r.seen {
		switch {
		case s.pending() && s.called:
			before = max(before, s.began)
		case !s.pending():
			by = min(by, s.ended)
		}
	}
	by = min(by, t.written(*r.row.CompletedAt))
	return before, by, by < forever
}

// written returns when a time in the tables was certainly committed, or forever if that is unknown.
func (t *trial) written(stamp time.Time) history.Clock {
	by, known := t.clock.by(stamp)
	if !known {
		return forever
	}
	return t.undisturbed(by+time.Second, lingers, by-lingers, anyNode)
}

func (t pushJudge) judgeSocket(n news, s *socket) {
	late := t.undisturbed(n.by+t.PushWithin, t.Recovery, n.by-t.Recovery, s.Node)
	if s.Ended < late {
		return
	}
	rule := Told
	t.judged(n.what)
	if t.othersBroken(s.Node, n.before-t.Recovery, n.by) {
		rule = ToldStill
		t.judged("of these, while another node was broken")
	}
	for _, i := range s.told {
		if t.entries[i].Told.At <= late && n.tells(i) {
			return
		}
	}
	t.broken(rule, slices.Concat([]int{s.entry}, n.entries),
		"socket %d of %s%s was there from %s to %s, and did not tell by %s that %s, which it had by %s",
		s.ID, s.Who.User, instance(s.Who.Instance), seconds(s.Live), seconds(s.Ended), seconds(late), n.text, seconds(n.by))
}

// othersBroken reports whether a node other than this one was broken between two moments.
func (t pushJudge) othersBroken(node int, from, to history.Clock) bool {
	return slices.ContainsFunc(t.faults, func(f *history.Fault) bool {
		return f.Node >= 0 && f.Node != node && f.Began < to && f.Ended > from
	})
}

// ended returns the news that a request has ended.
func (t pushJudge) ended(r *request) (news, bool) {
	before, by, known := t.ending(r)
	return news{
		what: "ends that a socket was to tell", text: "request " + itoa(r.id) + " had ended", before: before, by: by, entries: r.entriesOf(),
		tells: func(i int) bool { // by itself, or in a new snapshot without it
			switch body := t.bodies[i].(type) {
			case *requestBody:
				return body.ID == r.id && !body.pending()
			case *pipelineBody:
				return t.entries[i].Told.At > before && !slices.ContainsFunc(body.Requests, func(b requestBody) bool { return b.ID == r.id })
			}
			return false
		},
	}, known
}

// given returns the news that a user got work without a request, by a claim or a reassignment.
func (t pushJudge) given(w *work) (n news, known bool) {
	n = news{what: "work given that a socket was to tell", text: "work " + itoa(w.id) + " was given", before: forever, by: t.written(w.row.AssignedAt)}
	for _, s := range w.seen {
		n.by = min(n.by, s.ended)
		if c := t.entries[s.entry].Call; c != nil && (c.Kind == history.Claim || c.Kind == history.Reassign) && c.Began < n.before {
			n.before, n.entries = c.Began, []int{s.entry}
		}
	}
	over := n.before // from when on it may have been over: a snapshot that comes later need not have it
	if held, _ := t.certainly(w); held.from < held.until {
		over = max(over, held.until)
	}
	n.tells = func(i int) bool {
		return t.mentions(i, w) != nil || w.row.ClosedAt != nil && t.entries[i].Told.Type == "snapshot" && t.entries[i].Told.At > over
	}
	return n, w.row.Request == nil && n.before < forever && n.by < forever
}

// taken returns the news that work is over, no matter which user ended it.
func (t pushJudge) taken(w *work) (n news, known bool) {
	held, entries := t.certainly(w)
	if w.row.ClosedAt == nil || held.from >= held.until || held.until == forever {
		return n, false
	}
	n = news{what: "ends of work that a socket was to tell", text: "work " + itoa(w.id) + " was over", before: held.until, by: t.written(*w.row.ClosedAt),
		entries: entries}
	for _, s := range w.seen {
		if !s.held() {
			n.by = min(n.by, s.ended)
		}
	}
	n.tells = func(i int) bool {
		if body := t.mentions(i, w); body != nil {
			return !body.held()
		}
		return t.entries[i].Told.Type == "snapshot" && t.entries[i].Told.At > n.before
	}
	return n, n.by < forever
}

// extended returns the news that a lease was extended, or work put aside, by a call. It may be over by the time that it is reported.
func (t pushJudge) extended(w *work, i int) news {
	c := t.entries[i].Call
	return news{
		what: "extensions that a socket was to tell", text: "work " + itoa(w.id) + " was extended", before: c.Began, by: c.Ended, entries: []int{i},
		tells: func(i int) bool {
			return t.entries[i].Told.At > c.Began && (t.mentions(i, w) != nil || t.entries[i].Told.Type == "snapshot")
		},
	}
}

// mentions returns what a message says of work, or nil.
func (t pushJudge) mentions(i int, w *work) *workBody {
	var all []workBody
	switch body := t.bodies[i].(type) {
	case *workBody:
		all = []workBody{*body}
	case *requestBody:
		all = body.Work
	case *pipelineBody:
		all = body.Work
	}
	if at := slices.IndexFunc(all, func(b workBody) bool { return b.ID == w.id }); at >= 0 {
		return &all[at]
	}
	return nil
}
