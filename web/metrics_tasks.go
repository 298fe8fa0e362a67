package web

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/pg"
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
	log    *slog.Logger
	limit  pg.LogLimiter

	mu    sync.Mutex
	tasks []records.TaskFigure
	at    time.Time

	counting sync.Mutex
	seen     map[int64]taskCounted // what each task had counted when it was last collected
	others   taskCounted           // what tasks without a label of their own have counted while they had none
}

var (
	taskEnded   = figure("task_requests_ended_total", "Requests that this node ended, by task and by what they ended as.", "task", "state")
	taskWaited  = figure("task_request_wait_seconds", "From a request's record to its answer, by this node. Cancelled requests and those that lingered in vain do not count.", "task")
	taskGiven   = figure("task_work_assigned_total", "Items that this node's rounds handed out.", "task")
	taskClosed  = figure("task_work_closed_total", "Work that is not held any more, by task and by what became of it, as this node found or was told; expired are leases that ran out.", "task", "state")
	taskRuns    = figure("task_runs_total", "Runs of the task's ranking query on this node, by how they ended. Those that died with a node are not counted by task.", "task", "outcome")
	taskRanFor  = figure("task_run_duration_seconds", "How long those runs took, from the beginning of the query to the end of their round.", "task")
	taskWaiting = figure("task_requests_waiting", "Requests that wait on any node, with lingering ones; as of some seconds ago.", "task")
	taskOldest  = figure("task_oldest_request_age_seconds", "How long the task's oldest request has waited; 0 if none waits, and while the task is paused. Lingering ones for which a round found nothing do not count.", "task")
	taskHeld    = figure("task_work_held", "Items that somebody holds.", "task")
	taskShelf   = figure("task_shelf_items", "Items that can be handed out without a run: the rest of a fresh shelf, or what is ready in an inbox; a shelf is counted up to 100,000, an inbox up to 10,000.", "task")
	taskUsual   = figure("task_run_usual_seconds", "The median of the task's last five runs; 0 if there was none.", "task")
	taskPaused  = figure("task_paused", "1 while the task is paused.", "task")
)

// Describe implements [prometheus.Collector].
func (f *taskFigures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{taskEnded, taskWaited, taskGiven, taskClosed, taskRuns, taskRanFor, taskWaiting, taskOldest, taskHeld, taskShelf, taskUsual, taskPaused} {
		to <- d
	}
}

// Collect implements [prometheus.Collector]. The counters of otherTasks grow by what is counted while a task belongs there. As sums
// of the tasks that belong there now, they would fall when one is deleted or gets a label of its own, which looks like a restart;
// and jump when one comes.
func (f *taskFigures) Collect(to chan<- prometheus.Metric) {
	tasks := f.read()
	f.counting.Lock()
	defer f.counting.Unlock()
	counts := f.counts()
	seen := make(map[int64]taskCounted, len(tasks))
	var rest taskSum
	for i, t := range tasks {
		one := taskSum{TaskFigure: t, taskCounted: readCounts(counts[t.ID])}
		if t.Paused {
			one.paused = 1
		}
		seen[t.ID] = one.taskCounted
		if i < taskLabels {
			one.show(to, t.Name)
			continue
		}
		rest.add(one)
		f.others.grow(f.seen[t.ID], one.taskCounted)
	}
	if len(tasks) > 0 { // not while the database is away
		f.seen = seen
	}
	if len(tasks) > taskLabels {
		rest.taskCounted = f.others
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
		} else if facts := f.limit.Again("read the tasks' figures", err); facts != nil {
			f.log.Warn("the figures of tasks can't be read; /metrics shows the last ones for a minute", facts...)
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
	paused int
	taskCounted
}

// add sums up: ages and durations are the largest. It leaves out what this node has counted.
func (s *taskSum) add(o taskSum) {
	s.paused += o.paused
	s.Waiting, s.Held, s.Shelf = s.Waiting+o.Waiting, s.Held+o.Held, s.Shelf+o.Shelf
	s.Oldest, s.Usual = max(s.Oldest, o.Oldest), max(s.Usual, o.Usual)
}

// taskCounted is what this node has counted for one task, or for several together.
type taskCounted struct {
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

// readCounts reads a task's counters; nil: nothing was counted yet. What the alerts ask for is 0 then: increase() sees no growth from
// nothing to 1, and would miss the first failures on each node.
func readCounts(t *engine.TaskCounts) (c taskCounted) {
	if t == nil {
		c.closed, c.runs = map[string]float64{string(assign.WorkExpired): 0}, map[string]float64{string(engine.RunFailed): 0}
		return c
	}
	c.ended, c.closed, c.runs = loaded(t.Ended), loaded(t.Closed), loaded(t.RunEnds)
	c.given = float64(t.Given.Load())
	c.waited.n, c.waited.sum, c.waited.within = t.Waited.Load()
	c.ran.n, c.ran.sum, c.ran.within = t.RunsTook.Load()
	return c
}

func loaded[K ~string](counters map[K]*engine.Counter) map[string]float64 {
	m := make(map[string]float64, len(counters))
	for k, c := range counters {
		m[string(k)] = float64(c.Load())
	}
	return m
}

// grow adds what a task has counted between before and now.
func (c *taskCounted) grow(before, now taskCounted) {
	grow(&c.ended, before.ended, now.ended)
	grow(&c.closed, before.closed, now.closed)
	grow(&c.runs, before.runs, now.runs)
	c.given += now.given - before.given
	c.waited.grow(before.waited, now.waited)
	c.ran.grow(before.ran, now.ran)
}

func (h *histogram) grow(before, now histogram) {
	h.n += now.n - before.n
	h.sum += now.sum - before.sum
	grow(&h.within, before.within, now.within)
}

func grow[K comparable, N float64 | uint64](sum *map[K]N, before, now map[K]N) {
	if *sum == nil {
		*sum = map[K]N{}
	}
	for k, n := range now {
		(*sum)[k] += n - before[k]
	}
}

// show sends the metrics. What this node has never counted is left out, so that a scrape of many idle tasks stays small, but for what
// readCounts begins with.
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
			to <- prometheus.MustNewConstHistogram(d, h.n, h.sum, maps.Clone(h.within), task) // which is read later, while others may collect
		}
	}
}
