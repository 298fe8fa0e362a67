package web

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"getwork/assign/tracing"
	"getwork/schema/schematest/logs"
)

// Each call has a line that names who called, the task, the request and the trace, and nothing of the item.
func TestCallLog(t *testing.T) {
	t.Parallel()
	var log logs.Buffer
	n := start(t, stationOptions{log: &log, logCalls: true})
	n.newTask(t, "verify", five, "")
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60", "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01"), `{"count":1}`).want(201)
	n.call(t, "GET", "/api/v1/requests/1", as("oliver", "Traceparent", "00-no-trace"), "").want(200)
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F3/claim", as("tracy"), "{}").want(201)
	n.call(t, "GET", "/nothing", as("tracy"), "").want(404)
	text := regexp.MustCompile(`time=\S+ level=INFO |seconds=[0-9.e-]+ `).ReplaceAllString(log.String(), "")
	for _, want := range []string{
		"msg=call method=POST route=/api/v1/tasks/{task}/requests status=201 user=oliver task=verify request=1 trace=" + trace + "\n",
		"msg=call method=GET route=/api/v1/requests/{id} status=200 user=oliver request=1\n",
		"msg=call method=POST route=/api/v1/tasks/{task}/items/{item}/claim status=201 user=tracy task=verify\n",
		"msg=call method=GET route=\"\" status=404 user=tracy\n",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("there is no line %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "loan") {
		t.Errorf("an item is named in\n%s", text)
	}
}

// The line of a call that failed names its route, if the router had found it, and nothing of the item either.
func TestFailedCallLog(t *testing.T) {
	t.Parallel()
	var log logs.Buffer
	n := start(t, stationOptions{log: &log})
	n.newTask(t, "verify", five, "")
	const item = "/api/v1/tasks/verify/items/SECRETKEY%2F3"
	n.call(t, "GET", item, as("tracy", panics, "yes"), "").want(500)
	n.exec(t, `alter table getwork.work rename to away`)
	n.call(t, "POST", item+"/claim", as("tracy"), "{}").want(500)
	text := log.String()
	for _, want := range []string{
		`msg="request failed" error="panic: .* method=GET route=""\n`,
		`msg="request failed" error=".*getwork.work.*" method=POST route=/api/v1/tasks/{task}/items/{item}/claim task=verify\n`,
	} {
		if !regexp.MustCompile(want).MatchString(text) {
			t.Errorf("there is no line %q in\n%s", want, text)
		}
	}
	if strings.Contains(text, "SECRETKEY") {
		t.Errorf("an item is named in\n%s", text)
	}
}

// With tracing on each call of the API is a span, also one that is refused; probes and the page are none. The line of a call has the
// trace of its span, whether or not its client names one, and a click records its span.
func TestCallsAreSpans(t *testing.T) {
	t.Parallel()
	var log logs.Buffer
	spans := tracetest.NewSpanRecorder()
	tracer := tracing.New(tracing.Config{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")})
	n := start(t, stationOptions{log: &log, logCalls: true, traces: tracer})
	n.newTask(t, "verify", five, "")
	const trace = "4bf92f3577b34da6a3ce929d0e0e4736"
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("oliver", "Prefer", "wait=60", "Traceparent", "00-"+trace+"-00f067aa0ba902b7-01"), `{"count":1}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/verify/items/loan%2F3/claim", as("tracy"), "{}").want(201)
	n.call(t, "GET", "/api/v1/pipeline?user=oliver", nil, "").want(401)
	n.call(t, "GET", "/livez", nil, "").want(200)
	n.call(t, "GET", "/nothing", as("tracy"), "").want(404)
	var got []string
	for _, s := range spans.Ended() {
		if s.Name() == "run" {
			continue
		}
		facts := map[string]string{}
		for _, a := range s.Attributes() {
			facts[string(a.Key)] = a.Value.Emit()
		}
		got = append(got, s.Name()+" "+facts["http.response.status_code"]+" "+facts["getwork.task"]+" "+facts["getwork.request"])
		line := "trace=" + s.SpanContext().TraceID().String()
		if text := log.String(); !strings.Contains(text, line) {
			t.Errorf("no line has the trace of %s:\n%s", s.Name(), text)
		}
		if text := fmt.Sprint(s.Attributes(), s.Name(), s.Events()); strings.Contains(text, "loan") || strings.Contains(text, "oliver") {
			t.Errorf("an item or a user is in %s", text)
		}
		if s.Name() == "POST /api/v1/tasks/{task}/requests" {
			want := fmt.Sprintf("00-%s-%s-01", trace, s.SpanContext().SpanID())
			var recorded string
			if err := n.db.QueryRow(t.Context(), `select traceparent from getwork.work_requested where id = 1`).Scan(&recorded); err != nil || recorded != want {
				t.Errorf("the click records %q, %v, want %q", recorded, err, want)
			}
		}
	}
	want := []string{"POST /api/v1/tasks 201  ", "POST /api/v1/tasks/{task}/requests 201 verify 1", "POST /api/v1/tasks/{task}/items/{item}/claim 201 verify ", "GET /api/v1/pipeline 401  "}
	if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
		t.Errorf("spans %q, want %q", got, want)
	}
}

// The span of a live channel is its handshake: it ends while the channel goes on, and only once.
func TestLiveChannelsAreShortSpans(t *testing.T) {
	t.Parallel()
	spans := tracetest.NewSpanRecorder()
	tracer := tracing.New(tracing.Config{Tracer: sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(spans)).Tracer("test")})
	n := start(t, stationOptions{traces: tracer})
	named := func(name string) int {
		return len(slices.DeleteFunc(spans.Ended(), func(s sdktrace.ReadOnlySpan) bool { return s.Name() != name }))
	}
	stream := n.listen(t, "", as("oliver"))
	stream.next("snapshot")
	if named("GET /api/v1/events") != 1 {
		t.Error("a stream that goes on has no span yet")
	}
	stream.leave()
	await(t, "the stream is over", func() bool { return n.open.Load() == 0 })

	socket := &call{ResponseWriter: httptest.NewRecorder(), span: tracer.Call(httptest.NewRequest("GET", "/", nil), "/api/v1/ws", time.Now())}
	socket.WriteHeader(http.StatusSwitchingProtocols)
	if named("GET /api/v1/ws") != 1 || named("GET /api/v1/events") != 1 {
		t.Errorf("%d spans of sockets and %d of streams, want 1 of each", named("GET /api/v1/ws"), named("GET /api/v1/events"))
	}
}
