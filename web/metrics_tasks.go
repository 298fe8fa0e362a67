package web

import (
	"context"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"getwork/assign/engine"
	"getwork/assign/records"
)

const (
	taskLabels      = 200             // tasks with a label of their own; the rest are summed up under otherTasks
	otherTasks      = "-"             // no task can have this name
	figuresFor      = 5 * time.Second // how long figures of tasks are shown before the database is asked again
	figuresPatience = time.Second     // how long a scrape waits for the database
	figuresUntil    = time.Minute     // older figures are not shown
)

// taskFigures collects what is counted by task. Names come from the database, so that a renamed or deleted task does not go
// on under its old name; while the database is away, a scrape shows what was read last, for a minute.
type taskFigures struct {
	counts func() map[int64]*engine.TaskCounts
	ask    func(context.Context) ([]records.TaskFigure, error)

	mu    sync.Mutex
	tasks []records.TaskFigure
	at    time.Time
}

var (
	taskEnded   = figure("task_requests_ended_total", "Requests that this node ended, by task and by what they ended as.", "task", "state")
	taskWaited  = figure("task_request_wait_seconds", "From a request's record to its answer, by this node. Cancelled requests and those that lingered in vain do not count.", "task")
	taskGiven   = figure("task_work_assigned_total", "Items that this node's rounds handed out.", "task")
	taskClosed  = figure("task_work_closed_total", "Work that is not held any more, by task and by what became of it, as this node found or was told; expired are leases that ran out.", "task", "state")
	taskRuns    = figure("task_runs_total", "Runs of the task's ranking query on this node, by how they ended. Those that died with a node are not counted by task.", "task", "outcome")
	taskRanFor  = figure("task_run_duration_seconds", "How long those runs took, from the beginning of the query to the end of their round.", "task")
	taskWaiting = figure("task_requests_waiting", "Requests that wait on any node, with lingering ones; as of some seconds ago.", "task")
	taskOldest  = figure("task_oldest_request_age_seconds", "How long the task's oldest request has waited; 0 if none waits. Lingering ones for which a round found nothing do not count.", "task")
	taskHeld    = figure("task_work_held", "Items that somebody holds.", "task")
	taskShelf   = figure("task_shelf_items", "Items that can be handed out without a run: the rest of a fresh shelf, or what is ready in an inbox; counted up to 100,000.", "task")
	taskUsual   = figure("task_run_usual_seconds", "The median of the task's last five runs; 0 if there was none.", "task")
	taskPaused  = figure("task_paused", "1 while the task is paused.", "task")
)

// Describe implements [prometheus.Collector].
func (f *taskFigures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{taskEnded, taskWaited, taskGiven, taskClosed, taskRuns, taskRanFor, taskWaiting, taskOldest, taskHeld, taskShelf, taskUsual, taskPaused} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (f *taskFigures) Collect(to chan<- prometheus.Metric) {
	counts := f.counts()
	var rest taskSum
	for i, t := range f.read() {
		one := taskSum{TaskFigure: t}
		one.count(counts[t.ID])
		if i < taskLabels {
			one.show(to, t.Name)
			continue
		}
		rest.add(one)
	}
	if rest.tasks > 0 {
		rest.show(to, otherTasks)
	}
}

// read returns the figures of all tasks, some seconds old if the database answers.
func (f *taskFigures) read() []records.TaskFigure {
	f.mu.Lock()
	defer f.mu.Unlock()
	if time.Since(f.at) > figuresFor {
		ctx, cancel := context.WithTimeout(context.Background(), figuresPatience)
		defer cancel()
		if tasks, err := f.ask(ctx); err == nil {
			f.tasks, f.at = tasks, time.Now()
		}
	}
	if time.Since(f.at) > figuresUntil {
		return nil
	}
	return f.tasks
}

// taskSum are the figures of one task, or of several together.
type taskSum struct {
	records.TaskFigure
	tasks         int
	paused        int
	ended, closed map[string]float64
	runs          map[string]float64
	given         float64
	waited, ran   histogram
}

// histogram is a [engine.Durations], read.
type histogram struct {
	n      uint64
	sum    float64
	within map[float64]uint64
}

func (h *histogram) add(o histogram) {
	if h.within == nil {
		h.within = map[float64]uint64{}
	}
	h.n, h.sum = h.n+o.n, h.sum+o.sum
	for bound, n := range o.within {
		h.within[bound] += n
	}
}

// count takes what this node has counted for the task; nil: nothing yet.
func (s *taskSum) count(c *engine.TaskCounts) {
	s.tasks = 1
	if s.Paused {
		s.paused = 1
	}
	if c == nil {
		return
	}
	s.ended, s.closed, s.runs = loaded(c.Ended), loaded(c.Closed), loaded(c.RunEnds)
	s.given = float64(c.Given.Load())
	s.waited.n, s.waited.sum, s.waited.within = c.Waited.Load()
	s.ran.n, s.ran.sum, s.ran.within = c.RunsTook.Load()
}

func loaded[K ~string](counters map[K]*engine.Counter) map[string]float64 {
	m := make(map[string]float64, len(counters))
	for k, c := range counters {
		m[string(k)] = float64(c.Load())
	}
	return m
}

// add sums up: ages and durations are the largest.
func (s *taskSum) add(o taskSum) {
	s.tasks, s.paused, s.given = s.tasks+o.tasks, s.paused+o.paused, s.given+o.given
	s.Waiting, s.Held, s.Shelf = s.Waiting+o.Waiting, s.Held+o.Held, s.Shelf+o.Shelf
	s.Oldest, s.Usual = max(s.Oldest, o.Oldest), max(s.Usual, o.Usual)
	for _, p := range []struct {
		to   *map[string]float64
		from map[string]float64
	}{{&s.ended, o.ended}, {&s.closed, o.closed}, {&s.runs, o.runs}} {
		if *p.to == nil {
			*p.to = map[string]float64{}
		}
		for k, n := range p.from {
			(*p.to)[k] += n
		}
	}
	s.waited.add(o.waited)
	s.ran.add(o.ran)
}

// show sends the metrics. What this node has never counted is left out, so that a scrape of many idle tasks stays small.
func (s *taskSum) show(to chan<- prometheus.Metric, task string) {
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, append([]string{task}, labels...)...)
	}
	for d, value := range map[*prometheus.Desc]float64{taskWaiting: float64(s.Waiting), taskOldest: s.Oldest, taskHeld: float64(s.Held),
		taskShelf: float64(s.Shelf), taskUsual: s.Usual, taskPaused: float64(s.paused)} {
		show(d, prometheus.GaugeValue, value)
	}
	show(taskGiven, prometheus.CounterValue, s.given)
	for d, by := range map[*prometheus.Desc]map[string]float64{taskEnded: s.ended, taskClosed: s.closed, taskRuns: s.runs} {
		for label, n := range by {
			show(d, prometheus.CounterValue, n, label)
		}
	}
	for d, h := range map[*prometheus.Desc]histogram{taskWaited: s.waited, taskRanFor: s.ran} {
		if h.n > 0 {
			to <- prometheus.MustNewConstHistogram(d, h.n, h.sum, h.within, task)
		}
	}
}
