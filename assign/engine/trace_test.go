package engine

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"getwork/assign"
	"getwork/schema/schematest"
)

// Both ways to record a click record the span of its click, each at its own row, and nothing where there is none.
func TestTraceparentsAreRecorded(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	for _, pooled := range []bool{false, true} {
		t.Run(fmt.Sprintf("pooled %v", pooled), func(t *testing.T) {
			t.Parallel()
			url := schematest.URL(t)
			n := startNode(t, url, nodeOptions{Pooled: pooled})
			db := pool(t, url)
			newTask(t, n, "query", numbers, func(s *assign.Settings) { s.Paused = true })
			newInbox(t, n, "inbox", nil)
			for task, users := range map[string][]string{"query": {"ann", "bob=1", "cyd", "dee=2", "eve"}, "inbox": {"ann=3", "bob", "cyd=4"}} {
				var clicks []*click
				for i := range users { // the last first: they are sorted before they are inserted
					user, span, _ := strings.Cut(users[len(users)-1-i], "=")
					c := assign.Click{Holder: assign.Holder{User: user}, Count: 1, Linger: assign.Duration(time.Hour)}
					if span != "" {
						c.Traceparent = "00-0000000000000000000000000000000" + span + "-000000000000000" + span + "-01"
					}
					clicks = append(clicks, &click{Click: c, holder: c.Holder, done: make(chan struct{})})
				}
				n.recordBatch(t.Context(), task, clicks)
				for _, k := range clicks {
					if k.err != nil {
						t.Fatal(k.err)
					}
				}
				if got := query[string](t, db, `
select string_agg(r.user_name || coalesce('=' || right(r.traceparent, 4), ''), ' ' order by r.user_name)
from getwork.work_requested r join getwork.task_state s using (task_id) where s.name = $1`, task); got != suffixed(users) {
					t.Errorf("%s: %s, want %s", task, got, suffixed(users))
				}
				untraced := []*click{{Click: assign.Click{Holder: assign.Holder{User: "fay"}, Count: 1}, holder: assign.Holder{User: "fay"}, done: make(chan struct{})}}
				if n.recordBatch(t.Context(), task, untraced); untraced[0].err != nil {
					t.Fatal(untraced[0].err)
				}
			}
			if n := query[int](t, db, `select count(*) from getwork.work_requested where user_name = 'fay' and traceparent is null`); n != 2 {
				t.Errorf("%d requests have no span, want 2", n)
			}
		})
	}
}

// suffixed returns the users with the ends of their traceparents.
func suffixed(users []string) string {
	var all []string
	for _, u := range users {
		user, span, found := strings.Cut(u, "=")
		if found {
			user += "=" + span + "-01"
		}
		all = append(all, user)
	}
	return strings.Join(all, " ")
}

// recording returns a provider that samples everything, and what it has recorded.
func recording(t testing.TB) (trace.Tracer, *tracetest.SpanRecorder) {
	t.Helper()
	r := tracetest.NewSpanRecorder()
	return sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r)).Tracer("test"), r
}

// traced clicks with a span of its own, and returns that, too.
func (n *node) traced(t testing.TB, tracer trace.Tracer, task, user string) (assign.Request, trace.SpanContext) {
	t.Helper()
	_, span := tracer.Start(t.Context(), "click")
	span.End()
	is := span.SpanContext()
	r, err := n.GetWork(t.Context(), task, assign.Click{Holder: assign.Holder{User: user}, Count: 1,
		Traceparent: fmt.Sprintf("00-%s-%s-01", is.TraceID(), is.SpanID())})
	if err != nil {
		t.Fatal(err)
	}
	return r, is
}

// ended waits until so many spans of that name have ended, and returns them.
func ended(t testing.TB, spans *tracetest.SpanRecorder, name string, n int) (found []sdktrace.ReadOnlySpan) {
	t.Helper()
	await(t, fmt.Sprintf("%d spans %s", n, name), func() bool {
		found = nil
		for _, s := range spans.Ended() {
			if s.Name() == name {
				found = append(found, s)
			}
		}
		return len(found) >= n
	})
	return found
}

// facts returns a span's attributes.
func facts(s sdktrace.ReadOnlySpan) map[string]string {
	all := map[string]string{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.Emit()
	}
	return all
}

