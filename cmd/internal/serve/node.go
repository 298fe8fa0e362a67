package serve

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/feed"
	"getwork/assign/hook"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/report"
	"getwork/assign/rights"
	"getwork/assign/tidy"
	"getwork/assign/tracing"
	"getwork/cmd/internal/command"
	"getwork/cmd/internal/otlp"
	"getwork/notify"
	"getwork/schema"
	"getwork/web"
	"getwork/web/identity"
	"getwork/web/identity/oidc"
	"getwork/ws"
)

// node is one process of getwork. It has the node's parts, and the order in which they end.
type node struct {
	config    Command
	schema    schema.Name
	log       *slog.Logger
	pools     *pg.Pools
	announcer *notify.Announcer
	audit     *audit.Writer
	records   *records.Records
	feed      *feed.Feed
	engine    *engine.Engine
	remover   *tidy.Remover
	report    *report.Report
	hooks     hook.Config
	sender    *hook.Sender
	spans     *otlp.Sender       // nil: no collector, and tracing is off
	tracer    *tracing.Tracer    // nil: the same
	rights    *rights.Watch      // nil: --auth dev
	source    *oidc.Source       // the identity provider; nil: there is none
	logIns    *identity.LogIns   // nil: nobody logs in here
	proxy     *identity.Proxy    // nil: none says who people are
	issuer    *oidc.Source       // of access tokens; nil: there is none, or it is source
	programs  *identity.Programs // nil: access tokens don't count
	attempts  *web.Attempts      // how credentials were judged; nil: --auth dev
	listener  *notify.Listener   // nil: --no-listen, or deaf is set
	hub       *ws.Hub
	server    *http.Server
	doors     *door // where the server serves

	certificate *certificate // nil: no TLS here

	metrics      *http.Server
	metricsDoors *door // nil: no --metrics-listen

	admitted atomic.Pointer[string] // the login that may run queries on the query database; see admitQueries

	shared   bool  // the direct connection goes through a transaction pooler
	deaf     error // why the node can't LISTEN, as found at the start; nil: it can
	draining atomic.Bool
	probes   probes
	unready  pg.LogLimiter
	drain    context.CancelFunc // ends held answers
	late     *time.Timer        // ends the process if shutting down takes too long
}

// nodeID returns a name for this process, unique for each start. With a name used before, the node would take an
// earlier process's rows for its own.
func nodeID() string {
	b := make([]byte, 6)
	_, _ = rand.Read(b)
	return "n" + hex.EncodeToString(b)
}

