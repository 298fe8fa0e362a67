package web

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"getwork/schema/schematest"
	"getwork/schema/schematest/logs"
	"getwork/schema/schematest/timeout"
)

// figures reads /metrics: the value of each counter and gauge, and the count of each histogram, by name and labels.
func (n *station) figures(t *testing.T) map[string]float64 {
	t.Helper()
	r := n.call(t, "GET", "/metrics", nil, "").want(200) // no identity is needed
	if problems, err := promlint.New(strings.NewReader(r.body)).Lint(); err != nil || len(problems) > 0 {
		t.Errorf("%v, %v", problems, err)
	}
	parser := expfmt.NewTextParser(model.LegacyValidation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(r.body))
	if err != nil {
		t.Fatal(err)
	}
	figures := map[string]float64{}
	for name, f := range families {
		if f.GetHelp() == "" {
			t.Errorf("%s says nothing of itself", name)
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			figures[strings.TrimSpace(name+" "+strings.Join(labels, " "))] =
				m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
	}
	return figures
}

// grown checks by how much figures have grown.
func grown(t *testing.T, before, after map[string]float64, want map[string]float64) {
	t.Helper()
	for _, name := range slices.Sorted(maps.Keys(want)) {
		if got := after[name] - before[name]; got != want[name] {
			t.Errorf("%s grew by %v, want %v", name, got, want[name])
		}
	}
}

func TestMetricsCount(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"fresh_for":"1h"`)
	n.newTask(t, "broken", "select 1/count(*) as item from generate_series(1, 0)", "")
	n.newInbox(t, "box", "")
	before := n.figures(t)
	for _, name := range []string{"getwork_requests_rescued_total", "getwork_listener_up", "getwork_looks_total", "go_goroutines", "process_start_time_seconds"} {
		if _, there := before[name]; !there {
			t.Errorf("no %s", name)
		}
	}
	for _, name := range []string{"runs_total failed broken", "work_closed_total expired verify"} { // or increase() would miss the first
		if v, there := before["getwork_task_"+name]; !there || v != 0 {
			t.Errorf("getwork_task_%s is %v on a new node (there: %v), want 0", name, v, there)
		}
	}
	n.take(t, "verify", "oliver", 2) // a run
	n.take(t, "verify", "tracy", 2)  // its shelf
	n.call(t, "POST", "/api/v1/tasks/verify/requests", as("peter", "Prefer", "wait=60"), `{"count":2}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/broken/requests", as("peter", "Prefer", "wait=60"), `{"count":2}`).want(201)
	n.exec(t, `update getwork.task_state set failed_until = failed_until + interval '1 hour'`)
	n.call(t, "POST", "/api/v1/tasks/broken/requests", as("peter"), `{"count":2}`).want(201) // in its back-off
	n.call(t, "POST", "/api/v1/tasks/box/requests", as("peter"), `{"count":1}`).want(201)
	waits := n.pendingRequest(t, "box", "oliver")
	for range 2 { // a second click gets the same
		n.call(t, "POST", "/api/v1/tasks/box/requests", as("oliver"), `{"count":1,"linger":"1h"}`).want(202)
	}
	n.call(t, "DELETE", fmt.Sprint("/api/v1/requests/", waits.ID), as("oliver"), "").want(200)
	var after map[string]float64
	await(t, "the runs are counted", func() bool { // each when it is over, and who waited may be answered before
		after = n.figures(t)
		const runs = "getwork_run_duration_seconds"
		return after[runs]-before[runs] == 2 && after["getwork_requests_ended_total failed"]-before["getwork_requests_ended_total failed"] == 2
	})
	grown(t, before, after, map[string]float64{
		"getwork_requests_recorded_total":        7,
		"getwork_requests_ended_total assigned":  2,
		"getwork_requests_ended_total partial":   1,
		"getwork_requests_ended_total none":      1,
		"getwork_requests_ended_total failed":    2,
		"getwork_requests_ended_total cancelled": 1,
		"getwork_requests_rescued_total":         0,
		"getwork_work_assigned_total":            5,
		"getwork_runs_total finished":            1,
		"getwork_runs_total failed":              1,
		"getwork_runs_total lost":                0,
		"getwork_run_duration_seconds":           2,

		"getwork_task_requests_ended_total assigned verify": 2,
		"getwork_task_requests_ended_total partial verify":  1,
		"getwork_task_requests_ended_total failed broken":   2,
		"getwork_task_requests_ended_total none box":        1,
		"getwork_task_requests_ended_total cancelled box":   1,
		"getwork_task_request_wait_seconds verify":          3,
		"getwork_task_request_wait_seconds broken":          2,
		"getwork_task_request_wait_seconds box":             1,
		"getwork_task_work_assigned_total verify":           5,
		"getwork_task_runs_total finished verify":           1,
		"getwork_task_runs_total failed broken":             1,
		"getwork_task_run_duration_seconds verify":          1,
	})
	if after["getwork_rounds_total"]-before["getwork_rounds_total"] < 5 {
		t.Errorf("%v rounds", after["getwork_rounds_total"])
	}
}

// Calls under way, calls that wait, and refused calls, by gate and reason. They are shown also if a node is full.
func TestMetricsOfGates(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := startPatient(t, stationOptions{limit: 1})
	n.newInbox(t, "box", "")
	const (
		inside, inLine, may = "getwork_calls_in_progress ", "getwork_calls_waiting ", "getwork_calls_max "
		full, tooMany       = "getwork_calls_refused_total calls node", "getwork_calls_refused_total calls user"
	)
	now := func(want map[string]float64) {
		t.Helper()
		var got map[string]float64
		so := func() bool {
			got = n.figures(t)
			for name, v := range want {
				if got[name] != v {
					return false
				}
			}
			return true
		}
		for deadline := time.After(timeout.Scale(30 * time.Second)); !so(); {
			select {
			case <-deadline:
				for name, v := range want {
					if got[name] != v {
						t.Errorf("%s is %v, want %v", name, got[name], v)
					}
				}
				t.FailNow()
			case <-time.After(10 * time.Millisecond):
			}
		}
	}
	now(map[string]float64{inside + "calls": 0, inside + "queries": 0, inside + "held": 0, inLine + "calls": 0, "getwork_event_streams": 0,
		may + "calls": 1, may + "queries": maxLooking, may + "held": 1, full: 0, tooMany: 0})

	lock, err := n.db.Begin(t.Context()) // a call that waits for it stays inside
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = lock.Rollback(context.Background()) }()
	if _, err := lock.Exec(t.Context(), `lock table getwork.work in access exclusive mode`); err != nil {
		t.Fatal(err)
	}
	answered := make(chan reply, 3)
	call := func(user string) {
		go func() { answered <- n.call(t, "GET", "/api/v1/pipeline", as(user), "") }()
	}
	call("oliver")
	now(map[string]float64{inside + "calls": 1})
	call("oliver")
	now(map[string]float64{inLine + "calls": 1})
	now(map[string]float64{inLine + "calls": 0, tooMany: 1, full: 0})
	call("tracy")
	now(map[string]float64{tooMany: 1, full: 1})
	if err := lock.Rollback(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, status := range []int{429, 429, 200} {
		(<-answered).want(status)
	}
	now(map[string]float64{inside + "calls": 0})

	stream, err := n.Client().Do(n.request(t, "GET", "/api/v1/events", as("oliver"), ""))
	if err != nil {
		t.Fatal(err)
	}
	defer stream.Body.Close()
	now(map[string]float64{inside + "calls": 0, inside + "held": 1, "getwork_event_streams": 1})
	n.call(t, "GET", "/api/v1/events", as("tracy"), "").refused(503, "unavailable")
	n.call(t, "POST", "/api/v1/tasks/box/requests", as("oliver", "Prefer", "wait=60"), `{"count":1,"linger":"1h"}`).want(202) // at once
	now(map[string]float64{"getwork_calls_refused_total held node": 1, "getwork_calls_refused_total held user": 1, tooMany: 1, full: 1})
	_ = stream.Body.Close()
	now(map[string]float64{inside + "held": 0, "getwork_event_streams": 0})
}

// Labels have few values, whatever people send, and name tasks alone; an answer that was held on purpose is no slow one.
func TestMetricsOfCalls(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newInbox(t, "box", "")
	before := n.figures(t)
	n.call(t, "POST", "/api/v1/tasks/box/requests", as("peter"), `{"count":1}`).want(201)
	n.call(t, "POST", "/api/v1/tasks/box/requests", as("peter", "Prefer", "wait=1"), `{"count":1,"linger":"1h"}`).want(202)
	n.call(t, "POST", "/api/v1/tasks/nowhere/requests", as("peter"), `{"count":1}`).want(404)
	n.call(t, "POST", "/api/v1/tasks/box/requests", nil, `{"count":1}`).want(401)
	n.call(t, "GET", "/api/v1/tasks/box/items/secret", manager(), "")
	n.call(t, "GET", "/secret", nil, "").want(404)
	n.call(t, "GET", "/livez", headers{"Host", "secret.example"}, "").want(421)
	response, err := n.Client().Do(n.request(t, "SECRET", "/livez", nil, ""))
	if err != nil {
		t.Fatal(err)
	}
	_ = response.Body.Close()
	after := n.figures(t)
	const click = " POST /api/v1/tasks/{task}/requests "
	grown(t, before, after, map[string]float64{
		"getwork_http_requests_total" + click + "201":           1,
		"getwork_http_requests_total" + click + "202":           1,
		"getwork_http_request_duration_seconds" + click + "201": 1,
		"getwork_http_request_duration_seconds" + click + "202": 0,
		"getwork_http_requests_total" + click + "404":           1,
		"getwork_http_requests_total" + click + "401":           1,
		"getwork_http_requests_total GET  404":                  1,
		"getwork_http_requests_total GET  421":                  1,
		"getwork_http_requests_total other  405":                1,
	})
	for name := range after {
		for _, somebodys := range []string{"secret", "SECRET", "nowhere", "box", "peter"} {
			if strings.Contains(name, somebodys) && !(somebodys == "box" && strings.HasPrefix(name, "getwork_task_")) {
				t.Errorf("%s", name)
			}
		}
	}
}

// It answers only to the machine's own names, as everywhere.
func TestMetricsOfAnotherHost(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.call(t, "GET", "/metrics", headers{"Host", "getwork.example"}, "").refused(421, "invalid")
	n.call(t, "POST", "/metrics", nil, "").want(http.StatusMethodNotAllowed).wantHeader("Allow", "GET, HEAD")
}

// Whatever a client accepts, it gets the figures, and the log stays empty.
func TestMetricsEncodings(t *testing.T) {
	t.Parallel()
	var log logs.Buffer
	n := start(t, stationOptions{log: &log})
	for accept, coding := range map[string]string{"": "", "gzip": "gzip", "br": "", "identity;q=0": "", "*;q=0": "", "gzip;q=0, identity;q=0": "", "zstd": "", "gzip;q=x": "", ";;,": ""} {
		r := n.file(t, "GET", "/metrics", "Accept-Encoding", accept).want(200)
		if got := r.header.Get("Content-Encoding"); got != coding || !strings.Contains(unpacked(t, r), "getwork_build_info") {
			t.Errorf("%q: %q, %.100q", accept, got, r.body)
		}
	}
	if got := log.Count("level=ERROR"); got > 0 {
		t.Errorf("%d errors in the log:\n%s", got, log.String())
	}
}
