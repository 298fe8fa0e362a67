package torture

import (
	"context"
	"encoding/json"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"getwork/cmd/lab/torture/history"
)

// person is a user, or an instance of a program. It is one goroutine that does one thing after the other, as its agenda
// says, and handles the messages of its socket.
type person struct {
	caller
	crowd   *crowd
	agent   bool
	socket  bool // it has a live channel
	told    chan message
	agenda  agenda
	known   map[int64]bool   // work that it knows of
	planned []held           // work that something is planned for
	waiting map[int64]bool   // requests that it follows
	tags    map[int64]string // the ETags of requests, as it last got them
	keys    int
}

// run lives until the context ends. After over is closed it only follows what it waits for.
func (p *person) run(ctx context.Context, over <-chan struct{}) {
	p.agenda.in(p.pause(p.crowd.think), func() { p.act(ctx) })
	for {
		timer := time.NewTimer(p.agenda.wait())
		select {
		case <-timer.C:
			if len(p.agenda) > 0 {
				p.agenda.next().do()
			}
		case m := <-p.told:
			p.hear(ctx, m, over == nil)
		case <-over:
			over = nil
			p.agenda.onlyPolls()
		case <-ctx.Done():
			timer.Stop()
			return
		}
		timer.Stop()
		if over == nil {
			p.agenda.onlyPolls() // drops what the last act has planned
		}
	}
}

// pause returns a random time with that mean.
func (p *person) pause(mean time.Duration) time.Duration {
	return time.Duration(p.rng.ExpFloat64() * float64(mean))
}

// chance returns true in percent of a hundred cases.
func (p *person) chance(percent int) bool { return p.rng.IntN(100) < percent }

// act does the next thing on its own initiative.
func (p *person) act(ctx context.Context) {
	h := p.crowd.scenario.habits
	if p.pass != nil && p.chance(10) {
		p.haunt(ctx)
	}
	switch x := p.rng.IntN(100); {
	case x < h.claim && !p.agent:
		p.claim(ctx)
	case x < h.claim+h.read:
		p.read(ctx)
	case p.chance(h.double):
		p.clickTwice(ctx)
	default:
		p.click(ctx, p.wish(), 0)
	}
	p.agenda.in(p.pause(p.crowd.think), func() { p.act(ctx) })
}

// retries is how often a person repeats a call that got no answer, or was to be made later.
const retries = 6

// settled reports whether an answer is final.
func (p *person) settled(call history.Call) bool {
	return call.Status != 0 && call.Status != http.StatusTooManyRequests && call.Status < 500
}

// later returns when to repeat a call. It heeds Retry-After unless that is too long for this short run.
func (p *person) later(call history.Call) time.Duration {
	return min(seconds(call.Retry, 100*time.Millisecond), 2*time.Second) + p.pause(200*time.Millisecond)
}

// follow waits for a request by polling, by its socket, or not at all; or it cancels the request.
func (p *person) follow(ctx context.Context, id int64, retry time.Duration) {
	if p.waiting[id] {
		return
	}
	p.waiting[id] = true
	if p.chance(p.crowd.scenario.habits.cancel) {
		p.agenda.in(between(p.rng.Float64(), 500*time.Microsecond, 2*time.Second), func() { p.cancel(ctx, id) })
		return
	}
	p.agenda.ask(retry, func() { p.poll(ctx, id) })
}

// poll reads a request. In half of all cases it asks only for a change.
func (p *person) poll(ctx context.Context, id int64) {
	if !p.waiting[id] {
		return // the socket reported the end meanwhile
	}
	call := p.ask(ctx, id)
	var status answered
	switch {
	case !p.settled(call):
		p.agenda.ask(p.later(call), func() { p.poll(ctx, id) })
	case call.Status == http.StatusNotModified && call.Retry != "": // it is still pending
		p.agenda.ask(seconds(call.Retry, 5*time.Second), func() { p.poll(ctx, id) })
	case call.Status != http.StatusOK || json.Unmarshal(call.Body, &status) != nil:
		delete(p.waiting, id)
	case status.State == "pending":
		p.agenda.ask(seconds(call.Retry, 5*time.Second), func() { p.poll(ctx, id) })
	default:
		delete(p.waiting, id)
		p.take(ctx, status.Work)
		if p.chance(10) {
			p.agenda.ask(p.pause(time.Second), func() { p.ask(ctx, id) }) // checks that it stays so
		}
	}
}

func (p *person) ask(ctx context.Context, id int64) history.Call {
	r := request{method: http.MethodGet, path: "/api/v1/requests/" + strconv.FormatInt(id, 10)}
	if p.chance(p.crowd.scenario.habits.hold) {
		r.hold(1 + p.rng.IntN(3))
	}
	call := history.Call{Kind: history.Status, Request: id}
	if p.chance(50) {
		call.Match = p.tags[id]
		r.unless(call.Match)
	}
	call = p.do(ctx, call, r)
	if call.Status == http.StatusOK {
		p.tags[id] = call.Tag
	}
	return call
}

// cancel cancels a waiting request. If the request has ended already it may have brought work.
func (p *person) cancel(ctx context.Context, id int64) {
	call := p.do(ctx, history.Call{Kind: history.Cancel, Request: id}, request{method: http.MethodDelete, path: "/api/v1/requests/" + strconv.FormatInt(id, 10)})
	switch {
	case !p.settled(call):
		p.agenda.in(p.later(call), func() { p.cancel(ctx, id) })
	case call.Status == http.StatusOK:
		delete(p.waiting, id)
	default:
		p.agenda.ask(0, func() { p.poll(ctx, id) })
	}
}

// claim asks for one item by name.
func (p *person) claim(ctx context.Context) {
	job := p.crowd.job(p.rng)
	item := p.crowd.item(job, p.rng)
	if item == "" {
		return
	}
	call := p.do(ctx, history.Call{Kind: history.Claim, Task: job.name, Item: item},
		request{method: http.MethodPost, path: "/api/v1/tasks/" + job.name + "/items/" + url.PathEscape(item) + "/claim", held: 2 * time.Second})
	var w held
	if call.Status/100 == 2 && json.Unmarshal(call.Body, &w) == nil {
		p.take(ctx, []held{w})
	}
}

// read reads the pipeline, and takes up work that the person did not know of.
func (p *person) read(ctx context.Context) {
	call := p.do(ctx, history.Call{Kind: history.Pipeline}, request{method: http.MethodGet, path: "/api/v1/pipeline"})
	var all pipeline
	if call.Status == http.StatusOK && json.Unmarshal(call.Body, &all) == nil {
		p.takeAll(ctx, all)
	}
}

func (p *person) takeAll(ctx context.Context, all pipeline) {
	p.take(ctx, all.Work)
	for _, r := range all.Requests {
		p.follow(ctx, r.ID, time.Second)
	}
}
