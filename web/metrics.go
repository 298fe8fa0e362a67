package web

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"getwork/assign"
	"getwork/assign/engine"
	"getwork/assign/hook"
	"getwork/assign/pg"
	"getwork/assign/records"
)

// Figures are shown at /metrics beside the engine's counters and this package's.
type Figures struct {
	Version  string               // of getwork
	Revision string               // its commit; empty if the build does not know it
	Pools    func() []pg.PoolStat // nil: none
	Sockets  func() int           // how many are open; nil: none

	MaxSockets int // how many may be

	Connections func() Connections // nil: nobody counts them

	Identity *IdentityFigures // nil: --auth dev

	Hooks *hook.Sender // nil: it sends nothing
}

// Connections are those that clients have to a node.
type Connections struct {
	Open, Max           int
	Strange, MaxStrange int              // those on which no call has named anybody yet
	Refused             map[string]int64 // how many were closed at once, by the limit that they were over
}

// IdentityFigures are shown at /metrics where people and programs log in. A nil function shows nothing.
type IdentityFigures struct {
	Attempts *Attempts
	Sessions func() int64         // that are alive, on all nodes
	Lag      func() time.Duration // since the database last answered what has ended
	Up       func() bool          // whether all issuers answer
	Fetches  func() int64         // how often their keys were asked for
}

// register registers the figures that there are.
func (f *IdentityFigures) register(to *prometheus.Registry) {
	if f == nil {
		return
	}
	if f.Attempts != nil {
		to.MustRegister(f.Attempts.counts)
	}
	if f.Sessions != nil {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_sessions",
			Help: "Sessions of browsers that are alive, on all nodes, as of a minute ago."}, func() float64 { return float64(f.Sessions()) }))
	}
	if f.Lag != nil {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_rights_lag_seconds",
			Help: "How long ago this node last read which rights have ended; about 1. From 30 on it closes its live channels."}, func() float64 { return f.Lag().Seconds() }))
	}
	if f.Up != nil {
		to.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_idp_up",
			Help: "1 while the identity provider, and the issuer of access tokens, answered when they were last asked."}, func() float64 {
			if f.Up() {
				return 1
			}
			return 0
		}))
	}
	if f.Fetches != nil {
		to.MustRegister(prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "getwork_jwks_fetches_total",
			Help: "How often this node asked them for their keys: each 5 minutes, and at most once a minute more because of a strange token."}, func() float64 { return float64(f.Fetches()) }))
	}
}

// Attempts counts how credentials were judged.
type Attempts struct{ counts *prometheus.CounterVec }

// NewAttempts returns a count that begins at 0.
func NewAttempts() *Attempts {
	return &Attempts{prometheus.NewCounterVec(prometheus.CounterOpts{Name: "getwork_auth_total",
		Help: "Credentials that this node judged, and log-ins, by method (session, token, jwt, proxy, bearer: none of these; oidc: a log-in or a message of the provider) and by outcome: ok, log-out, or why not."},
		[]string{"method", "outcome"})}
}

// Count counts one. Both words are of fixed sets: what a client sends must not make labels.
func (a *Attempts) Count(method, outcome string) { a.counts.WithLabelValues(method, outcome).Inc() }

// metrics are the node's figures. Each counts this node alone since it started, except those that are the whole cluster's: the ages
// of the oldest request and of the oldest event of web hooks, the sessions, and the gauges of tasks. A scrape asks the database
// every five seconds at most. Labels have few values: no names of users or items, and 200 tasks at most. docs/watch.md has a
// table of all.
type metrics struct {
	calls *prometheus.CounterVec
	took  *prometheus.HistogramVec
	page  http.Handler
	log   *slog.Logger // gets a line for each call; nil: none
}

