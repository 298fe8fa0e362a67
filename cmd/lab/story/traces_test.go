package story

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"getwork/assign"
	"getwork/cmd/internal/cluster"
	"getwork/cmd/internal/e2e"
	"getwork/cmd/internal/otlp/otlptest"
	"getwork/schema/schematest"
	"getwork/schema/schematest/timeout"
)

// tracedSite starts n nodes that send their spans to a collector, and log their calls. Each runs one query at a time.
func tracedSite(t *testing.T, n int, collector string, env ...string) *site {
	t.Helper()
	url := schematest.URL(t)
	db, err := pgxpool.New(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(db.Close)
	env = append([]string{"OTEL_BSP_SCHEDULE_DELAY=20"}, env...)
	if collector != "" {
		env = append(env, "OTEL_EXPORTER_OTLP_ENDPOINT="+collector)
	}
	nodes := cluster.Start(t, n, cluster.Options{DatabaseURL: url, Args: []string{"--max-runs", "1", "--log-calls"}, Env: env})
	s := &site{&e2e.Site{T: t, URL: url, DB: db, Nodes: nodes}}
	for i := range nodes {
		e2e.Await(t, "the node listens", 30*time.Second, func() bool { return s.Figure(i, "getwork_listener_up") == 1 })
	}
	return s
}

const (
	callers = "4bf92f3577b34da6a3ce929d0e0e4736"
	parent  = "00f067aa0ba902b7"
)

// from returns the header of a caller who traces.
func from(sampled string) []string {
	return []string{"Traceparent", "00-" + callers + "-" + parent + "-" + sampled, "Tracestate", "vendor=hunter2"}
}

// A click on one node, the run on another and the push on a third are one trace, which begins at the caller.
func TestTraceOverThreeNodes(t *testing.T) {
	t.Parallel()
	collector := otlptest.Start(t)
	s := tracedSite(t, 3, collector.URL)
	gated, open := s.Gated(0, 9)
	s.Task("busy", gated)
	s.Task("busy-too", gated)
	s.Task("verify", "select 'loan ' || n as item, 'private' as owner from generate_series(1, 9) n, pg_sleep(1.1)")
	id := make([]string, 3)
	for i := range id {
		id[i] = s.Dial("nobody", i).Hello.Node
	}
	// Two nodes have their hands full, whichever they are, so the third runs the query.
	for i, task := range []string{"busy", "busy-too"} {
		if _, a, err := s.As("peter", i).GetWork(t.Context(), task, 1); err != nil || a.Status != 202 {
			t.Fatalf("%d %s, %v", a.Status, a.Body, err)
		}
		s.Await("it is run", e2e.Soon, `
select exists (select from getwork.run join getwork.task_state s using (task_id) where s.name = $1 and run.state = 'running')`, task)
	}
	busy := column[string](s, `select node from getwork.run where state = 'running'`)
	if len(busy) != 2 {
		t.Fatalf("%v are busy, want two nodes", busy)
	}
	clicked, heard := slices.Index(id, busy[0]), slices.Index(id, busy[1])
	if clicked < 0 || heard < 0 || clicked == heard {
		t.Fatalf("the busy nodes are %v, of %v", busy, id)
	}
	free := 3 - clicked - heard
	socket := s.Dial("oliver", heard)
	r, a, err := s.As("oliver", clicked).GetWork(t.Context(), "verify", 2, from("01")...)
	if err != nil || a.Status != 202 {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	pushed := s.Hear(socket, "the result", e2e.Soon, e2e.Ended(r.ID))
	request := fmt.Sprint(r.ID)
	one := func(what, key, value string) otlptest.Span {
		t.Helper()
		var found []otlptest.Span
		e2e.Await(t, "the collector has "+what, e2e.Soon, func() bool { found = collector.Spans(what, key, value); return len(found) > 0 })
		if len(found) != 1 {
			t.Errorf("%d spans %s", len(found), what)
		}
		return found[0]
	}
	click := one("POST /api/v1/tasks/{task}/requests", "getwork.request", request)
	assigned, push := one("assign", "getwork.request", request), one("push", "getwork.request", request)
	run := one("run", "getwork.task", "verify")
	for i, span := range []otlptest.Span{click, run, assigned, push} {
		if span.Trace != callers {
			t.Errorf("%s is of trace %s, want %s", span.Name, span.Trace, callers)
		}
		if want := []string{id[clicked], id[free], id[free], id[heard]}[i]; span.Node != want {
			t.Errorf("%s was made by %s, want %s", span.Name, span.Node, want)
		}
		if want := []string{parent, click.ID, click.ID, click.ID}[i]; span.Parent != want {
			t.Errorf("%s has the parent %s, want %s", span.Name, span.Parent, want)
		}
		if want := [][]string{nil, {click.ID}, {run.ID}, nil}[i]; !slices.Equal(span.Links, want) {
			t.Errorf("%s is linked to %v, want %v", span.Name, span.Links, want)
		}
		if span.Resource["service.name"] != "getwork" || span.Server != (i == 0) || span.Facts["getwork.task"] != "verify" {
			t.Errorf("%s has %v of %v", span.Name, span.Facts, span.Resource)
		}
	}
	if got := column[string](s, `select traceparent from getwork.work_requested where id = $1`, r.ID); got[0] != "00-"+callers+"-"+click.ID+"-01" {
		t.Errorf("the click recorded %q", got)
	}
	e2e.Await(t, "a line of the clicked node has the request and the trace", e2e.Soon, func() bool {
		return strings.Contains(s.Nodes[clicked].Output(), "request="+request+" trace="+callers)
	})
	e2e.Await(t, "a line of the free node has the run and the trace", e2e.Soon, func() bool {
		text := s.Nodes[free].Output()
		return strings.Contains(text, "msg=run node="+id[free]+" task=verify") && strings.Contains(text, " trace="+callers)
	})
	if text := fmt.Sprintf("%s %s", a.Body, pushed.Request.Work[0].Details); strings.Contains(text, callers) || strings.Contains(text, click.ID) {
		t.Errorf("the trace is shown in %s", text)
	}
	s.unsampled(collector, free)
	open()
	for _, task := range []string{"busy", "busy-too"} {
		one("run", "getwork.task", task)
	}
	secret(t, collector)
}

// unsampled clicks on that node as a caller whose trace is not sampled: nothing is recorded and nothing sent, but the log has the trace.
func (s *site) unsampled(collector *otlptest.Collector, node int) {
	s.T.Helper()
	r, a, err := s.As("tracy", node).GetWork(s.T.Context(), "verify", 1, append(from("00"), "Prefer", "wait=60")...)
	if err != nil || a.Status != 201 {
		s.T.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	if got := column[*string](s, `select traceparent from getwork.work_requested where id = $1`, r.ID); got[0] != nil {
		s.T.Errorf("an unsampled click recorded %q", *got[0])
	}
	e2e.Await(s.T, "a line of that node has the request and the trace", e2e.Soon, func() bool { // it comes after the answer
		return strings.Contains(s.Nodes[node].Output(), fmt.Sprintf("request=%d trace=%s", r.ID, callers))
	})
	for _, what := range []string{"assign", "push", "POST /api/v1/tasks/{task}/requests"} {
		if found := collector.Spans(what, "getwork.request", fmt.Sprint(r.ID)); len(found) > 0 {
			s.T.Errorf("%v was sent", found)
		}
	}
}

// secret checks that what was sent has nothing of what people work on, of who they are, or of what they send.
func secret(t *testing.T, collector *otlptest.Collector) {
	t.Helper()
	spans, bodies := collector.All()
	if len(spans) < 8 {
		t.Errorf("only %d spans", len(spans))
	}
	for _, body := range bodies {
		for _, word := range []string{"loan", "private", "oliver", "tracy", "peter", "select", "generate_series"} {
			if bytes.Contains(body, []byte(word)) {
				t.Errorf("%q is in what was sent:\n%s", word, hex.Dump(body))
			}
		}
	}
}

// A node that ends sends what it has not sent yet, also of what happened last.
func TestLastSpansAreSent(t *testing.T) {
	schematest.Thorough(t)
	t.Parallel()
	collector := otlptest.Start(t)
	s := tracedSite(t, 1, collector.URL, "OTEL_BSP_SCHEDULE_DELAY=600000")
	s.Task("verify", "select n as item from generate_series(1, 9) n")
	if r, a, err := s.As("oliver", 0).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60"); err != nil || r.State != assign.Assigned {
		t.Fatalf("%d %s, %v", a.Status, a.Body, err)
	}
	if err := s.Nodes[0].Terminate(); err != nil {
		t.Errorf("exit status %d", cluster.Exit(err))
	}
	for _, what := range []string{"run", "assign", "POST /api/v1/tasks/{task}/requests"} {
		if found := collector.Spans(what, "getwork.task", "verify"); len(found) != 1 {
			t.Errorf("%d spans %s", len(found), what)
		}
	}
}

// While the collector is away people work, the log says so now and then, and the node ends as soon as ever.
func TestCollectorIsAway(t *testing.T) {
	t.Parallel()
	schematest.Thorough(t)
	silent := otlptest.Start(t) // takes calls, and answers none
	asked := make(chan struct{}, 1)
	silent.Refuse = func(_ http.ResponseWriter, r *http.Request) bool {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-r.Context().Done()
		return true
	}
	gone := otlptest.Start(t)
	gone.Refuse = func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusInternalServerError)
		return true
	}
	for name, collector := range map[string]*otlptest.Collector{"silent": silent, "failing": gone} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := tracedSite(t, 1, collector.URL)
			s.Task("verify", "select n as item from generate_series(1, 100) n")
			for range 5 {
				r, a, err := s.As("oliver", 0).GetWork(t.Context(), "verify", 1, "Prefer", "wait=60")
				if err != nil || r.State != assign.Assigned {
					t.Fatalf("%d %s, %v", a.Status, a.Body, err)
				}
			}
			if name == "silent" {
				select {
				case <-asked:
				case <-time.After(timeout.Scale(e2e.Soon)):
					t.Error("nobody asked the collector")
				}
			} else {
				e2e.Await(t, "the log says so", e2e.Soon, func() bool { return strings.Contains(s.Nodes[0].Output(), "spans can't be sent") })
			}
			began := time.Now()
			if err := s.Nodes[0].Terminate(); err != nil {
				t.Errorf("exit status %d", cluster.Exit(err))
			}
			if took := time.Since(began); took > timeout.Scale(5*time.Second) { // a tenth of 15 s for the collector, and the node's own end
				t.Errorf("the node took %v to end", took)
			}
			// Every 10 s at most, and once for what was left at the end.
			if text := s.Nodes[0].Output(); strings.Count(text, "spans can't be sent") > 4 || strings.Contains(text, "took too long") {
				t.Error(text)
			}
		})
	}
}
