package tracing

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
)

// Call is the span of a call. The zero Call has none, and its methods do nothing.
type Call struct{ span trace.Span }

// Call begins the span of a call that came at began. It continues the trace that the call's traceparent names; a malformed one counts as
// none. The span has the route but not the path, because paths have items in them.
func (t *Tracer) Call(r *http.Request, route string, began time.Time) (c Call) {
	if t == nil {
		return c
	}
	method := semconv.HTTPRequestMethodKey.String(r.Method)
	name := r.Method
	if !slices.Contains(methods, r.Method) { // clients can invent methods
		method, name = semconv.HTTPRequestMethodOther, "HTTP"
	}
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.HeaderCarrier(r.Header))
	_, c.span = t.config.Tracer.Start(ctx, name+" "+route, trace.WithSpanKind(trace.SpanKindServer), trace.WithTimestamp(began),
		trace.WithAttributes(method, semconv.HTTPRoute(route)))
	return c
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// End ends the span. Calls without a task or a request leave these empty.
func (c Call) End(status int, task, request string) {
	if c.span == nil {
		return
	}
	c.span.SetAttributes(semconv.HTTPResponseStatusCode(status))
	if task != "" {
		c.span.SetAttributes(taskKey.String(task))
	}
	if id, err := strconv.ParseInt(request, 10, 64); err == nil {
		c.span.SetAttributes(requestKey.Int64(id))
	}
	if status >= http.StatusInternalServerError {
		c.span.SetAttributes(semconv.ErrorTypeKey.String(strconv.Itoa(status)))
		c.span.SetStatus(codes.Error, "")
	}
	c.span.End()
}

// Trace returns the id of the call's trace; empty: it has no span.
func (c Call) Trace() string {
	if c.span == nil {
		return ""
	}
	return c.span.SpanContext().TraceID().String()
}

// Traceparent returns what a click records: its span, if that is sampled; otherwise empty. It has nothing of the client's text.
func (c Call) Traceparent() string {
	if c.span == nil || !c.span.SpanContext().IsSampled() {
		return ""
	}
	is := c.span.SpanContext()
	return "00-" + is.TraceID().String() + "-" + is.SpanID().String() + "-01"
}

// parse reads what Traceparent has written; invalid: it was not.
func parse(text string) trace.SpanContext {
	ctx := propagation.TraceContext{}.Extract(context.Background(), propagation.MapCarrier{"traceparent": text})
	return trace.SpanContextFromContext(ctx)
}
