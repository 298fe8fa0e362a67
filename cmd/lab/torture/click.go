package torture

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"sync"
	"time"

	"getwork/cmd/lab/torture/history"
)

// wish is a click that is the same each time it is repeated.
type wish struct {
	job    job
	count  int
	linger string
	lease  string
	key    string
	held   int  // seconds
	other  int  // if not 0: not at the node before this number
	next   bool // over all tasks
}

func (p *person) wish() wish {
	h := p.crowd.scenario.habits
	w := wish{job: p.crowd.job(p.rng), count: 1 + p.rng.IntN(3)}
	w.next = h.next > 0 && p.chance(h.next)
	if p.chance(h.linger) || p.agent && p.chance(h.patient) {
		w.linger = fmt.Sprintf("%dms", 300+p.rng.IntN(5000))
	}
	if p.agent && p.chance(h.lease) {
		w.lease = fmt.Sprintf("%dms", 1000+p.rng.IntN(3000))
	}
	if p.chance(h.key) {
		p.keys++
		w.key = fmt.Sprintf("%s-%d", p.who.Instance, p.keys)
	}
	if p.chance(h.hold) {
		w.held = 1 + p.rng.IntN(3)
	}
	return w
}

// click asks for work. If no answer comes it repeats the click, perhaps at another node.
func (p *person) click(ctx context.Context, w wish, tried int) {
	call := p.sendClick(ctx, &p.caller, w)
	if p.settled(call) || tried >= retries {
		p.clicked(ctx, call)
		if w.key != "" && w.other == 0 && call.Status/100 == 2 && p.chance(p.crowd.scenario.habits.again) {
			w.other, w.held = call.Node+1, 0
			p.agenda.in(p.pause(2*time.Second), func() { p.click(ctx, w, 0) }) // as if the answer were lost
		}
		return
	}
	p.agenda.in(p.later(call), func() { p.click(ctx, w, tried+1) })
}

// clickTwice clicks in two tabs at the same time.
func (p *person) clickTwice(ctx context.Context) {
	other := p.caller
	other.rng = rand.New(rand.NewPCG(p.rng.Uint64(), 0))
	one, two := p.wish(), p.wish()
	two.job = one.job
	var calls [2]history.Call
	var both sync.WaitGroup
	both.Go(func() { calls[1] = p.sendClick(ctx, &other, two) })
	calls[0] = p.sendClick(ctx, &p.caller, one)
	both.Wait()
	for _, call := range calls {
		p.clicked(ctx, call)
	}
}

func (p *person) sendClick(ctx context.Context, by *caller, w wish) history.Call {
	body := map[string]any{"count": w.count}
	if w.linger != "" {
		body["linger"] = w.linger
	}
	if w.lease != "" {
		body["lease"] = w.lease
	}
	r := request{method: http.MethodPost, path: "/api/v1/tasks/" + w.job.name + "/requests", body: body, notNode: w.other}
	task := w.job.name
	if w.next {
		task, r.path, body["tasks"] = "*", "/api/v1/requests", []string{"*"}
	}
	if w.key != "" {
		r.header = append(r.header, "Idempotency-Key", w.key)
	}
	r.hold(w.held)
	within := p.crowd.scenario.prompt
	if w.held > 0 {
		within = 0
	}
	return by.do(ctx, history.Call{Kind: history.Click, Task: task, Count: w.count, Linger: w.linger, Key: w.key, Within: within}, r)
}

// clicked handles the answer to a click.
func (p *person) clicked(ctx context.Context, call history.Call) {
	var r answered
	if call.Status < 200 || call.Status > 299 || json.Unmarshal(call.Body, &r) != nil {
		return
	}
	p.tags[r.ID] = call.Tag
	if r.State != "pending" {
		p.take(ctx, r.Work)
		return
	}
	p.follow(ctx, r.ID, seconds(call.Retry, 5*time.Second))
}