// A run is a child of the oldest click that waits and linked to all; an answer is a child of its click and linked to the run. Errors name
// nothing of what the query read.
func TestSpansOfARun(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	url := schematest.URL(t)
	tracer, spans := recording(t)
	n := startNode(t, url, nodeOptions{Tracer: tracer})
	db := pool(t, url)
	execute(t, db, `create table loan as select 'secret' as name`)
	newTask(t, n, "task", numbers, nil)
	newTask(t, n, "wrong", `select name::integer as item from loan`, nil)
	r, click := n.traced(t, tracer, "task", "ann")
	n.endedRequest(t, r.ID)
	run, assigned := ended(t, spans, "run", 1)[0], ended(t, spans, "assign", 1)[0]
	if run.Parent().SpanID() != click.SpanID() || run.SpanContext().TraceID() != click.TraceID() ||
		len(run.Links()) != 1 || run.Links()[0].SpanContext.SpanID() != click.SpanID() {
		t.Errorf("the run's parent is %v, its links are %v", run.Parent(), run.Links())
	}
	if assigned.Parent().SpanID() != click.SpanID() || len(assigned.Links()) != 1 || assigned.Links()[0].SpanContext.SpanID() != run.SpanContext().SpanID() {
		t.Errorf("the answer's parent is %v, its links are %v", assigned.Parent(), assigned.Links())
	}
	if !assigned.StartTime().Before(assigned.EndTime()) || assigned.StartTime().Before(run.StartTime()) || assigned.EndTime().After(run.EndTime()) {
		t.Errorf("the run took from %v to %v, its round from %v to %v", run.StartTime(), run.EndTime(), assigned.StartTime(), assigned.EndTime())
	}
	number := query[string](t, db, `select max(id)::text from getwork.run`)
	round := query[string](t, db, `select round_id::text from getwork.work_requested`)
	for _, c := range []struct {
		span sdktrace.ReadOnlySpan
		want map[string]string
	}{
		{run, map[string]string{"getwork.task": "task", "getwork.run": number, "getwork.state": "finished"}},
		{assigned, map[string]string{"getwork.task": "task", "getwork.run": number, "getwork.state": "assigned", "getwork.round": round, "getwork.request": fmt.Sprint(r.ID)}},
	} {
		if got := fmt.Sprint(facts(c.span)); got != fmt.Sprint(c.want) {
			t.Errorf("%s has %s, want %v", c.span.Name(), got, c.want)
		}
	}

	r, click = n.traced(t, tracer, "wrong", "ann")
	n.endedRequest(t, r.ID)
	run, assigned = ended(t, spans, "run", 2)[1], ended(t, spans, "assign", 2)[1]
	if run.Status().Code != codes.Error || facts(run)["getwork.state"] != "failed" || facts(assigned)["getwork.state"] != "failed" ||
		assigned.Parent().SpanID() != click.SpanID() || len(assigned.Links()) != 1 || assigned.Links()[0].SpanContext.SpanID() != run.SpanContext().SpanID() {
		t.Errorf("run %v %v, answer %v, parent %v, links %v", run.Status(), facts(run), facts(assigned), assigned.Parent(), assigned.Links())
	}
	if text := fmt.Sprint(run.Status(), facts(run), run.Events(), facts(assigned)); strings.Contains(text, "secret") {
		t.Errorf("the query's error is in %s", text)
	}
}

// A click that is served as it is recorded has an answer without a run, and a click without a span has none.
func TestSpansOfAnInbox(t *testing.T) {
	t.Parallel()
	url := schematest.URL(t)
	tracer, spans := recording(t)
	n := startNode(t, url, nodeOptions{Tracer: tracer})
	newInbox(t, n, "inbox", nil)
	n.push(t, "inbox", "a", "b")
	n.click(t, "inbox", "bob", 1)
	r, click := n.traced(t, tracer, "inbox", "ann")
	assigned := ended(t, spans, "assign", 1)
	if len(assigned) != 1 || assigned[0].Parent().SpanID() != click.SpanID() || len(assigned[0].Links()) != 0 || facts(assigned[0])["getwork.request"] != fmt.Sprint(r.ID) ||
		facts(assigned[0])["getwork.run"] != "" {
		t.Errorf("%d answers, %v, parent %v", len(assigned), facts(assigned[0]), assigned[0].Parent())
	}
}

// With tracing off the places where spans would be made allocate nothing.
func TestTracingOffAllocatesNothing(t *testing.T) {
	off := &Engine{}
	r := &round{e: off, answered: []int64{1, 2}}
	var column []*string
	var waiting any
	if n := testing.AllocsPerRun(1000, func() {
		r.began = off.Trace.Now()
		column = withText(column, 3, "")
		off.traceAnswered(r)
		found, _ := off.Trace.Waiting(t.Context(), nil, 1)
		off.Trace.RunBegan(1, "task", found)
		off.Trace.RunEnded(1, off.Trace.RunTrace(1))
		waiting = column // as an argument of a statement
	}); n != 0 || waiting == nil {
		t.Errorf("%v allocations", n)
	}
	if column != nil || !r.began.IsZero() {
		t.Errorf("%v, %v", column, r.began)
	}
}

// What a click costs that is served as it is recorded, with all that the node does for it.
//
//	go test -run '^$' -bench Click -benchtime 3000x ./assign/engine
func BenchmarkClick(b *testing.B) {
	for _, traced := range []bool{false, true} {
		b.Run(fmt.Sprintf("tracing %v", traced), func(b *testing.B) {
			var tracer trace.Tracer
			if traced {
				tracer, _ = recording(b)
			}
			n := startNode(b, schematest.URL(b), nodeOptions{Tracer: tracer})
			newInbox(b, n, "inbox", nil)
			c := assign.Click{Holder: assign.Holder{User: "ann"}, Count: 1}
			if traced {
				c.Traceparent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				if i%1000 == 0 {
					b.StopTimer()
					items := make([]string, 1000)
					for j := range items {
						items[j] = fmt.Sprintf("item %d", i+j)
					}
					n.push(b, "inbox", items...)
					b.StartTimer()
				}
				if r, err := n.GetWork(b.Context(), "inbox", c); err != nil || r.State != assign.Assigned {
					b.Fatal(r.State, err)
				}
			}
		})
	}
}
