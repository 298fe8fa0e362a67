package tracing

import (
	"context"
	"fmt"
	"log/slog"
	"net/http/httptest"
	"os"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"getwork/assign/pg"
	"getwork/schema/schematest"
	"getwork/schema/schematest/logs"
	"getwork/schema/schematest/timeout"
)

func TestMain(m *testing.M) { os.Exit(schematest.Main(m)) }

const (
	theirs = "4bf92f3577b34da6a3ce929d0e0e4736"
	header = "00-" + theirs + "-00f067aa0ba902b7-"
)

// newTracer returns a tracer that samples as the sampler says, and what it has recorded.
func newTracer(c Config, sampler sdktrace.Sampler) (*Tracer, *tracetest.SpanRecorder) {
	r := tracetest.NewSpanRecorder()
	c.Tracer = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r), sdktrace.WithSampler(sampler)).Tracer("test")
	return New(c), r
}

// A call continues the trace that it names, and begins one if it names none or a malformed one. Only a sampled span is recorded.
func TestCall(t *testing.T) {
	t.Parallel()
	parentBased := sdktrace.ParentBased(sdktrace.AlwaysSample())
	for _, c := range []struct {
		header    string
		sampler   sdktrace.Sampler
		continued bool
		sampled   bool
	}{
		{"", parentBased, false, true},
		{header + "01", parentBased, true, true},
		{header + "00", parentBased, true, false},
		{header + "01", sdktrace.NeverSample(), true, false},
		{"00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", parentBased, false, true},
		{header + "01-more", parentBased, false, true},
		{"00-'; drop table work; --", parentBased, false, true},
	} {
		tracer, spans := newTracer(Config{}, c.sampler)
		r := httptest.NewRequest("POST", "/api/v1/tasks/verify/items/loan%2F7/claim?details=secret", strings.NewReader(`{"note":"secret"}`))
		r.Header.Set("Traceparent", c.header)
		began := time.Now().Add(-time.Second)
		call := tracer.Call(r, "/api/v1/tasks/{task}/items/{item}/claim", began)
		is := call.Trace()
		if (is == theirs) != c.continued || len(is) != 32 {
			t.Errorf("%q: trace %s", c.header, is)
		}
		want := ""
		if c.sampled {
			want = fmt.Sprintf("00-%s-%s-01", is, call.span.SpanContext().SpanID())
		}
		if got := call.Traceparent(); got != want || c.sampled && parse(got).SpanID() != call.span.SpanContext().SpanID() {
			t.Errorf("%q: %q is recorded, want %q", c.header, got, want)
		}
		call.End(201, "verify", "12")
		if !c.sampled {
			continue
		}
		span := spans.Ended()[0]
		var facts []string
		for _, a := range span.Attributes() {
			facts = append(facts, string(a.Key)+"="+a.Value.Emit())
		}
		const all = "http.request.method=POST http.route=/api/v1/tasks/{task}/items/{item}/claim http.response.status_code=201 getwork.task=verify getwork.request=12"
		if got := strings.Join(facts, " "); got != all || span.Name() != "POST /api/v1/tasks/{task}/items/{item}/claim" || !span.StartTime().Equal(began) {
			t.Errorf("%s: %s from %v, want %s from %v", span.Name(), got, span.StartTime(), all, began)
		}
	}
}

// Methods that clients invent are no names of spans, and an error of the node is one of its span.
func TestCallThatFails(t *testing.T) {
	t.Parallel()
	tracer, spans := newTracer(Config{}, sdktrace.AlwaysSample())
	call := tracer.Call(httptest.NewRequest("BREW", "/api/v1/tasks", nil), "/api/v1/tasks", time.Now())
	call.End(503, "", "")
	span := spans.Ended()[0]
	if span.Name() != "HTTP /api/v1/tasks" || span.Status().Code != codes.Error || span.Status().Description != "" {
		t.Errorf("%s, %v", span.Name(), span.Status())
	}
}

// A tracer that is off does nothing, and allocates nothing.
func TestOff(t *testing.T) {
	var off *Tracer
	requests := []int64{1, 2}
	r := httptest.NewRequest("POST", "/", nil)
	text := ""
	if n := testing.AllocsPerRun(1000, func() {
		call := off.Call(r, "/", off.Now())
		text += call.Trace() + call.Traceparent()
		call.End(200, "task", "1")
		off.Answered(1, 1, off.Now(), requests)
		off.Pushed(off.Now(), requests)
	}); n != 0 || text != "" {
		t.Errorf("%v allocations, %q", n, text)
	}
}

// Rounds and pushes don't wait for their spans, neither while nothing reads nor when the database is away; what is lost is logged, and
// the end comes soon.
func TestNobodyWaitsForSpans(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	db := schematest.Pool(t)
	var log logs.Buffer
	tracer, _ := newTracer(Config{DB: pg.Router{Calls: db}, Log: slog.New(slog.NewTextHandler(&log, nil))}, sdktrace.AlwaysSample())
	for range queued + 7 {
		tracer.Answered(1, 0, tracer.Now(), []int64{1})
	}
	if _, err := db.Exec(t.Context(), `alter table getwork.work_requested rename to away`); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error)
	go func() { done <- tracer.Run(ctx) }()
	timeout.Await(t, "what is lost is logged", func() bool {
		return strings.Contains(log.String(), "spans are lost") && strings.Contains(log.String(), "7 rounds and pushes came faster")
	})
	timeout.Await(t, "the queue is read", func() bool { return len(tracer.told) == 0 })
	cancel()
	if err := <-done; err != nil {
		t.Error(err)
	}
	over, end := context.WithTimeout(t.Context(), timeout.Scale(time.Minute))
	defer end()
	if tracer.Wait(over); over.Err() != nil {
		t.Error("Wait did not return")
	}
	if n := strings.Count(log.String(), "spans are lost"); n > 2 {
		t.Errorf("%d lines in a moment", n)
	}
}
