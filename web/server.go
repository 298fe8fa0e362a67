package web

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/netip"
	"net/url"
	"runtime/debug"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/gorilla/mux"

	"getwork/assign"
	"getwork/assign/audit"
	"getwork/assign/engine"
	"getwork/assign/feed"
	"getwork/assign/hook"
	"getwork/assign/pg"
	"getwork/assign/records"
	"getwork/assign/report"
	"getwork/assign/rights"
	"getwork/assign/tracing"
)

// Config has the handler's settings and the parts of the node that it serves.
type Config struct {
	Engine   *engine.Engine
	Records  *records.Records
	Feed     *feed.Feed
	Report   *report.Report
	Audit    *audit.Writer
	Hooks    *hook.Registry
	Identify Identify                    // required; a call that came slowly is identified twice
	LogInBy  string                      // "dev": the page may set a cookie by name
	Rights   *rights.Watch               // nil under --auth dev
	HeldFor  func(*Caller) time.Duration // how long a live channel may last in any case; 0 or nil: as long as its credential
	Socket   http.Handler                // answers /api/v1/ws; CallerOf returns its caller

	Auth      []Route // the addresses of the log-in, under /auth
	LogInPath string  // where a browser logs in, given with each 401; empty: there is no such page

	Ready    func(ctx context.Context) []Check // the checks of /readyz; ctx gives them two seconds
	Draining <-chan struct{}                   // closed when the node shuts down: answers are no longer held

	PublicURL      *url.URL       // the one origin that is served; under --auth dev nil, or one more origin of the page
	TrustedProxies []netip.Prefix // who may end TLS for this node, and whose X-Forwarded-For is believed

	DrainOver  time.Duration // at shutdown, event streams end spread over this time, and after it queries are given up; 0: at once
	MaxCalls   int           // calls under way at once; default 1024
	MaxWaiting int           // event streams and held answers at once; default 20,000

	HidePeople   bool   // show no figures of people
	QueryAuthors string // the group whose managers may write queries; empty: all managers

	FrameAncestors string // the page, such as http://127.0.0.1:8083, that may show this node's page in a frame; empty for none

	Figures Figures // figures of other parts of the node, for /metrics

	Log      *slog.Logger
	LogCalls bool // a line for each call

	Trace *tracing.Tracer // makes a span of each call of the API; nil: off
}

// Check is one line of /readyz?verbose.
type Check struct {
	Name string
	Err  error // nil if the check succeeded
	Note bool  // information only: it does not make the node unready
}

type server struct {
	Config
	calls, looking, waiting *gate
	streams                 atomic.Int64 // open event streams
	complaints              pg.LogLimiter
	metrics                 *metrics
	rules                   map[string]operation // of each route of the API, by method and path
}

// Handler returns the handler for everything that a node serves.
func Handler(c Config) http.Handler {
	h, _ := Handlers(c)
	return h
}

// Handlers returns the handler for everything that a node serves, and one for /metrics alone, for a listener of its own.
//
// A call passes the middleware from the last line to the first, and the order matters: limits and the audit use the address that
// addressed finds; secured comes before whatever refuses, so that refusals have its headers; here sets the public host, with which
// crossOrigin, the log-in and the socket compare origins; and the router's limited and permit need the caller whom identified finds.
func Handlers(c Config) (all, metrics http.Handler) {
	s := &server{Config: c, calls: newGate(cmp.Or(c.MaxCalls, maxCalls), gatePatience), looking: newGate(maxLooking, gatePatience), waiting: newGate(cmp.Or(c.MaxWaiting, maxWaiting), 0)}
	s.metrics = newMetrics(s)
	var h http.Handler = s.router()
	h = s.identified(h)
	h = s.crossOrigin(h)
	h = s.here(h)
	h = s.secured(h)
	h = s.closing(h)
	h = s.recovered(h)
	h = s.addressed(h)
	return s.metrics.measured(h), s.metricsAlone()
}

