package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/records"
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
	n.exec(t, `update getwork.task_state set failed_until = clock_timestamp() + interval '1 minute' where failures > 0`)
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

// What is in the database is shown for each task; work that is let go of is counted by what became of it.
func TestMetricsOfTasks(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", "select f.*, now() - interval '1 day' as deadline from ("+five+") f", `,"fresh_for":"1h"`)
	n.newInbox(t, "box", "")
	var taken []string
	for _, w := range n.take(t, "verify", "oliver", 3) {
		taken = append(taken, fmt.Sprint(w.ID))
	}
	n.pendingRequest(t, "box", "tracy")
	n.call(t, "POST", "/api/v1/work/"+taken[0]+"/disposition", as("oliver"), `{"outcome":"complete"}`).want(200)
	n.call(t, "POST", "/api/v1/work/"+taken[0]+"/disposition", as("oliver"), `{"outcome":"complete"}`).want(200) // again, which counts once
	n.call(t, "POST", "/api/v1/work/"+taken[1]+"/disposition", as("oliver"), `{"outcome":"never"}`).want(200)
	n.call(t, "PATCH", "/api/v1/tasks/box", as("mia", "X-Getwork-Role", "manager", "If-Match", `"1"`), `{"paused":true}`).want(200)
	n.pendingRequest(t, "box", "eve") // which no round reads

	after := n.figures(t)
	for name, want := range map[string]float64{
		"getwork_task_work_held verify":                      1,
		"getwork_task_shelf_items verify":                    2,
		"getwork_task_requests_waiting verify":               0,
		"getwork_task_requests_waiting box":                  2,
		"getwork_task_paused box":                            1,
		"getwork_task_late_items box":                        0,
		"getwork_task_items_nobody verify":                   0,
		"getwork_task_late_items verify":                     3, // one held, two on the shelf
		"getwork_task_paused verify":                         0,
		"getwork_task_work_closed_total completed verify":    1,
		"getwork_task_work_closed_total never verify":        1,
		"getwork_task_work_closed_total returned verify":     0,
		"getwork_task_oldest_request_age_seconds verify":     0,
		"getwork_task_oldest_request_age_seconds box":        0, // they wait on purpose
		"getwork_task_run_duration_seconds verify":           1,
		"getwork_task_request_wait_seconds verify":           1,
		"getwork_task_requests_ended_total assigned verify":  1,
		"getwork_task_requests_ended_total cancelled verify": 0,
	} {
		if got, there := after[name]; !there || got != want {
			t.Errorf("%s is %v (there: %v), want %v", name, got, there, want)
		}
	}
}