// newNode returns a node that is ready to run. Poolers, the schema and the rights of logins are looked at first, over connections of
// their own, before the pools are opened.
func newNode(ctx context.Context, c Command, log *slog.Logger) (*node, error) {
	name, err := schema.ParseName(c.Schema)
	if err != nil {
		return nil, command.AsUsage(err)
	}

	id := nodeID()
	n := &node{config: c, schema: name, log: log.With("node", id)}
	if err := n.openSender(ctx, id); err != nil {
		return nil, err
	}
	if err := n.openCertificate(); err != nil {
		return nil, err
	}
	n.warnOfSecrets()
	n.warnOfDatabases()
	if err := n.lookForPoolers(ctx); err != nil {
		return nil, err
	}
	if err := n.migrate(ctx, name); err != nil {
		return nil, err
	}
	if err := n.refuseLogins(ctx, name); err != nil {
		return nil, err
	}
	n.warnOfUsers(ctx, name)
	n.pools, err = pg.OpenPools(pg.PoolsConfig{DatabaseURL: c.DatabaseURL, QueryURL: c.QueryDatabaseURL,
		DatabaseURLNow: now(c.DatabaseURL, c.DatabaseURLFile, "database-url-file"), QueryURLNow: now(c.QueryDatabaseURL, c.QueryDatabaseURLFile, "query-database-url-file"),
		Admit: n.admitQueries, MaxRuns: c.MaxRuns, Pooled: c.Pooled, Name: sessionName(id, c.Version)})
	if err != nil {
		return nil, command.AsUsage(err)
	}
	if n.pools.Queries != nil {
		try, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		if err := n.pools.Queries.Ping(try); err != nil {
			n.log.Warn("the query database does not answer: requests that need it wait, and fail if it stays away; see --query-database-url", "error", err)
		}
	}
	send := func(ctx context.Context, channel, payload string) error {
		_, err := n.pools.Signals.Exec(ctx, notify.NotifySQL, channel, payload)
		return err
	}
	n.announcer = notify.NewAnnouncer(send, name.Channel(), id, n.log)
	n.openTracer(name.SQL)
	n.records = records.New(n.pools.Router(), name.SQL)
	n.feed = feed.New(feed.Config{Node: id, DB: n.pools.Router(), SQL: name.SQL, Records: n.records, Trace: n.tracer, Log: n.log})
	n.audit = &audit.Writer{Node: id, SQL: name.SQL, Log: n.log, DB: n.pools.Router()}
	n.engine = engine.New(engine.Config{Node: id, Records: n.records, Audit: n.audit, Trace: n.tracer, API: n.pools.API, Own: n.pools.Own, Runs: n.pools.Runs, Queries: n.pools.Queries, MaxRuns: c.MaxRuns,
		Pooled: c.Pooled, Confined: c.Auth != "dev", QueryRole: c.QueryRole, SQL: name.SQL, Channel: name.Channel(), Announce: n.announcer, Log: n.log})
	n.report = report.New(n.pools.Router(), name.SQL)
	n.remover = &tidy.Remover{DB: n.pools.Router(), SQL: name.SQL, Retention: c.Retention, Sum: n.report.Sum, Log: n.log}
	n.hooks = hook.Config{DB: n.pools.Router(), SQL: name.SQL, Allow: c.WebhookAllow, Retention: c.Retention, Log: n.log, Alerts: n.alerts}
	n.sender = hook.NewSender(n.hooks)
	n.openRights(id, name)
	switch {
	case c.NoListen:
		n.feed.Deaf()
	case n.deaf != nil:
		n.feed.Disconnected()
	default:
		n.listener = &notify.Listener{Connect: n.connectDirectly, Send: send, Channel: name.Channel(), Node: id,
			Handle: n.heard, Up: n.feed.Connected, Down: func(error) { n.feed.Disconnected() }, Log: n.log,
			MaxBackoff: 2 * time.Second} // cheap even for a dozen nodes, and a database that is back is soon noticed
	}
	if err := n.listen(); err != nil {
		n.pools.Close()
		return nil, err
	}
	if err := n.openLogIn(); err != nil {
		n.pools.Close()
		return nil, err
	}
	if err := n.openAccessTokens(); err != nil {
		n.pools.Close()
		return nil, err
	}
	if err := n.warnOfRights(ctx, name.SQL); err != nil {
		n.log.Warn("look for groups that nobody has and for tokens that end soon", "error", err)
	}
	n.serveHTTP()
	return n, nil
}

// alerts are those of all tasks.
func (n *node) alerts(ctx context.Context) ([]assign.Alert, error) {
	tasks, err := n.records.Tasks(ctx)
	if err != nil {
		return nil, err
	}
	return n.records.Alerts(ctx, tasks)
}

// heard passes on what NOTIFY said: to the engine, which may have something to do, and to all who follow on this node.
func (n *node) heard(m notify.Message) {
	if m.Rights && n.rights != nil {
		n.rights.Heard()
	}
	n.engine.Heard(m)
	n.feed.Heard(m)
}

// directURL returns the URL for what needs a session of its own: LISTEN, and the lock that serialises migrations.
func (n *node) directURL() string {
	if n.config.ListenDatabaseURL != "" {
		return n.config.ListenDatabaseURL
	}
	return n.config.DatabaseURL
}

