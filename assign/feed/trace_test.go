package feed

import (
	"fmt"
	"testing"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/schema/schematest"
)

// A result that goes to a live channel is a span on the node that has the channel. An answer that is held is none, nor is word of a
// request that waits.
func TestPushesAreSpans(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	queried := newGate(engine.StepQueried)
	spans := tracetest.NewSpanRecorder()
	tracer := sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")
	a, b := startNode(t, url, NodeOptions{Steps: queried.hold}), startNode(t, url, NodeOptions{Tracer: tracer, Steps: queried.hold})
	newTask(t, a, "task", numbers, nil)
	ann := join(t, b, "ann")
	ids := map[string]int64{}
	for _, user := range []string{"bob", "ann"} { // bob's answer is held; ann's is pushed, and in the same round
		r, err := a.GetWork(t.Context(), "task", assign.Click{Holder: assign.Holder{User: user}, Count: 1,
			Traceparent: "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"})
		if err != nil {
			t.Fatal(err)
		}
		ids[user] = r.ID
	}
	<-queried.reached
	ann.next("word that she waits", func(e assign.Event) bool { return e.Type == "request" && e.Request.State == assign.Pending })
	held := make(chan assign.Request)
	go func() {
		r, err := b.Feed.Await(t.Context(), ids["bob"], assign.Holder{}, true, func(r *assign.Request) bool { return r.State != assign.Pending })
		if err != nil {
			t.Error(err)
		}
		held <- r
	}()
	close(queried.open)
	ann.next("her result", func(e assign.Event) bool { return e.Type == "request" && e.Request.State == assign.Assigned })
	<-held
	b.Stop() // the last spans are made before
	var pushed []string
	for _, s := range spans.Ended() {
		if s.Name() != "push" {
			continue
		}
		for _, a := range s.Attributes() {
			if a.Key == "getwork.request" {
				pushed = append(pushed, fmt.Sprint(a.Value.AsInt64()))
			}
		}
		if s.Parent().SpanID().String() != "00f067aa0ba902b7" || s.Parent().TraceID().String() != "4bf92f3577b34da6a3ce929d0e0e4736" {
			t.Errorf("its parent is %v", s.Parent())
		}
	}
	if fmt.Sprint(pushed) != fmt.Sprint([]int64{ids["ann"]}) {
		t.Errorf("pushed: %v, want %d", pushed, ids["ann"])
	}
}
