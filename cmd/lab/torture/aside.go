package torture

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"getwork/cmd/lab/torture/history"
)

// aside puts work aside for some seconds; sometimes for longer than may be, which is refused.
func (p *person) aside(ctx context.Context, w held) {
	until := p.stage.now().Add(time.Duration(1000+p.rng.IntN(4000)) * time.Millisecond).UTC().Truncate(time.Millisecond)
	if p.chance(4) {
		until = until.Add(72 * time.Hour)
	}
	if !p.putAside(ctx, &w, &until) {
		return
	}
	switch x := p.rng.IntN(10); {
	case x < 3: // what is put aside stays so, also if it is extended, and then left
		p.agenda.in(p.pause(200*time.Millisecond), func() {
			p.do(ctx, history.Call{Kind: history.Extend, Task: w.Task, Item: w.Item, Work: w.ID}, request{method: http.MethodPost, path: workPath(w.ID, "extend")})
		})
	case x < 5: // taken up again before it is due
		p.agenda.in(p.pause(time.Second), func() {
			if p.putAside(ctx, &w, nil) {
				p.decide(ctx, w)
			}
		})
	default:
		p.agenda.in(max(0, until.Sub(p.stage.now())), func() { p.decide(ctx, w) })
	}
}

// putAside puts work aside until a time, or takes it up again. If it returns false, something else was planned for it.
func (p *person) putAside(ctx context.Context, w *held, until *time.Time) bool {
	call := p.do(ctx, history.Call{Kind: history.Later, Task: w.Task, Item: w.Item, Work: w.ID, Until: until},
		request{method: http.MethodPost, path: workPath(w.ID, "later"), body: map[string]any{"until": until}})
	done := call.Status == http.StatusOK && json.Unmarshal(call.Body, w) == nil
	if !done && (!p.settled(call) || call.Status == http.StatusBadRequest) {
		p.decide(ctx, *w)
	}
	return done
}
