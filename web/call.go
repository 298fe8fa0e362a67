package web

import (
	"cmp"
	"context"
	"log/slog"
	"net/http"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gorilla/mux"

	"getwork/assign/tracing"
)

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

// named is what the log says of a call beside its measures. It has no item, detail, note or credential: whoever reads a log need
// not see what people work on.
type named struct {
	user, task, request string
}

// names adds what the path says. It is called where the router's variables are known.
func (n *named) names(r *http.Request) {
	vars := mux.Vars(r)
	n.task = vars["task"]
	if route, _ := mux.CurrentRoute(r).GetPathTemplate(); route == "/api/v1/requests/{id}" {
		n.request = vars["id"]
	}
}

// traceparent is the header of W3C Trace Context, level 1: version, trace, parent and flags.
var traceparent = regexp.MustCompile(`^[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}(-.*)?$`)

// traceOf returns the trace that a call says it belongs to; empty if it says none. Its span, if it has one, knows better.
func traceOf(r *http.Request) string {
	if is := traceparent.FindStringSubmatch(r.Header.Get("Traceparent")); is != nil {
		return is[1]
	}
	return ""
}

// beginSpan begins the call's span, as from its beginning. Only calls of the API have one: probes, metrics and the page's files would
// bury them.
func (c *call) beginSpan(t *tracing.Tracer, r *http.Request) {
	if t != nil && strings.HasPrefix(c.route, "/api/v1/") {
		c.span = t.Call(r, c.route, c.began)
	}
}

// endSpan ends the call's span. Of a live channel only the handshake is one: otherwise it would be a span of hours, which nobody sees
// before its end.
func (c *call) endSpan(status int) {
	c.span.End(status, c.task, c.request)
}

// handshaken ends the span of an event stream that has begun.
func handshaken(r *http.Request) {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		c.endSpan(http.StatusOK)
	}
}

// traceparentOf returns what a click records of its span; empty: nothing.
func traceparentOf(r *http.Request) string {
	if c, ok := r.Context().Value(callKey{}).(*call); ok {
		return c.span.Traceparent()
	}
	return ""
}

// made adds the request that a click made.
func (c *call) made() {
	if at := c.Header().Get("Location"); c.route == clickRoute && at != "" {
		c.request = path.Base(at)
	}
}

// clickRoute is where a request is recorded.
const clickRoute = "/api/v1/tasks/{task}/requests"

// record writes the line of a call that has been answered.
func (c *call) record(log *slog.Logger, r *http.Request, method string, status int, took time.Duration) {
	facts := []any{"method", method, "route", c.route, "status", status, "seconds", took.Seconds()}
	for _, f := range []struct{ name, value string }{{"user", c.user}, {"task", c.task}, {"request", c.request}, {"trace", cmp.Or(c.span.Trace(), traceOf(r))}} {
		if f.value != "" {
			facts = append(facts, f.name, f.value)
		}
	}
	log.Info("call", facts...)
}

// routeOf returns what the log says of where a failed call went: its route and its task, as in record. Its path may have an item. The
// route is empty if the call failed before the router.
func routeOf(r *http.Request) []any {
	c, ok := r.Context().Value(callKey{}).(*call)
	switch {
	case !ok:
		return nil
	case c.task == "":
		return []any{"route", c.route}
	}
	return []any{"route", c.route, "task", c.task}
}