func (s *server) router() *mux.Router {
	// Paths are matched as they were sent: an item's key is one percent-encoded segment, and nothing is cleaned
	// or redirected.
	m := mux.NewRouter().UseEncodedPath().SkipClean(true)
	m.Use(s.routed, s.limited)
	m.NotFoundHandler = s.handle(func(http.ResponseWriter, *http.Request) error {
		return assign.Refuse(assign.NotFound, "there is nothing at this address")
	})
	m.MethodNotAllowedHandler = s.handle(func(w http.ResponseWriter, r *http.Request) error {
		allow := strings.Join(allowed(m, r), ", ")
		w.Header().Set("Allow", allow)
		return assign.Refuse(assign.MethodNotAllowed, "%s is not allowed at this address; use %s", r.Method, allow)
	})
	m.Handle("/livez", s.handle(s.live)).Methods("GET", "HEAD")
	m.Handle("/readyz", s.handle(s.ready)).Methods("GET", "HEAD")
	if s.dev() {
		m.Handle("/metrics", s.handle(s.figures)).Methods("GET", "HEAD")
		m.Handle("/login", s.handle(s.logIn)).Methods("POST")
		m.Handle("/logout", s.handle(s.logOut)).Methods("POST")
	}
	for _, r := range s.Auth {
		m.Handle(r.Path, s.entered(r)).Methods(r.Method)
	}
	s.page(m)
	s.describe(m)
	s.api(m)
	return m
}

// allowed returns the methods that work at a request's address; a 405 must name them.
func allowed(m *mux.Router, r *http.Request) (methods []string) {
	for _, method := range []string{"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"} {
		other := r.WithContext(r.Context())
		other.Method = method
		var match mux.RouteMatch
		if m.Match(other, &match) && match.MatchErr == nil {
			methods = append(methods, method)
		}
	}
	return methods
}

// handle renders a handler's error.
func (s *server) handle(h handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.problem(w, r, err)
		}
	})
}

// list writes roles as people do.
func list(may []Role) string {
	names := make([]string, len(may))
	for i, r := range may {
		names[i] = string(r)
	}
	return strings.Join(names, ", ")
}

// identified identifies the caller for the routes behind it.
func (s *server) identified(next http.Handler) http.Handler {
	return s.handle(func(w http.ResponseWriter, r *http.Request) error {
		c, err := s.Identify(r)
		if err != nil {
			return err
		}
		if is, ok := r.Context().Value(callKey{}).(*call); ok && c != nil {
			is.user = c.Holder.User
		}
		next.ServeHTTP(w, withCaller(r, c))
		return nil
	})
}

// recovered answers a panic with a problem, and logs it.
func (s *server) recovered(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		defer func() {
			cause := recover()
			if cause == nil {
				return
			}
			if err, ok := cause.(error); ok && errors.Is(err, http.ErrAbortHandler) {
				panic(cause)
			}
			s.problem(w, r, fmt.Errorf("panic: %v\n%s", cause, debug.Stack()))
		}()
		next.ServeHTTP(w, r)
	})
}

func (s *server) live(w http.ResponseWriter, _ *http.Request) error {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	_, _ = fmt.Fprintln(w, "ok")
	return nil
}

// ready answers 200 when the node can serve, and 503 when it can't; with ?verbose it says which check failed. Admins,
// managers and observers read why, too: an error of the database names its host, its login and the database.
func (s *server) ready(w http.ResponseWriter, r *http.Request) error {
	ctx, cancel := context.WithTimeout(r.Context(), 2*time.Second)
	defer cancel()
	checks := s.Ready(ctx)
	bad := slices.ContainsFunc(checks, func(c Check) bool { return c.Err != nil && !c.Note })
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if bad {
		w.Header().Set("Retry-After", "2")
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	if r.URL.Query().Has("verbose") {
		caller := CallerOf(r)
		known := caller != nil && !caller.Wall && (caller.Role == Manager || caller.Role == Observer || caller.Admin)
		for _, c := range checks {
			state := "ok"
			switch {
			case c.Err == nil:
			case known:
				state = c.Err.Error()
			case c.Note:
				state = "see as a manager or an observer"
			default:
				state = "failed; see as a manager or an observer, or in the node's log"
			}
			_, _ = fmt.Fprintf(w, "%s: %s\n", c.Name, state)
		}
	}
	if bad {
		_, _ = fmt.Fprintln(w, "not ready")
	} else {
		_, _ = fmt.Fprintln(w, "ready")
	}
	return nil
}

// closing makes kept connections end with their next answer while the node shuts down. Those that are still idle after half of
// --drain-timeout are cut, and a proxy that is sending a command on one just then answers 502.
func (s *server) closing(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if s.draining() {
			w.Header().Set("Connection", "close")
		}
		next.ServeHTTP(w, r)
	})
}

func (c *Config) draining() bool {
	select {
	case <-c.Draining:
		return true
	default:
		return false
	}
}

// part returns after a random share of DrainOver, or when the client has gone, so that clients do not all reconnect
// elsewhere at once.
func (s *server) part(r *http.Request) {
	if s.DrainOver <= 0 {
		return
	}
	t := time.NewTimer(rand.N(s.DrainOver))
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
