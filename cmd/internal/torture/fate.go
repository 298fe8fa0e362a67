package torture

import (
	"context"
	"encoding/json"
	"net/http"
	"strconv"
	"time"

	"getwork/cmd/internal/torture/history"
)

// take decides what to do with work that the person did not know of.
func (p *person) take(ctx context.Context, works []held) {
	for _, w := range works {
		if w.State != "held" || p.known[w.ID] {
			continue
		}
		p.known[w.ID] = true
		p.crowd.noteWork(w, p.who.User)
		p.decide(ctx, w)
	}
}

// mostLeft is longer than any task's lease.
const mostLeft = 10 * time.Second

// decide plans how work ends. Work with a lease may end just before or after the lease does.
func (p *person) decide(ctx context.Context, w held) {
	h := p.crowd.scenario.habits
	if p.chance(h.forget) {
		return
	}
	after := p.pause(time.Duration(h.holdFor * float64(time.Second)))
	if w.Lease != nil {
		left := min(w.Lease.Sub(p.stage.now()), mostLeft) // more is left if the clock was set back
		switch {
		case p.chance(h.extend):
			p.agenda.in(min(after, left-50*time.Millisecond), func() { p.extend(ctx, w) })
			return
		case p.chance(h.late):
			after = left + between(p.rng.Float64(), time.Millisecond, 400*time.Millisecond) - 4*time.Millisecond
		}
	}
	p.agenda.in(after, func() { p.dispose(ctx, w, p.choice(), 0) })
}

// choice returns a random disposition.
func (p *person) choice() disposition {
	h := p.crowd.scenario.habits
	switch x := p.rng.IntN(100); {
	case x < h.never:
		return disposition{Outcome: "never"}
	case x < h.never+h.fail:
		return disposition{Outcome: "fail"}
	case x < h.never+h.fail+h.back:
		after := []string{"0s", "0s", "1s", "2s", "1h"}[p.rng.IntN(5)]
		if p.chance(20) {
			return disposition{Outcome: "return", After: after, To: "others"}
		}
		return disposition{Outcome: "return", After: after}
	}
	return disposition{Outcome: "complete"}
}

type disposition struct {
	Outcome string `json:"outcome"`
	After   string `json:"after,omitempty"`
	To      string `json:"to,omitempty"`
}

// dispose lets go of work, and repeats that if no answer came. Sometimes it repeats it all the same, which changes
// nothing, or sends another disposition after it, which is refused.
func (p *person) dispose(ctx context.Context, w held, d disposition, tried int) {
	if d.Outcome == "complete" && w.Task == bookTask && !p.stage.books.finish(ctx, p.stage.rec, w.Item) {
		p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, w, d, tried) })
		return
	}
	call := p.do(ctx, history.Call{Kind: history.Dispose, Task: w.Task, Item: w.Item, Work: w.ID, Outcome: d.Outcome, After: d.After, To: d.To},
		request{method: http.MethodPost, path: workPath(w.ID, "disposition"), body: d})
	switch {
	case !p.settled(call) && tried < retries:
		p.agenda.in(p.later(call), func() { p.dispose(ctx, w, d, tried+1) })
	case call.Status == http.StatusOK && tried == 0 && p.chance(6):
		p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, w, d, retries) })
	case call.Status == http.StatusOK && tried == 0 && p.chance(4):
		p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, w, p.choice(), retries) })
	}
}

// extend starts the lease over, and decides again.
func (p *person) extend(ctx context.Context, w held) {
	call := p.do(ctx, history.Call{Kind: history.Extend, Task: w.Task, Item: w.Item, Work: w.ID}, request{method: http.MethodPost, path: workPath(w.ID, "extend")})
	var longer held
	switch {
	case call.Status == http.StatusOK && json.Unmarshal(call.Body, &longer) == nil:
		p.decide(ctx, longer)
	case !p.settled(call):
		p.decide(ctx, w)
	}
}

func workPath(id int64, call string) string {
	return "/api/v1/work/" + strconv.FormatInt(id, 10) + "/" + call
}
