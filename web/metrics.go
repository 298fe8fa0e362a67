package web

import (
	"context"
	"log/slog"
	"net/http"
	"runtime"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"getwork/assign/engine"
	"getwork/assign/hook"
	"getwork/assign/pg"
	"getwork/assign/tracing"
)

// Figures are shown at /metrics beside the engine's counters and this package's.
type Figures struct {
	Version string               // of getwork
	Pools   func() []pg.PoolStat // nil: none
	Sockets func() int           // how many are open; nil: none

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

// metrics are the node's figures. Each counts this node alone since it started, except those that are the whole cluster's: the ages
// of the oldest request and of the oldest event of web hooks, the sessions, and the gauges of tasks. A scrape asks the database
// every five seconds at most. Labels have few values: no names of users or items, and 200 tasks at most. docs/operations.md has a
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
		ConstLabels: prometheus.Labels{"version": s.Figures.Version, "go_version": runtime.Version()}}, func() float64 { return 1 })
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
	inside     = figure("calls_in_progress", "Calls that were let in and are not answered yet, by gate: calls; queries, which may wait for a task's query (preview, explain, claim); held, which are event streams and answers that the client preferred to wait for.", "gate")
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

// call measures one request.
type call struct {
	http.ResponseWriter
	route  string // the pattern that matched; empty if none did
	status int
	began  time.Time
	span   tracing.Call // of a call of the API, if tracing is on
	named
}

type callKey struct{}

// WriteHeader records the status.
func (c *call) WriteHeader(status int) {
	if c.status == 0 || c.status < 200 { // the final status follows an informational one
		c.status = status
	}
	if status == http.StatusSwitchingProtocols {
		c.endSpan(status)
	}
	c.ResponseWriter.WriteHeader(status)
}

// Unwrap is for [http.ResponseController].
func (c *call) Unwrap() http.ResponseWriter { return c.ResponseWriter }

// measured counts each request and times its answer.
func (m *metrics) measured(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		began := time.Now()
		c := &call{ResponseWriter: w, began: began}
		next.ServeHTTP(c, r.WithContext(context.WithValue(r.Context(), callKey{}, c)))
		method, status := r.Method, c.status
		if !slices.Contains(methods, method) {
			method = "other" // clients can invent methods
		}
		if status == 0 {
			status = http.StatusOK
			if r.Context().Err() != nil {
				status = 499 // the client has gone without an answer
			}
		}
		labels := []string{method, c.route, strconv.Itoa(status)}
		m.calls.WithLabelValues(labels...).Inc()
		if c.route != "/api/v1/events" && c.route != "/api/v1/ws" && w.Header().Get("Preference-Applied") == "" {
			m.took.WithLabelValues(labels...).Observe(time.Since(began).Seconds())
		}
		c.made()
		c.endSpan(status)
		if m.log != nil {
			c.record(m.log, r, method, status, time.Since(began))
		}
	})
}

var methods = []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"}

// routed records the pattern that matched, for measured, and begins the span of a call of the API. It is the router's middleware, which
// the router skips if nothing matches.
func (s *server) routed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c, ok := r.Context().Value(callKey{}).(*call); ok {
			c.route, _ = mux.CurrentRoute(r).GetPathTemplate()
			c.names(r)
			c.beginSpan(s.Trace, r)
		}
		next.ServeHTTP(w, r)
	})
}
