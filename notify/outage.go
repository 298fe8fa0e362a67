package notify

import (
	"context"
	"log/slog"
	"time"
)

// outage logs one kind of failure: a line when it starts, a line per minute while it lasts, a line when it is over. A
// server that is down for a night would otherwise fill the log with one line per attempt. It isn't safe for concurrent
// use.
type outage struct {
	log       *slog.Logger
	bad, good string // messages while it lasts, and when it is over

	since, logged time.Time // zero while nothing fails
	times         int
}

// failed notes one more failure.
func (o *outage) failed(ctx context.Context, err error) {
	now := time.Now()
	if o.since.IsZero() {
		o.since = now
	}
	o.times++
	if !o.logged.IsZero() && now.Sub(o.logged) < time.Minute {
		return
	}
	o.logged = now
	o.log.WarnContext(ctx, o.bad, "error", err, "failures", o.times, "for", now.Sub(o.since).Round(time.Millisecond))
}

// over notes a success. It logs one line if there were failures before.
func (o *outage) over(ctx context.Context) {
	if o.since.IsZero() {
		return
	}
	o.log.InfoContext(ctx, o.good, "failures", o.times, "for", time.Since(o.since).Round(time.Millisecond))
	o.since, o.logged, o.times = time.Time{}, time.Time{}, 0
}