// migrate brings the schema up, or checks it, over a direct connection, and lets the query role read the view blocked.
func (n *node) migrate(ctx context.Context, name schema.Name) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Minute)
	defer cancel()
	conn, err := n.connectDirectly(ctx)
	if err != nil {
		return noConnection(err)
	}
	defer conn.Close(ctx)
	if err = n.bringUp(ctx, conn, name); err != nil || n.config.QueryRole == "" {
		return err
	}
	role := pgx.Identifier{n.config.QueryRole}.Sanitize()
	grant := name.SQL("grant usage on schema getwork to " + role + "; grant select on getwork.blocked to " + role)
	// Under a lock: without it, one of two nodes that grant the same at the same time would fail.
	if _, err := conn.Exec(ctx, "select pg_advisory_xact_lock(hashtext('getwork grant')); "+grant); err != nil {
		return fmt.Errorf("let the query role %s read getwork.blocked: %w; create the role (create role %s), or grant it by hand: %s", role, err, role, grant)
	}
	return nil
}

// serveHTTP makes the servers with all handlers. Nobody is answered before run.
func (n *node) serveHTTP() {
	n.hub = ws.NewHub(ws.Config{
		Open: func(who assign.Who, ready func()) ws.Stream { return n.feed.Open(who, ready) },
		Caller: func(r *http.Request) (assign.Who, string) {
			c := web.CallerOf(r)
			return c.Who(), string(c.Role)
		},
		Follow: func(r *http.Request, end func(ws.Status, string)) func() {
			return web.FollowSocket(n.rights, n.heldFor, r, func(code int, reason string) { end(ws.Status(code), reason) })
		},
		MaxSockets: n.config.MaxSockets,
		Problem:    pg.ProblemOf,
		Refuse:     web.Refuser(n.log),
		Log:        n.log,
	})
	draining, drain := context.WithCancel(context.Background())
	n.drain = drain
	all, metrics := web.Handlers(web.Config{
		Engine:     n.engine,
		Records:    n.records,
		Feed:       n.feed,
		Audit:      n.audit,
		Hooks:      &hook.Registry{Config: n.hooks, Audit: n.audit},
		Report:     n.report,
		Identify:   introducing(n.identify()),
		LogInBy:    n.config.Auth,
		LogInPath:  n.logInPath(),
		Auth:       n.logInRoutes(),
		Rights:     n.rights,
		HeldFor:    n.heldFor,
		Socket:     n.hub,
		Ready:      n.checks,
		Draining:   draining.Done(),
		DrainOver:  n.spread(),
		MaxCalls:   n.config.MaxCalls,
		MaxWaiting: n.config.MaxSockets,

		HidePeople:     n.config.HidePeopleFigures,
		QueryAuthors:   n.config.QueryAuthors,
		PublicURL:      n.config.origin,
		TrustedProxies: n.config.proxies,
		FrameAncestors: n.config.FrameAncestors,

		Figures: web.Figures{Version: n.config.Version, Revision: n.config.Revision, Pools: n.pools.Stats, Sockets: n.hub.Count, MaxSockets: n.config.MaxSockets, Connections: n.doors.figures, Identity: n.identityFigures(), Hooks: n.sender},
		Log:     n.log, LogCalls: n.config.LogCalls, Trace: n.tracer,
	})
	if n.proxy != nil {
		all = n.proxy.Handler(all)
	}
	n.server, n.metrics = n.httpServer(all), n.httpServer(metrics)
	n.server.ConnContext = withVisitor
}