func newMetrics(s *server) *metrics {
	labels := []string{"method", "route", "status"}
	m := &metrics{
		calls: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "getwork_http_requests_total",
			Help: "HTTP requests answered, by the pattern of their path; route is empty where there is nothing."}, labels),
		took: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "getwork_http_request_duration_seconds",
			Help:    "From an HTTP request to its answer, without live channels and answers that were held because the client preferred to wait. A click is POST /api/v1/tasks/{task}/requests.",
			Buckets: []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10}}, labels),
	}
	if s.LogCalls {
		m.log = s.Log
	}
	build := prometheus.NewGaugeFunc(prometheus.GaugeOpts{Name: "getwork_build_info", Help: "1; what was built is in the labels.",
		ConstLabels: prometheus.Labels{"version": s.Figures.Version, "revision": s.Figures.Revision, "go_version": runtime.Version()}}, func() float64 { return 1 })
	registry := prometheus.NewRegistry()
	registry.MustRegister(m.calls, m.took, build, &counted{s}, &taskFigures{counts: s.Engine.Tasks, ask: s.Records.TaskFigures, log: s.Log},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	s.Figures.Identity.register(registry)
	m.page = promhttp.HandlerFor(registry, promhttp.HandlerOpts{ErrorLog: slog.NewLogLogger(s.Log.Handler(), slog.LevelError)})
	return m
}

// figures shows them to everybody: they contain nothing private.
func (s *server) figures(w http.ResponseWriter, r *http.Request) error {
	w.Header().Set("Cache-Control", "no-store")
	// The library would log an error at each call whose Accept-Encoding refuses everything that it knows.
	takes := "identity"
	if takesGzip(r.Header.Values("Accept-Encoding")) {
		takes = "gzip"
	}
	r = r.Clone(r.Context())
	r.Header.Set("Accept-Encoding", takes)
	s.metrics.page.ServeHTTP(w, r)
	return nil
}

// metricsAlone serves the metrics, and nothing else, without authentication: anybody who reaches its listener may read them.
func (s *server) metricsAlone() http.Handler {
	m := http.NewServeMux()
	m.Handle("GET /metrics", s.handle(s.figures))
	return m
}

// counted collects the counters of the engine and the node.
type counted struct{ *server }

// figure is one of them.
func figure(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("getwork_"+name, help, labels, nil)
}

var (
	recorded   = figure("requests_recorded_total", "Requests that this node recorded.")
	ended      = figure("requests_ended_total", "Requests that this node ended, by what they ended as.", "state")
	rescued    = figure("requests_rescued_total", "Requests that only this node's periodic look found, and a round then answered: the node that should have served them had died. 0 without faults.")
	given      = figure("work_assigned_total", "Items that this node's rounds handed out.")
	expired    = figure("work_expired_total", "Work whose lease ran out, as this node found.")
	rounds     = figure("rounds_total", "Rounds of this node: transactions that assign work to waiting requests.")
	runs       = figure("runs_total", "Runs of ranking queries, by how they ended. Lost ones died with another node, and are counted by the one that took over.", "outcome")
	ranFor     = figure("run_duration_seconds", "How long the runs of this node took, from the beginning of the query to the end of their round.")
	looks      = figure("looks_total", "Looks for requests that nobody serves: one every two seconds, more while a run is under way.")
	oldest     = figure("oldest_request_age_seconds", "How long the oldest request of all nodes has waited, as this node saw some seconds ago at most; 0 if none waits. Requests of paused tasks, and lingering ones for which a round found nothing, do not count.")
	listening  = figure("listener_up", "1 while this node hears changes of other nodes at once; 0 while it polls for them every two seconds.")
	reconnects = figure("listener_reconnects_total", "How often the listener came up again after it had been lost.")
	sent       = figure("events_sent_total", "Events handed to live channels.")
	dropped    = figure("events_dropped_total", "Events that were not sent because their live channels were too slow and were closed; the clients reconnect for a snapshot.")
	slow       = figure("slow_channels_total", "Live channels that were closed because they were too slow.")
	hooked     = figure("webhook_attempts_total", "Attempts of this node to post an event to a web hook, by outcome: delivered, or failed, after which it is tried again.", "outcome")
	buried     = figure("webhook_dead_total", "Events that this node gave up, because they were not delivered within three days.")
	unsent     = figure("webhook_oldest_seconds", "How long the oldest event of all nodes has waited to be delivered to a web hook, as this node saw some seconds ago; 0 if none waits.")
	sockets    = figure("sockets", "WebSockets that are open now.")
	socketsMax = figure("sockets_max", "WebSockets that may be open.")
	open       = figure("connections", "Connections of clients that are open now, with those of sockets and event streams.")
	openMax    = figure("connections_max", "Connections that may be open: what the process's limit of open files allows.")
	strange    = figure("connections_strange", "Connections on which no call has named a user yet, without those of this machine and of trusted proxies.")
	strangeMax = figure("connections_strange_max", "Such connections that may be open; an eighth of them from one address.")
	closed     = figure("connections_refused_total", "Connections that were closed at once, by the limit that they were over: node, all connections; strangers, those that named nobody; address, those of one address.", "reason")
	streams    = figure("event_streams", "Event streams that are open now; their limit is that of the gate \"held\".")
	inside     = figure("calls_in_progress", "Calls that were let in and are not answered yet, by gate: calls; queries, which may wait for a task's query (preview, compare, explain, claim); held, which are event streams and answers that the client preferred to wait for.", "gate")
	inLine     = figure("calls_waiting", "Calls that wait to be let in, two seconds at most.", "gate")
	mayEnter   = figure("calls_max", "Calls that are let in at once.", "gate")
	refused    = figure("calls_refused_total", "Calls that were not let in, by gate and reason: node, the gate was full; user, the user had too many. The gates calls and queries answered 429; at the gate held, event streams were answered 503 or 429, and held answers came at once.", "gate", "reason")
	inUse      = figure("pool_connections_in_use", "Connections to the database that are busy now.", "pool")
	idle       = figure("pool_connections_idle", "Connections to the database that are open and free now.", "pool")
	most       = figure("pool_connections_max", "Connections that the pool may open.", "pool")
	waits      = figure("pool_waits_total", "How often a caller had to wait for a connection, a new one included, and got it.", "pool")
	waited     = figure("pool_wait_seconds_total", "How long those callers waited altogether.", "pool")
	inVain     = figure("pool_waits_failed_total", "How often a caller gave up, or ran out of time, before there was a connection.", "pool")
)

