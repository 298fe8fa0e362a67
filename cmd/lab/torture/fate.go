package torture

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strconv"
	"time"

	"getwork/cmd/lab/torture/history"
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
	if !p.agent && p.chance(h.aside) {
		p.plan(w, after/2, func(all []held) {
			for _, w := range all {
				p.aside(ctx, w)
			}
		})
		return
	}
	if w.Lease != nil {
		left := min(w.Lease.Sub(p.stage.now()), mostLeft) // more is left if the clock was set back
		switch {
		case p.chance(h.extend):
			p.plan(w, min(after, left-50*time.Millisecond), func(all []held) { p.extend(ctx, all) })
			return
		case p.chance(h.late):
			after = left + between(p.rng.Float64(), time.Millisecond, 400*time.Millisecond) - 4*time.Millisecond
		}
	}
	p.plan(w, after, func(all []held) {
		var ends []ending
		for _, w := range all {
			ends = append(ends, endingOf(w, p.choice(w)))
		}
		if other, known := p.crowd.someWork(p.rng); known && len(all) > 1 && p.chance(20) && !slices.ContainsFunc(all, other.is) { // somebody else's
			ends = append(ends, endingOf(other.held, disposition{Outcome: "return", After: "0s"}))
		}
		p.dispose(ctx, ends, 0)
	})
}

// plan plans what to do with work. Sometimes it is done in one call with all other work that the person holds, whatever is planned for that.
func (p *person) plan(w held, after time.Duration, do func([]held)) {
	p.planned = append(p.planned, w)
	p.agenda.in(after, func() {
		now := []held{w}
		switch at := slices.IndexFunc(p.planned, w.is); {
		case at < 0:
			return // it was done with other work
		case p.chance(p.crowd.scenario.habits.many):
			now, p.planned = p.planned, nil
		default:
			p.planned = slices.Delete(p.planned, at, at+1)
		}
		do(now)
	})
}

// is reports whether they are the same piece of work.
func (w held) is(o held) bool { return w.ID == o.ID }

// choice returns a random disposition of work.
func (p *person) choice(w held) disposition {
	d := p.chosen()
	if p.crowd.coded(w.Task) {
		return d.reasoned(p.rng)
	}
	return d
}

func (p *person) chosen() disposition {
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

// ending is a disposition of one piece of work.
type ending struct {
	disposition
	work held
}

func endingOf(w held, d disposition) ending { return ending{d, w} }

// dispose lets go of work in one call, and repeats that if no answer came. Sometimes it repeats it all the same, which changes
// nothing, or sends another disposition after it, which is refused.
func (p *person) dispose(ctx context.Context, ends []ending, tried int) {
	var all []ending
	var calls []history.Call
	var bodies []map[string]any
	for _, d := range ends {
		if d.Outcome == "complete" && d.work.Task == bookTask && !p.stage.books.finish(ctx, p.stage.rec, d.work.Item) {
			p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, []ending{d}, tried) })
			continue
		}
		all = append(all, d)
		calls = append(calls, d.call(d.work))
		body := d.body()
		if len(ends) > 1 {
			body["id"] = strconv.FormatInt(d.work.ID, 10)
		}
		bodies = append(bodies, body)
	}
	r := request{method: http.MethodPost, path: "/api/v1/work/dispositions", body: map[string]any{"dispositions": bodies}}
	switch len(all) {
	case 0:
		return
	case 1:
		delete(bodies[0], "id")
		r.path, r.body = workPath(all[0].work.ID, "disposition"), bodies[0]
	}
	calls = p.doMany(ctx, calls, r)
	for i, call := range calls {
		if d := all[i]; call.Status == http.StatusUnprocessableEntity && tried == 0 { // without a reason, or its task does not have it now
			d.disposition = d.surely()
			p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, []ending{d}, 1) })
		}
	}
	switch call := calls[0]; {
	case !p.settled(call) && tried < retries:
		p.agenda.in(p.later(call), func() { p.dispose(ctx, all, tried+1) })
	case call.Status == http.StatusOK && tried == 0 && p.chance(6):
		p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, all, retries) })
	case call.Status == http.StatusOK && tried == 0 && p.chance(4):
		p.agenda.in(p.pause(300*time.Millisecond), func() { p.dispose(ctx, []ending{endingOf(all[0].work, p.choice(all[0].work))}, retries) })
	}
}

// extend starts leases over in one call, and decides again.
func (p *person) extend(ctx context.Context, all []held) {
	var calls []history.Call
	var ids []string
	for _, w := range all {
		calls = append(calls, history.Call{Kind: history.Extend, Task: w.Task, Item: w.Item, Work: w.ID})
		ids = append(ids, strconv.FormatInt(w.ID, 10))
	}
	r := request{method: http.MethodPost, path: "/api/v1/work/extend", body: map[string]any{"ids": ids}}
	if len(all) == 1 {
		r.path, r.body = workPath(all[0].ID, "extend"), nil
	}
	for i, call := range p.doMany(ctx, calls, r) {
		longer := all[i]
		if !p.settled(call) || call.Status == http.StatusOK && json.Unmarshal(call.Body, &longer) == nil {
			p.decide(ctx, longer)
		}
	}
}

func workPath(id int64, call string) string {
	return "/api/v1/work/" + strconv.FormatInt(id, 10) + "/" + call
}