// run serves until ctx ends, and then shuts down. Every long-lived part runs in one errgroup; if one fails, all end.
func (n *node) run(ctx context.Context, errs io.Writer) error {
	defer func() {
		n.pools.Close() // waits for connections in use
		if n.late != nil {
			n.late.Stop()
		}
	}()
	defer n.drain()
	engine, endEngine := context.WithCancel(context.Background())
	hearing, endHearing := context.WithCancel(context.Background())
	defer endEngine()
	defer endHearing()
	var g errgroup.Group
	failed, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	part := func(name string, run func() error) {
		g.Go(func() error {
			err := run()
			if err != nil {
				err = fmt.Errorf("%s: %w", name, err)
				fail(err)
			}
			return err
		})
	}
	part("engine", func() error { return n.engine.Run(engine) })
	part("feed", func() error { return n.feed.Run(engine) })
	part("removal of old rows", func() error { return n.remover.Run(engine) })
	part("web hooks", func() error { return n.sender.Run(engine) })
	part("audit", func() error { return n.audit.Run(engine) })
	if n.rights != nil {
		part("rights", func() error { return n.rights.Run(engine) })
	}
	if n.issuer != nil {
		part("issuer of access tokens", func() error { return n.issuer.Run(engine) })
	}
	if n.logIns != nil {
		part("identity provider", func() error { return n.source.Run(engine) })
		part("log-ins", func() error { return n.logIns.Run(engine) })
	}
	if n.tracer != nil {
		part("traces", func() error { return n.tracer.Run(hearing) })
	}
	part("announcer", func() error { return n.announcer.Run(hearing) })
	if n.listener != nil {
		part("listener", func() error { return n.listener.Run(hearing) })
	}
	n.engine.Started() // a proxy may send a click as soon as the node accepts it
	part("http", n.serveCalls)
	if n.certificate != nil {
		part("certificate", func() error { return n.certificate.Run(hearing, cmp.Or(n.config.CertificateEvery, certificateEvery)) })
	}
	if n.metricsDoors != nil {
		part("metrics", func() error { return served(n.metrics.Serve(n.metricsDoors)) })
		_, _ = fmt.Fprintf(errs, "metrics on http://%s/metrics\n", n.metricsDoors.Addr())
	}
	_, _ = fmt.Fprintf(errs, "listening on %s\n", n.address())
	<-failed.Done()
	status := command.ExitDone
	if ctx.Err() == nil {
		status = command.ExitFailed // nobody asked the node to end: a part failed
	}
	n.shutDown(endEngine, endHearing, status)
	return g.Wait()
}

// openSender reads the variables OTEL_…. Without a collector the node makes no spans.
func (n *node) openSender(ctx context.Context, id string) (err error) {
	if n.spans, err = otlp.Start(ctx, otlp.Node{ID: id, Version: n.config.Version}, n.log); err != nil {
		return command.AsUsage(err)
	}
	return nil
}

// openTracer begins to make spans, if there is a collector.
func (n *node) openTracer(sql func(string) string) {
	if n.spans != nil {
		n.tracer = tracing.New(tracing.Config{Tracer: n.spans.Tracer(), DB: n.pools.Router(), SQL: sql, Log: n.log})
	}
}

// endTraces sends the last spans. A collector that does not answer delays the node's end by a tenth of the time for it, and not beyond
// that time.
func (n *node) endTraces(began time.Time) {
	if n.tracer == nil {
		return
	}
	whole := n.config.DrainTimeout
	within := min(whole/10, time.Until(began.Add(whole*19/20)))
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	n.tracer.Wait(ctx)
	n.spans.Close(ctx)
}

// probes remembers when readiness was asked for. A load balancer asks again and again, and sends new connections here
// until it has heard "no" often enough. If the listening socket closed before that, some of them would be refused.
type probes struct {
	mu           sync.Mutex
	last, before time.Time // the times of the last two probes
}

// probedWithin is the longest time between two probes of a load balancer that watches this node.
const probedWithin = 30 * time.Second

// asked records a probe.
func (p *probes) asked() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.last, p.before = time.Now(), p.last
}

// watched reports whether probes come regularly. The node can't know how many load balancers probe it, nor how many
// failures each needs to see.
func (p *probes) watched() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return time.Since(p.before) < probedWithin
}