// Describe implements [prometheus.Collector].
func (c *counted) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{recorded, ended, rescued, given, expired, rounds, runs, ranFor, looks, oldest, listening, reconnects, sent, dropped, slow,
		hooked, buried, unsent, sockets, socketsMax, open, openMax, strange, strangeMax, closed, streams, inside, inLine, mayEnter, refused, inUse, idle, most, waits, waited, inVain} {
		to <- d
	}
}

// Collect implements [prometheus.Collector].
func (c *counted) Collect(to chan<- prometheus.Metric) {
	show := func(d *prometheus.Desc, kind prometheus.ValueType, value float64, labels ...string) {
		to <- prometheus.MustNewConstMetric(d, kind, value, labels...)
	}
	count := func(d *prometheus.Desc, n *engine.Counter, labels ...string) {
		show(d, prometheus.CounterValue, float64(n.Load()), labels...)
	}
	e := c.Engine
	for d, n := range map[*prometheus.Desc]*engine.Counter{recorded: &e.Recorded, rescued: &e.Rescued, given: &e.Given, expired: &e.Expired, rounds: &e.Rounds, looks: &e.Looks} {
		count(d, n)
	}
	for d, n := range map[*prometheus.Desc]*atomic.Int64{reconnects: &c.Feed.Reconnects, sent: &c.Feed.Sent, dropped: &c.Feed.Dropped, slow: &c.Feed.Slow} {
		show(d, prometheus.CounterValue, float64(n.Load()))
	}
	for as, n := range e.Ended {
		count(ended, n, string(as))
	}
	for as, n := range e.RunEnds {
		count(runs, n, string(as))
	}
	n, sum, within := e.RunsTook.Load()
	to <- prometheus.MustNewConstHistogram(ranFor, n, sum, within)
	up := 0.0
	if c.Feed.Listening() {
		up = 1
	}
	show(listening, prometheus.GaugeValue, up)
	show(oldest, prometheus.GaugeValue, e.Oldest.Load().Seconds())
	for name, g := range map[string]*gate{"calls": c.calls, "queries": c.looking, "held": c.waiting} {
		show(inside, prometheus.GaugeValue, float64(len(g.places)), name)
		show(inLine, prometheus.GaugeValue, float64(g.inLine()), name)
		show(mayEnter, prometheus.GaugeValue, float64(g.most), name)
		show(refused, prometheus.CounterValue, float64(g.full.Load()), name, "node")
		show(refused, prometheus.CounterValue, float64(g.tooMany.Load()), name, "user")
	}
	if h := c.Figures.Hooks; h != nil {
		show(hooked, prometheus.CounterValue, float64(h.Delivered.Load()), "delivered")
		show(hooked, prometheus.CounterValue, float64(h.Failed.Load()), "failed")
		show(buried, prometheus.CounterValue, float64(h.Dead.Load()))
		show(unsent, prometheus.GaugeValue, time.Duration(h.Oldest.Load()).Seconds())
	}
	show(streams, prometheus.GaugeValue, float64(c.streams.Load()))
	if c.Figures.Sockets != nil {
		show(sockets, prometheus.GaugeValue, float64(c.Figures.Sockets()))
		show(socketsMax, prometheus.GaugeValue, float64(c.Figures.MaxSockets))
	}
	if c.Figures.Connections != nil {
		f := c.Figures.Connections()
		for d, n := range map[*prometheus.Desc]int{open: f.Open, openMax: f.Max, strange: f.Strange, strangeMax: f.MaxStrange} {
			show(d, prometheus.GaugeValue, float64(n))
		}
		for reason, n := range f.Refused {
			show(closed, prometheus.CounterValue, float64(n), reason)
		}
	}
	if c.Figures.Pools == nil {
		return
	}
	for _, p := range c.Figures.Pools() {
		show(inUse, prometheus.GaugeValue, float64(p.InUse), p.Name)
		show(idle, prometheus.GaugeValue, float64(p.Idle), p.Name)
		show(most, prometheus.GaugeValue, float64(p.Max), p.Name)
		show(waits, prometheus.CounterValue, float64(p.Waits), p.Name)
		show(waited, prometheus.CounterValue, p.Waited.Seconds(), p.Name)
		show(inVain, prometheus.CounterValue, float64(p.Failed), p.Name)
	}
}

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
	taskLate    = figure("task_late_items", "Items whose deadline is over: those held, on a fresh shelf and in the inbox. Of the last two at most 1,000 are counted.", "task")
	taskNobody  = figure("task_items_nobody", "Items that need groups or skills that nobody known has: those that the last run found; in an inbox, those that are ready, up to 1,000 of each kind.", "task")
	taskDone    = figure("task_done_today", "Items that were completed since midnight, by the database's time zone.", "task")
	taskPace    = figure("task_pace", "Items completed an hour, over the last eight hours in which anything was; 0: nothing was for eight days.", "task")
	taskPaused  = figure("task_paused", "1 while the task is paused.", "task")
)

