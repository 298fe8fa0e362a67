package web

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/records"
	"getwork/schema/schematest"
)

// What is in the database is shown for each task; work that is let go of is counted by what became of it.
func TestMetricsOfTasks(t *testing.T) {
	t.Parallel()
	n := start(t, stationOptions{})
	n.newTask(t, "verify", five, `,"fresh_for":"1h"`)
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
	n.pendingRequest(t, "box", "eve") // which no round looks at

	after := n.figures(t)
	for name, want := range map[string]float64{
		"getwork_task_work_held verify":                      1,
		"getwork_task_shelf_items verify":                    2,
		"getwork_task_requests_waiting verify":               0,
		"getwork_task_requests_waiting box":                  2,
		"getwork_task_paused box":                            1,
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