// checks returns the conditions for serving.
func (n *node) checks(ctx context.Context) []web.Check {
	checks := []web.Check{{Name: "serving"}, {Name: "database"}, {Name: "listener", Note: true}}
	n.probes.asked()
	if n.draining.Load() {
		checks[0].Err = errors.New("the node is shutting down")
	}
	if err := n.databaseFault(ctx); err != nil {
		checks[1].Err = err
		n.logUnready(ctx, err)
	}
	if !n.feed.Listening() {
		checks[2].Err = errors.New("not listening: results are found by polling, every few seconds")
		if n.deaf != nil {
			checks[2].Err = n.deaf
		}
	}
	return checks
}

// logUnready logs why probes fail, since those who probe don't see it. A probe that is given up says nothing
// about the database.
func (n *node) logUnready(ctx context.Context, fault error) {
	if errors.Is(ctx.Err(), context.Canceled) {
		return
	}
	if facts := n.unready.Again("readiness", fault); facts != nil {
		n.log.Error("not ready: the database can't be used", facts...)
	}
}

// selectSchema locks no table. A migration, or whoever else locks one, does not make nodes unready.
const selectSchema = `select to_regclass('getwork.version') is not null`

// databaseFault says why the database can't be used. It does not ask the other pools: however much there is to do, the node is there. But
// if calls or the engine have no connection, one must be to be had. The password may have changed, and then this pool's old connections
// still work.
func (n *node) databaseFault(ctx context.Context) error {
	for _, pool := range []*pgxpool.Pool{n.pools.API, n.pools.Own} {
		if s := pool.Stat(); s.AcquiredConns()+s.IdleConns() == 0 {
			if err := pool.Ping(ctx); err != nil {
				return err
			}
		}
	}
	var there bool
	err := n.pools.Signals.QueryRow(ctx, n.schema.SQL(selectSchema)).Scan(&there)
	if err == nil && !there {
		err = fmt.Errorf("the database has no schema %s: restore it, or make an empty one with `getwork migrate up`", n.schema)
	}
	return err
}

// spread is the time over which sockets and event streams are sent to other nodes at shutdown.
func (n *node) spread() time.Duration { return n.config.DrainTimeout / 5 }

// shutDown ends the node's parts, each before the parts that it needs. First load balancers and proxies stop sending calls here, then
// sockets and held answers go to other nodes, then kept connections and open calls end, then rounds end or are given up, then the
// announcements to other nodes, and last the spans. If that takes too long, the process exits with status.
func (n *node) shutDown(endEngine, endHearing context.CancelFunc, status int) {
	began := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), n.config.DrainTimeout)
	defer cancel()
	n.log.Info("shutting down", "within", n.config.DrainTimeout)
	// If a part does not end in time, the process does: PostgreSQL rolls back open transactions, and other nodes take
	// over.
	n.late = time.AfterFunc(n.config.DrainTimeout, func() {
		n.log.Error("shutting down took too long; open calls and rounds are given up")
		os.Exit(status)
	})
	n.draining.Store(true)
	n.drain()
	// A load balancer that watches this node may not know yet that it ends, and may still send connections here. A proxy that only
	// notices when a connection is refused, such as nginx, must notice at once.
	open := time.Duration(0)
	if n.probes.watched() {
		open = n.spread()
	}
	time.AfterFunc(open, func() { _ = n.doors.Close() })
	// A socket whose client does not answer gets half of the time, so that the other parts get the rest. So does a kept connection
	// on which nobody calls. A proxy may be sending a command on it, and can't send that again if the connection is cut. So each is
	// left to end with its next answer, and only what is still idle after that time is cut.
	half, over := context.WithDeadline(ctx, began.Add(n.config.DrainTimeout/2))
	n.hub.Close(half, n.spread())
	select {
	case <-n.doors.empty:
	case <-half.Done():
	}
	over()
	// A call that does not end, such as one whose client reads no answer, gets three quarters of the time.
	ending, ended := context.WithDeadline(ctx, began.Add(n.config.DrainTimeout*3/4))
	if err := n.server.Shutdown(ending); err != nil {
		_ = n.server.Close()
	}
	_ = n.metrics.Close()
	ended()
	endEngine()
	n.engine.Wait(ctx)
	endHearing()
	n.endTraces(began)
}
