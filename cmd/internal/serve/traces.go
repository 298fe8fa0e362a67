package serve

import (
	"context"
	"time"

	"getwork/assign/tracing"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/otlp"
)

// openSender reads the variables OTEL_…. Without a collector the node makes no spans.
func (n *node) openSender(ctx context.Context, id string) (err error) {
	if n.spans, err = otlp.Start(ctx, otlp.Node{ID: id, Version: n.config.Version}, n.log); err != nil {
		return command.AsUsage(err)
	}
	return nil
}

// openTracer begins to make spans, if there is a collector.
func (n *node) openTracer(sql func(string) string) {
	if n.spans != nil {
		n.tracer = tracing.New(tracing.Config{Tracer: n.spans.Tracer(), DB: n.pools.Router(), SQL: sql, Log: n.log})
	}
}

// endTraces sends the last spans. A collector that does not answer delays the node's end by a tenth of the time for it, and not beyond
// that time.
func (n *node) endTraces(began time.Time) {
	if n.tracer == nil {
		return
	}
	whole := n.config.DrainTimeout
	within := min(whole/10, time.Until(began.Add(whole*19/20)))
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	n.tracer.Wait(ctx)
	n.spans.Close(ctx)
}