// Describe implements [prometheus.Collector].
func (f *taskFigures) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{taskEnded, taskWaited, taskGiven, taskClosed, taskRuns, taskRanFor, taskWaiting, taskOldest, taskHeld, taskShelf, taskUsual, taskLate, taskNobody, taskDone, taskPace, taskPaused} {
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
	s.Waiting, s.Held, s.Shelf, s.Late = s.Waiting+o.Waiting, s.Held+o.Held, s.Shelf+o.Shelf, s.Late+o.Late
	s.Pace.DoneToday += o.Pace.DoneToday
	if o.Pace.PerHour != nil {
		sum := *o.Pace.PerHour
		if s.Pace.PerHour != nil {
			sum += *s.Pace.PerHour
		}
		s.Pace.PerHour = &sum
	}
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
	var pace float64
	if s.Pace.PerHour != nil {
		pace = *s.Pace.PerHour
	}
	for d, value := range map[*prometheus.Desc]float64{taskDone: float64(s.Pace.DoneToday), taskPace: pace, taskWaiting: float64(s.Waiting), taskOldest: s.Oldest, taskHeld: float64(s.Held),
		taskShelf: float64(s.Shelf), taskUsual: s.Usual, taskLate: float64(s.Late), taskNobody: float64(s.Nobody), taskPaused: float64(s.paused)} {
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
