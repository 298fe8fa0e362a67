package checker

import (
	"net/http"
	"slices"

	"getwork/cmd/lab/torture/history"
)

// keyJudge judges that a repeated Idempotency-Key makes one request.
type keyJudge struct{ *trial }

// judgeKeys: a user's key on a task belongs to the request that it made. Only repetitions prove something that come after the
// request's end and at another node: a request that waits answers a second click in any case. Only those are counted. A key that was
// answered with a waiting request of another click is not kept, and makes a request of its own once that one has ended.
func (t keyJudge) judgeKeys() {
	type key struct{ user, task, key string }
	first := map[key]int{}
	for _, i := range t.calls {
		c := t.entries[i].Call
		if c.Kind != history.Click || c.Key == "" || len(t.named[c.Task]) > 1 {
			continue
		}
		k := key{c.Who.User, c.Task, c.Key}
		was, known := first[k]
		body, _ := t.bodies[i].(*requestBody)
		switch {
		case known && c.Status == http.StatusUnprocessableEntity:
			t.broken(OnceAKey, []int{was, i}, "an Idempotency-Key was refused with the body that it was used with: of %s", c.Who.User)
		case body == nil:
		case !known:
			first[k] = i
		case t.bodies[was].(*requestBody).ID != body.ID && t.joined(was, c.Key):
			first[k] = i
		case t.bodies[was].(*requestBody).ID != body.ID && c.Began < t.entries[was].Call.Ended && t.joined(i, c.Key):
		default:
			t.judgeRepeated(was, i)
		}
	}
}

func (t keyJudge) judgeRepeated(was, i int) {
	one, two := t.entries[was].Call, t.entries[i].Call
	before, now := t.bodies[was].(*requestBody).ID, t.bodies[i].(*requestBody).ID
	if two.Began > one.Ended && two.Node != one.Node && t.hadEnded(before, two.Began) {
		t.judged("keys repeated after their request's end, at another node")
	}
	if before != now {
		t.broken(OnceAKey, []int{was, i}, "one Idempotency-Key of %s was answered with request %d, and with request %d",
			two.Who.User, before, now)
	}
}

// joined reports whether a click may have been answered with the request of another click, which had another key or none.
func (t keyJudge) joined(i int, key string) bool {
	c, id := t.entries[i].Call, t.bodies[i].(*requestBody).ID
	if t.entries[t.clicked[id]].Call.Key != key {
		return true
	}
	r := t.requests[id]
	if r.row == nil {
		return false
	}
	created, dated := t.clock.after(r.row.CreatedAt)
	return slices.ContainsFunc(t.lost[asker{c.Who, c.Task}], func(lost int) bool {
		of := t.entries[lost].Call
		return of.Key != key && of.Began < c.Ended && (!dated || t.alive(lost) >= created)
	})
}

// hadEnded reports whether somebody knew by then that a request had ended.
func (t keyJudge) hadEnded(id int64, by history.Clock) bool {
	for _, s := range t.requests[id].seen {
		if !s.pending() && s.ended < by {
			return true
		}
	}
	return false
}
