package engine

import (
	"maps"
	"sync"
	"sync/atomic"
	"time"

	"getwork/assign"
)

// Counter counts what happened on this node since it started.
type Counter struct{ n atomic.Int64 }

// Load returns the count.
func (c *Counter) Load() int64 { return c.n.Load() }

// Counts are what a node did since it started. Where several nodes take part, each counts its own part, so that the sum over
// all nodes is the whole: the node that records a request counts it as recorded, and the node that ends it counts it as
// ended.
type Counts struct {
	Recorded Counter                   // requests
	Ended    map[assign.State]*Counter // requests, by their final state; the keys never change
	Given    Counter                   // items handed out by rounds
	Expired  Counter                   // work whose lease ran out, found by this node's sweep

	Rounds   Counter             // that committed
	RunEnds  map[RunEnd]*Counter // of the ranking query, by how they ended; the keys never change
	RunsTook Durations           // on this node, however they ended; lost ones do not count

	// Rescued counts requests that only the rescuer found and a round then answered. Without faults it is 0.
	Rescued Counter
	Looks   Counter // how often the rescuer looked
	Oldest  Age     // of the request that waits longest, on any node, as the rescuer last saw it

	tasksMu sync.RWMutex
	tasks   map[int64]*TaskCounts // by id; a task keeps its counts when it is deleted
}

// TaskCounts are what a node did for one task since the node started.
type TaskCounts struct {
	Ended    map[assign.State]*Counter     // requests, by their final state; the keys never change
	Waited   Durations                     // of the requests that were answered: not of those that were cancelled or lingered in vain
	Given    Counter                       // items handed out by rounds
	Closed   map[assign.WorkState]*Counter // work, by what became of it; a lease that ran out counts as expired; the keys never change
	RunEnds  map[RunEnd]*Counter           // as in [Counts], but RunLost is not counted by task
	RunsTook Durations
}

// Tasks returns the counts of all tasks for which this node has done something, by their ids.
func (c *Counts) Tasks() map[int64]*TaskCounts {
	c.tasksMu.RLock()
	defer c.tasksMu.RUnlock()
	return maps.Clone(c.tasks)
}

// ofTask returns the counts of a task.
func (c *Counts) ofTask(id int64) *TaskCounts {
	c.tasksMu.RLock()
	t := c.tasks[id]
	c.tasksMu.RUnlock()
	if t != nil {
		return t
	}
	c.tasksMu.Lock()
	defer c.tasksMu.Unlock()
	if t := c.tasks[id]; t != nil {
		return t
	}
	t = &TaskCounts{Ended: counters(finalStates), Closed: counters(closedStates), RunEnds: counters(runEnds[:3])}
	if c.tasks == nil {
		c.tasks = map[int64]*TaskCounts{}
	}
	c.tasks[id] = t
	return t
}

var (
	finalStates  = []assign.State{assign.Assigned, assign.Partial, assign.None, assign.Failed, assign.Cancelled}
	runEnds      = []RunEnd{RunFinished, RunFailed, RunCancelled, RunLost}
	closedStates = []assign.WorkState{assign.WorkCompleted, assign.WorkReturned, assign.WorkNever, assign.WorkFailed, assign.WorkExpired, assign.WorkReassigned}
)

func counters[K comparable](keys []K) map[K]*Counter {
	m := make(map[K]*Counter, len(keys))
	for _, k := range keys {
		m[k] = &Counter{}
	}
	return m
}

// RunEnd is how a run ended.
type RunEnd string

// The ends of a run. The node that takes over counts a lost one.
const (
	RunFinished  RunEnd = "finished"
	RunFailed    RunEnd = "failed"
	RunCancelled RunEnd = "cancelled"
	RunLost      RunEnd = "lost"
)

// makeCounters creates the maps.
func (c *Counts) makeCounters() {
	c.Ended, c.RunEnds = counters(finalStates), counters(runEnds)
}

// countEnd counts requests of a task that ended.
func (c *Counts) countEnd(task int64, as assign.State, n int) {
	if counter := c.Ended[as]; counter != nil && n > 0 {
		counter.n.Add(int64(n))
		c.ofTask(task).Ended[as].n.Add(int64(n))
	}
}

// CountClosed counts work of a task that is not held any more.
func (c *Counts) CountClosed(task int64, as assign.WorkState, n int) {
	if counter := c.ofTask(task).Closed[as]; counter != nil {
		counter.n.Add(int64(n))
	}
}

// countRound counts a round that has committed.
func (c *Counts) countRound(r *round) {
	c.Rounds.n.Add(1)
	c.Given.n.Add(int64(r.given))
	c.ofTask(r.task).Given.n.Add(int64(r.given))
	c.countEnded(r)
}

// countEnded counts the requests that a transaction has ended, after its commit, whether or not it was a round.
func (c *Counts) countEnded(r *round) {
	for as, n := range r.ends {
		c.countEnd(r.task, as, n)
	}
	for _, waited := range r.waits {
		c.ofTask(r.task).Waited.add(waited)
	}
}

// countClicks counts what a batch recorded, after its commit.
func (c *Counts) countClicks(task int64, batch []*click) {
	for _, k := range batch {
		if k.inserted != "" {
			c.Recorded.n.Add(1)
			c.countEnd(task, k.inserted, 1) // a pending one has not ended
			if k.inserted != assign.Pending {
				c.ofTask(task).Waited.add(0)
			}
		}
	}
}

// countRun counts a run of this node.
func (c *Counts) countRun(task int64, end RunEnd, took time.Duration) {
	c.RunEnds[end].n.Add(1)
	c.RunsTook.add(took)
	t := c.ofTask(task)
	t.RunEnds[end].n.Add(1)
	t.RunsTook.add(took)
}

// DurationBounds are the upper bounds, in seconds, of the buckets of [Durations]. One more bucket has no bound.
var DurationBounds = [...]float64{0.01, 0.03, 0.1, 0.3, 1, 2, 5, 10, 20, 30, 45, 60, 90, 120, 300}

// Durations counts durations.
type Durations struct {
	parts [len(DurationBounds) + 1]Counter
	sum   atomic.Int64
}

func (d *Durations) add(took time.Duration) {
	i := 0
	for i < len(DurationBounds) && took.Seconds() > DurationBounds[i] {
		i++
	}
	d.parts[i].n.Add(1)
	d.sum.Add(int64(took))
}

// Load returns how many durations there were, their sum in seconds, and how many were within each bound.
func (d *Durations) Load() (n uint64, sum float64, within map[float64]uint64) {
	within = make(map[float64]uint64, len(DurationBounds))
	for i := range d.parts {
		n += uint64(d.parts[i].Load())
		if i < len(DurationBounds) {
			within[DurationBounds[i]] = n
		}
	}
	return n, time.Duration(d.sum.Load()).Seconds(), within
}
