package checker

import (
	"net/http"

	"getwork/cmd/internal/torture/history"
)

// keyJudge judges that a repeated Idempotency-Key makes one request.
type keyJudge struct{ *trial }

// judgeKeys: a user's key on a task belongs to one request. Only repetitions prove something that come after the
// request's end and at another node: a request that waits answers a second click in any case. Only those are counted.
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

// hadEnded reports whether somebody was told by then that a request had ended.
func (t keyJudge) hadEnded(id int64, by history.Clock) bool {
	for _, s := range t.requests[id].seen {
		if !s.pending() && s.ended < by {
			return true
		}
	}
	return false
}