// A long shelf is counted up to 100,000: its task is read several times a second while somebody follows it.
func TestLongShelfIsCountedInPart(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"fresh_for":"1h"`)
	n.take(t, "verify", "oliver", 3)
	n.exec(t, `insert into getwork.candidate (run_id, rank, item, details) select shelf_run, 1000 + i, 'more-' || i, '{}' from getwork.task_state, generate_series(1, 100000) i`)
	n.exec(t, `update getwork.task_state set shelf_left = shelf_left + 100000`)
	if shelf := read[assign.Task](n.call(t, "GET", "/api/v1/tasks/verify", manager(), "").want(200)).Shelf; shelf != 100_000 {
		t.Errorf("%d on the shelf, want 100000", shelf)
	}
	if shelf := n.figures(t)["getwork_task_shelf_items verify"]; shelf != 100_000 {
		t.Errorf("/metrics shows %v on the shelf, want 100000", shelf)
	}
}

// However many tasks there are, 200 have a label of their own, and the rest are summed up.
func TestMetricsOfManyTasks(t *testing.T) {
	t.Parallel()
	var tasks []records.TaskFigure
	for i := range int64(203) {
		tasks = append(tasks, records.TaskFigure{ID: i, Name: fmt.Sprintf("task-%03d", i), Waiting: 1, Held: 2, Oldest: float64(i)})
	}
	f := &taskFigures{counts: func() map[int64]*engine.TaskCounts { return nil }, ask: func(context.Context) ([]records.TaskFigure, error) { return tasks, nil }}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(f)
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	held := map[string]float64{}
	for _, f := range families {
		if f.GetName() == "getwork_task_work_held" {
			for _, m := range f.GetMetric() {
				held[m.GetLabel()[0].GetValue()] = m.GetGauge().GetValue()
			}
		}
	}
	if len(held) != 201 || held["-"] != 6 || held["task-199"] != 2 {
		t.Errorf("%d tasks, %v in all others, %v in the 200th; want 201, 6 and 2", len(held), held["-"], held["task-199"])
	}
}

// The counters of the rest go on when one of them is deleted or gets a label of its own: falling ones would look like a restart,
// and a jump like work.
func TestMetricsOfTheRestNeverFall(t *testing.T) {
	t.Parallel()
	schematest.Long(t)
	n := start(t, stationOptions{})
	n.newTask(t, "zz-busy", five, "")
	taken := uint64(0)
	take := func(count int) { // the node counts after the commit, perhaps when the answer is there already; the wait comes last
		t.Helper()
		n.take(t, "zz-busy", "oliver", count)
		taken++
		await(t, "it is counted", func() bool {
			var waited uint64
			for _, c := range n.engine.Tasks() {
				waited, _, _ = c.Waited.Load()
			}
			return waited == taken
		})
	}
	take(3)
	busy := slices.Collect(maps.Keys(n.engine.Tasks()))[0]
	var all []records.TaskFigure
	for i := range int64(201) {
		all = append(all, records.TaskFigure{ID: 1000 + i, Name: fmt.Sprintf("task-%03d", i)})
	}
	last := append(slices.Clone(all), records.TaskFigure{ID: busy, Name: "zz-busy"})
	first := append([]records.TaskFigure{{ID: busy, Name: "busy"}}, all...)
	var tasks []records.TaskFigure
	f := &taskFigures{counts: n.engine.Tasks, ask: func(context.Context) ([]records.TaskFigure, error) { return tasks, nil }}
	registry := prometheus.NewPedanticRegistry()
	registry.MustRegister(f)
	for i, step := range []struct {
		tasks    []records.TaskFigure
		assigned float64
		waits    uint64
	}{
		{last, 3, 1},
		{first, 3, 1}, // another item is counted under a label of its own
		{last, 3, 1},
		{last, 4, 2},
		{all, 4, 2}, // it is deleted
	} {
		if i == 1 || i == 3 {
			take(1)
		}
		tasks, f.at = step.tasks, time.Time{}
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		var assigned float64
		var waits uint64
		for _, family := range families {
			for _, m := range family.GetMetric() {
				switch {
				case m.GetLabel()[0].GetValue() != "-":
				case family.GetName() == "getwork_task_work_assigned_total":
					assigned = m.GetCounter().GetValue()
				case family.GetName() == "getwork_task_request_wait_seconds":
					waits = m.GetHistogram().GetSampleCount()
				}
			}
		}
		if assigned != step.assigned || waits != step.waits {
			t.Errorf("step %d: %v assigned and %d waits, want %v and %d", i, assigned, waits, step.assigned, step.waits)
		}
	}
}

// While the database is away a scrape shows what was read last, for a minute, and the log says so. A scrape asks once in five seconds
// at most.
func TestMetricsOfTasksWithoutDatabase(t *testing.T) {
	t.Parallel()
	asked := 0
	var away error
	var log strings.Builder
	f := &taskFigures{log: slog.New(slog.NewTextHandler(&log, nil)), ask: func(context.Context) ([]records.TaskFigure, error) {
		asked++
		return []records.TaskFigure{{Name: "verify"}}, away
	}}
	f.read()
	f.read()
	if asked != 1 {
		t.Errorf("asked %d times, want once", asked)
	}
	away = errors.New("the database is away")
	f.at = f.at.Add(-30 * time.Second)
	if len(f.read()) != 1 || asked != 2 {
		t.Errorf("figures of 30 s ago are not shown, or the database was not asked (%d)", asked)
	}
	f.at = f.at.Add(-31 * time.Second)
	if len(f.read()) != 0 {
		t.Error("figures of a minute ago are shown")
	}
	if lines := strings.Count(log.String(), "level=WARN"); lines != 1 || !strings.Contains(log.String(), away.Error()) {
		t.Errorf("of two failures a moment apart, %d are logged, want 1:\n%s", lines, &log)
	}
}
